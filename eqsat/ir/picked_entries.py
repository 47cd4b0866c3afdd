"""Entries of inputs that are not in memory, picked by indices that are: of these, no others are read.

A gather, or a slice that starts at an index, of such an input is a pick: a call on the whole input and on
the indices. No chunk of the input is ever taken, so it is never read whole; chunks of the indices give chunks
of the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jax import lax
from jax.extend.core import Primitive

from eqsat.ir.affine_indices import affine_index
from eqsat.ir.axis import Axis, Dimension, Layout, layout_axes, layout_shape, parts
from eqsat.ir.constants import constant_text
from eqsat.ir.dtypes import is_inexact, limits_of, numpy_dtype
from eqsat.ir.moved_arrays import Moved
from eqsat.ir.moved_windows import Windows
from eqsat.ir.ops import Call, Const, Iota, Map, Opaque
from eqsat.ir.program import Program
from eqsat.ir.term import Term, Terms

pick_p = Primitive("pick")
"""The primitive of picks. It has no implementation: what runs such programs reads by itself."""


@dataclass(frozen=True)
class Pick:
    """Which entries are picked: for each row of indices, one along each dimension that has a column of them.

    **Attributes:**

    - `columns`: by column of the indices, the dimension that they are of.
    - `taken`: by dimension, how many entries: 1 or all.
    - `dropped`: the dimensions that the result lacks.
    - `fill`: whether what is outside becomes the dtype's `outside`; else, indices are clipped.
    """

    columns: tuple[int, ...]
    taken: tuple[int, ...]
    dropped: frozenset[int]
    fill: bool
    outside: Any


def is_pick(term: Term) -> bool:
    """Whether a term is a pick."""
    return isinstance(term.op, Opaque) and term.op.call.primitive is pick_p


def picked_layout(term: Term) -> Layout:
    """The dimensions in which a pick is read: those of the indices, and then those of the input."""
    assert isinstance(term.op, Opaque)
    call = term.op.call
    (out,) = call.out_layouts
    behind: tuple[int, ...] = call.params["offsets"]
    before = [number for number in range(len(out)) if number not in behind]
    return tuple(out[number] for number in (*before, *behind))


def picked_axes(program: Program, threshold: float) -> Iterator[Axis]:
    """The axes of indices along which picks of more bytes can be read by chunks of so many bytes at most."""
    for inner in program.inside():
        for term in inner.reachable():
            if is_pick(term) and term.bytes > threshold:
                axes = term.args[1].axes & term.axes
                yield from (axis for axis in axes if term.bytes // axis.size <= threshold)


def can_be_picked(call: Call) -> bool:
    """Whether a call takes whole rows, or single entries, of its first operand by others."""
    shape = layout_shape(call.arg_layouts[0])
    match call.primitive.name:
        case "gather":
            numbers, sizes = call.params["dimension_numbers"], call.params["slice_sizes"]
            partly = [number for number in numbers.start_index_map if sizes[number] != shape[number]]
            fills = call.params["mode"] == lax.GatherScatterMode.FILL_OR_DROP
            single = partly if len(partly) == 1 and (not fills or len(numbers.start_index_map) == 1) else []
            if numbers.operand_batching_dims:
                return _is_batched(call)
            return max(shape) <= np.iinfo(np.int32).max and all(
                size == length or (size == 1 and number in numbers.start_index_map) or number in single
                for number, (size, length) in enumerate(zip(sizes, shape, strict=True))
            )
        case "dynamic_slice":
            return max(shape) <= np.iinfo(np.int32).max
        case _:
            return False


def _is_batched(call: Call) -> bool:
    """Whether a gather takes single entries by one index each, along axes that its operands share."""
    numbers, sizes = call.params["dimension_numbers"], call.params["slice_sizes"]
    table, indices = call.arg_layouts
    shape, batched = layout_shape(table), numbers.operand_batching_dims
    shared = [table[number] for number in batched]
    if max(shape) > np.iinfo(np.int32).max or len(numbers.start_index_map) != 1:
        return False
    (at,) = numbers.start_index_map
    whole = [number for number in range(len(shape)) if number not in (at, *batched)]
    return (
        at in numbers.collapsed_slice_dims
        and all(
            sizes[number] == shape[number] and number not in numbers.collapsed_slice_dims for number in whole
        )
        and all(isinstance(axis, Axis) for axis in shared)
        and shared == [indices[number] for number in numbers.start_indices_batching_dims]
    )


def picked(terms: Terms, term: Term, table: Term, rest: tuple[Term, ...], call_id: int, axis_id: int) -> Term:
    """A term that takes entries of an input, as a pick.

    **Arguments:**

    - `term`: its call can be picked.
    - `table`: the input, with the layout of the first operand.
    - `rest`: the other operands.
    - `call_id`: a number that no call has. The next one is free, too.
    - `axis_id`: a number that no axis has.
    """
    assert isinstance(term.op, Opaque)
    call = term.op.call
    if call.primitive.name == "gather":
        return _gathered(terms, call, table, rest[0], call_id, axis_id)
    return _sliced(terms, call, table, rest, call_id)


def _gathered(terms: Terms, call: Call, table: Term, indices: Term, call_id: int, axis_id: int) -> Term:
    numbers, sizes = call.params["dimension_numbers"], tuple(call.params["slice_sizes"])
    fill = call.params["mode"] == lax.GatherScatterMode.FILL_OR_DROP
    outside = outside_value(call) if fill else None
    columns, dropped = tuple(numbers.start_index_map), frozenset(numbers.collapsed_slice_dims)
    table_axes, own = call.arg_layouts
    shape = layout_shape(table_axes)
    offsets = tuple(numbers.offset_dims)
    if batched := tuple(numbers.operand_batching_dims):
        shared = [axis for axis in (table_axes[number] for number in batched) if isinstance(axis, Axis)]
        indices, column = _with_columns(terms, indices, shared, axis_id)
        pick = Pick((*columns, *batched), sizes, dropped | frozenset(batched), fill, outside)
        return _made(terms, call, pick, table, indices, (*own[:-1], column), offsets, call_id)
    windows = [number for number, size in enumerate(sizes) if size not in (1, shape[number])]
    if windows:
        return _windows(terms, call, table, indices, windows[0], outside, call_id)
    pick = Pick(columns, sizes, dropped, fill, outside)
    return _made(terms, call, pick, table, indices, own, offsets, call_id)


def _with_columns(terms: Terms, indices: Term, axes: Sequence[Axis], axis_id: int) -> tuple[Term, Axis]:
    """Indices with further columns, of where along some axes each of them is; and the axis of columns."""
    dtype = "int32" if numpy_dtype(indices.dtype).itemsize < 4 else indices.dtype
    found = indices if dtype == indices.dtype else terms.make(Map("convert", dtype), [indices])
    column = Axis(axis_id, 1 + len(axes))
    number = terms.make(Iota(column, dtype))
    for place, axis in enumerate(axes, 1):
        here = terms.make(Map("eq", "bool"), [number, terms.make(Const(str(place), dtype))])
        found = terms.make(Map("select_n", dtype), [here, found, terms.make(Iota(axis, dtype))])
    return found, column


def _windows(
    terms: Terms, call: Call, table: Term, indices: Term, at: int, outside: Any, call_id: int
) -> Term:
    """Windows that a gather takes along a dimension, as a pick of their rows."""
    numbers, (out,) = call.params["dimension_numbers"], call.out_layouts
    shape = layout_shape(call.arg_layouts[0])
    columns = tuple(numbers.start_index_map)
    if len(columns) > 1:
        indices = _column(terms, indices, call.arg_layouts[1], columns.index(at), call_id + 1)
    if outside is not None and indices.dtype != "int32":
        indices = terms.make(Map("convert", "int32"), [indices])
    spanned = [number for number in range(len(shape)) if number not in numbers.collapsed_slice_dims]
    along = numbers.offset_dims[spanned.index(at)]
    offsets = tuple(number for number in numbers.offset_dims if number != along)
    start = _clipped(terms, indices, shape[at] - call.params["slice_sizes"][at])
    layout = (*(each for number, each in enumerate(out) if number not in offsets), None)
    taken = tuple(1 if number == at else length for number, length in enumerate(shape))
    pick = Pick((at,), taken, frozenset({*numbers.collapsed_slice_dims, at}), False, None)
    of_rows = replace(call, passing=call.passing | frozenset(parts(out[along])))
    index = _counted(terms, start, out[along])
    found = _made(terms, of_rows, pick, table, index, layout, offsets, call_id)
    if outside is None:
        return found
    inside = terms.make(Map("eq", "bool"), [indices, start])
    other = terms.make(Const(constant_text(outside), found.dtype))
    return terms.make(Map("select_n", found.dtype), [inside, other, found])


def _column(terms: Terms, indices: Term, layout: Layout, number: int, call_id: int) -> Term:
    """A column of indices that have several."""
    shape, new = layout_shape(layout), (*layout[:-1], None)
    params = {
        "start_indices": (*(0 for _ in shape[1:]), number),
        "limit_indices": (*shape[:-1], number + 1),
        "strides": None,
    }
    passing = frozenset(axis for each in layout[:-1] for axis in parts(each))
    call = Call(call_id, lax.slice_p, params, (layout,), (new,), (indices.dtype,), passing)
    return terms.make(Opaque(call, 0), [indices])


def outside_value(call: Call) -> Any:
    """What a gather has in the place of entries that there are not."""
    given, (dtype,) = call.params["fill_value"], call.out_dtypes
    if given is not None:
        return given
    if dtype == "bool":
        return True
    if is_inexact(dtype):
        return np.nan
    limits = limits_of(dtype)
    return int(limits.min) or int(limits.max)


def _sliced(terms: Terms, call: Call, table: Term, starts: tuple[Term, ...], call_id: int) -> Term:
    """A slice that starts at an index, as a pick of rows, and a slice of these along other dimensions."""
    sizes, shape = tuple(call.params["slice_sizes"]), layout_shape(call.arg_layouts[0])
    cut = [number for number, size in enumerate(sizes) if size != shape[number]]
    at = max(cut, key=lambda number: shape[number])
    count = layout_shape(call.out_layouts[0])[at]
    start = _clipped(terms, starts[at], shape[at] - count)
    along = call.out_layouts[0][at]
    start = _counted(terms, start, along)
    whole = call.arg_layouts[0]
    taken = tuple(1 if number == at else length for number, length in enumerate(shape))
    pick = Pick((at,), taken, frozenset({at}), False, None)
    rows = (*whole[:at], along, *whole[at + 1 :])
    behind = tuple(number for number in range(len(shape)) if number != at)
    passing = frozenset(axis for layout in (rows,) for each in layout for axis in parts(each))
    of_rows = replace(call, out_layouts=(rows,), passing=passing)
    found = _made(terms, of_rows, pick, table, start, (along, None), behind, call_id)
    if cut == [at]:
        return found
    zero = terms.make(Const("0", starts[at].dtype))
    rest = replace(
        call,
        id=call_id + 1,
        arg_layouts=(rows, *call.arg_layouts[1:]),
        passing=call.passing | frozenset(parts(along)),
    )
    return terms.make(
        Opaque(rest, 0), [found, *(zero if number == at else one for number, one in enumerate(starts))]
    )


def _counted(terms: Terms, start: Term, along: Dimension) -> Term:
    """The indices from a start on along a dimension."""
    stride = math.prod(axis.size for axis in parts(along))
    for axis in parts(along):
        stride //= axis.size
        index = terms.make(Iota(axis, "int32"))
        if stride > 1:
            index = terms.make(Map("mul", "int32"), [index, terms.make(Const(str(stride), "int32"))])
        start = terms.make(Map("add", "int32"), [start, index])
    return start


def _clipped(terms: Terms, start: Term, most: int) -> Term:
    """The place where a slice starts, which XLA moves so that the slice is inside."""
    limits = np.iinfo(numpy_dtype(start.dtype))
    for name, bound in (("max", 0), ("min", most)):
        if limits.min <= bound <= limits.max:
            start = terms.make(Map(name, start.dtype), [start, terms.make(Const(str(bound), start.dtype))])
    return start if start.dtype == "int32" else terms.make(Map("convert", "int32"), [start])


def picked_rows(
    terms: Terms,
    table: tuple[Term, Layout],
    at: int,
    indices: Term,
    call_id: int,
    axis_id: int,
) -> Term:
    """The rows of an input along a dimension that indices pick, which are clipped.

    Along axes that the indices have, too, an index picks from where it is itself.

    **Arguments:**

    - `table`: the input, and its layout of single axes.
    - `call_id`, `axis_id`: numbers that no call, and no axis, has.
    """
    leaf, layout = table
    axes = tuple(sorted(indices.axes))
    shared = [number for number, axis in enumerate(layout) if axis in axes]
    rest = tuple(axis for number, axis in enumerate(layout) if number not in (at, *shared))
    single = (at, *shared)
    taken = tuple(1 if number in single else length for number, length in enumerate(layout_shape(layout)))
    column: Axis | None = None
    if shared:
        along = [axis for axis in layout if isinstance(axis, Axis) and axis in axes]
        indices, column = _with_columns(terms, indices, along, axis_id)
    pick = Pick(single, taken, frozenset(single), False, None)
    out, offsets = (*axes, *rest), tuple(range(len(axes), len(axes) + len(rest)))
    passing = frozenset(axis for each in out for axis in parts(each))
    params = {"pick": pick, "offsets": offsets}
    layouts = (layout, (*axes, column))
    made = Call(call_id, pick_p, params, layouts, (out,), (leaf.dtype,), passing)
    return terms.make(Opaque(made, 0), [leaf, indices])


def windows_of(term: Term, table: Moved) -> tuple[Windows, Layout] | None:
    """A pick whose indices are affine, as windows of its table, with their layout; None for others."""
    assert isinstance(term.op, Opaque)
    call, pick = term.op.call, term.op.call.params["pick"]
    layout, shape = call.arg_layouts[0], layout_shape(call.arg_layouts[0])
    axes = layout_axes(call.arg_layouts[1])
    if len(pick.columns) != 1 or not set(axes).isdisjoint(layout_axes(layout)):
        return None
    (at,) = pick.columns
    if pick.taken != tuple(1 if number == at else length for number, length in enumerate(shape)):
        return None
    index = affine_index(term.args[1])
    if index is None or (pick.fill and not 0 <= index.low <= index.high < shape[at]):
        return None
    index = index.clipped(0, shape[at] - 1)
    steps, sizes = tuple(index.steps.get(axis, 0) for axis in axes), tuple(axis.size for axis in axes)
    found = Windows(table, at, index.start, steps, sizes, index.low, index.high)
    return found, (*layout[:at], *axes, *layout[at + 1 :])


def _made(
    terms: Terms,
    call: Call,
    pick: Pick,
    table: Term,
    indices: Term,
    layout: Layout,
    offsets: tuple[int, ...],
    call_id: int,
) -> Term:
    made = replace(
        call,
        id=call_id,
        primitive=pick_p,
        params={"pick": pick, "offsets": offsets},
        arg_layouts=(call.arg_layouts[0], layout),
    )
    return terms.make(Opaque(made, 0), [table, indices])
