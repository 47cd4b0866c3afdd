"""Rows of an array that are looked up by indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import lax

from eqsat.ir.axis import Axis, layout_shape
from eqsat.ir.constants import constant_text
from eqsat.ir.dtypes import is_inexact, itemsize, numpy_dtype
from eqsat.ir.ops import Const, Iota, Map, Opaque, Reduce, Rename
from eqsat.ir.term import Term, Terms


@dataclass(frozen=True, slots=True)
class LookUp:
    """The rows of an array that a term looks up by indices.

    **Attributes:**

    - `index`: the indices, of any integer dtype, which may lie outside of the array.
    - `filling`: what rows from outside are filled with; None if indices are clamped.
    """

    index: Term
    filling: Const | None = None

    @property
    def count(self) -> int:
        return math.prod(axis.size for axis in self.index.axes)


def look_up(term: Term, along: Axis) -> LookUp | None:
    """The rows along an axis that a term is of its first operand; None if it is anything else."""
    if not isinstance(term.op, Opaque) or len(term.args) < 2:
        return None
    call = term.op.call
    layout, index = call.arg_layouts[0], term.args[1]
    if along not in layout or not index.axes <= term.axes or index.axes & term.args[0].axes:
        return None
    place, params = layout.index(along), call.params
    if call.primitive.name == "dynamic_slice":
        sizes, lengths = params["slice_sizes"], layout_shape(layout)
        whole = [size == length for size, length in zip(sizes, lengths, strict=True)]
        index = term.args[1 + place]
        one = sizes[place] == 1 and all(whole[:place] + whole[place + 1 :]) and not index.axes
        return LookUp(index) if one else None
    if call.primitive.name != "gather":
        return None
    numbers, sizes, lengths = params["dimension_numbers"], params["slice_sizes"], layout_shape(layout)
    whole = [size == length for size, length in zip(sizes, lengths, strict=True)]
    rows = tuple(numbers.start_index_map) == (place,) and not numbers.operand_batching_dims
    if not rows or sizes[place] != 1 or not all(whole[:place] + whole[place + 1 :]):
        return None
    if params["mode"] != lax.GatherScatterMode.FILL_OR_DROP:
        return LookUp(index)
    value = params["fill_value"] if params["fill_value"] is not None else _default_filling(term.dtype)
    with np.errstate(all="ignore"):  # too large a number is infinite
        text = constant_text(np.asarray(value).astype(numpy_dtype(term.dtype)))
    return LookUp(index, Const(text, term.dtype))


def _default_filling(dtype: str) -> Any:
    """What `jax.lax.gather` fills with if nothing is said."""
    if is_inexact(dtype):
        return np.nan
    if dtype == "bool":
        return True
    limits = np.iinfo(numpy_dtype(dtype))
    return limits.max if dtype.startswith("u") else limits.min


def clamped(terms: Terms, index: Term, size: int) -> Term:
    """Indices of any integer dtype as int32, clamped to those of an array with so many rows."""
    if itemsize(index.dtype) < itemsize("int32"):
        index = terms.make(Map("convert", "int32"), [index])
    first, last = (terms.make(Const(str(limit), index.dtype)) for limit in (0, size - 1))
    row = terms.make(Map("max", index.dtype), [index, first])
    row = terms.make(Map("min", index.dtype), [row, last])
    return row if row.dtype == "int32" else terms.make(Map("convert", "int32"), [row])


@dataclass(frozen=True, slots=True)
class Places:
    """Where rows that indices give are kept, in an array that has a row for each index.

    **Attributes:**

    - `slot`: of each row of the array that is looked up, its place; after the last one if no index is of it.
    - `place`: of each index, its row's place: that of the first index of the same row.
    - `inside`: whether each index is inside of the array. Others are clamped.
    """

    slot: Term
    place: Term
    inside: Term


def places_of(terms: Terms, found: LookUp, axis: Axis) -> Places:
    """The places of the rows that indices give.

    **Arguments:**

    - `axis`: that of the rows.
    """

    def made(name: str, dtype: str, *args: Term) -> Term:
        return terms.make(Map(name, dtype), args)

    def number(value: int) -> Term:
        return terms.make(Const(str(value), "int32"))

    index, count, axes = found.index, found.count, sorted(found.index.axes)
    row = clamped(terms, index, axis.size)
    # What is clamped is another number.
    given = row if index.dtype == row.dtype else made("convert", index.dtype, row)
    inside = made("eq", "bool", index, given)
    mine = number(0)
    for one in axes:
        before = made("mul", "int32", mine, number(one.size))
        mine = made("add", "int32", before, terms.make(Iota(one, "int32")))

    def first_with(wanted: Term, row: Term, mine: Term, over: Sequence[Axis]) -> Term:
        """The number of the first index that is of a row; how many indices there are if none is."""
        here = made("eq", "bool", row, wanted)
        numbered = made("select_n", "int32", here, number(count), mine)
        return terms.make(Reduce("min", frozenset(over), "int32"), [numbered]) if over else numbered

    slot = first_with(terms.make(Iota(axis, "int32")), row, mine, axes)
    others = [terms.axis(("places of rows", one), one.size) for one in axes]
    other_row, other = row, mine
    for one, renamed in zip(axes, others, strict=True):
        other_row, other = (terms.make(Rename(one, renamed), [value]) for value in (other_row, other))
    return Places(slot, first_with(row, other_row, other, others), inside)
