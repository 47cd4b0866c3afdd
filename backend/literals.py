"""Python values as source text that evaluates, with `jax`, `jnp` and `lax` at hand, to the same value."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive, primitives

LARGEST_ARRAY = 16
"""Constant arrays of more elements than this are not written out."""


class NotLiteral(Exception):
    """The value has no text. A signal, not a failure: the value is bound instead."""


def literal(value: Any) -> str:
    """The text of a parameter's value.

    >>> literal((1, True, -0.0, float("inf"), None))
    '(1, True, -0.0, jnp.inf, None)'
    >>> literal(lax.Precision.HIGHEST), literal(jnp.dtype("bfloat16"))
    ('lax.Precision.HIGHEST', 'jnp.dtype("bfloat16")')
    """
    match value:
        case enum.Enum():
            return f"{_public_type(value)}.{value.name}"
        case None | bool() | int() | str() | bytes():
            return repr(value)
        case Primitive() if public_primitives().get(value, "").startswith("lax."):
            return public_primitives()[value]
        case np.dtype():
            return f'jnp.dtype("{_dtype_name(value)}")'
        case np.generic():
            # Parameters that happen to be of NumPy's types mean numbers.
            return literal(value.item())
        case float():
            return number(value)
        case complex():
            return f"complex({number(value.real)}, {number(value.imag)})"
        case tuple() if hasattr(value, "_fields"):
            return _named_tuple(value)
        case tuple():
            return items(map(literal, value))
        case list():
            return f"[{', '.join(map(literal, value))}]"
        case Mapping() if type(value) is dict:
            return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        return _fields(value, named)
    raise NotLiteral(f"no text for a {type(value).__name__}")


def items(texts: Iterable[str]) -> str:
    """A tuple of the given texts.

    >>> items(["rows"]), items(["rows", "7"])
    ('(rows,)', '(rows, 7)')
    """
    parts = list(texts)
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def dtype_name(dtype: Any) -> str:
    """A dtype as JAX's functions take it: `jnp.float32`."""
    name = _dtype_name(dtype)
    name = "bool_" if name == "bool" else name
    if not hasattr(jnp, name):
        raise NotLiteral(f"jax.numpy has no {name}")
    return f"jnp.{name}"


def number(value: float) -> str:
    """A Python float, exactly; the sign of zero is kept, the bits of a NaN are not."""
    if math.isnan(value):
        return "jnp.nan"
    if math.isinf(value):
        return "jnp.inf" if value > 0 else "-jnp.inf"
    return repr(value)


def element(value: Any, dtype: Any) -> str:
    """The Python number that becomes `value` when converted to `dtype`, as short as it can be.

    >>> element(np.float32(0.1), np.float32)
    '0.1'
    """
    dtype = np.dtype(dtype)
    value = np.asarray(value, dtype)[()]
    if dtype == np.bool_:
        return repr(bool(value))
    if jnp.issubdtype(dtype, np.integer):
        return repr(int(value))
    if jnp.issubdtype(dtype, np.complexfloating):
        part = np.float32 if dtype == np.complex64 else np.float64
        return f"complex({element(value.real, part)}, {element(value.imag, part)})"
    if not jnp.issubdtype(dtype, np.floating):
        raise NotLiteral(f"no numbers of dtype {dtype}")
    wide = float(value)
    if math.isnan(wide) and value.tobytes() != np.asarray(math.nan, dtype).tobytes():
        raise NotLiteral("a NaN with a sign or a payload")
    if dtype.itemsize < 8 and math.isfinite(wide):
        # The shortest text that reads back as this value of the narrow dtype: 0.1, not 0.10000000149.
        for digits in range(1, 17):
            short = float(f"{wide:.{digits}g}")
            if np.asarray(short, dtype).tobytes() == value.tobytes():
                return number(short)
    return number(wide)


def scalar(value: Any, dtype: Any) -> str:
    """A scalar of that very dtype: `jnp.float32(0.1)`."""
    return f"{dtype_name(dtype)}({element(value, dtype)})"


def array(value: Any) -> str:
    """A small constant array; NotLiteral for a large one or one whose dtype NumPy does not have."""
    if jnp.issubdtype(value.dtype, jax.dtypes.extended):
        raise NotLiteral(f"no text for an array of {value.dtype}")
    if value.size > LARGEST_ARRAY:
        raise NotLiteral(f"{value.size} elements are too many to write out")
    held = np.asarray(value)
    if held.shape == ():
        return scalar(held, held.dtype)
    if held.size == 0:
        return f"jnp.zeros({literal(held.shape)}, {dtype_name(held.dtype)})"

    def nested(part: Any) -> str:
        if part.shape == ():
            return element(part, held.dtype)
        return f"[{', '.join(nested(row) for row in part)}]"

    return f"jnp.array({nested(held)}, {dtype_name(held.dtype)})"


def _dtype_name(dtype: Any) -> str:
    try:
        name = np.dtype(dtype).name
    except TypeError:
        raise NotLiteral(f"no text for the dtype {dtype}") from None
    return str(name)


@cache
def _public_types() -> dict[type, str]:
    """The types that `jax.lax` exports, by the name under which it does."""
    found: dict[type, str] = {}
    for module, prefix in ((lax.linalg, "lax.linalg"), (lax, "lax")):
        for name in dir(module):
            value = getattr(module, name)
            if isinstance(value, type) and not name.startswith("_"):
                found[value] = f"{prefix}.{name}"
    return found


def _public_type(value: Any) -> str:
    name = _public_types().get(type(value))
    if name is None:
        raise NotLiteral(f"{type(value).__name__} has no public name")
    return name


def _named_tuple(value: Any) -> str:
    defaults = value._field_defaults
    every = zip(value._fields, value, strict=True)
    return _fields(value, {k: v for k, v in every if k not in defaults or defaults[k] != v})


def _fields(value: Any, named: Mapping[str, Any]) -> str:
    return f"{_public_type(value)}({', '.join(f'{k}={literal(v)}' for k, v in named.items())})"


@cache
def public_primitives() -> dict[Any, str]:
    """Where JAX exports its primitives."""
    found: dict[Any, str] = {}
    for module, prefix in ((primitives, "primitives"), (lax.linalg, "lax.linalg"), (lax, "lax")):
        for name in dir(module):
            if name.endswith("_p"):
                found[getattr(module, name)] = f"{prefix}.{name}"
    return found
