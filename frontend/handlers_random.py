"""Random bits as a formula of their indices: so no array of them has to be drawn as a whole.

The bits that JAX's default generator draws at an index are a hash of the key and of that index: Threefry
(Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011) of the index in row-major
order, as two words of 32 bits. So a slice of them is the hash of a slice of the indices.
"""

from __future__ import annotations

import math
from functools import lru_cache
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


@handles("random_bits")
def random_bits(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    keys, shape = equation.invars[0].aval, tuple(equation.params["shape"])
    config: Any = jax.config
    by_index = config.jax_threefry_partitionable
    if not (by_index and is_threefry(keys.dtype) and 0 < math.prod(shape) <= MOST):
        return None
    formula = _bits(tuple(keys.shape), keys.dtype, shape, equation.params["bit_width"])
    return lowering.inline(formula, operands, named=False)


@lru_cache(maxsize=256)
def _bits(batch: tuple[int, ...], dtype: Any, shape: tuple[int, ...], width: int) -> ClosedJaxpr:
    """A function that draws `shape` numbers of `width` bits for each key of a batch."""

    def drawn(keys: jax.Array) -> jax.Array:
        words = jax.random.key_data(keys)
        first, second = (
            lax.expand_dims(
                lax.index_in_dim(words, word, len(batch), keepdims=False),
                range(len(batch), len(batch) + len(shape)),
            )
            for word in (0, 1)
        )
        whole = (*batch, *shape)
        zero = lax.full(whole, np.uint32(0))
        index = zero
        stride = 1
        for dimension in reversed(range(len(batch), len(whole))):
            along = lax.broadcasted_iota(jnp.uint32, whole, dimension)
            index = index + along * np.uint32(stride)
            stride *= whole[dimension]
        upper, lower = random.threefry2x32_p.bind(first, second, zero, index)
        unsigned = jnp.dtype(f"uint{width}")
        if width == 64:
            upper, lower = (lax.convert_element_type(word, unsigned) for word in (upper, lower))
            return lax.shift_left(upper, lax.full_like(upper, 32)) | lower
        return lax.convert_element_type(upper ^ lower, unsigned)

    return jax.make_jaxpr(drawn)(jax.ShapeDtypeStruct(batch, dtype))
