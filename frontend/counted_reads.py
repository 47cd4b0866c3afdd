"""Scans that read the entries of an array by a counter, as scans over the array.

    fori_loop(0, n, lambda i, s: f(s, x[i]), s)  =  scan(lambda s, row: (f(s, row), None), s, x)[0]

What a scan goes over can be read by chunks; by a counter, each iteration would read a row of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var, jaxprs_in_params

from eqsat.frontend.retracing import NotRetraceable, evaluated, retraced
from eqsat.frontend.scan_groups import scan_groups

WIDE = 4
"""Bytes of an integer that holds the number of any entry that a counter reaches."""


@dataclass(frozen=True)
class CountedRead:
    """An equation of a scan's body that reads the entry of an array whose number is the counter's.

    **Attributes:**

    - `constant`: which of the scan's constants the array is.
    - `first`: the entry of the first iteration; `step`: 1, or -1 from the end on.
    """

    equation: int
    constant: int
    first: int
    step: int


def with_sequences(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such scans as scans over arrays; itself if there are none."""
    if not _has_counted_reads(closed.jaxpr):
        return closed
    try:
        return retraced(closed, _over_sequences)
    except NotRetraceable:
        return closed


def _has_counted_reads(jaxpr: Jaxpr) -> bool:
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan" and counted_reads(equation):
            return True
        if any(map(_has_counted_reads, jaxprs_in_params(equation.params))):
            return True
    return False


def counted_reads(equation: Any) -> list[CountedRead]:
    """The counted reads of a scan, all of which are of entries that there are."""
    params = equation.params
    closed, length = params["jaxpr"], int(params["length"])
    consts, carries = scan_groups(equation)
    if params["reverse"] or equation.effects or closed.consts or not length:
        return []
    found: list[CountedRead] = []
    for number in range(carries):
        start: Any = equation.invars[consts + number]
        counter, after = closed.jaxpr.invars[consts + number], closed.jaxpr.outvars[number]
        if isinstance(start, Literal) and counts(closed.jaxpr, counter, after):
            first = int(start.val)
            if first + length <= np.iinfo(counter.aval.dtype).max:
                found += _Reads(closed.jaxpr.invars[:consts], counter, first, length).of(closed.jaxpr)
    return found


def counts(jaxpr: Jaxpr, counter: Any, after: Any) -> bool:
    """Whether a carry is one more in each iteration."""
    if counter.aval.shape or not jnp.issubdtype(counter.aval.dtype, jnp.integer):
        return False
    for equation in jaxpr.eqns:
        if after in equation.outvars and equation.primitive.name == "add":
            others = [atom for atom in equation.invars if atom is not counter]
            return len(others) == 1 and _number(others[0]) == 1
    return False


class _Reads:
    """Looks for the reads by one counter.

    **Attributes:**

    - `arrays`: the constants of the scan; `start`: of the counter; `length`: how many iterations there are.
    - `known`: of variables, the value in the first iteration, and by how much it changes with each.
    - `negative`: tests of whether such a variable is below zero, which is never so.
    """

    def __init__(self, arrays: Sequence[Var], counter: Var, start: int, length: int) -> None:
        self.arrays = {var: number for number, var in enumerate(arrays)}
        self.length = length
        self.known: dict[Any, tuple[int, int]] = {counter: (start, 1)}
        self.negative: set[Any] = set()

    def of(self, jaxpr: Jaxpr) -> list[CountedRead]:
        found = []
        for equation in jaxpr.eqns:
            read = self._read(equation)
            if read is not None:
                array: Any = equation.invars[0]
                found.append(CountedRead(id(equation), self.arrays[array], *read))
            elif len(equation.outvars) == 1:
                self._note(equation.primitive.name, equation.outvars[0], list(equation.invars))
        return found

    def _read(self, equation: Any) -> tuple[int, int] | None:
        """The entry that the first iteration reads, and the step to the next; None if there is none."""
        if equation.primitive.name != "dynamic_slice" or isinstance(equation.invars[0], Literal):
            return None
        array, index = equation.invars[:2]
        found = self._value(index)
        whole = (1, *array.aval.shape[1:])
        if array not in self.arrays or found is None or tuple(equation.params["slice_sizes"]) != whole:
            return None
        least, most = self._ends(found)
        return found if 0 <= least <= most < array.aval.shape[0] else None

    def _note(self, name: str, out: Any, inputs: list[Any]) -> None:
        """Note what is known of the result of an equation."""
        if name == "select_n" and not isinstance(inputs[0], Literal) and inputs[0] in self.negative:
            name, inputs = "copy", inputs[1:2]
        values = [self._value(atom) for atom in inputs]
        if not values or all(isinstance(atom, Literal) for atom in inputs) or None in values:
            return
        (first, step), *others = (value for value in values if value is not None)
        if name in ("add", "sub") and others:
            sign = 1 if name == "add" else -1
            found = first + sign * others[0][0], step + sign * others[0][1]
            if abs(found[1]) == 1:
                self.known[out] = found
        elif name == "copy" or (name == "convert_element_type" and _holds_any_number(out.aval.dtype)):
            self.known[out] = first, step
        elif name == "lt" and others == [(0, 0)] and self._ends((first, step))[0] >= 0:
            self.negative.add(out)

    def _ends(self, value: tuple[int, int]) -> tuple[int, int]:
        """The least and the largest value in all iterations."""
        first, step = value
        last = first + step * (self.length - 1)
        return min(first, last), max(first, last)

    def _value(self, atom: Any) -> tuple[int, int] | None:
        if isinstance(atom, Literal):
            number = _number(atom)
            return None if number is None else (number, 0)
        return self.known.get(atom)


def _number(atom: Any) -> int | None:
    return int(atom.val) if isinstance(atom, Literal) and not jnp.ndim(atom.val) else None


def _holds_any_number(dtype: Any) -> bool:
    """Whether integers of a dtype hold the number of any entry that a counter reaches."""
    return bool(jnp.issubdtype(dtype, jnp.integer)) and dtype.itemsize >= WIDE


def _over_sequences(equation: Any, operands: list[Any]) -> Sequence[Any] | None:
    """The results of a scan with counted reads, by a scan over the arrays; None for other equations."""
    if equation.primitive.name != "scan" or not (reads := counted_reads(equation)):
        return None
    params = equation.params
    consts, carries = scan_groups(equation)
    length = int(params["length"])
    constants, init, given = (
        operands[:consts],
        operands[consts : consts + carries],
        operands[consts + carries :],
    )
    places = list(dict.fromkeys((read.constant, read.first, read.step) for read in reads))
    entries = [_in_order(constants[number], first, step, length) for number, first, step in places]
    place_of = {read.equation: places.index((read.constant, read.first, read.step)) for read in reads}

    def body(carry: list[Any], sequences: tuple[list[Any], list[Any]]) -> tuple[list[Any], list[Any]]:
        slices, rows = sequences

        def replaced(inner: Any, values: list[Any]) -> Sequence[Any] | None:
            if id(inner) in place_of:
                return [rows[place_of[id(inner)]][None]]
            return _over_sequences(inner, values)

        values = [*constants, *carry, *slices]
        results = evaluated(params["jaxpr"].jaxpr, (), values, replaced)
        return results[:carries], results[carries:]

    carry, stacked = lax.scan(
        body, list(init), (list(given), entries), length=length, unroll=params["unroll"]
    )
    return [*carry, *stacked]


def _in_order(array: Any, first: int, step: int, length: int) -> Any:
    """So many entries from the first on, or backwards from there."""
    if step > 0:
        return lax.slice_in_dim(array, first, first + length)
    return lax.rev(lax.slice_in_dim(array, first + 1 - length, first + 1), (0,))
