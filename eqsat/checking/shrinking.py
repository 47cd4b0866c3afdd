"""Shrinks an instance on which a rule is wrong: to fewer axes, shorter ones, simpler numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from eqsat.checking.instance import Instance
from eqsat.checking.memberships import single_axes, variable_names
from eqsat.checking.operand_constraints import OperandConstraints
from eqsat.checking.oracle import Criterion, Failure, judge
from eqsat.checking.placement import Placement, required_sets
from eqsat.checking.sizes import SizeRules

Array = np.ndarray[Any, np.dtype[Any]]

MOST_STEPS = 250
"""How many smaller instances are tried at most."""


VISIBLE = 1e-6
"""Relative differences above this are not due to rounding in double precision."""

Judge = Callable[[Instance, Criterion], Failure | None]
"""Returns the failure on an instance; None if nothing is wrong."""


def shrunk(failure: Failure, judge: Judge = judge) -> Failure:
    """Returns the smallest failure found. A step is kept if `judge` still finds the same kind of failure."""
    steps = 0
    found = failure
    progress = True
    while progress and steps < MOST_STEPS:
        progress = False
        for candidate in _smaller(found.instance):
            steps += 1
            if steps >= MOST_STEPS:
                break
            smaller = _judged(candidate, found, judge)
            if smaller is not None:
                found, progress = smaller, True
                break
    return found


def _judged(candidate: Instance, failure: Failure, judge: Judge) -> Failure | None:
    """Returns the failure on a candidate; None if it has none, or one of another kind."""
    try:
        found = judge(candidate, failure.criterion)
    except Exception:  # the left side is ill-formed now, or can't be evaluated
        return None
    if found is None or not _alike(found, failure):
        return None
    return found


def _alike(smaller: Failure, failure: Failure) -> bool:
    """Returns whether the smaller failure has the same gravest difference, and no new ones."""
    before, after = differences(failure), differences(smaller)
    return before[:1] == after[:1] and set(after) <= set(before)


def differences(failure: Failure) -> list[str]:
    """Returns the ways in which the sides differ, the gravest first.

    If a failure lacks a value, this is the text of the problem up to the colon, and three words after it,
    without quoted names and numbers.
    """
    if failure.left is None or failure.right is None:
        said = re.sub(r"`[^`]*`|\d+", "", failure.problem).partition(":")
        return [f"{said[0]}:{' '.join(said[2].split()[:3])}"]
    left, right = failure.left, failure.right
    if left.shape != right.shape:
        return ["shape"]
    if left.dtype.kind not in "fc" or right.dtype.kind not in "fc":
        return ["value"]
    finite, also_finite = np.isfinite(left), np.isfinite(right)
    with np.errstate(all="ignore"):
        ways = {
            "right is no number": finite & np.isnan(right),
            "right is infinite": finite & np.isinf(right),
            "left is no number": np.isnan(left) & ~np.isnan(right),
            "left is infinite": np.isinf(left) & also_finite,
            "infinities": ~finite & ~also_finite & ~np.isnan(left) & (left != right),
            "value": finite & also_finite & (np.abs(left - right) > VISIBLE * np.abs(left)),
            "digits": finite & also_finite & (left != right),
            "sign of zero": (left == 0) & (right == 0) & (np.signbit(left.real) != np.signbit(right.real)),
        }
    return [way for way, where in ways.items() if np.any(where)]


def _smaller(instance: Instance) -> Iterator[Instance]:
    """Yields instances that are simpler in one respect, the largest steps first."""
    yield from _fewer_axes(instance)
    yield from _shorter_axes(instance)
    yield from _simpler_values(instance)
    yield from _simpler_elements(instance)


def _fewer_axes(instance: Instance) -> Iterator[Instance]:
    rule = instance.statement.rule
    for axis in sorted(set(instance.placement.columns) - set(single_axes(rule))):
        placement = instance.placement.without(axis)
        if instance.lengths[axis] and all(placement.of(name) for name in required_sets(rule)):
            for last in (False, True):
                yield _resized(instance, placement, {axis: 0}, last)
    for axis, column in instance.placement.columns.items():
        # Take an axis that the rule does not name away from one variable.
        for name in variable_names(rule):
            if column.get(name) and axis not in single_axes(rule) and instance.lengths[axis]:
                changed = {**instance.placement.columns, axis: {**column, name: False}}
                for element in (0, -1):
                    yield _resliced(instance, Placement(changed), name, axis, element)


def _resized(
    instance: Instance, placement: Placement, lengths: Mapping[str, int], last: bool = False
) -> Instance:
    """Returns the instance with axes cut to `lengths`; of an axis with length 0, one slice is left.

    **Arguments:**

    - `placement`: has all axes but those with length 0.
    - `last`: whether the last elements are kept, not the first.
    """

    def kept_of(axis: str) -> Any:
        length = lengths.get(axis)
        if length is None:
            return slice(None)
        if not length:
            return -1 if last else 0
        return slice(-length, None) if last else slice(length)

    values = {
        name: value[tuple(kept_of(axis) for axis in instance.axes_of(name))]
        for name, value in instance.values.items()
    }
    kept = {
        axis: lengths.get(axis, length)
        for axis, length in instance.lengths.items()
        if axis in placement.columns
    }
    return replace(instance, placement=placement, lengths=kept, values=values)


def _resliced(instance: Instance, placement: Placement, name: str, axis: str, element: int) -> Instance:
    """Returns the instance with one variable reduced to one of its slices along an axis."""
    place = instance.axes_of(name).index(axis)
    values = {**instance.values, name: np.take(instance.values[name], element, axis=place)}
    return replace(instance, placement=placement, values=values)


def _shorter_axes(instance: Instance) -> Iterator[Instance]:
    rules = SizeRules(instance.statement, tuple(sorted(instance.placement.columns)))
    wholes = {axis for axis, _ in rules.products}
    matrix_axes = {
        axis
        for constraint in OperandConstraints(instance.statement, instance.placement).by_name.values()
        for pair in constraint.matrix
        for axis in pair
    }
    for root in sorted(set(rules.alike.values())):
        together = [axis for axis in instance.lengths if rules.alike[axis] == root]
        if set(together) & (wholes | matrix_axes):
            continue
        length = instance.lengths[root]
        for shorter in sorted({1, 2, length - 1}):
            if shorter >= length or shorter < 1:
                continue
            lengths = {**instance.lengths, **dict.fromkeys(together, shorter)}
            if rules.products and rules.lengths_from(lengths) != lengths:
                continue
            fits = all(lengths[short] <= lengths[long] for short, long in rules.ordered)
            constants = {name: float(instance.values[name]) for name in instance.constants}
            if fits and rules.hold(lengths, constants, instance.placement):
                for last in (False, True):
                    yield _resized(instance, instance.placement, dict.fromkeys(together, shorter), last)


def _simpler_values(instance: Instance) -> Iterator[Instance]:
    """Yields instances with one variable replaced by zeros, ones or rounded numbers, if that is allowed."""
    constraints = OperandConstraints(instance.statement, instance.placement).by_name
    for name, value in instance.values.items():
        if name in instance.constants or (name in constraints and constraints[name].matrix):
            continue
        for simpler in _simpler(value, positive=name in constraints and bool(constraints[name].scalar)):
            if not np.array_equal(simpler, value, equal_nan=value.dtype.kind in "fc"):
                yield replace(instance, values={**instance.values, name: simpler})


def _simpler(value: Array, positive: bool) -> Iterator[Array]:
    if not positive:
        yield np.zeros_like(value)
    yield np.ones_like(value)
    if value.dtype.kind in "fc":
        for digits in (0, 1, 2):
            with np.errstate(all="ignore"):
                rounded = np.round(value, digits)
            if not positive or np.all(rounded.real > 0):
                yield rounded


def _simpler_elements(instance: Instance) -> Iterator[Instance]:
    """Yields instances with one element replaced by 0 or 1, if that is allowed."""
    constraints = OperandConstraints(instance.statement, instance.placement).by_name
    for name, value in instance.values.items():
        if (
            value.size > 12
            or name in instance.constants
            or (name in constraints and constraints[name].matrix)
        ):
            continue
        positive = name in constraints and bool(constraints[name].scalar)
        for place in range(value.size):
            element = value.flat[place]
            for simple in (1,) if positive else (0, 1):
                if element != simple and (simple == 0 or element != 0):
                    changed = value.copy()
                    changed.flat[place] = simple
                    yield replace(instance, values={**instance.values, name: changed})
