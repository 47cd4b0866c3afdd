"""Slices of what a scan stacks, along its iterations, as choices by the number of the iteration.

    sum_i f(h[s + i], h[r + i])  =  sum_t (s <= t < end: f(h[t], h[t - (s - r)]), otherwise 0)

for r <= s: an iteration computes it of its own entry and of an earlier one, which is carried along. So the
squared jumps of a chain are added up, or the times counted at which a voltage crosses a threshold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.ir.axis import Axis
from eqsat.ir.control import Scan
from eqsat.ir.history_functions import goes_inside
from eqsat.ir.ops import Const, Iota, Map, Opaque
from eqsat.ir.term import Term, Terms

CARRIED = 16
"""At most one such part of the entries is carried along: a choice, not measured."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The slices of a stacked result that a function of them reads, entry by entry.

    **Attributes:**

    - `iterations`: those whose entries the slice has which the scan makes last.
    - `lags`: by number of a slice, how many iterations before these its entries are made.
    """

    iterations: range
    lags: Mapping[int, int]

    @property
    def longest(self) -> int:
        """How many earlier entries are carried along."""
        return max(self.lags.values())


def some_iterations(term: Term, stack: Term) -> tuple[Axis, range] | None:
    """The axis of a slice of a stacked result along its iterations, and the iterations; None for all else.

    A slice of such a slice is one.
    """
    assert isinstance(stack.op, Opaque)
    slices = [term]
    while slices[-1] is not stack:
        op, args = slices[-1].op, slices[-1].args
        if not isinstance(op, Opaque) or op.call.primitive.name != "slice":
            return None
        slices.append(args[0])
    control, layout = stack.op.call.control, stack.op.call.out_layouts[stack.op.result]
    assert isinstance(control, Scan)
    found: tuple[Axis, range] | None = None
    for one in reversed(slices[:-1]):
        assert isinstance(one.op, Opaque)
        params, (axis, *others) = one.op.call.params, one.op.call.out_layouts[0]
        if one.op.call.arg_layouts != (layout,) or not isinstance(axis, Axis) or axis in stack.axes:
            return None
        if tuple(others) != layout[1:]:
            return None
        stride = 1 if params["strides"] is None else params["strides"][0]
        every = range(control.length) if found is None else found[1]
        found = axis, every[params["start_indices"][0] : params["limit_indices"][0] : stride]
        layout = one.op.call.out_layouts[0]
    return found


def parts_read(term: Term, along: Axis, stack: Term, exact: bool) -> Parts | None:
    """The slices of a stacked result that a term reads; None if it reads anything else along these axes.

    **Arguments:**

    - `along`: the axis of the slices.
    - `exact`: whether it must stay the same to the last bit.
    """
    assert isinstance(stack.op, Opaque)
    control = stack.op.call.control
    assert isinstance(control, Scan)
    iterations = stack.op.call.out_layouts[stack.op.result][0]
    found: dict[int, range] = {}
    waiting, seen = [term], {term.number}
    while waiting:
        at = waiting.pop()
        if along not in at.axes and iterations not in at.axes:
            continue
        part = some_iterations(at, stack)
        if part is not None and part[0] == along:
            found[at.number] = part[1]
        elif goes_inside(at, along, stack, exact):
            waiting += [arg for arg in at.args if arg.number not in seen]
            seen.update(arg.number for arg in at.args)
        else:
            return None
    if not found or len({part.step for part in found.values()}) > 1:
        return None
    if control.reverse:
        last = min(found.values(), key=lambda part: part.start)
        lags = {number: part.start - last.start for number, part in found.items()}
    else:
        last = max(found.values(), key=lambda part: part.start)
        lags = {number: last.start - part.start for number, part in found.items()}
    parts = Parts(last, lags)
    return parts if CARRIED * parts.longest <= control.length else None


def where_read(terms: Terms, parts: Parts, axis: Axis, value: Term, nothing: Term) -> Term:
    """A value along all iterations: elsewhere than at those of the parts, `nothing`."""

    def number(value: int) -> Term:
        return terms.make(Const(str(value), "int32"))

    def made(name: str, dtype: str, *args: Term) -> Term:
        return terms.make(Map(name, dtype), args)

    start, stop, step = parts.iterations.start, parts.iterations.stop, parts.iterations.step
    place = made("sub", "int32", terms.make(Iota(axis, "int32")), number(start))
    inside = made(
        "and", "bool", made("ge", "bool", place, number(0)), made("lt", "bool", place, number(stop - start))
    )
    if step > 1:
        first = made("eq", "bool", made("rem", "int32", place, number(step)), number(0))
        inside = made("and", "bool", inside, first)
    return made("select_n", value.dtype, inside, nothing, value)
