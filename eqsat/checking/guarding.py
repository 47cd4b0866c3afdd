"""Data on which the guard of a rule holds: instances as they were drawn, and moved to where it just does."""

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
"""Data is multiplied by, and divided by, so high powers of two: the highest for which the guard holds, of
these and of those up to the next one."""

RANGE = 128
"""The exponent of the largest number of single precision, which these powers are for. Other dtypes have
higher or lower ones, as their range is."""

BETWEEN = (48, 64, 72, 80)
"""By as high ones, one variable is while the others are at the other end: there a square underflows, and a
product does not. Where everything does, both sides are equal."""

MOST_MOVED = 3
"""So many variables are made large and small in all ways together."""


def holding(guard: Guard) -> Fits:
    """What makes of an instance those like it on which a guard holds."""
    return partial(_holding, guard)


def _holding(guard: Guard, instance: Instance) -> Iterator[Instance]:
    """The instance, and its variables as large and as small as the guard lets them be, in all ways."""
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
    """The instance with some variables as large as the guard lets them be, or as small for a sign of -1."""
    for above, power in pairwise(_powers(POWERS, instance, names)):
        found = _scaled(instance, names, sign * power)
        if power and _fits(test, found, instance):
            # Most mistakes are at the very limit.
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
    """Powers of two for the dtype of these variables, the highest first."""
    exponents = [int(limits_of(instance.dtypes.of_variable(name)).maxexp) for name in names]
    largest = min(exponents, default=RANGE)
    return sorted({power * largest // RANGE for power in powers}, reverse=True)


def _fits(test: _Test, moved: Instance, instance: Instance) -> bool:
    """Whether the guard holds of moved data, and what was finite still is."""
    finite = all(
        np.array_equal(np.isfinite(value), np.isfinite(instance.values[name]))
        for name, value in moved.values.items()
        if value.dtype.kind == "f"
    )
    return finite and test.holds(moved)


def holds(guard: Guard, instance: Instance) -> bool:
    """Whether the guard holds of an instance's data, as it is tested: in single precision, or in double."""
    return _Test(guard, instance).holds(instance)


class _Test:
    """Whether a guard holds of an instance, or of others that differ from it in values alone."""

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
    """The instance with some variables multiplied by a power of two."""
    values = dict(instance.values)
    for name in names:
        with np.errstate(all="ignore"):
            dtype = numpy_dtype(instance.dtypes.of_variable(name))
            values[name] = np.asarray(np.ldexp(values[name], power).astype(dtype).astype(np.float64))
    return replace(instance, values=values)
