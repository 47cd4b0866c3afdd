"""Which generators of random numbers a program draws from: JAX's own, or somebody else's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import random
from jax.extend.core import Jaxpr, jaxprs_in_params

BUILT_IN = (random.threefry_prng_impl, random.rbg_prng_impl, random.unsafe_rbg_prng_impl)


def is_threefry(dtype: Any) -> bool:
    """Whether keys of this dtype are those of JAX's default generator. Others may have its tag, `fry`."""
    return getattr(dtype, "_impl", None) is random.threefry_prng_impl


def draws_elsewhere(jaxpr: Jaxpr) -> bool:
    """Whether there are keys of a generator that is none of JAX's own."""
    inner = (part for equation in jaxpr.eqns for part in jaxprs_in_params(equation.params))
    results = (var for equation in jaxpr.eqns for var in equation.outvars)
    return any(map(_is_foreign, (*jaxpr.invars, *jaxpr.constvars, *results))) or any(
        map(draws_elsewhere, inner)
    )


def _is_foreign(var: Any) -> bool:
    dtype = getattr(var.aval, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return False
    return all(getattr(dtype, "_impl", None) is not known for known in BUILT_IN)
