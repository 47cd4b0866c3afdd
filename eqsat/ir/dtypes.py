"""dtypes by name: their size and their class."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np

FLOAT0 = str(jax.dtypes.float0)
"""The dtype of tangents of integers: nothing that is computed depends on them."""


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of that name; JAX's additions (bfloat16, float8_e4m3fn, int4...) included.

    >>> numpy_dtype("bfloat16").itemsize
    2
    """
    return np.dtype(bool if name == FLOAT0 else jax.numpy.dtype(name))


def is_extended(name: str) -> bool:
    """Whether the dtype is one of JAX's own that no NumPy array has, such as `key<fry>`."""
    return "<" in name


@cache
def itemsize(name: str) -> int:
    """Bytes per element. A PRNG key counts as 16, the largest of JAX's implementations."""
    return 16 if is_extended(name) else numpy_dtype(name).itemsize


@cache
def is_inexact(name: str) -> bool:
    """Whether the dtype is a float or a complex one."""
    return not is_extended(name) and bool(jax.numpy.issubdtype(numpy_dtype(name), np.inexact))


@cache
def is_real_float(name: str) -> bool:
    return not is_extended(name) and bool(jax.numpy.issubdtype(numpy_dtype(name), np.floating))


@cache
def accumulator(name: str) -> str:
    """The dtype in which partial sums of `name` are carried: half floats add up in float32.

    >>> accumulator("bfloat16"), accumulator("float64")
    ('float32', 'float64')
    """
    return "float32" if is_real_float(name) and itemsize(name) < 4 else name


@cache
def limits_of(name: str) -> Any:
    """The range of a dtype and, of a float or of the parts of a complex number, the digits.

    >>> float(limits_of("bfloat16").eps), float(limits_of("float16").max), limits_of("int8").min
    (0.0078125, 65504.0, -128)
    """
    limits: Any = jax.numpy.finfo if is_inexact(name) else jax.numpy.iinfo
    return limits(numpy_dtype(name))


@cache
def counts_to(name: str) -> int:
    """The largest n so that a dtype has all of 0, 1, ..., n.

    >>> counts_to("uint8"), counts_to("float32"), counts_to("bfloat16"), counts_to("complex64")
    (255, 16777216, 256, 16777216)
    """
    limits = limits_of(name)
    return int(2 ** (limits.nmant + 1) if is_inexact(name) else limits.max)
