"""Rows of an array that are looked up by indices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import lax

from eqsat.ir.axis import Axis, layout_shape
from eqsat.ir.constants import constant_text
from eqsat.ir.dtypes import is_inexact, numpy_dtype
from eqsat.ir.ops import Const, Opaque
from eqsat.ir.term import Term


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
