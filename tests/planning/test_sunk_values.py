"""What loops over chunks read is computed inside of them where it doesn't fit before, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.ir.axis import Axis
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Chunk, Concat, Leaf, Map, Reduce, Rename
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Terms
from eqsat.planning.candidates import Candidate, scheduled
from eqsat.planning.loops import build
from eqsat.planning.sunk_values import with_sunk_values
from eqsat.targets.cpu import CPU
from tests.nightly import THOROUGH
from tests.stages import normal

N, M, C, D = Axis(0, 200), Axis(1, 200), Axis(2, 8), Axis(3, 6)
F32 = "float32"


def scaled(op: str = "sub") -> Program:
    """Sums over differences of all pairs, divided by each of some scales: a loop over the scales."""
    terms = Terms()
    x, e = terms.make(Leaf(0, (N, D), F32)), terms.make(Leaf(1, (C,), F32))
    y = terms.make(Rename(N, M), (x,))
    pairs = terms.make(Map(op, F32), (x, y))
    each = terms.make(Map("div", F32), (pairs, terms.make(Chunk(C), (e,))))
    sums = terms.make(Reduce("sum", frozenset({N, M, D}), F32), (terms.make(Map("exp", F32), (each,)),))
    made = Program((x, e), (Output(terms.make(Concat(C), (sums,)), (C,)),), terms)
    check_program(made)
    return made


def candidate(program: Program, room: int) -> Candidate:
    """The program in blocks, with so many bytes for temporaries."""
    return scheduled(program, build(program), {}, program.fixed_bytes + room, CPU)


def sunk(before: Candidate, room: int) -> Candidate:
    return with_sunk_values(before, before.schedule.program.fixed_bytes + room, CPU, float("inf"))


def test_pairs_are_computed_in_the_loop_that_divides_them() -> None:
    program = scaled()
    before = candidate(program, 100_000)
    after = sunk(before, 100_000)
    assert before.predicted_peak - after.predicted_peak >= 4 * 200 * 200 * 6
    (loop,) = after.schedule.block.own_loops
    assert not any(term.axes >= {N, M} for term in loop.imports)
    made = after.schedule.program
    check_program(made)
    arrays = [normal(200, 6), np.abs(normal(8)) + 1]
    for one, other in zip(interpret(program, arrays), interpret(made, arrays), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_fits_before_the_loop_stays_there() -> None:
    before = candidate(scaled(), 20_000_000)
    assert sunk(before, 20_000_000) is before


def test_what_takes_long_to_compute_again_stays() -> None:
    before = candidate(scaled("pow"), 100_000)
    assert sunk(before, 100_000) is before


def kernels(x: Any, scales: Any, of: Callable[[Any], Any], ridge: float = 1.0) -> Any:
    """Something of the kernel matrix of each scale."""

    def one(scale: Any) -> Any:
        distances = jnp.sum(((x[:, None] - x[None]) / scale) ** 2, -1)
        return of(jnp.exp(-distances) + ridge * jnp.eye(len(x)))

    return jax.vmap(one)(scales)


def determinant(k: Any) -> Any:
    return 2 * jnp.sum(jnp.log(jnp.diag(jnp.linalg.cholesky(k))))


def test_factors_of_a_batch_of_kernel_matrices_take_the_memory_of_one() -> None:
    n = 300
    x, scales = normal(n, 6), np.linspace(0.5, 3, 6, dtype=np.float32)

    def function(x: Any, scales: Any) -> Any:
        return kernels(x, scales, determinant)

    budget = 8 * 4 * n**2
    optimized = eqsat.optimize(function, budget=budget)
    plan = optimized.plan(x, scales)
    assert plan.peak_bytes <= budget < 6 * 4 * 6 * n**2
    assert "optimization_barrier" in plan.source
    np.testing.assert_allclose(optimized(x, scales), jax.jit(function)(x, scales), rtol=1e-4)


@settings(max_examples=5 if THOROUGH else 3, derandomize=True)
@given(
    st.sampled_from(["cholesky", "eigvalsh", "sort", "inverse"]),
    st.sampled_from([7, 13]),
    st.sampled_from(["float32", "float64"]),
    st.booleans(),
    st.booleans(),
)
def test_random_batches_mean_the_same(
    kind: str, scales: int, dtype: str, special: bool, differentiated: bool
) -> None:
    of = {
        "cholesky": determinant,
        "eigvalsh": lambda k: jnp.linalg.eigvalsh(k)[::7],
        "sort": lambda k: jnp.sort(k, 0)[3] + jnp.sort(k, 1)[:, 5],
        "inverse": lambda k: jnp.trace(jnp.linalg.inv(k)),
    }[kind]
    with jax.enable_x64(True):
        x = normal(90, 5).astype(dtype)
        if special and kind == "sort":
            x[3, 2], x[5, 1], x[7, 0] = np.nan, np.inf, -0.0
        e = np.linspace(0.5, 2, scales).astype(dtype)

        def function(x: Any, e: Any) -> Any:
            return kernels(x, e, of)

        def total(x: Any, e: Any) -> Any:
            return jnp.sum(function(x, e))

        target = jax.grad(total, argnums=(0, 1)) if differentiated and kind == "cholesky" else function
        wanted = jax.tree.leaves(jax.jit(target)(x, e))
        plain = eqsat.optimize(target, budget="1GB").plan(x, e).before.peak_bytes
        found = jax.tree.leaves(eqsat.optimize(target, budget=int(0.6 * plain))(x, e))
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-3 if dtype == "float32" else 1e-8)
