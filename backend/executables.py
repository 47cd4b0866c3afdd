"""Executables as bytes: what was compiled in one process runs in another one of the same kind."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.serialize_executable import deserialize_and_load, serialize

CUSTOM_CALL = re.compile(r'custom_call_target="([^"]*)"')
"""How a compiled program says that it calls a function that is none of its own."""

XLA_OWN = frozenset({"TopK"})
"""Functions that XLA has itself; so has it those whose names begin with two underscores."""


@dataclass(frozen=True)
class Packed:
    """An executable as bytes.

    **Attributes:**

    - `calls`: the functions of libraries that it calls, as far as the program says: "lapack_spotrf_ffi"...
    """

    content: bytes
    calls: frozenset[str]


def pack(executable: Any) -> Packed | None:
    """A compiled program as bytes; None if it can't be had so, or if it calls back into this process."""
    calls = frozenset(CUSTOM_CALL.findall(executable.as_text() or ""))
    if any("callback" in name for name in calls):
        return None
    try:
        return Packed(pickle.dumps(serialize(executable)), calls)
    except Exception:
        # A backend need not be able to, and each says so in its own way.
        return None


def unpack(packed: Packed, function: Callable[..., Sequence[Any]], avals: Sequence[Any]) -> Any:
    """The compiled program again.

    JAX looks up the functions of a library when it first lowers a program that calls one, and not when a
    program is loaded: there it would call what is not there.

    **Arguments:**

    - `function`, `avals`: what it was compiled from.
    """
    foreign = {name for name in packed.calls - XLA_OWN if not name.startswith("__")}
    if all(name.startswith("lapack_") for name in foreign):
        if foreign:
            _look_up_lapack()
    else:
        jax.jit(function).lower(*avals)
    return deserialize_and_load(*pickle.loads(packed.content))


@cache
def _look_up_lapack() -> None:
    jax.jit(jnp.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), jnp.float32))
