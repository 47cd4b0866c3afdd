"""What a rule does to rounding: which accuracy class it deserves, by measurement in single precision.

Both sides are computed in float32 and compared with the left side in float64, on ordinary data, on data
where nearly equal numbers are subtracted (with a large common offset, near a few points that are far
apart, or near 0), and with ill-conditioned matrices. What counts is how much larger the errors of the
right side are than those of the left one: for most elements, and for the largest errors of an array.
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
"""Data on which even a rule that cancels may do well."""

CANCELLING = (Style("offset"), Style("clusters"), Style("small"))
"""Data on which subtractions lose digits."""

ILL_CONDITIONED = tuple(
    Style("normal", condition, consistent, lone)
    for condition, lone in ((1e2, False), (1e4, False), (1e6, False), (1e3, True), (1e5, True))
    for consistent in (False, True)
)

Fits = Callable[[Instance], Iterable[Instance]]
"""From an instance that was drawn to those that are tried in its place."""


def as_drawn(instance: Instance) -> tuple[Instance]:
    """The instance itself."""
    return (instance,)


MUCH_LARGER = 50.0
"""How many times larger errors have to be to be of another order. Other orders of summation make a factor
of a few, one lost digit makes ten."""

MOST = 0.85
"""What part of all elements may not have much larger errors. Of two errors of one size, one is four times the
other as rarely as this."""

DRAWS = 8
"""Instances of each kind of data."""

MOST_FUNCTIONS = 6
"""How many choices of functions are measured."""

FEWEST_ELEMENTS = 12
"""Fewer elements than this say nothing about a distribution."""


@dataclass(frozen=True)
class Growth:
    """How errors grow on one kind of data: the right side's, in units of the left side's."""

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
"""How kinds of data are called in messages."""


@dataclass(frozen=True)
class Measured:
    """What was measured.

    **Attributes:**

    - `accuracy`: the class that a rule deserves; None if it can't be measured (a rule about integers).
    - `growth`: by kind of data.
    - `changed`: two numbers that should be the same, if any are not.
    - `negative`: a number of the right side, where the left side is never negative.
    - `instances`: how many were measured.
    """

    accuracy: Accuracy | None
    growth: tuple[Growth, ...]
    changed: tuple[str, str] | None = None
    negative: str = ""
    instances: int = 0

    @property
    def evidence(self) -> str:
        """Why the class is no better, in words."""
        if self.accuracy == "reassociates" and self.changed is not None:
            return f"in float32, the left side is {self.changed[0]} where the right side is {self.changed[1]}"
        worst = max(self.growth, key=lambda growth: growth.factor, default=None)
        return str(worst) if worst is not None else "nothing could be measured"


def measure(rule: Rule, draws: int = DRAWS, fits: Fits = as_drawn) -> Measured:
    """The accuracy class that a rule deserves, both ways if it is two-way.

    **Arguments:**

    - `fits`: what is tried of what is drawn.
    """
    changed: tuple[str, str] | None = None
    counted, instances = 0, 0
    lowest = [np.inf, np.inf]
    # Kinds of data are told apart, those that were fitted too.
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
    """The first two elements that are not the same number; signs of zero don't count."""
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
    """The instance with values that float32 has, in chunks of 2."""
    values = {
        name: value.astype(np.float32).astype(np.float64) if value.dtype.kind == "f" else value
        for name, value in instance.values.items()
    }
    return replace(instance, values=values, chunk=2 if loops(instance.statement.rule) else 0)


def _rounded(instance: Instance) -> tuple[Array, Array, Array]:
    """The left side in single and in double precision, and the right side in single precision."""
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
    """By element, the right side's error in units of the left side's.

    And the median relative errors of both sides, and the ratio of their largest errors.
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
    """Whether an operand of the left side has to be well conditioned."""
    constraints = OperandConstraints(statement, placement)
    return any(constraint.conditioned for constraint in constraints.by_name.values())
