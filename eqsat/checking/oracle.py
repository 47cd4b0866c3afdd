"""Judges whether both sides of an instance have the same value, by a criterion that fits its data."""

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
"""Below this, doubles hold all integers exactly. Larger results are compared up to rounding."""

NUDGE = 1e-12
"""The relative change of inputs by which the check tests whether a left side is well-posed."""


class Criterion(Enum):
    """When two values count as the same. The value of a member says how sides differ that are not.

    - `EXACT`: the numbers are equal, with NaN in the same places.
    - `CLOSE`: the numbers are equal up to rounding, with NaN and the same infinities in the same places.
    - `FINITE`: the sides are finite in the same places, and equal up to rounding there.
    - `NO_WORSE`: where the left side is finite, the right side is equal up to rounding. Where the left side
      overflows, the right side may be anything.
    - `BITS`, `ROUNDED`, `IN_RANGE`: the sides, computed in the dtypes of the instance, differ by no more than
      the accuracy classes exact, reassociates and rescales allow.
    """

    EXACT = "where they should be exactly equal"
    CLOSE = "by more than rounding"
    FINITE = "by more than rounding, or are finite in different places"
    NO_WORSE = "by more than rounding where the left side is finite"
    BITS = "in their bits when computed in their dtype"
    ROUNDED = "by more than another order of summation explains when computed in their dtype"
    IN_RANGE = (
        "by more than another order of summation explains when computed in their dtype,"
        " where nothing overflows or underflows"
    )


PROMISES: dict[Criterion, Accuracy] = {
    Criterion.BITS: "exact",
    Criterion.ROUNDED: "reassociates",
    Criterion.IN_RANGE: "rescales",
}
"""By criterion, the accuracy class whose promise it tests."""


@dataclass(frozen=True)
class Failure:
    """An instance on which a rule is wrong.

    **Attributes:**

    - `problem`: what is wrong, in a few words.
    - `left`, `right`: the values of the sides. Both are None if the right side can't be evaluated. The
      failure of a fact has the value of its term as `left`, and no `right`.
    """

    instance: Instance
    criterion: Criterion
    problem: str
    left: Array | None = None
    right: Array | None = None


def judge(instance: Instance, criterion: Criterion) -> Failure | None:
    """Judges an instance whose left side is well-formed; returns None if the sides agree.

    **Raises:** whatever the evaluation of the left side raises.
    """
    try:
        sides = instance.sides
    except IllFormed as error:
        return Failure(instance, criterion, f"the right side is ill-formed: {error}")
    try:
        if criterion in PROMISES:
            broken = broken_promise(instance, PROMISES[criterion])
            return Failure(instance, criterion, "the sides differ", *broken) if broken else None
        left, right = sides.evaluate()
    except Exception as error:  # a user's operation may raise anything
        sides.evaluate_left()  # if this raises too, the rule is not to blame
        return Failure(instance, criterion, f"the right side can't be evaluated: {error}")
    wrong = differs(left, right, criterion, floor_of(instance))
    if wrong and not well_posed(instance):
        return None
    return Failure(instance, criterion, "the sides differ", left, right) if wrong else None


def floor_of(instance: Instance) -> float:
    """Returns the least scale of results: the square of the largest finite number of the data, or 1."""
    largest = 1.0
    for value in instance.values.values():
        if value.dtype.kind in "fc" and value.size:
            finite = np.abs(value[np.isfinite(value)])
            largest = max(largest, float(np.max(finite, initial=0.0)))
    return largest**2


def differs(left: Array, right: Array, criterion: Criterion, floor: float = 1.0) -> bool:
    """Returns whether two values differ by a criterion that is not in `PROMISES`.

    **Arguments:**

    - `floor`: the scale of the results if they are smaller than that.
    """
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
    """Returns whether NaN or infinities are in places where the criterion does not allow them."""
    finite, also_finite = np.isfinite(left), np.isfinite(right)
    if criterion is Criterion.NO_WORSE:
        return bool(np.any(finite & ~also_finite))
    if not np.array_equal(finite, also_finite):
        return True
    same = np.array_equal(left[~finite], right[~finite], equal_nan=True)
    return criterion is Criterion.CLOSE and not same


def finite_part(instance: Instance) -> Array | None:
    """Returns the finite values of an instance's left side; None if the right side is ill-formed."""
    try:
        left = instance.sides.evaluate_left()
    except IllFormed:
        return None
    return left[np.isfinite(left)] if left.dtype.kind in "fc" else left.ravel()


def well_posed(instance: Instance) -> bool:
    """Returns whether the left side hardly changes when its inputs change a little.

    The inverse of a matrix that happens to be singular is noise, or infinite, and another way to compute
    it gives other noise. Without matrix operations, every instance counts as well-posed.
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
