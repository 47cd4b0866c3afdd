"""Measures in single precision which accuracy class a rule deserves.

Both sides are computed in float32 and compared with the left side in float64. The data is ordinary, or
makes nearly equal numbers cancel (a large common offset, clusters around a few points that are far apart,
numbers near 0), or holds ill-conditioned matrices. The class depends on how much larger the errors of the
right side are than those of the left side, for most elements and for the largest error of an array.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.checking.building import IllFormed
from eqsat.checking.drawing import Drawer
from eqsat.checking.instance import Instance
from eqsat.checking.operand_constraints import OperandConstraints
from eqsat.checking.oracle import well_posed
from eqsat.checking.placement import Placement
from eqsat.checking.statement import Statement, directions, is_slow, loops, statements
from eqsat.checking.typing import Kinds, kinds_of
from eqsat.checking.values import OFFSET, Style
from eqsat.language.accuracies import Accuracy
from eqsat.language.syntax import Rule

Array = np.ndarray[Any, np.dtype[Any]]

PLAIN = (Style("normal"), Style("positive"))
"""Ordinary data, on which even a rule of class "cancels" may be accurate."""

CANCELLING = (Style("offset"), Style("clusters"), Style("small"))
"""Data on which subtractions lose digits."""

ILL_CONDITIONED = tuple(
    Style("normal", condition, consistent, lone)
    for condition, lone in ((1e2, False), (1e4, False), (1e6, False), (1e3, True), (1e5, True))
    for consistent in (False, True)
)

Fits = Callable[[Instance], Iterable[Instance]]
"""Maps an instance that was drawn to the instances that are tried in its place."""


def as_drawn(instance: Instance) -> tuple[Instance]:
    """Returns the instance itself, as the only one to try."""
    return (instance,)


MUCH_LARGER = 50.0
"""Errors that grow by more than this factor are of another order of magnitude. Another order of summation
changes errors by a factor of a few, and one lost digit by a factor of ten."""

MOST = 0.85
"""The quantile of the elements' error ratios that counts. If both sides have errors of one size, about 85 %
of the ratios are below 4."""

DRAWS = 8
"""How many instances are drawn of each kind of data."""

MOST_FUNCTIONS = 6
"""At most this many choices for a rule's function variables are measured, in each direction."""

FEWEST_ELEMENTS = 12
"""Kinds of data with fewer elements than this are ignored, since these say nothing about a distribution."""


@dataclass(frozen=True)
class Growth:
    """How errors grow on one kind of data.

    **Attributes:**

    - `factor`: how many times larger the errors of the right side are than those of the left side.
    - `left`, `right`: the typical relative error of each side.
    """

    style: Style
    factor: float
    left: float
    right: float

    def __str__(self) -> str:
        data = DATA.get(self.style.name, "on ordinary data")
        if self.style.condition > 1:
            data = f"with matrices of condition number {self.style.condition:.0e}"
        return (
            f"{data}, errors are {self.factor:.2g} times those of the left side"
            f" (typically {self.right:.0e} in place of {self.left:.0e}, relatively)"
        )


DATA = {
    "offset": f"on numbers near {OFFSET:.0e}, give or take 1",
    "clusters": "on numbers near 30 and near 100, give or take 0.01",
    "small": "on numbers of about a thousandth",
    "positive": "on numbers between 0.2 and 2",
}
"""The words for each kind of data in messages."""


@dataclass(frozen=True)
class Measured:
    """What was measured of a rule.

    **Attributes:**

    - `accuracy`: the class that the rule deserves; None if nothing could be measured, as for a rule about
      integers.
    - `growth`: how errors grow on each kind of data.
    - `changed`: the left and the right side's value of an element on which they differ, if there is one.
    - `negative`: the lowest value of the right side, if it is negative where the left side never is.
    - `instances`: how many instances were measured.
    """

    accuracy: Accuracy | None
    growth: tuple[Growth, ...]
    changed: tuple[str, str] | None = None
    negative: str = ""
    instances: int = 0

    @property
    def evidence(self) -> str:
        """Why the class is no better, as text for a message."""
        if self.accuracy == "reassociates" and self.changed is not None:
            return f"in float32, the left side is {self.changed[0]} where the right side is {self.changed[1]}"
        worst = max(self.growth, key=lambda growth: growth.factor, default=None)
        return str(worst) if worst is not None else "nothing could be measured"


def measure(rule: Rule, draws: int = DRAWS, fits: Fits = as_drawn) -> Measured:
    """Measures the accuracy class that a rule deserves, in both directions if it is two-way.

    **Arguments:**

    - `draws`: how many instances are drawn of each kind of data.
    - `fits`: gives the instances to try in place of each that is drawn.
    """
    changed: tuple[str, str] | None = None
    counted, instances = 0, 0
    lowest = [np.inf, np.inf]
    # `fits` may change the data, so instances are also grouped by the style that it gives them.
    ratios: dict[tuple[Style, str], list[Array]] = {}
    errors: dict[tuple[Style, str], list[tuple[float, float, float]]] = {}
    drawn = ((fit, style) for instance, style in _instances(rule, draws) for fit in fits(instance))
    for instance, style in drawn:
        left, reference, right = _rounded(instance)
        instances += 1
        changed = changed or _change(left, right)
        if reference.dtype.kind not in "fc":
            counted += left.size
            continue
        if reference.dtype.kind == "f" and left.size:
            lowest = [
                float(np.fmin(low, np.fmin.reduce(side, axis=None)))
                for low, side in zip(lowest, (left, right), strict=True)
            ]
        found, sizes = _ratios(left, reference, right)
        counted += left.size
        ratios.setdefault((style, instance.style), []).append(found)
        errors.setdefault((style, instance.style), []).append(sizes)
    growth = []
    for (style, fitted), found_ratios in ratios.items():
        pooled = np.concatenate(found_ratios)
        if len(pooled) >= FEWEST_ELEMENTS:
            left_error, right_error, largest = (
                float(np.median(side)) for side in zip(*errors[style, fitted], strict=True)
            )
            factor = max(float(np.sort(pooled)[int(MOST * len(pooled))]), largest)
            growth.append(Growth(style, factor, left_error, right_error))
    accuracy = _class_of(changed is None, growth) if counted else None
    negative = str(lowest[1]) if lowest[0] >= 0 > lowest[1] and instances >= FEWEST_ELEMENTS else ""
    return Measured(accuracy, tuple(growth), changed, negative, instances)


def _change(left: Array, right: Array) -> tuple[str, str] | None:
    """Returns the first pair of elements that differ, or None. The sign of a zero doesn't count."""
    if left.shape != right.shape:
        return None
    same = left == right
    if left.dtype.kind in "fc":
        same |= np.isnan(left) & np.isnan(right)
    if same.all():
        return None
    place = np.unravel_index(np.argmin(same), same.shape)
    return str(left[place]), str(right[place])


def _class_of(exact: bool, growth: list[Growth]) -> Accuracy:
    if exact:
        return "exact"
    grown = [one.style for one in growth if one.factor > MUCH_LARGER]
    if any(style.condition > 1 for style in grown):
        return "amplifies"
    return "cancels" if grown else "reassociates"


def _instances(rule: Rule, draws: int) -> Iterator[tuple[Instance, Style]]:
    for one_way in directions(rule):
        chosen = []
        for statement in statements(one_way):
            floats = [kinds for kinds in kinds_of(statement) if _is_float(kinds)]
            if floats:
                chosen.append((statement, floats[0]))
        chosen = chosen[:MOST_FUNCTIONS]
        for number, (statement, kinds) in enumerate(chosen):
            rng = random.Random(number)
            drawer = Drawer(statement)
            count = max(2, draws // len(chosen))
            if is_slow(statement.rule):
                count = 1
            for style in _styles(statement, drawer):
                for _ in range(count):
                    instance = drawer.draw(rng, kinds, style)
                    if instance is not None:
                        yield _representable(instance), style


def _is_float(kinds: Kinds) -> bool:
    return "f" in kinds.variables.values() and not set(kinds.variables.values()) & set("cu")


def _styles(statement: Statement, drawer: Drawer) -> list[Style]:
    found = [*PLAIN, *CANCELLING]
    placement = drawer.placements.draw(random.Random(0), 1)
    if placement is not None and _conditioned(statement, placement):
        found += ILL_CONDITIONED
    return found


def _representable(instance: Instance) -> Instance:
    """Returns the instance with values rounded to float32, and chunks of 2 if the rule has loops."""
    values = {
        name: value.astype(np.float32).astype(np.float64) if value.dtype.kind == "f" else value
        for name, value in instance.values.items()
    }
    return replace(instance, values=values, chunk=2 if loops(instance.statement.rule) else 0)


def _rounded(instance: Instance) -> tuple[Array, Array, Array]:
    """Returns the left side in single and in double precision, and the right side in single precision.

    All are empty if the instance can't be evaluated or its left side is ill-posed.
    """
    empty = np.zeros(0)
    try:
        sides = instance.sides
        left, right = sides.evaluate("single")
        reference, _ = sides.evaluate("double")
    except (IllFormed, ValueError, TypeError):
        return empty, empty, empty
    if instance.style.startswith(("normal", "positive")) and not well_posed(instance):
        return empty, empty, empty
    return left, reference, right


def _ratios(left: Array, reference: Array, right: Array) -> tuple[Array, tuple[float, float, float]]:
    """Returns the ratio of the right side's error to the left side's, for each element.

    The second result holds the median relative error of each side, and the ratio of their largest errors.
    """
    epsilon = float(np.finfo(np.float32).eps)
    with np.errstate(all="ignore"):
        wide = reference.astype(np.complex128 if reference.dtype.kind == "c" else np.float64)
        size = np.abs(wide)
        left_error = np.abs(left.astype(wide.dtype) - wide)
        right_error = np.abs(right.astype(wide.dtype) - wide)
        right_error = np.where(np.isfinite(right), right_error, np.inf)
        counted = np.isfinite(wide) & np.isfinite(left) & (size < 1e30)
        if not counted.any():
            return np.zeros(0), (0.0, 0.0, 0.0)
        size, left_error, right_error = size[counted], left_error[counted], right_error[counted]
        ratio = right_error / np.maximum(left_error, np.maximum(epsilon * size, 1e-35))
        scale = np.maximum(size, 1e-35)
        relative = (float(np.median(left_error / scale)), float(np.median(right_error / scale)))
        largest = np.max(right_error) / max(np.max(left_error), epsilon * np.max(size), 1e-35)
    return ratio, (*relative, float(largest))


def _conditioned(statement: Statement, placement: Placement) -> bool:
    """Returns whether the left side has an operand with a condition number to choose."""
    constraints = OperandConstraints(statement, placement)
    return any(constraint.conditioned for constraint in constraints.by_name.values())
