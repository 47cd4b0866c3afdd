"""An example for every named operation: the lengths of its core axes, and a NumPy reference for one slice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Example:
    """An example of an operation.

    **Attributes:**

    - `lengths`: the lengths of its core axes.
    - `reference`: computes one slice of the result with NumPy.
    - `prepare`: turns matrices of random numbers into valid operands.
    """

    lengths: Sequence[int]
    reference: Callable[..., Any]
    prepare: Callable[[np.ndarray], np.ndarray] = lambda x: x


def positive(a: np.ndarray) -> np.ndarray:
    """Returns symmetric positive definite matrices."""
    return a @ np.swapaxes(a, -1, -2) + 4 * np.eye(a.shape[-1])


def regular(a: np.ndarray) -> np.ndarray:
    return a + 4 * np.eye(a.shape[-1])


def softmax(a: np.ndarray) -> np.ndarray:
    weights = np.exp(a - a.max())
    return np.asarray(weights / weights.sum())


EXAMPLES = {
    "inv": Example((5, 5), lambda a: np.linalg.inv(a), regular),
    "solve": Example((5, 5), np.linalg.solve, regular),
    "det": Example((5, 5), np.linalg.det, regular),
    "logdet": Example((5, 5), lambda a: np.linalg.slogdet(a)[1], regular),
    "cholesky": Example((5, 5), np.linalg.cholesky, positive),
    "solve_lower": Example((5, 5), lambda a, b: np.linalg.solve(np.tril(a), b), regular),
    "solve_upper": Example((5, 5), lambda a, b: np.linalg.solve(np.triu(a), b), regular),
    "qr_q": Example((7, 5), lambda a: np.linalg.qr(a)[0]),
    "qr_r": Example((7, 5, 5), lambda a: np.linalg.qr(a, mode="r")),
    "qr_r_beside_q": Example((7, 5, 5), lambda a: np.linalg.qr(a, mode="r")),
    "qr_qt": Example((7, 5, 5), lambda a, b: np.linalg.qr(a)[0].T @ b),
    "svd_u": Example((7, 5, 5), lambda a: np.linalg.svd(a, full_matrices=False)[0]),
    "svd_s": Example((7, 5, 5), lambda a: np.linalg.svd(a, compute_uv=False)),
    "svd_v": Example((7, 5, 5), lambda a: np.linalg.svd(a, full_matrices=False)[2]),
    "svd_v_beside_u": Example((7, 5, 5), lambda a: np.linalg.svd(a, full_matrices=False)[2]),
    "eigenvalues": Example((5, 5), np.linalg.eigvalsh, positive),
    "diagonal": Example((5, 5), np.diagonal),
    "tril": Example((5, 6), np.tril),
    "triu": Example((5, 6), np.triu),
    "softmax": Example((7,), softmax),
    "logsumexp": Example((7,), lambda a: np.log(np.exp(a).sum())),
    "merge": Example((2, 5, 10), np.ravel),
    "split": Example((10, 2, 5), lambda a: a.reshape(2, 5)),
    "kron": Example((2, 3, 5, 2, 10, 6), np.kron),
    "reverse": Example((7,), lambda a: a[::-1]),
    "centre": Example((7,), np.median),
    "head": Example((7, 4), lambda a: a[:4]),
    "append": Example((7, 8), np.append),
    "sort": Example((7,), np.sort),
    "argsort": Example((7,), np.argsort),
    "take": Example((7,), lambda a, i: a[min(max(i, 0), len(a) - 1)]),
}
