"""Factorisations of stacks of small matrices, computed in the precision of their dtype.

`numpy.linalg` computes single-precision inputs in double precision, which would hide the effects of rounding.
The results for a matrix that has no inverse or no factor are infinite or NaN, as in JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def lu(a: Array) -> tuple[Array, Array, Array]:
    """Factorises a stack of square matrices into L U with partial pivoting.

    **Returns:**

    U with L below its diagonal, the permutation of the rows, and the sign of that permutation.
    """
    factors = np.array(a)
    size = factors.shape[-1]
    order = np.broadcast_to(np.arange(size), factors.shape[:-1]).copy()
    sign = np.ones(factors.shape[:-2], factors.dtype)
    for step in range(size):
        pivot = np.argmax(np.abs(factors[..., step:, step]), axis=-1) + step
        rows = np.broadcast_to(np.arange(size), factors.shape[:-1]).copy()
        np.put_along_axis(rows, pivot[..., None], step, -1)
        rows[..., step] = pivot
        factors = np.take_along_axis(factors, rows[..., None], -2)
        order = np.take_along_axis(order, rows, -1)
        sign = np.where(pivot == step, sign, -sign)
        scale = factors[..., step, step, None]
        ratio = factors[..., step + 1 :, step] / np.where(scale == 0, 1, scale)  # a zero column stays
        factors[..., step + 1 :, step] = ratio
        factors[..., step + 1 :, step + 1 :] -= ratio[..., None] * factors[..., step, None, step + 1 :]
    return factors, order, sign


def substituted(
    rows: Sequence[int], before: Callable[[int], slice], a: Array, b: Array, unit: bool = False
) -> Array:
    """Solves a triangular system a x = b for x, row by row. Each column of b is a right-hand side.

    **Arguments:**

    - `rows`: the order in which the rows are solved.
    - `before`: for each row, the rows that have been solved before it.
    - `unit`: whether to take the diagonal of a as 1.
    """
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    solved = np.zeros((*batch, *b.shape[-2:]), b.dtype)
    for row in rows:
        known = before(row)
        left = b[..., row, :] - np.einsum("...j,...jc->...c", a[..., row, known], solved[..., known, :])
        solved[..., row, :] = left if unit else left / a[..., row, row, None]
    return solved


def forward(a: Array, b: Array, unit: bool = False) -> Array:
    """Solves a lower triangular system. Entries of a above the diagonal are ignored."""
    return substituted(range(a.shape[-1]), slice, a, b, unit)


def backward(a: Array, b: Array) -> Array:
    """Solves an upper triangular system. Entries of a below the diagonal are ignored."""
    return substituted(range(a.shape[-1])[::-1], lambda row: slice(row + 1, None), a, b)


def solve(a: Array, b: Array) -> Array:
    """Solves a x = b for x. Each column of b is a right-hand side."""
    factors, order, _ = lu(a)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    permuted = np.take_along_axis(
        np.broadcast_to(b, (*batch, *b.shape[-2:])),
        np.broadcast_to(order, (*batch, order.shape[-1]))[..., None],
        -2,
    )
    return backward(factors, forward(factors, permuted, unit=True))


def inv(a: Array) -> Array:
    """Returns the inverse, computed column by column."""
    return solve(a, np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape))


def det(a: Array) -> Array:
    """Returns the determinant."""
    factors, _, sign = lu(a)
    return np.asarray(sign * np.prod(np.diagonal(factors, axis1=-2, axis2=-1), axis=-1))


def logdet(a: Array) -> Array:
    """Returns the logarithm of the absolute value of the determinant."""
    diagonal = np.diagonal(lu(a)[0], axis1=-2, axis2=-1)
    return np.asarray(np.sum(np.log(np.abs(diagonal)), axis=-1))


def cholesky(a: Array) -> Array:
    """Returns the lower Cholesky factor of the Hermitian part of each matrix.

    The lower triangle of the factor is NaN if that part is not positive definite.
    """
    matrix = (a + np.conj(np.swapaxes(a, -1, -2))) / np.asarray(2, a.dtype)
    factor = np.zeros_like(matrix)
    for step in range(matrix.shape[-1]):
        done = factor[..., step, None, :step]
        rest = matrix[..., step:, step] - np.sum(factor[..., step:, :step] * np.conj(done), axis=-1)
        root = np.sqrt(np.where(rest[..., 0].real > 0, rest[..., 0].real, np.nan)).astype(a.dtype)
        factor[..., step:, step] = rest / root[..., None]
    bad = np.isnan(factor).any(axis=(-2, -1), keepdims=True)
    return np.asarray(np.tril(np.where(bad, np.asarray(np.nan, a.dtype), factor)))


def qr(a: Array) -> tuple[Array, Array]:
    """Factorises a stack of matrices of shape (..., m, n), of which no dimension is 0, into Q R.

    The reflections are those of LAPACK (`geqrf`), and so are the signs: an entry on the diagonal of R has the
    sign that its column did not have there, unless there is nothing to be made 0 below. What is not finite is
    NaN.

    **Returns:**

    Q of shape (..., m, k) with orthonormal columns and the upper triangular R of shape (..., k, n), where k
    is the smaller one of m and n.
    """
    *batch, height, width = a.shape
    kept = min(height, width)
    rest, q = np.array(a), np.broadcast_to(np.eye(height, dtype=a.dtype), (*batch, height, height)).copy()
    one = np.ones((), a.dtype)
    for step in range(kept):
        column = rest[..., step:, step]
        size, below = norm(column), norm(column[..., 1:])
        top = column[..., 0]
        still = (below == 0) & (top.imag == 0)
        target = (-np.copysign(size, top.real)).astype(a.dtype)
        safe = np.where(still, one, target)
        scale = np.where(still, 0, (target - top) / safe)
        reflector = column / np.where(still, one, top - target)[..., None]
        reflector[..., 0] = 1
        for part in (rest[..., step:, step:], q[..., step:, :]):
            shares = np.einsum("...i,...ij->...j", np.conj(reflector), part)
            part -= np.conj(scale)[..., None, None] * reflector[..., :, None] * shares[..., None, :]
        rest[..., step, step] = np.where(still, top, target)
        rest[..., step + 1 :, step] = 0
    # Which of them are infinite, and which NaN, depends on the library.
    q = np.conj(np.swapaxes(q, -1, -2))[..., :kept]
    r, nan = rest[..., :kept, :], np.asarray(np.nan, a.dtype)
    return np.where(np.isfinite(q), q, nan), np.where(np.isfinite(r), r, nan)


def norm(vectors: Array) -> Array:
    """Returns the length of each vector along the last dimension. Only the length itself may overflow."""
    largest = np.max(np.abs(vectors), axis=-1, initial=0)
    scale = np.where((largest == 0) | ~np.isfinite(largest), np.ones_like(largest), largest)
    return np.asarray(scale * np.sqrt(np.sum(np.abs(vectors / scale[..., None]) ** 2, axis=-1)))
