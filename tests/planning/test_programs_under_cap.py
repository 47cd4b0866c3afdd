"""Programs under a cap: bodies of control flow are planned whole, and for chunks of loops around them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.backend.certificate import certify
from eqsat.engine.extract import Extractor
from eqsat.planning.extraction_state import ExtractionState
from eqsat.planning.liveness import largest_stored
from eqsat.planning.programs_under_cap import built_under
from eqsat.planning.search_space import prepare
from eqsat.rulesets.selection import rules_for
from eqsat.support.deadline import NO_DEADLINE
from eqsat.targets.cpu import CPU
from tests.stages import lowered, normal


@pytest.mark.nightly
def test_bodies_have_no_loops_where_a_loop_around_them_does() -> None:
    """Under a cap, a body for all rows would need loops of its own; one for a chunk of rows does not."""
    x, w = normal(4096, 12), normal(4, 12, 12)

    def loss(w: Any, x: Any) -> Any:
        def layer(h: Any, w: Any) -> Any:
            wide = jnp.tanh((h @ w)[:, :, None] / jnp.arange(8.0, 24.0))
            wide = jnp.cumsum(wide, 2) * wide[:, ::-1]
            return jnp.sin(wide).mean(2), None

        return (lax.scan(layer, x, w)[0] ** 2).mean()

    step = jax.value_and_grad(loss)
    plain = eqsat.optimize(step, budget="1GB").plan(w, x)
    fixed = x.nbytes + 2 * w.nbytes
    optimized = eqsat.optimize(step, budget=fixed + (plain.peak_bytes - fixed) // 40)
    plan = optimized.plan(w, x)
    assert [loop.size for loop in plan.loops] == [4096]
    for found, other in zip(
        jax.tree.leaves(optimized(w, x)), jax.tree.leaves(jax.jit(step)(w, x)), strict=True
    ):
        np.testing.assert_allclose(found, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("layers", "few"), [(8, False), (100, True)])
def test_under_a_cap_that_splits_nothing_a_long_program_is_extracted_once(
    monkeypatch: pytest.MonkeyPatch, layers: int, few: bool
) -> None:
    """Where its fastest program is far too big, others that need not loop either would be, too."""
    splits: list[Any] = []
    extract = Extractor.extract

    def recorded(self: Extractor, cap: float, split: Any = None, *rest: Any, **named: Any) -> Any:
        splits.append(split)
        return extract(self, cap, split, *rest, **named)

    def loss(x: Any) -> Any:
        for number in range(layers):
            x = jnp.sin(x / (1 + number)) * jnp.cos(x)
        return x.sum()

    program, _ = lowered(jax.value_and_grad(loss), normal(512, 512))
    budget = program.fixed_bytes + 2_000_000
    space = prepare(program, (), budget, CPU)
    monkeypatch.setattr(Extractor, "extract", recorded)
    built = built_under(ExtractionState.of(space), 10**9, budget, NO_DEADLINE)
    assert built is not None
    assert built.found[0].predicted_peak > budget
    assert (splits == [None]) == few


def test_a_step_of_training_in_narrow_floats_fits_a_tenth() -> None:
    """A product takes copies in single precision, four times as large: chunks are as much shorter."""

    def step(weights: Any, x: Any, y: Any) -> Any:
        def loss(weights: Any) -> Any:
            value = x.astype(jnp.bfloat16)
            for weight in weights[:-1]:
                value = jnp.tanh(value @ weight.astype(jnp.bfloat16))
            last = value @ weights[-1].astype(jnp.bfloat16)
            return jnp.mean((last.astype(jnp.float32)[:, 0] - y) ** 2)

        return jax.grad(loss)(weights)

    weights = [normal(32, 64) / 8, normal(64, 64) / 8, normal(64, 1) / 8]
    args = (weights, normal(2_011, 32), normal(2_011))
    plain = certify(step, args)
    optimized = eqsat.optimize(step, budget=plain.fixed + (plain.peak - plain.fixed) // 10)
    assert optimized.plan(*args).loops
    for found, wanted in zip(optimized(*args), jax.jit(step)(*args), strict=True):
        np.testing.assert_allclose(found, wanted, atol=0.03 * float(jnp.abs(wanted).max()))


def test_a_loop_that_gathers_from_what_it_carries_stores_no_indices() -> None:
    """Several gathers read each index, so it is stored, though extraction took it for computed on the fly."""
    n = 200_003

    def moved(values: Any, shift: Any) -> Any:
        def step(values: Any, _: Any) -> Any:
            place = shift + jnp.arange(n)
            below = jnp.floor(place)
            weight, at = place - below, below.astype(int) % n
            return values[at] * (1 - weight) + values[(at + 1) % n] * weight, None

        return lax.scan(step, values, None, length=3)[0]

    values, shift = normal(n), normal(n)
    optimized = eqsat.optimize(moved, budget=4 * values.nbytes + values.nbytes // 10)
    assert optimized.plan(values, shift).changed
    np.testing.assert_allclose(optimized(values, shift), jax.jit(moved)(values, shift), atol=1e-4)


def two_calls(x: Any, y: Any) -> Any:
    """A loop for all rows of x, which chunks of them cut, and one for all rows of y."""
    many = lax.scan(lambda h, _: (jnp.tanh(h[:, :, None] * h[:, None]).sum(2), None), x, length=5)[0]
    inner = lax.scan(lambda h, _: (jnp.tanh(h[:, :, None] * h[:, None]).sum(1), None), y, length=5)[0]
    return many.sum(), inner


def test_bodies_that_chunks_do_not_cut_are_extracted_once() -> None:
    program, _ = lowered(two_calls, normal(4096, 40), normal(100, 300))
    state = ExtractionState.of(prepare(program, (), program.fixed_bytes + 2_000_000, CPU, 1))
    for_chunks = state.for_chunks()
    assert for_chunks is not None
    cut = [not call.cut.isdisjoint(state.space.large) for call in state.bodies]
    assert sorted(cut) == [False, True]
    for call, is_cut in zip(state.bodies, cut, strict=True):
        shared = all(
            one is other for one, other in zip(state.bodies[call], for_chunks.bodies[call], strict=True)
        )
        assert shared != is_cut


def test_without_calls_that_chunks_cut_there_is_no_state_for_them() -> None:
    program, _ = lowered(lambda x: jnp.exp(x[:, None] - x[None]).sum(1), normal(500))
    assert ExtractionState.of(prepare(program, (), program.fixed_bytes + 1_000, CPU)).for_chunks() is None


def damped(c: Any, t: Any, r: Any, known: Any) -> Any:
    """A step of Gauss and Newton with damping, for features that are known or else zeros."""
    k = c.shape[1]
    apart = t[:, None] - c[2]
    near = jnp.where(known, jnp.exp(-(c[1] ** 2) * apart**2), 0.0)
    apart = jnp.where(known, apart, 0.0)
    jacobian = jnp.concatenate([near, apart**2 * near, apart * near], 1)
    q, triangle = jnp.linalg.qr(jnp.concatenate([jacobian, jnp.eye(3 * k)]))
    return jax.scipy.linalg.solve_triangular(triangle, q.T @ jnp.concatenate([r, jnp.zeros(3 * k)]))


def test_what_a_loop_takes_entries_of_is_under_the_cap() -> None:
    """It is computed before the loop, and stored, unless the loop computes these entries themselves."""
    n, k = 4_001, 12
    program, _ = lowered(damped, normal(3, k), normal(n), normal(n), jnp.array(True))
    budget, cap = program.fixed_bytes + 60_000, 4 * n * k // 2
    space = prepare(program, rules_for((), "rescales"), budget, CPU)
    built = built_under(ExtractionState.of(space), cap, budget, NO_DEADLINE)
    assert built is not None
    assert built.found
    assert all(largest_stored(one.schedule, CPU) <= cap for one in built.found)
