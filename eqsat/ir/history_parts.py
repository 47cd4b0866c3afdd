"""Slices of what a scan stacks, along its iterations, as choices by the number of the iteration.

    sum_i f(h[s + i], h[r + i], y_i)  =  sum_t (s <= t < end: f(h[t], h[t - (s - r)], y_(t - s)), otherwise 0)

for r <= s: an iteration computes it of its own entry and of an earlier one, which is carried along. So the
squared jumps of a chain are added up, or the times counted at which a voltage crosses a threshold, or the
distances of every tenth state from what was observed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from eqsat.ir.axis import Axis, layout_axes, layout_shape
from eqsat.ir.control import Scan
from eqsat.ir.history_functions import goes_inside
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.ops import Call, Const, Iota, Map, Opaque, Operation, Rename
from eqsat.ir.term import Term, Terms, reachable

CARRIED = 16
"""At most one such part of the entries is carried along: a choice, not measured."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The slices of stacked results of a scan that a function of them reads, entry by entry.

    **Attributes:**

    - `axis`: that of the slices.
    - `iterations`: those whose entries the slice has which the scan makes last.
    - `slices`: by number of a slice, the stacked result, and how many iterations before these its entries
      are made.
    - `rows`: what else it reads along the slices, by number.
    """

    axis: Axis
    iterations: range
    slices: Mapping[int, tuple[Term, int]]
    rows: Mapping[int, Term] = field(default_factory=dict)

    @property
    def longest(self) -> dict[Term, int]:
        """By stacked result, how many of its earlier entries are carried along."""
        found: dict[Term, int] = {}
        for stack, lag in self.slices.values():
            found[stack] = max(lag, found.get(stack, 0))
        return found


def is_of_scan(term: Term, result: Term) -> bool:
    """Whether a term is a result of the scan that another one is a result of."""
    assert isinstance(result.op, Opaque)
    return isinstance(term.op, Opaque) and term.op.call == result.op.call and term.args == result.args


def cuts_rows(term: Term) -> bool:
    """Whether a term is a slice along its first dimension alone."""
    if not isinstance(term.op, Opaque) or term.op.call.primitive.name != "slice":
        return False
    (before,), (after,) = term.op.call.arg_layouts, term.op.call.out_layouts
    cut = bool(before) and before[0] != after[0] and before[1:] == after[1:]
    return cut and isinstance(before[0], Axis) and not isinstance(after[0], tuple)


def rows_of(call: Call) -> slice:
    """The rows that a slice has."""
    params = call.params
    stride = 1 if params["strides"] is None else params["strides"][0]
    return slice(params["start_indices"][0], params["limit_indices"][0], stride)


def some_iterations(term: Term, stack: Term) -> tuple[Axis, range, Term] | None:
    """The axis of a slice along the iterations, these, and of which result it is; None for all else.

    It is a slice of any stacked result of the scan of `stack`. A slice of such a slice is one.
    """
    slices = [term]
    while not is_of_scan(slices[-1], stack):
        if not cuts_rows(slices[-1]):
            return None
        slices.append(slices[-1].args[0])
    result = slices[-1]
    assert isinstance(result.op, Opaque)
    control, layout = result.op.call.control, result.op.call.out_layouts[result.op.result]
    assert isinstance(control, Scan)
    if result.op.result < len(control.carried):
        return None
    found: tuple[Axis, range, Term] | None = None
    for one in reversed(slices[:-1]):
        assert isinstance(one.op, Opaque)
        axis = one.op.call.out_layouts[0][0]
        if one.op.call.arg_layouts != (layout,) or not isinstance(axis, Axis) or axis in result.axes:
            return None
        every = range(control.length) if found is None else found[1]
        found, layout = (axis, every[rows_of(one.op.call)], result), one.op.call.out_layouts[0]
    return found


def row_taken(term: Term, along: Axis) -> int | None:
    """The row that a term is of its operand, whose rows are along an axis; None if it is anything else."""
    op = term.op
    if not isinstance(op, Opaque) or op.call.primitive.name != "slice":
        return None
    (layout,), params = op.call.arg_layouts, op.call.params
    bounds = list(zip(params["start_indices"], params["limit_indices"], strict=True))
    whole = [(0, length) for length in layout_shape(layout[1:])]
    if layout[:1] != (along,) or bounds[0][1] != bounds[0][0] + 1 or bounds[1:] != whole:
        return None
    return int(bounds[0][0])


def parts_read(
    terms: Sequence[Term],
    along: Axis,
    stack: Term,
    exact: bool,
    inside: Callable[[Term, Axis, Term, bool], bool] = goes_inside,
) -> Parts | None:
    """The slices of stacked results that terms read; None if they read anything else of their scan.

    **Arguments:**

    - `along`: the axis of the slices.
    - `exact`: whether they must stay the same to the last bit.
    - `inside`: whether entries of a term along the slices are computed of those of its operands.
    """
    assert isinstance(stack.op, Opaque)
    control = stack.op.call.control
    assert isinstance(control, Scan)
    iterations = stack.op.call.out_layouts[stack.op.result][0]
    found: dict[int, tuple[range, Term]] = {}
    rows: dict[int, Term] = {}
    waiting, seen = [*terms], {term.number for term in terms}
    while waiting:
        at = waiting.pop()
        if along not in at.axes and iterations not in at.axes:
            continue
        part = some_iterations(at, stack)
        if part is not None and part[0] == along:
            found[at.number] = part[1:]
        elif iterations not in at.axes and not any(is_of_scan(inner, stack) for inner in reachable([at])):
            rows[at.number] = at
        elif inside(at, along, stack, exact):
            waiting += [arg for arg in at.args if arg.number not in seen]
            seen.update(arg.number for arg in at.args)
        else:
            return None
    if not found or len({part.step for part, _ in found.values()}) > 1:
        return None
    starts = [part.start for part, _ in found.values()]
    start = min(starts) if control.reverse else max(starts)
    last = next(part for part, _ in found.values() if part.start == start)
    slices = {number: (result, abs(part.start - start)) for number, (part, result) in found.items()}
    parts = Parts(along, last, slices, rows)
    return parts if CARRIED * max(parts.longest.values()) <= control.length else None


def row_of_iteration(terms: Terms, parts: Parts, axis: Axis, value: Term) -> Term:
    """A value along slices, along all iterations: at those of the parts, the same; elsewhere, anything.

    **Arguments:**

    - `axis`: that of all iterations.
    """
    iterations, along = parts.iterations, parts.axis
    if cuts_rows(value) and isinstance(value.op, Opaque):
        # The rows of the same iterations, of what has rows for all.
        (whole,), (layout,) = value.args, value.op.call.arg_layouts
        first = layout[0]
        same = (
            value.op.call.out_layouts[0][0] == along
            and range(axis.size)[rows_of(value.op.call)] == iterations
        )
        if (
            same
            and isinstance(first, Axis)
            and first.size == axis.size
            and whole.axes == set(layout_axes(layout))
        ):
            return whole if first == axis else terms.make(Rename(first, axis), [whole])
    place = place_in(terms, parts, axis)
    return terms.make(Operation(OPERATIONS["take"], (along,), value.dtype), [value, place])


def where_read(terms: Terms, parts: Parts, axis: Axis, value: Term, nothing: Term) -> Term:
    """A value along all iterations: elsewhere than at those of the parts, `nothing`."""
    inside = is_read(terms, parts, axis)
    return terms.make(Map("select_n", value.dtype), [inside, nothing, value])


def is_read(terms: Terms, parts: Parts, axis: Axis) -> Term:
    """For each of all iterations, whether it is one of those of the parts."""

    def made(name: str, dtype: str, *args: Term) -> Term:
        return terms.make(Map(name, dtype), args)

    iterations, place, none = parts.iterations, _after_first(terms, parts, axis), _number(terms, 0)
    end = _number(terms, iterations.stop - iterations.start)
    inside = made("and", "bool", made("ge", "bool", place, none), made("lt", "bool", place, end))
    if iterations.step > 1:
        rest = made("rem", "int32", place, _number(terms, iterations.step))
        inside = made("and", "bool", inside, made("eq", "bool", rest, none))
    return inside


def place_in(terms: Terms, parts: Parts, axis: Axis) -> Term:
    """For each of all iterations, its place in the slices."""
    place = _after_first(terms, parts, axis)
    if parts.iterations.step > 1:
        place = terms.make(Map("div", "int32"), [place, _number(terms, parts.iterations.step)])
    return place


def _after_first(terms: Terms, parts: Parts, axis: Axis) -> Term:
    """How many iterations each one is after the first of the parts."""
    numbers = terms.make(Iota(axis, "int32"))
    return terms.make(Map("sub", "int32"), [numbers, _number(terms, parts.iterations.start)])


def _number(terms: Terms, value: int) -> Term:
    return terms.make(Const(str(value), "int32"))
