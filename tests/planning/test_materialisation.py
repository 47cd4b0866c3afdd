"""What two loops need is kept where it fits and that is faster, and computed again where not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.ir.axis import Axis
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Chunk, Concat, Dot, Fold, Leaf, Map, Reduce
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term, Terms
from eqsat.planning.candidates import Candidate, scheduled
from eqsat.planning.loops import build
from eqsat.planning.materialisation import loops_again, with_kept
from eqsat.targets.cpu import CPU
from tests.planning.replay import replayed_peak

N, M, D = Axis(0, 600), Axis(1, 500), Axis(2, 8)
F32 = "float32"


def centred(width: Axis | None) -> Program:
    """All pairs reduced to a value for each row, or to a row of them, less their sum: in two passes."""
    terms = Terms()
    x, y = terms.make(Leaf(0, (N,), F32)), terms.make(Leaf(1, (M,), F32))
    leaves = [x, y]
    pairs = terms.make(Map("exp", F32), (terms.make(Map("mul", F32), (terms.make(Chunk(N), (x,)), y)),))
    if width is None:
        value = terms.make(Reduce("sum", frozenset({M}), F32), (pairs,))
    else:
        leaves.append(terms.make(Leaf(2, (M, width), F32)))
        value = terms.make(Dot(frozenset({M}), F32), (pairs, leaves[2]))
    partial = terms.make(Reduce("sum", frozenset({N}), F32), (value,))
    total = terms.make(Fold(N, "sum"), (partial,))
    difference = terms.make(Map("sub", F32), (value, total))
    result = terms.make(Concat(N), (terms.make(Map("neg", F32), (difference,)),))
    made = Program(tuple(leaves), (Output(result, tuple(sorted(result.axes))),), terms)
    check_program(made)
    return made


def candidate(program: Program, room: int) -> Candidate:
    """The program in blocks, with so many bytes for temporaries."""
    return scheduled(program, build(program), {}, program.fixed_bytes + room, CPU)


def kept(before: Candidate, room: int) -> Candidate:
    budget = before.schedule.program.fixed_bytes + room
    return with_kept(before, budget, CPU, float("inf"))


def test_a_loop_that_waits_computes_again_what_both_need() -> None:
    before = candidate(centred(None), 100_000)
    (again,) = loops_again(before.schedule, CPU)
    (value,) = again.terms
    assert isinstance(value.op, Reduce)
    assert isinstance(again.loop.results[0].op, Concat)
    assert again.seconds > 0.4 * before.predicted_seconds


@pytest.mark.parametrize("width", [None, D])
def test_what_is_kept_is_computed_once_and_means_the_same(width: Axis | None) -> None:
    before = candidate(centred(width), 200_000)
    after = kept(before, 200_000)
    assert after.predicted_seconds < 0.7 * before.predicted_seconds
    assert loops_again(after.schedule, CPU) == []
    assert after.predicted_peak == replayed_peak(after.schedule)
    program = after.schedule.program
    check_program(program)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=[axis.size for axis in leaf.op.layout]) for leaf in program.inputs]
    (expected,) = interpret(before.schedule.program, arrays)
    (found,) = interpret(program, arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_what_does_not_fit_is_computed_again() -> None:
    whole = 4 * N.size * D.size
    before = candidate(centred(D), whole - 1)
    assert before.predicted_peak <= before.schedule.program.fixed_bytes + whole - 1
    assert kept(before, whole - 1) is before


def test_where_there_is_room_for_one_what_takes_longest_is_kept() -> None:
    terms, other = Terms(), Axis(3, M.size)
    x, y = terms.make(Leaf(0, (N,), F32)), terms.make(Leaf(1, (M,), F32))
    weights = terms.make(Leaf(2, (M, other), F32))
    pairs = terms.make(Map("exp", F32), (terms.make(Map("mul", F32), (terms.make(Chunk(N), (x,)), y)),))
    product = terms.make(Dot(frozenset({M}), F32), (pairs, weights))
    total = terms.make(Fold(N, "sum"), (terms.make(Reduce("sum", frozenset({N}), F32), (product,)),))
    difference = terms.make(Map("sub", F32), (product, total))
    both = [
        terms.make(Reduce("max", frozenset({axis}), F32), (term,))
        for term, axis in [(difference, other), (terms.make(Map("mul", F32), (pairs, pairs)), M)]
    ]
    result = terms.make(Concat(N), (terms.make(Map("add", F32), tuple(both)),))
    program = Program((x, y, weights), (Output(result, (N,)),), terms)
    check_program(program)
    assert pairs.bytes == product.bytes
    room = int(1.8 * product.bytes)
    after = kept(candidate(program, room), room)
    collected = [term for term in after.schedule.program.reachable() if isinstance(term.op, Concat)]
    assert [term.args[0].op for term in collected if len(term.axes) == 2] == [product.op]


def test_what_is_made_by_rules_still_is() -> None:
    program = centred(None)
    before = candidate(program, 100_000)
    makers = {term.number: "some-rule" for term in program.reachable() if isinstance(term.op, Map)}
    named = Candidate(before.schedule, makers, before.predicted_peak, before.predicted_seconds)
    after = kept(named, 100_000)
    names = [term for term in after.schedule.program.reachable() if isinstance(term.op, Map)]

    def is_named(term: Term) -> bool:
        return after.makers.get(term.number) == "some-rule"

    assert after is not named
    assert all(map(is_named, names))


def test_plans_keep_what_fits() -> None:
    def f(x: jax.Array, y: jax.Array) -> jax.Array:
        """Two passes over the rows of a matrix of all pairs."""
        z = jnp.tanh(jnp.exp(-jnp.abs(x[:, None] - y)) @ jnp.cos(y[:, None] * jnp.arange(16.0)))
        return jnp.exp(-jnp.abs(z - (z**3).sum(0))).max(0)

    x, y = jnp.linspace(0.0, 1.0, 20_000), jnp.linspace(0.0, 1.0, 300)
    roomy, tight = (eqsat.optimize(f, budget=budget, machine=CPU) for budget in ("4MB", "1MB"))
    assert sum(loop.recompute_seconds for loop in tight.plan(x, y).loops) > 0
    assert sum(loop.recompute_seconds for loop in roomy.plan(x, y).loops) == 0
    assert roomy.plan(x, y).predicted_seconds < 0.7 * tight.plan(x, y).predicted_seconds
    for optimized in (roomy, tight):
        np.testing.assert_allclose(optimized(x, y), f(x, y), rtol=1e-3, atol=1e-5)
