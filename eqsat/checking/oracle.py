"""Whether both sides of an instance are the same value, by a criterion that fits its data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from eqsat.checking.building import IllFormed
from eqsat.checking.instance import Instance
from eqsat.checking.operand_constraints import has_matrices
from eqsat.checking.promises import broken_promise
from eqsat.language.accuracies import Accuracy

Array = np.ndarray[Any, np.dtype[Any]]

TOLERANCE = 1e-10
"""How far the sides may differ in double precision, relative to the scale of the data."""

MOST_EXACT = 2.0**50
"""Up to here, all integers are floats; results beyond it are compared up to rounding."""

NUDGE = 1e-12
"""By how much inputs are changed, relatively, to see whether a left side is well-posed."""


class Criterion(Enum):
    """When two values count as the same.

    - `EXACT`: equal numbers; NaN where the other is NaN.
    - `CLOSE`: up to rounding; NaN and infinities in the same places.
    - `FINITE`: up to rounding, where both are finite, which must be in the same places.
    - `NO_WORSE`: up to rounding where the left side is finite; where it overflows, the right need not.
    - `BITS`, `ROUNDED`, `IN_RANGE`: what the classes exact, reassociates and rescales promise of numbers as
      they are computed in a narrow dtype.
    """

    EXACT = "exactly"
    CLOSE = "up to rounding"
    FINITE = "up to rounding, and finite in the same places"
    NO_WORSE = "up to rounding, wherever the left side is finite"
    BITS = "to the bit, as computed in the dtype"
    ROUNDED = "as sums in another order are, as computed in the dtype"
    IN_RANGE = "as sums in another order are, as computed in the dtype, where nothing over- or underflows"


PROMISES: dict[Criterion, Accuracy] = {
    Criterion.BITS: "exact",
    Criterion.ROUNDED: "reassociates",
    Criterion.IN_RANGE: "rescales",
}
"""The classes whose promises the criteria are."""


@dataclass(frozen=True)
class Failure:
    """An instance on which a rule is wrong.

    **Attributes:**

    - `problem`: what is wrong, in a few words.
    - `left`, `right`: the values of the sides; None if the right one makes no sense.
    """

    instance: Instance
    criterion: Criterion
    problem: str
    left: Array | None = None
    right: Array | None = None


def judge(instance: Instance, criterion: Criterion) -> Failure | None:
    """What is wrong with an instance, whose left side makes sense; None if nothing is."""
    try:
        sides = instance.sides
    except IllFormed as error:
        return Failure(instance, criterion, f"the right side makes no sense: {error}")
    try:
        if criterion in PROMISES:
            broken = broken_promise(instance, PROMISES[criterion])
            return Failure(instance, criterion, "the sides differ", *broken) if broken else None
        left, right = sides.evaluate()
    except Exception as error:  # a user's operation may raise what it likes
        sides.evaluate_left()  # if this raises as well, the instance is no good
        return Failure(instance, criterion, f"the right side can't be evaluated: {error}")
    wrong = differs(left, right, criterion, floor_of(instance))
    if wrong and not well_posed(instance):
        return None
    return Failure(instance, criterion, "the sides differ", left, right) if wrong else None


def floor_of(instance: Instance) -> float:
    """The scale of an instance's data: what results are measured against if they are smaller."""
    largest = 1.0
    for value in instance.values.values():
        if value.dtype.kind in "fc" and value.size:
            finite = np.abs(value[np.isfinite(value)])
            largest = max(largest, float(np.max(finite, initial=0.0)))
    return largest**2


def differs(left: Array, right: Array, criterion: Criterion, floor: float = 1.0) -> bool:
    """Whether two values are not the same."""
    if left.shape != right.shape:
        return True
    if left.dtype.kind not in "fc" or right.dtype.kind not in "fc":
        return not np.array_equal(left, right)
    if criterion is Criterion.EXACT and np.max(np.abs(left), initial=0.0) < MOST_EXACT:
        return not np.array_equal(left, right, equal_nan=True)
    finite, also_finite = np.isfinite(left), np.isfinite(right)
    if _infinite_elsewhere(left, right, criterion):
        return True
    both = finite & also_finite
    with np.errstate(all="ignore"):
        scale = max(floor, float(np.max(np.abs(left[both]), initial=0.0)))
        return bool(np.any(np.abs(left[both] - right[both]) > TOLERANCE * scale))


def _infinite_elsewhere(left: Array, right: Array, criterion: Criterion) -> bool:
    """Whether NaN and infinities are in other places than a criterion lets them be."""
    finite, also_finite = np.isfinite(left), np.isfinite(right)
    if criterion is Criterion.NO_WORSE:
        return bool(np.any(finite & ~also_finite))
    if not np.array_equal(finite, also_finite):
        return True
    same = np.array_equal(left[~finite], right[~finite], equal_nan=True)
    return criterion is Criterion.CLOSE and not same


def finite_part(instance: Instance) -> Array | None:
    """The finite values of an instance's left side; None if the right one makes no sense."""
    try:
        left = instance.sides.evaluate_left()
    except IllFormed:
        return None
    return left[np.isfinite(left)] if left.dtype.kind in "fc" else left.ravel()


def well_posed(instance: Instance) -> bool:
    """Whether the left side hardly moves when its inputs are changed a little.

    The inverse of a matrix that happens to be singular is noise, or infinite, and so is what another way
    to compute it gives. Only what a matrix operation is done on can be so.
    """
    if not has_matrices(instance.statement.rule):
        return True
    rng = np.random.default_rng(0)
    nudged = [
        value * (1 + NUDGE * rng.uniform(-1, 1, value.shape)) if value.dtype.kind in "fc" else value
        for value in instance.sides.arrays
    ]
    before, after = instance.sides.evaluate()[0], instance.sides.evaluate(arrays=nudged)[0]
    if before.dtype.kind not in "fc":
        return True
    if not np.isfinite(before).all() or not np.isfinite(after).all():
        return False
    scale = max(1.0, float(np.max(np.abs(before), initial=0.0)))
    return bool(np.all(np.abs(before - after) <= 1e4 * NUDGE * scale))
