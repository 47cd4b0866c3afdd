"""`CASES`: example calls of primitives, and the helpers that enter them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core

Expected = dict[tuple[int | None, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    """A function whose jaxpr has equations with one primitive, and arguments for it.

    **Attributes:**

    - `passing`: maps the dimensions of the operands that pass through to the dimensions of the results. No
      other dimensions do. None stands for an operand without the axis.
    - `exact`: whether a call on a slice gives the slice of the results to the bit.
    - `slices`: whether the tests compile it for slices, too.
    - `unique`: whether the results are determined completely, rather than up to signs and the like.
    - `x64`: whether it is traced and run with 64-bit dtypes.
    - `runs`: whether this machine can run it.
    """

    primitive: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    passing: Expected
    exact: bool = True
    slices: bool = True
    unique: bool = True
    x64: bool = False
    runs: bool = True


CASES: dict[str, Case] = {}
"""The cases by name: that of the primitive, and after a colon, what is special about the case."""


def case(
    name: str, fn: Callable[..., Any], *args: Any, passing: Expected, primitive: str = "", **options: Any
) -> None:
    """Enters a case into `CASES`.

    Its primitive is the part of the name before the colon unless `primitive` names it. The options are the
    other attributes of `Case`.
    """
    assert name not in CASES, name
    CASES[name] = Case(primitive or name.split(":")[0], fn, args, passing, **options)


def arr(*shape: int, dtype: Any = np.float32) -> Any:
    """Returns an array of random elements, the same at every call."""
    rng = np.random.default_rng(sum(shape))
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    if jnp.issubdtype(dtype, jnp.floating):
        return np.asarray(rng.normal(size=shape)).astype(dtype)
    if dtype in (bool, np.bool_):
        return rng.integers(0, 2, size=shape).astype(bool)
    return rng.integers(0 if np.dtype(dtype).kind == "u" else -3, 7, size=shape).astype(dtype)


def ints(*values: Any) -> Any:
    return np.asarray(values, np.int32)


def spd(*shape: int, dtype: Any = np.float32) -> Any:
    """Returns Hermitian positive definite matrices."""
    x = arr(*shape, dtype=dtype)
    return x @ np.conj(np.swapaxes(x, -1, -2)) + 4 * np.eye(shape[-1], dtype=dtype)


def equations(jaxpr: Any, primitive: str) -> Iterator[Any]:
    """Yields every equation of a primitive, also inside the jaxprs of other equations."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == primitive:
            yield eqn
        for inner in core.jaxprs_in_params(eqn.params):
            yield from equations(getattr(inner, "jaxpr", inner), primitive)
