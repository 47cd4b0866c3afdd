"""Finds data on which the guard of a rule holds: as it was drawn, and scaled to the limits of the guard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise, product

import numpy as np

from eqsat.checking.accuracy import Fits
from eqsat.checking.instance import Instance
from eqsat.checking.memberships import variable_names
from eqsat.ir.dtypes import limits_of, numpy_dtype
from eqsat.ir.guard import Guard, NoTest, conditions, joined
from eqsat.ir.interpret import interpret
from eqsat.ir.program import Output, Program

POWERS = (128, 120, 96, 64, 32, 24, 16, 8, 4, 2, 1, 0)
"""The exponents of two that data is scaled by, up and down. The highest for which the guard holds is
searched among these, and then by bisection between it and the next one."""

RANGE = 128
"""The exponent of the largest number of single precision, for which the powers are. They are scaled in
proportion for dtypes with another range."""

BETWEEN = (48, 64, 72, 80)
"""The exponents of two that one variable is scaled by while the others are at the opposite limit. There, a
square may underflow while a product does not. If everything underflowed, both sides would be equal."""

MOST_MOVED = 3
"""This many variables are made large and small in all combinations."""


def holding(guard: Guard) -> Fits:
    """Returns a function from an instance to similar instances on which a guard holds."""
    return partial(_holding, guard)


def _holding(guard: Guard, instance: Instance) -> Iterator[Instance]:
    """Yields the instance if the guard holds on it, and others as large or as small as the guard allows."""
    floats = [name for name in guard.variables if instance.values[name].dtype.kind == "f"]
    test = _Test(guard, instance)
    within: Instance | None = instance if test.holds(instance) else None
    if within:
        yield within
    for sign in (1, -1):
        moved = _moved(test, instance, floats, sign)
        if moved is not None:
            within = within or moved
            yield replace(moved, style=f"{instance.style}, {_sizes(floats, [sign] * len(floats))}")
    if within is None or len(floats) < 2:
        return
    for signs in product((1, -1), repeat=min(len(floats), MOST_MOVED)):
        found = within
        for name, sign in zip(floats, signs, strict=False):
            found = _moved(test, found, [name], sign) or found
        yield replace(found, style=f"{instance.style}, {_sizes(floats, signs)}")
    for name, sign in product(floats, (1, -1)):
        others = [other for other in floats if other != name]
        end = _moved(test, within, others, -sign) or within
        for power in _powers(BETWEEN, instance, [name]):
            between = _scaled(end, [name], sign * power)
            if test.holds(between):
                yield replace(between, style=f"{instance.style}, {name} by 2^{sign * power}")


def _sizes(names: Sequence[str], signs: Sequence[int]) -> str:
    return ", ".join(
        f"{'large' if sign > 0 else 'small'} {name}" for name, sign in zip(names, signs, strict=False)
    )


def _moved(test: _Test, instance: Instance, names: Sequence[str], sign: int) -> Instance | None:
    """Returns the instance with some variables as large as the guard allows, or None.

    A `sign` of -1 makes them as small as it allows.
    """
    for above, power in pairwise(_powers(POWERS, instance, names)):
        found = _scaled(instance, names, sign * power)
        if power and _fits(test, found, instance):
            # Most mistakes show at the limit itself.
            while above - power > 1:
                middle = (power + above) // 2
                further = _scaled(instance, names, sign * middle)
                if _fits(test, further, instance):
                    found, power = further, middle
                else:
                    above = middle
            return found
    return None


def _powers(powers: Sequence[int], instance: Instance, names: Sequence[str]) -> list[int]:
    """Returns the powers scaled to the range of the variables' dtypes, the highest first."""
    exponents = [int(limits_of(instance.dtypes.of_variable(name)).maxexp) for name in names]
    largest = min(exponents, default=RANGE)
    return sorted({power * largest // RANGE for power in powers}, reverse=True)


def _fits(test: _Test, moved: Instance, instance: Instance) -> bool:
    """Returns whether the guard holds on moved data, and the same numbers are finite as before."""
    finite = all(
        np.array_equal(np.isfinite(value), np.isfinite(instance.values[name]))
        for name, value in moved.values.items()
        if value.dtype.kind == "f"
    )
    return finite and test.holds(moved)


def holds(guard: Guard, instance: Instance) -> bool:
    """Returns whether the guard holds on an instance's data.

    The guard is tested in single precision, or in double if the instance has doubles.
    """
    return _Test(guard, instance).holds(instance)


class _Test:
    """The test of a guard, for an instance and others that differ from it in their values alone."""

    def __init__(self, guard: Guard, instance: Instance) -> None:
        self.guard = guard
        self.constants = {name: instance.values[name] for name in instance.constants}
        self.inputs = [name for name in variable_names(instance.statement.rule) if name not in self.constants]
        sides = instance.sides
        leaves = sides.builder.leaves
        axes = {name: sides.builder.set_of([name]) for name in guard.axes}
        values = {name: leaves[name] for name in guard.variables}
        doubles = any(dtype == "float64" for dtype in instance.dtypes.of_variables.values())
        self.precision = "double" if doubles else "single"
        self.program: Program | None = None
        with suppress(NoTest):
            test = joined(conditions(guard, values, axes, sides.terms), sides.terms)
            inputs = sides.program.inputs[: len(self.inputs)]
            self.program = replace(sides.program, inputs=inputs, outputs=(Output(test, ()),))

    def holds(self, instance: Instance) -> bool:
        constants = self.constants.items()
        if not all(np.array_equal(instance.values[name], value, equal_nan=True) for name, value in constants):
            return holds(self.guard, instance)  # constants are part of the program
        if self.program is None:
            return False
        with np.errstate(all="ignore"):
            arrays = [instance.values[name] for name in self.inputs]
            return bool(interpret(self.program, arrays, precision=self.precision)[0])


def _scaled(instance: Instance, names: Sequence[str], power: int) -> Instance:
    """Returns the instance with some variables multiplied by two to the given power."""
    values = dict(instance.values)
    for name in names:
        with np.errstate(all="ignore"):
            dtype = numpy_dtype(instance.dtypes.of_variable(name))
            values[name] = np.asarray(np.ldexp(values[name], power).astype(dtype).astype(np.float64))
    return replace(instance, values=values)
