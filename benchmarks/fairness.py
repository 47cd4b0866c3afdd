"""Whether results that differ from those of the function as written are about as near to the exact ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

TIMES_AS_FAR = 3.0
"""Results that differ are fair if ours are at most this many times as far from those in double precision."""

NEGLIGIBLE = 1e-4
"""Relative errors of each result, beside its largest entry, that are always allowed."""

PERTURBATIONS = 4
"""How many times the arguments are changed in the last digit, to see how far off the function may be.

How near it comes to the exact results on some arguments is partly luck, where it is ill-conditioned.
"""


def are_fair(
    function: Callable[..., Sequence[Any]],
    written: Callable[..., Sequence[Any]],
    leaves: Sequence[Any],
    found: Sequence[Any],
) -> bool:
    """Whether results are about as near to the exact ones as those of the function as written.

    **Arguments:**

    - `function`: a function of arrays; `written`: the same, compiled.
    - `leaves`: its arguments; `found`: the results to judge.
    """
    exact = _in_double(function, leaves)
    errors = [_errors(written(*leaves), exact)]
    for seed in range(PERTURBATIONS + 1):
        if all(map(is_fair, exact, np.max(errors, axis=0), found)):
            return True
        if seed < PERTURBATIONS:
            others = [perturbed(leaf, seed) for leaf in leaves]
            errors.append(_errors(written(*others), _in_double(function, others)))
    return False


def is_fair(exact: Any, error: float, found: Any) -> bool:
    """Whether a result is about as near to the exact one as one of this error."""
    if not _is_float(exact):
        return True
    ours = _off(found, exact)
    return bool(ours <= TIMES_AS_FAR * error + NEGLIGIBLE * np.abs(np.asarray(exact)).max())


def perturbed(leaf: Any, seed: int) -> Any:
    """An array in single precision, each entry changed by at most its last digit; others as they are."""
    if leaf.dtype != np.float32:
        return leaf
    steps = np.random.default_rng(seed).integers(-1, 2, leaf.shape)
    return jax.numpy.asarray(np.asarray(leaf) * (1 + steps * np.finfo(np.float32).eps).astype(np.float32))


def _in_double(function: Callable[..., Sequence[Any]], leaves: Sequence[Any]) -> list[Any]:
    """The results of arguments in double precision, where they are in single precision."""
    with jax.enable_x64(True):
        wide = [jax.numpy.asarray(one, np.float64) if one.dtype == np.float32 else one for one in leaves]
        return [one if _is_key(one) else np.asarray(one) for one in jax.jit(function)(*wide)]


def _errors(results: Sequence[Any], exact: Sequence[Any]) -> list[float]:
    return [_off(a, b) if _is_float(b) else 0.0 for a, b in zip(results, exact, strict=True)]


def _off(found: Any, exact: Any) -> float:
    return float(np.abs(np.asarray(found, np.float64) - np.asarray(exact)).max())


def _is_float(array: Any) -> bool:
    return not _is_key(array) and bool(jax.numpy.issubdtype(array.dtype, np.floating)) and array.size > 0


def _is_key(array: Any) -> bool:
    return bool(jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key))
