"""Rows that are added up in an array of zeros, as rows that are looked up in a smaller one.

    zeros(n).at[i].add(u)[t]  =  zeros(k + 1).at[place(i)].add(u)[slot(t)]

    zeros(n).at[i].set(u)[t]  =  (t = i: u, otherwise 0)

with a row for each of the k indices, and one of zeros for all other rows of the array (`looked_up_rows`).
This is the cotangent of rows that are looked up: so each iteration of a backward pass finds its own entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jax import lax

from eqsat.ir.axis import Axis, layout_shape
from eqsat.ir.control_sums import is_zero
from eqsat.ir.looked_up_rows import LookUp, clamped, places_of
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.ops import Call, Const, Iota, Map, Opaque, Operation
from eqsat.ir.term import Term, Terms

FEWER = 2
"""A smaller array has fewer rows by this factor: a choice."""


def is_scatter(term: Term) -> bool:
    """Whether a term adds up entries in an array of zeros, or writes a part of one."""
    names = ("scatter-add", "dynamic_update_slice")
    return isinstance(term.op, Opaque) and term.op.call.primitive.name in names and is_zero(term.args[0])


def with_rows_looked_up(terms: Terms, term: Term, numbered: Callable[[Call, Call], Call]) -> Term | None:
    """Rows that are added up in an array of zeros, as a look-up; None if a term is anything else.

    **Arguments:**

    - `numbered`: returns a call that was made of another one with a number of its own.
    """
    if not is_scatter(term):
        return None
    assert isinstance(term.op, Opaque)
    if term.op.call.primitive.name == "dynamic_update_slice":
        return _one_row(terms, term, term.op.call)
    call, (zeros, index, updates) = term.op.call, term.args
    numbers, (layout,) = call.params["dimension_numbers"], call.out_layouts
    dims = tuple(numbers.scatter_dims_to_operand_dims)
    if len(dims) != 1 or dims != tuple(numbers.inserted_window_dims) or numbers.operand_batching_dims:
        return None
    (place,) = dims
    rows, others = layout[place], (*layout[:place], *layout[place + 1 :])
    window = tuple(layout_shape(call.arg_layouts[2])[dim] for dim in numbers.update_window_dims)
    if not isinstance(rows, Axis) or window != layout_shape(others) or index.axes & set(layout):
        return None
    found = LookUp(index)
    if FEWER * found.count > rows.size:
        return None
    places = places_of(terms, found, rows)
    kept = terms.axis(("scattered rows", call.id, index.number), found.count + 1)
    where = places.place
    if call.params["mode"] != lax.GatherScatterMode.CLIP:
        # What is outside is dropped.
        outside = terms.make(Const(str(found.count + 1), "int32"))
        where = terms.make(Map("select_n", "int32"), [places.inside, outside, where])
    smaller = (*layout[:place], kept, *layout[place + 1 :])
    params = dict(call.params, indices_are_sorted=False, unique_indices=False)
    few = replace(call, params=params, arg_layouts=(smaller, *call.arg_layouts[1:]), out_layouts=(smaller,))
    sums = terms.make(Opaque(numbered(few, call), 0), [zeros, where, updates])
    return terms.make(Operation(OPERATIONS["take"], (kept,), term.dtype), [sums, places.slot])


def _one_row(terms: Terms, term: Term, call: Call) -> Term | None:
    """A row that is written into an array of zeros, as a choice; None if a term is anything else."""
    zeros, update, *starts = term.args
    (layout,), written = call.out_layouts, call.arg_layouts[1]
    cut = [place for place, (whole, part) in enumerate(zip(layout, written, strict=True)) if whole != part]
    if len(cut) != 1 or written[cut[0]] is not None:
        return None
    rows, start = layout[cut[0]], starts[cut[0]]
    if not isinstance(rows, Axis) or start.axes:
        return None

    row = clamped(terms, start, rows.size)
    here = terms.make(Map("eq", "bool"), [terms.make(Iota(rows, "int32")), row])
    return terms.make(Map("select_n", term.dtype), [here, zeros, update])
