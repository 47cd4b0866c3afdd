"""Rows of convolutions and of reductions over windows, which read rows around each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from eqsat.frontend.tile_windows import Misaligned, Need, Wanted, Window, rule


@dataclass(frozen=True)
class Reach:
    """How an entry of a window operation reaches over its operand, along one dimension.

    **Attributes:**

    - `size`, `step`, `dilation`: of the window of the operation: entries, from one to the next, between them.
    - `low`: how many entries are padded before the operand.
    - `apart`: how far entries of the operand are apart, with padding in between.
    """

    size: int
    step: int
    dilation: int
    low: int
    apart: int

    def of(self, window: Window, dimension: int) -> tuple[Window, tuple[int, int]] | None:
        """The rows of the operand for a window, and what is padded before and behind these.

        None if these are no rows: all is padding in between.

        **Raises:** `Misaligned`.
        """
        if window.stride * self.step % self.apart:
            raise Misaligned
        first = window.start * self.step - self.low
        last = first + (window.length - 1) * self.step + (self.size - 1) * self.dilation
        start, end = -(-first // self.apart), last // self.apart
        if end < start:
            return None
        rows = Window(dimension, window.stride * self.step // self.apart, start, end - start + 1)
        return rows, (start * self.apart - first, last - end * self.apart)


@rule("conv_general_dilated")
def _convolution(wanted: Wanted) -> Need | None:
    params = wanted.params
    numbers = params["dimension_numbers"]
    batch, features, *spatial = numbers.out_spec
    if wanted.row == batch and params["batch_group_count"] == 1:
        return replace(wanted.along({0: numbers.lhs_spec[0]}))
    if wanted.row in (batch, features):
        return None
    place = spatial.index(wanted.row)
    reach = Reach(
        wanted.shapes[1][numbers.rhs_spec[2 + place]],
        params["window_strides"][place],
        params["rhs_dilation"][place],
        params["padding"][place][0],
        params["lhs_dilation"][place],
    )
    found = reach.of(wanted.window, numbers.lhs_spec[2 + place])
    if found is None:
        return None
    rows, around = found
    padding = tuple(around if d == place else one for d, one in enumerate(params["padding"]))
    return Need((rows, None), lambda operands, _: wanted.bind(operands, padding=padding), lambda _: 0)


@rule("reduce_window_max", "reduce_window_min", "reduce_window_sum")
def _window(wanted: Wanted) -> Need | None:
    params, row = wanted.params, wanted.row
    sizes = params["window_dimensions"]
    reach = Reach(
        sizes[row],
        params["window_strides"][row],
        params["window_dilation"][row],
        params["padding"][row][0],
        params["base_dilation"][row],
    )
    found = reach.of(wanted.window, row)
    if found is None:
        return None
    rows, around = found
    padding = tuple(around if d == row else one for d, one in enumerate(params["padding"]))
    identity = _identity(wanted)
    return Need((rows,), lambda operands, _: wanted.bind(operands, padding=padding), lambda _: identity)


def _identity(wanted: Wanted) -> Any:
    """What a reduction over windows begins with."""
    if wanted.equation.name == "reduce_window_sum":
        return 0
    lowest = wanted.equation.name == "reduce_window_max"
    if jnp.issubdtype(wanted.dtype, jnp.inexact):
        return -np.inf if lowest else np.inf
    if wanted.dtype == bool:
        return not lowest
    limits = np.iinfo(wanted.dtype)
    return limits.min if lowest else limits.max
