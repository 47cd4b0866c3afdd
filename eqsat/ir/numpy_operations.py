"""The built-in operations in NumPy, which is fast on small arrays because nothing is compiled.

Each function takes arrays whose last dimensions are the operand's core axes. The dimensions before broadcast.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat.ir import numpy_linalg
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Operation

Array = np.ndarray[Any, np.dtype[Any]]


def _solve(a: Array, b: Array) -> Array:
    return numpy_linalg.solve(a, b[..., None])[..., 0]


def _solve_lower(a: Array, b: Array) -> Array:
    return numpy_linalg.forward(a, b[..., None])[..., 0]


def _solve_upper(a: Array, b: Array) -> Array:
    return numpy_linalg.backward(a, b[..., None])[..., 0]


def _eigenvalues(a: Array) -> Array:
    return np.asarray(np.linalg.eigvalsh((a + np.conj(np.swapaxes(a, -1, -2))) / 2))


def _softmax(a: Array) -> Array:
    powers = np.exp(a - np.max(a, axis=-1, keepdims=True))
    return np.asarray(powers / np.sum(powers, axis=-1, keepdims=True))


def _logsumexp(a: Array) -> Array:
    largest = np.max(a, axis=-1)
    shift = np.where(np.isfinite(largest), largest, 0).astype(a.dtype)
    return np.asarray(np.log(np.sum(np.exp(a - shift[..., None]), axis=-1)) + shift)


def _centre(a: Array) -> Array:
    thinned = a[..., :: a.shape[-1] // 100 + 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy warns if all entries are NaN
        return np.asarray(np.nan_to_num(np.nanmedian(thinned, axis=-1), posinf=0.0, neginf=0.0))


def _kron(a: Array, b: Array) -> Array:
    found: Array = np.einsum("...ij,...kl->...ikjl", a, b)
    *batch, i, k, j, m = found.shape
    return found.reshape(*batch, i * k, j * m)


def _take(a: Array, index: Array) -> Array:
    last = a.shape[-1] - 1
    batch = np.broadcast_shapes(a.shape[:-1], index.shape)
    a, index = np.broadcast_to(a, (*batch, last + 1)), np.broadcast_to(index, batch)
    return np.take_along_axis(a, np.clip(index, 0, last)[..., None], -1)[..., 0]


def _append(a: Array, s: Array) -> Array:
    batch = np.broadcast_shapes(a.shape[:-1], s.shape)
    longer = np.broadcast_to(a, (*batch, a.shape[-1])), np.broadcast_to(s, batch)[..., None]
    return np.concatenate(longer, axis=-1)


def _qr_qt(a: Array, b: Array) -> Array:
    # By reflections: which of the results are infinite, and which NaN, depends on the library.
    finite = np.all(np.isfinite(b), axis=-1, keepdims=True)
    product = np.einsum("...ij,...i->...j", numpy_linalg.qr(a)[0], b)
    return np.asarray(np.where(finite, product, np.asarray(np.nan, product.dtype)))


def _merge(a: Array) -> Array:
    return a.reshape(*a.shape[:-2], a.shape[-2] * a.shape[-1])


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "inv": numpy_linalg.inv,
    "solve": _solve,
    "det": numpy_linalg.det,
    "logdet": numpy_linalg.logdet,
    "cholesky": numpy_linalg.cholesky,
    "solve_lower": _solve_lower,
    "solve_upper": _solve_upper,
    "qr_q": lambda a: numpy_linalg.qr(a)[0],
    "qr_r": lambda a: numpy_linalg.qr(a)[1],
    "qr_r_beside_q": lambda a: numpy_linalg.qr(a)[1],
    "qr_qt": _qr_qt,
    "svd_u": lambda a: np.linalg.svd(a, full_matrices=False)[0],
    "svd_s": lambda a: np.linalg.svd(a, compute_uv=False),
    "svd_v": lambda a: np.linalg.svd(a, full_matrices=False)[2],
    "svd_v_beside_u": lambda a: np.linalg.svd(a, full_matrices=False)[2],
    "eigenvalues": _eigenvalues,
    "diagonal": lambda a: np.diagonal(a, axis1=-2, axis2=-1),
    "tril": np.tril,
    "triu": np.triu,
    "softmax": _softmax,
    "logsumexp": _logsumexp,
    "merge": _merge,
    "kron": _kron,
    "centre": _centre,
    "reverse": lambda a: a[..., ::-1],
    "sort": lambda a: np.sort(a, axis=-1, kind="stable"),
    "argsort": lambda a: np.argsort(a, axis=-1, kind="stable"),
    "take": _take,
    "append": _append,
}
"""The NumPy functions by their names in `eqsat.ir.operations`.

`split` and `head` are missing, because the shapes of their operands do not determine that of the result.
"""

ALONG: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "magnitude_sum": lambda a, along: np.sum(np.abs(a), along),
    "largest_magnitude": lambda a, along: np.max(np.abs(a), along),
    "smallest_magnitude": lambda a, along: np.min(np.abs(a), along),
    # Unlike XLA, NumPy does not flush subnormal numbers to 0.
    "smallest_nonzero_magnitude": lambda a, along: np.min(np.where(a == 0, 1, np.abs(a)), along, initial=1),
}
"""The functions along any number of core axes, which they get as dimensions."""

IN_DOUBLE = frozenset({"svd_u", "svd_s", "svd_v", "svd_v_beside_u", "eigenvalues"})
"""The operations that NumPy computes in double precision only."""


def in_numpy(
    op: Operation, arrays: Sequence[Array], operand_axes: Sequence[Sequence[Axis]], batch: Sequence[Axis]
) -> Array | None:
    """Applies the operation to arrays, to each slice along `batch`.

    **Arguments:**

    - `operand_axes`: the axes of the dimensions of each array: those of `batch` that it has, in their order,
      and then its core axes in the order of the signature.

    **Returns:**

    An array with the axes of `batch`, and then the result's core axes in the order of the signature. None if
    NumPy cannot compute the operation faithfully.
    """
    spec, name = op.spec, op.spec.name
    if not spec.text or any(axis.size == 0 for axis in op.axes):
        return None
    if name in IN_DOUBLE and arrays[0].dtype.name in ("float32", "complex64"):
        return None
    lengths: dict[Axis, int] = {}  # arrays may be chunks along a batch axis
    for array, axes in zip(arrays, operand_axes, strict=True):
        lengths.update(zip(axes, array.shape, strict=True))
    operands = [
        array.reshape(
            tuple(lengths[axis] if axis in axes else 1 for axis in batch)
            + tuple(axis.size for axis in op.core(letters))
        )
        for array, axes, (_, letters) in zip(arrays, operand_axes, spec.signature.operands, strict=True)
    ]
    core = tuple(axis.size for axis in op.core(spec.signature.result))
    with np.errstate(all="ignore"):
        try:
            if name == "split":
                result = operands[0].reshape(*operands[0].shape[:-1], *core)
            elif name == "head":
                result = operands[0][..., : core[0]]
            elif name in ALONG:
                result = np.asarray(ALONG[name](operands[0], tuple(range(-len(op.axes), 0))))
            elif name in FUNCTIONS:
                result = np.asarray(FUNCTIONS[name](*operands))
            else:
                return None
        except (np.linalg.LinAlgError, TypeError):
            return None
    return np.broadcast_to(result, tuple(lengths[axis] for axis in batch) + core)
