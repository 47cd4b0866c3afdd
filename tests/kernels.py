"""An example for the tests of what users see: a kernel matrix times a vector, and its optimised form."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import eqsat
from tests.stages import normal

X, Y, V = normal(211, 3), normal(307, 3), normal(307)
BUDGET = 60_000
"""A budget in bytes; the kernel matrix alone takes 259 kB."""


def kernel(x: Any, y: Any, v: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1) / 2) @ v


SMALL = eqsat.optimize(kernel, budget=BUDGET)
"""The optimised kernel, which all tests share so that it is planned once."""


def close(got: Any, wanted: Any, rtol: float = 2e-5) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)
