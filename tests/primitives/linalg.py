"""Calls of the primitives of linear algebra, and of Fourier transforms."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.primitives.case import Expected, arr, case, ints, spd

# Linear algebra
stack = arr(3, 2, 4, 4)
batch: Expected = {(0,): (0,), (1,): (1,)}


def results(passing: Expected, count: int) -> Expected:
    return {args: outs * count for args, outs in passing.items()}


case("cholesky", lambda x: lax.linalg.cholesky(x), spd(3, 2, 4, 4), passing=batch)
case("cholesky:one", lambda x: lax.linalg.cholesky(x), spd(4, 4), passing={})
case("eigh", lambda x: lax.linalg.eigh(x), spd(3, 2, 4, 4), passing=results(batch, 2))
case("eig", lambda x: lax.linalg.eig(x), stack, passing=results(batch, 3), unique=False)
case("lu", lambda x: lax.linalg.lu(x), stack, passing=results(batch, 3))
case("qr", lambda x: lax.linalg.qr(x), arr(3, 2, 5, 4), passing=results(batch, 2))
case("svd", lambda x: lax.linalg.svd(x), arr(3, 2, 5, 4), passing=results(batch, 3), unique=False)
case("schur", lambda x: lax.linalg.schur(x), stack, passing=results(batch, 2), unique=False)
case("hessenberg", lambda x: lax.linalg.hessenberg(x), stack, passing=results(batch, 2))
case("tridiagonal", lambda x: lax.linalg.tridiagonal(x), spd(3, 2, 4, 4), passing=results(batch, 4))
case(
    "householder_product", lax.linalg.householder_product, stack, arr(3, 2, 4),
    passing={(0, 0): (0,), (1, 1): (1,)},
)  # fmt: skip
case("geqrf", lambda x: jnp.linalg.qr(x, mode="raw"), arr(3, 2, 5, 4), passing=results(batch, 2))
case(
    "lu_pivots_to_permutation", lambda p: lax.linalg.lu_pivots_to_permutation(p, 5),
    ints([1, 2, 2], [0, 1, 4]), passing={(0,): (0,)},
)  # fmt: skip
case(
    "triangular_solve", lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True),
    spd(3, 4, 4), arr(3, 4, 5), passing={(0, 0): (0,), (None, 2): (2,)}, exact=False,
)  # fmt: skip
case(
    "triangular_solve:right", lambda a, b: lax.linalg.triangular_solve(a, b, transpose_a=True),
    spd(4, 4), arr(5, 4), passing={(None, 0): (0,)}, exact=False,
)  # fmt: skip
case(
    "triangular_solve:conjugate",
    lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, conjugate_a=True, unit_diagonal=True),
    arr(4, 4, dtype=np.complex64), arr(4, 3, dtype=np.complex64), passing={(None, 1): (1,)}, exact=False,
)  # fmt: skip
case(
    "tridiagonal_solve", lax.linalg.tridiagonal_solve, arr(3, 4), 9 + arr(3, 4), arr(3, 4), arr(3, 4, 5),
    passing={(0, 0, 0, 0): (0,), (None, None, None, 2): (2,)}, exact=False,
)  # fmt: skip
for kind in ("fft", "ifft"):
    case(f"fft:{kind}", getattr(jnp.fft, kind), arr(3, 2, 8, dtype=np.complex64), passing=batch, exact=False)
case("fft:rfft2", jnp.fft.rfft2, arr(3, 4, 8), passing={(0,): (0,)}, exact=False)
case("cholesky_update", lax.linalg.cholesky_update, np.triu(spd(4, 4)), arr(4), passing={})
case("qr:pivoting", lambda x: lax.linalg.qr(x, pivoting=True), arr(3, 2, 5, 4), passing=results(batch, 3))
case(
    "symmetric_product", lambda a, c: lax.linalg.symmetric_product(a, c), arr(3, 5, 4), spd(3, 5, 5),
    passing={(0, 0): (0,)},
)  # fmt: skip
