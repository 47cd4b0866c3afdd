"""Rows of convolutions and of reductions over windows, which read rows around each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from eqsat.frontend.tile_windows import Misaligned, Need, Wanted, Window, identity_of, joined, rule


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
        stride = window.stride * self.step // self.apart
        rows = Window(dimension, stride, start, end - start + 1, window.end)
        return rows, (start * self.apart - first, last - end * self.apart)


@rule("conv_general_dilated")
def _convolution(wanted: Wanted) -> Need | None:
    params = wanted.params
    numbers = params["dimension_numbers"]
    batch, features, *spatial = numbers.out_spec
    if wanted.row == batch and params["batch_group_count"] == 1:
        return wanted.along({0: numbers.lhs_spec[0]})
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
    if reach.step == reach.apart == 1 and params["padding"][place] == (0, 0):
        rows = replace(rows, period=wanted.window.period)
    padding = tuple(around if d == place else one for d, one in enumerate(params["padding"]))
    # XLA for CPUs computes some convolutions wrongly whose padding is negative along one dimension and zero
    # along all others, as that of rows is now (jaxlib 0.10).
    cropped = [min(ends) < 0 and params["lhs_dilation"][d] == 1 for d, ends in enumerate(padding)]
    rest = tuple((0, 0) if crops else ends for crops, ends in zip(cropped, padding, strict=True))

    def compute(operands: Sequence[Any], _: Any) -> Any:
        image, kernel = operands
        config = [(0, 0, 0)] * image.ndim
        for dimension, crops, (low, high) in zip(numbers.lhs_spec[2:], cropped, padding, strict=True):
            config[dimension] = (low, high, 0) if crops else (0, 0, 0)
        image = lax.pad(image, jnp.zeros((), image.dtype), config) if any(cropped) else image
        return wanted.bind([image, kernel], padding=rest)

    return Need((rows, None), compute, {} if rows.period else {0: lambda _: 0})


def sum_of_tiles(wanted: Wanted, place: int, rows: Window) -> Need | None:
    """What the part of a tile of these rows needs, of a convolution that sums over rows.

    The derivative of a convolution by its kernel is one: its own kernel is as large as an image.

        dw[k]  =  sum over rows r of  x[step k + dilation r - low] dy[r]

    **Arguments:**

    - `place`: which of the dimensions of an image the rows are.
    - `rows`: those of the first tile, and how far they are from those of the next.

    **Raises:** `Misaligned`.
    """
    params, numbers = wanted.params, wanted.params["dimension_numbers"]
    dilation, apart = params["rhs_dilation"][place], params["lhs_dilation"][place]
    if rows.stride * dilation % apart:
        raise Misaligned
    low = params["padding"][place][0] - dilation * rows.start
    reach = Reach(rows.length, params["window_strides"][place], dilation, low, apart)
    kernel = Window(0, 0, 0, wanted.shape[numbers.out_spec[2 + place]])
    found = reach.of(kernel, numbers.lhs_spec[2 + place])
    if found is None:
        return None
    image, around = found
    padding = tuple(around if d == place else one for d, one in enumerate(params["padding"]))
    return Need(
        (
            replace(image, stride=rows.stride * dilation // apart),
            replace(rows, dimension=numbers.rhs_spec[2 + place]),
        ),
        lambda operands, _: wanted.bind(operands, padding=padding),
        {0: lambda _: 0},
        None if params["feature_group_count"] > 1 else partial(_over_tiles, wanted, padding),
    )


def _over_tiles(wanted: Wanted, padding: Any, operands: Sequence[Any]) -> Any:
    """One convolution for the sum over tiles, which are more of the features that it sums over.

    One for each tile would be one in groups, which libraries have few fast kernels for, and its results
    would have to be stored.
    """
    numbers = wanted.params["dimension_numbers"]
    features = (numbers.lhs_spec[1], numbers.rhs_spec[1])
    operands = [joined(one, dimension) for one, dimension in zip(operands, features, strict=True)]
    return wanted.bind(operands, padding=padding)


@rule("select_and_scatter_add")
def _scatter(wanted: Wanted) -> Need | None:
    """The derivative of a maximum over windows: each goes where that window has its maximum.

    Rows of the result need the windows that they are in, and these all of their rows.
    """
    params, row, window = wanted.params, wanted.row, wanted.window
    size, step = params["window_dimensions"][row], params["window_strides"][row]
    low = params["padding"][row][0]
    if step > size:
        return None  # There are rows in no window.
    if window.stride % step:
        raise Misaligned
    start = -(-(window.start + low - size + 1) // step)
    end = (window.start + window.length - 1 + low) // step
    source = Window(row, window.stride // step, start, end - start + 1, window.end)
    operand = Window(row, window.stride, start * step - low, (end - start) * step + size, window.end)
    padding = tuple((0, 0) if d == row else one for d, one in enumerate(params["padding"]))
    first = window.start - operand.start
    # As JAX pads on CPUs and GPUs; on a TPU, padded rows are never chosen, even among rows of -inf.
    worst = -np.inf if params["select_prim"].name == "ge" else np.inf

    def compute(operands: Sequence[Any], _: Any) -> Any:
        found = wanted.bind(operands, padding=padding)
        return lax.slice_in_dim(found, first, first + window.length, axis=row)

    return Need((source, operand), compute, {0: lambda _: 0, 1: lambda _: worst})


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
    if reach.step == reach.apart == 1 and params["padding"][row] == (0, 0):
        rows = replace(rows, period=wanted.window.period)
    padding = tuple(around if d == row else one for d, one in enumerate(params["padding"]))
    identity = identity_of(wanted.equation.name.rpartition("_")[2], wanted.dtype)
    fillers = {} if rows.period else {0: lambda _: identity}
    return Need((rows,), lambda operands, _: wanted.bind(operands, padding=padding), fillers)
