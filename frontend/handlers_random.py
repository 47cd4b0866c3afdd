"""Random bits as a formula of their indices: so no array of them has to be drawn as a whole.

The keys that a key is split into are such bits.

Numbers that are drawn until one is accepted, as of a gamma distribution, have a key for each.

The bits that JAX's default generator draws at an index are a hash of the key and of that index: Threefry
(Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011) of the index in row-major
order, as two words of 32 bits. So a slice of them is the hash of a slice of the indices.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import random
from jax.extend.core import ClosedJaxpr

from eqsat.frontend.generators import is_threefry
from eqsat.frontend.registry import Views, handles

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

MOST = 2**32
"""Indices up to this number have nothing in their upper word."""

FEW = 16
"""Nothing is gained by making so few keys in chunks."""

FEW_GAMMAS = 1024
"""Nor by so few numbers of a gamma distribution, which is many equations."""


@handles("random_bits")
def random_bits(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    keys, shape = equation.invars[0].aval, tuple(equation.params["shape"])
    config: Any = jax.config
    by_index = config.jax_threefry_partitionable
    if not (by_index and is_threefry(keys.dtype) and 0 < math.prod(shape) <= MOST):
        return None
    formula = _bits(tuple(keys.shape), keys.dtype, shape, equation.params["bit_width"])
    return lowering.inline(formula, operands, named=False)


@handles("random_split")
def random_split(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """Keys as draws of two words each. A key that is split into a few is split by the call."""
    keys, shape = equation.invars[0].aval, tuple(equation.params["shape"])
    config: Any = jax.config
    by_index = config.jax_threefry_partitionable
    if not (by_index and is_threefry(keys.dtype) and FEW < math.prod(shape) <= MOST):
        return None
    formula = _split(tuple(keys.shape), keys.dtype, shape)
    return lowering.inline(formula, operands, named=False)


@handles("random_gamma")
def random_gamma(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """Gamma distributed numbers, as those of beta, Dirichlet and Student's t are made of.

    JAX draws each by a loop of its own, or all by one loop where that is faster, as on a GPU. Both accept the
    same numbers.
    """
    keys, shapes = (operand.aval for operand in equation.invars)
    if not is_threefry(keys.dtype) or not FEW_GAMMAS < shapes.size <= MOST:
        return None
    formula = _gamma(
        equation.primitive,
        tuple(keys.shape),
        keys.dtype,
        tuple(shapes.shape),
        shapes.dtype,
        equation.params["log_space"],
    )
    return None if formula is None else lowering.inline(formula, operands, named=False)


@lru_cache(maxsize=64)
def _gamma(
    primitive: Any,
    batch: tuple[int, ...],
    key_dtype: Any,
    shape: tuple[int, ...],
    dtype: Any,
    log_space: bool,
) -> ClosedJaxpr | None:
    """What computes all numbers by one loop; None if this version of JAX computes them in another way."""
    drawn = partial(primitive.impl, log_space=log_space, use_vmap=True)
    try:
        return jax.make_jaxpr(drawn)(
            jax.ShapeDtypeStruct(batch, key_dtype), jax.ShapeDtypeStruct(shape, dtype)
        )
    except TypeError:
        return None


@lru_cache(maxsize=256)
def _bits(batch: tuple[int, ...], dtype: Any, shape: tuple[int, ...], width: int) -> ClosedJaxpr:
    """A function that draws `shape` numbers of `width` bits for each key of a batch."""

    def drawn(keys: jax.Array) -> jax.Array:
        upper, lower = _words(keys, shape)
        unsigned = jnp.dtype(f"uint{width}")
        if width == 64:
            upper, lower = (lax.convert_element_type(word, unsigned) for word in (upper, lower))
            return lax.shift_left(upper, lax.full_like(upper, 32)) | lower
        drawn: jax.Array = lax.convert_element_type(upper ^ lower, unsigned)
        return drawn

    return jax.make_jaxpr(drawn)(jax.ShapeDtypeStruct(batch, dtype))


@lru_cache(maxsize=256)
def _split(batch: tuple[int, ...], dtype: Any, shape: tuple[int, ...]) -> ClosedJaxpr:
    """A function that splits each key of a batch into `shape` keys."""

    def split(keys: jax.Array) -> jax.Array:
        words = [lax.expand_dims(word, [word.ndim]) for word in _words(keys, shape)]
        pairs = lax.concatenate(words, words[0].ndim - 1)
        wrapped: jax.Array = jax.random.wrap_key_data(pairs, impl="threefry2x32")
        return wrapped

    return jax.make_jaxpr(split)(jax.ShapeDtypeStruct(batch, dtype))


def _words(keys: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Two words of 32 bits for each index of `shape` and each key of a batch."""
    data = jax.random.key_data(keys)
    batch = keys.ndim
    first, second = (
        lax.expand_dims(lax.index_in_dim(data, word, batch, keepdims=False), range(batch, batch + len(shape)))
        for word in (0, 1)
    )
    whole = (*keys.shape, *shape)
    zero = lax.full(whole, np.uint32(0))
    index = zero
    stride = 1
    for dimension in reversed(range(batch, len(whole))):
        along = lax.broadcasted_iota(jnp.uint32, whole, dimension)
        index = index + along * np.uint32(stride)
        stride *= whole[dimension]
    upper, lower = random.threefry2x32_p.bind(first, second, zero, index)
    return upper, lower
