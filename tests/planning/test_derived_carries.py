"""Loops that carry what a large carry is computed from: in every form a loop means the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.ir.axis import layout_axes
from eqsat.ir.control import carried
from eqsat.ir.ops import Opaque
from eqsat.ir.term import reachable
from eqsat.planning.rematerialisation import with_rematerialised_operands
from tests.planning.test_rematerialisation import check_equalities
from tests.stages import lowered, normal

THRESHOLD = 300
"""Bytes above which a carry is large here."""


def features(c: jax.Array, t: jax.Array) -> jax.Array:
    return jnp.exp(-((t[:, None] - c) ** 2))


def kept_until_accepted(c: Any, t: Any) -> Any:
    """As solvers keep a linearisation, in two equal carries."""

    def iteration(state: Any) -> Any:
        i, c, a, b = state
        later = c - 0.1 * jnp.tanh((a * b).sum(0) - i)
        new = features(later, t)
        accepted = (i == 0) | (new.sum() < a.sum())
        c, a, b = lax.cond(accepted, lambda: (later, new, new), lambda: (c, a, b))
        return i + 1, c, a, b

    zeros = jnp.zeros((len(t), len(c)))
    return lax.while_loop(lambda state: state[0] < 4, iteration, (0, c, zeros, zeros))[1:3]


def rejected_by_selection(c: Any, t: Any) -> Any:
    """The other way round, with a start that is not constant."""

    def iteration(state: Any, x: Any) -> Any:
        c, a = state
        later = c * 0.9 + a.mean() * x
        return (later, jnp.where(later.sum() > 1, a, features(later, t))), a.sum()

    start = normal(len(t), len(c))
    return lax.scan(iteration, (c, start), normal(3))


def always_new(c: Any, t: Any) -> Any:
    def iteration(i: Any, state: Any) -> Any:
        c, a = state
        return c - 0.1 * a.mean(0), features(c, t)

    return lax.fori_loop(0, 3, iteration, (c, jnp.full((len(t), len(c)), jnp.nan).at[:].set(2.0)))


DERIVED = [kept_until_accepted, rejected_by_selection, always_new]


def shorter(program: Any, threshold: float) -> list[int]:
    """Returns how many large carries the loops have in each form."""
    known = with_rematerialised_operands(program, threshold)
    counts = []
    calls = {
        term.op.call: None
        for _, form in known.equalities
        for term in reachable([form])
        if isinstance(term.op, Opaque) and term.op.call.control is not None
    }
    for call in calls:
        layouts = call.out_layouts[: len(carried(call.control))]
        sizes = [4 * int(np.prod([axis.size for axis in layout_axes(layout)])) for layout in layouts]
        counts.append(sum(size > threshold for size in sizes))
    return counts


@pytest.mark.parametrize("fn", DERIVED)
def test_forms_mean_the_same(fn: Callable[..., Any]) -> None:
    args = normal(3), normal(40)
    program, constants = lowered(fn, *args)
    assert check_equalities(program, [*args, *constants], THRESHOLD)
    assert 0 in shorter(program, THRESHOLD)


def accumulates(c: Any, t: Any) -> Any:
    """What a carry becomes depends on what it was."""
    return lax.fori_loop(0, 3, lambda i, a: a * 0.5 + features(c, t), jnp.zeros((len(t), len(c))))


def from_as_much(c: Any, t: Any) -> Any:
    """What the carry is computed from is no smaller: another array of its size, which changes too."""

    def iteration(i: Any, state: Any) -> Any:
        a, b = state
        return a * b + i, jnp.where(a.sum() > i, jnp.exp(a), b)

    return lax.fori_loop(0, 3, iteration, (features(c, t), features(c + 1, t)))


@pytest.mark.parametrize("fn", [accumulates, from_as_much])
def test_carries_that_stay(fn: Callable[..., Any]) -> None:
    program, _ = lowered(fn, normal(3), normal(40))
    assert 0 not in shorter(program, THRESHOLD)


def test_a_solver_that_keeps_its_linearisation_fits() -> None:
    c, t = normal(20), normal(5000)
    t[7], t[8] = np.inf, -0.0
    optimised = eqsat.optimize(lambda c, t: kept_until_accepted(c, t)[0], budget="400kB")
    plan = optimised.plan(c, t)
    assert plan.original_peak_bytes > 1_000_000
    np.testing.assert_allclose(optimised(c, t), kept_until_accepted(c, t)[0], rtol=2e-5)
