"""Judges whether an optimised function has the results of the function, or raises the same exception."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import eqsat
from eqsat.backend.certificate import certify, compiler_options

ROOMY = 1 << 30


@dataclass(frozen=True)
class Verdict:
    """The outcome for a function at a budget: "unchanged", "rewritten", "not reached" or "raises"."""

    outcome: str
    peak: int = 0
    budget: int = 0


def differentiable(args: dict[str, Any]) -> list[int]:
    return [n for n, value in enumerate(args.values()) if jnp.issubdtype(value.dtype, jnp.inexact)]


def gradient(fn: Callable[..., Any], args: dict[str, Any]) -> Callable[..., Any]:
    """Returns the gradient of a weighted sum of all real and imaginary parts of the results."""
    where = tuple(differentiable(args))

    def total(*values: Any) -> Any:
        leaves = [leaf for leaf in jax.tree.leaves(fn(*values)) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
        parts = [part for leaf in leaves for part in _real_parts(leaf)]
        return sum(
            jnp.sum(part * jnp.cos(jnp.arange(part.size, dtype=part.dtype)).reshape(part.shape))
            for part in parts
        )

    def mixed(*values: Any) -> Any:
        complex_ = any(jnp.iscomplexobj(values[n]) for n in where)
        return jax.grad(lambda *v: jnp.real(total(*v)) if complex_ else total(*v), where)(*values)

    return mixed


def tangent(fn: Callable[..., Any], args: dict[str, Any]) -> Callable[..., Any]:
    """Returns the derivative of a function in one direction."""
    where = differentiable(args)

    def derivative(*values: Any) -> Any:
        def of(*some: Any) -> Any:
            full = list(values)
            for n, value in zip(where, some, strict=True):
                full[n] = value
            return fn(*full)

        point = [values[n] for n in where]
        # The point itself is no good direction: derivatives of homogeneous functions along it may be zero,
        # except for rounding.
        direction = [
            jnp.cos(jnp.arange(value.size)).reshape(value.shape).astype(value.dtype) for value in point
        ]
        return jax.jvp(of, point, direction)[1]

    return derivative


def _real_parts(leaf: Any) -> list[Any]:
    return [jnp.real(leaf), jnp.imag(leaf)] if jnp.iscomplexobj(leaf) else [leaf]


def raised(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, type[BaseException] | None]:
    """Calls a function; returns the leaves of its results, or the type of the exception that it raised."""
    try:
        return jax.tree.leaves(jax.block_until_ready(fn(*args))), None
    except Exception as error:
        return None, type(error)


def tight_budget(fn: Callable[..., Any], args: tuple[Any, ...], part: float) -> int:
    """Returns the bytes of arguments, results, and a share of the temporaries of the original function."""
    original = certify(lambda *a: jax.tree.leaves(fn(*a)), args)
    fixed = original.arguments + original.outputs - original.aliased
    return max(fixed + int(part * (original.peak - fixed)), 1)


def judge(fn: Callable[..., Any], args: tuple[Any, ...], part: float | None) -> Verdict:
    """Compares the optimised function with the original, and asserts that they agree.

    The budget has room for `part` of the temporaries, or if that is None, for everything.
    """
    wanted, error = raised(jax.jit(fn), args)
    if error is not None:
        _, own = raised(eqsat.optimize(fn, budget=ROOMY), args)
        assert own is error, f"{own} instead of {error}"
        return Verdict("raises")
    budget = ROOMY if part is None else tight_budget(fn, args, part)
    optimized = eqsat.optimize(fn, budget=budget)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            plan = optimized.plan(*args)
        except eqsat.BudgetError:
            assert part is not None, "a roomy budget was not reached"
            return Verdict("not reached", budget=budget)
        assert plan.peak_bytes <= budget
        got = jax.tree.leaves(optimized(*args))
    assert len(got) == len(wanted)
    if not plan.changed and not all(map(identical, got, wanted)):
        # The plan is compiled with other options than jax.jit's, under which results may round otherwise.
        wanted = jax.tree.leaves(jax.jit(fn, compiler_options=compiler_options())(*args))
    for one, other in zip(got, wanted, strict=True):
        same(one, other, not plan.changed)
    return Verdict("rewritten" if plan.changed else "unchanged", plan.peak_bytes, budget)


def identical(got: Any, wanted: Any) -> bool:
    if jnp.issubdtype(got.dtype, jax.dtypes.prng_key):
        got, wanted = jax.random.key_data(got), jax.random.key_data(wanted)
    return np.array_equal(np.asarray(got), np.asarray(wanted), equal_nan=got.dtype.kind in "fc")


def same(got: Any, wanted: Any, exact: bool) -> None:
    """Asserts that two arrays agree: to the bit if `exact`, or else as sums in another order do."""
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    assert getattr(got, "weak_type", False) == getattr(wanted, "weak_type", False)
    if jnp.issubdtype(got.dtype, jax.dtypes.prng_key):
        got, wanted = jax.random.key_data(got), jax.random.key_data(wanted)
    if exact or not jnp.issubdtype(got.dtype, jnp.inexact):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))
        return
    wide = np.complex128 if jnp.iscomplexobj(got) else np.float64
    one, other = np.asarray(got).astype(wide), np.asarray(wanted).astype(wide)
    finite = np.abs(other[np.isfinite(other)])
    scale = float(finite.max()) if finite.size else 1.0
    eps = float(jnp.finfo(got.dtype).eps)
    np.testing.assert_allclose(one, other, rtol=1000 * eps, atol=200 * eps * scale)
