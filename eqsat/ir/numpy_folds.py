"""The factors of tall matrices, of which there is one chunk of rows at a time, in NumPy.

This is what a fold with `qr_r` or `qr_qt` means to the reference interpreter. Programs merge the factors of
chunks in another order (`eqsat/ir/row_factors.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from eqsat.ir import numpy_linalg
from eqsat.ir.axis import Axis
from eqsat.ir.numpy_arrays import Array
from eqsat.ir.ops import Operation
from eqsat.ir.term import Term


def folded(op: Operation, pieces: Iterable[Sequence[Array]], bodies: Sequence[Term], result: Term) -> Array:
    """Returns the factor of a matrix, or Q^T b for its orthogonal factor Q.

    **Arguments:**

    - `pieces`: for each chunk, the values of the `bodies`: rows of the matrix, and of b if there is one.
    - `result`: the fold.

    **Returns:**

    The value of the result.
    """
    row, kept, column = op.axes
    batch = sorted(bodies[0].axes - set(op.axes))
    columns = [[column], sorted(bodies[-1].axes - {*batch, row, column})][: len(bodies)]
    lengths = dict[Axis, int]()
    first: list[Array] = []
    found: list[Array] = []
    whole: list[Array] = []
    for piece in pieces:
        for body, value in zip(bodies, piece, strict=True):
            lengths.update(zip(sorted(body.axes), value.shape, strict=True))
        rows = [
            _arranged(value, sorted(body.axes), batch, row, own, lengths)
            for body, value, own in zip(bodies, piece, columns, strict=True)
        ]
        whole = _stacked(whole, rows)
        rows = [np.where(np.isfinite(part), part, 0) for part in rows]
        missing = column.size - (first[0].shape[-2] if first else 0)
        first = _stacked(first, [part[..., :missing, :] for part in rows])
        rest = [part[..., missing:, :] for part in rows]
        if rest[0].shape[-2]:
            # What is not finite would spoil what is.
            found = [np.where(np.isfinite(f), f, 0) for f in _reflected(_stacked(found, rest))]
    wanted = _reflected(_stacked(first, found))[-1]
    wanted = np.where(np.isfinite(_reflected(whole)[-1]), wanted, np.asarray(np.nan, wanted.dtype))
    order = [*batch, kept, *columns[-1]]
    shape = [wanted.shape[-2] if axis == kept else lengths[axis] for axis in order]
    return np.transpose(wanted.reshape(shape), [order.index(axis) for axis in sorted(result.axes)])


def _arranged(
    value: Array,
    axes: Sequence[Axis],
    batch: Sequence[Axis],
    row: Axis,
    columns: Sequence[Axis],
    lengths: dict[Axis, int],
) -> Array:
    """Returns a value as matrices: with the dimensions of the batch, one of rows, and one of all columns."""
    order = [*batch, row, *columns]
    there = np.transpose(value, [axes.index(axis) for axis in order if axis in axes])
    there = there.reshape([lengths[axis] if axis in axes else 1 for axis in order])
    sizes = [lengths[axis] for axis in (*batch, row)]
    whole = np.broadcast_to(there, [*sizes, *(lengths[axis] for axis in columns)])
    return whole.reshape([*sizes, math.prod(lengths[axis] for axis in columns)])


def _stacked(above: Sequence[Array], below: Sequence[Array]) -> list[Array]:
    return (
        [np.concatenate(pair, -2) for pair in zip(above, below, strict=True)]
        if above and below
        else [*(above or below)]
    )


def _reflected(parts: Sequence[Array]) -> list[Array]:
    """Returns the triangular factor of a matrix, and what its orthogonal factor makes of further columns."""
    q, r = numpy_linalg.qr(parts[0])
    turned = [np.conj(np.swapaxes(q, -1, -2)) @ part for part in parts[1:]]
    # Which of the results are infinite, and which NaN, depends on the library.
    fine = [np.isfinite(part).all(-2, keepdims=True) for part in parts[1:]]
    return [r, *(np.where(f, t, np.asarray(np.nan, t.dtype)) for f, t in zip(fine, turned, strict=True))]
