"""Properties of dtypes, which are identified by name: their size, class and range."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np

FLOAT0 = str(jax.dtypes.float0)
"""The dtype of the tangents of integers. No computed value depends on such a tangent."""


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """Returns the NumPy dtype of that name.

    JAX's additions (bfloat16, float8_e4m3fn, int4, ...) are known, and `float0` is stored as bool. Raises a
    `TypeError` if the name is not that of a dtype.


    >>> numpy_dtype("bfloat16").itemsize
    2
    """
    return np.dtype(bool if name == FLOAT0 else jax.numpy.dtype(name))


def is_extended(name: str) -> bool:
    """Returns whether the dtype is one of JAX's extended dtypes, such as `key<fry>`, which NumPy lacks."""
    return "<" in name


@cache
def itemsize(name: str) -> int:
    """Returns the bytes per element.

    A PRNG key counts as 16 bytes, the size of the largest of JAX's implementations.
    """
    return 16 if is_extended(name) else numpy_dtype(name).itemsize


@cache
def is_inexact(name: str) -> bool:
    """Returns whether the dtype is a float or complex dtype."""
    return not is_extended(name) and bool(jax.numpy.issubdtype(numpy_dtype(name), np.inexact))


@cache
def is_real_float(name: str) -> bool:
    """Returns whether the dtype is a real floating-point dtype."""
    return not is_extended(name) and bool(jax.numpy.issubdtype(numpy_dtype(name), np.floating))


@cache
def accumulator(name: str) -> str:
    """Returns the dtype in which partial sums of values of dtype `name` are accumulated.

    Floats narrower than float32 are accumulated in float32, all other dtypes in themselves.


    >>> accumulator("bfloat16"), accumulator("float64")
    ('float32', 'float64')
    """
    return "float32" if is_real_float(name) and itemsize(name) < 4 else name


@cache
def limits_of(name: str) -> Any:
    """Returns the limits of a dtype, as `jax.numpy.finfo` or `jax.numpy.iinfo` give them.

    The limits of a complex dtype are those of its real and imaginary parts.


    >>> float(limits_of("bfloat16").eps), float(limits_of("float16").max), limits_of("int8").min
    (0.0078125, 65504.0, -128)
    """
    limits: Any = jax.numpy.finfo if is_inexact(name) else jax.numpy.iinfo
    return limits(numpy_dtype(name))


@cache
def counts_to(name: str) -> int:
    """Returns the largest n such that the dtype represents each of 0, 1, ..., n exactly.

    >>> counts_to("uint8"), counts_to("float32"), counts_to("bfloat16"), counts_to("complex64")
    (255, 16777216, 256, 16777216)
    """
    limits = limits_of(name)
    return int(2 ** (limits.nmant + 1) if is_inexact(name) else limits.max)
