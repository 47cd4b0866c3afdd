"""Reductions and large results as loops over chunks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.ir.axis import Axis
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Chunk, Concat, Fold, Leaf, Map, Reduce, Select
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Terms
from tests.rules.proving import Graph, axis_called, can_stream, cannot_stream, optimized, saturated

ARRAYS = "x: n   y: m   a: n k   b: m k   v: m   o: int32 n"
PAIRS = "exp(x[:, None] - y)"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("expression", "over", "rules"),
    [
        # reductions along the axis, by every monoid
        (f"sum({PAIRS}, 0)", "n", "split-reduction chunk-map"),
        (f"sum({PAIRS})", "n", "split-reduction chunk-map"),
        (f"sum({PAIRS})", "m", "split-reduction chunk-map"),
        (f"max({PAIRS}, 0)", "n", "split-unrounded chunk-map"),
        (f"min({PAIRS}, 0)", "n", "split-unrounded chunk-map"),
        (f"prod({PAIRS}, 0)", "n", "split-reduction chunk-map"),
        (f"any({PAIRS} > 1, 0)", "n", "split-unrounded chunk-map"),
        (f"all({PAIRS} > 1, 0)", "n", "split-unrounded chunk-map"),
        ("bitwise_xor.reduce(o * o)", "n", "split-unrounded chunk-map"),
        ("sum(o * o)", "n", "split-integers chunk-map"),
        ("prod(o + 3)", "n", "split-integers chunk-map"),
        # contractions along it
        (f"{PAIRS} @ v", "m", "split-contraction chunk-map"),
        (f"v @ {PAIRS}.T", "m", "split-contraction chunk-map"),
        ("x @ exp(a)", "n", "split-contraction chunk-map"),
        ("(o * o) @ (o + 1)", "n", "split-integer-contraction chunk-map"),
        # the best along it
        (f"argmax({PAIRS}, 0)", "n", "split-selection chunk-map"),
        (f"argmin({PAIRS}, 1)", "m", "split-selection chunk-map"),
        (f"lax.top_k({PAIRS}, 3)[0]", "m", "split-selection chunk-map"),
        (f"lax.top_k({PAIRS}, 3)[1]", "m", "split-selection chunk-map"),
        # updates along it, of entries, of rows, in a batch
        ("zeros(4).at[o].add(exp(x))", "n", "split-accumulation chunk-map"),
        ("y.at[o].add(exp(x))", "n", "split-accumulation chunk-map"),
        ("b.at[o].max(exp(a))", "n", "split-accumulation chunk-map"),
        ("b.at[o, 1].multiply(exp(x))", "n", "split-accumulation chunk-map chunk-call"),
        ("zeros((7, 2), int).at[o % 7, o % 2].add(o)", "n", "split-accumulation chunk-map chunk-call"),
        ("jax.ops.segment_min(exp(a), o, 5)", "n", "split-accumulation chunk-map"),
        ("jax.vmap(lambda v: v.at[o].add(x * v[0]))(b)", "n", "split-accumulation chunk-map"),
        # results along it
        (f"sum({PAIRS}, 1)", "n", "split-result chunk-map chunk-reduction"),
        (f"{PAIRS} @ v", "n", "split-result chunk-map chunk-contraction"),
        (f"sin({PAIRS})", "n", "split-result chunk-map"),
        (f"sin({PAIRS})", "m", "split-result chunk-map"),
    ],
)
def test_a_program_by_chunks(expression: str, over: str, rules: str) -> None:
    can_stream(expression, ARRAYS, over, rules)


@pytest.mark.parametrize(
    ("expression", "over", "rules"),
    [
        # a reduction along the other axis, of the other kind
        (f"sum({PAIRS}, 0)", "m", "split-reduction split-contraction split-selection chunk-map"),
        (f"{PAIRS} @ v", "n", "split-contraction split-reduction chunk-map"),
        (f"argmax({PAIRS}, 0)", "n", "split-reduction split-contraction chunk-map"),
        (f"sum({PAIRS}, 0)", "n", "split-selection split-contraction chunk-map"),
        # of numbers that round, or another monoid
        (f"sum({PAIRS}, 0)", "n", "split-integers split-unrounded chunk-map"),
        (f"max({PAIRS}, 0)", "n", "split-integers split-reduction chunk-map"),
        (f"any({PAIRS} > 1, 0)", "n", "split-integers split-reduction chunk-map"),
        ("x @ exp(a)", "n", "split-integer-contraction chunk-map"),
        ("o @ exp(a)", "n", "split-integer-contraction chunk-map"),
        # the axis that is written to
        ("x.at[arange(4)].add(exp(y))", "n", "split-accumulation split-reduction chunk-map chunk-call"),
        ("exp(x).at[o].add(y[2])", "n", "split-accumulation chunk-map"),
        # a call that needs the axis whole
        (f"cumsum({PAIRS}, 0)", "n", "split-result chunk-map chunk-call"),
        (f"sort({PAIRS}, 0)", "n", "split-result chunk-map chunk-call"),
    ],
)
def test_what_can_not_be_split(expression: str, over: str, rules: str) -> None:
    cannot_stream(expression, ARRAYS, over, rules)


def closers(graph: Graph) -> set[str]:
    """The loops of all classes, as text."""
    found = set()
    for eclass in graph.saturation.graph.classes:
        for node in eclass.nodes:
            match node.op:
                case Fold(axis=axis, monoid=Select(kind=kind) | str(kind)):
                    found.add(f"{kind} over {axis.size}")
                case Concat(axis=axis):
                    found.add(f"concat over {axis.size}")
    return found


def test_only_large_axes_are_split() -> None:
    expression, rules = f"sum({PAIRS}, 0)", "split-reduction split-contraction split-result chunk-map"
    assert closers(saturated((expression,), ARRAYS, rules)) == set()
    assert closers(saturated((expression,), ARRAYS, rules, "n")) == {"sum over 11"}
    assert closers(saturated((expression,), ARRAYS, rules, "m")) == {"concat over 4"}
    assert closers(saturated((expression,), ARRAYS, rules, "n m")) == {"sum over 11", "concat over 4"}


def test_what_is_fused_is_no_result_to_be_split() -> None:
    """The squares {n m k} of a distance are summed as they are made; only what is stored is worth a loop."""
    rules = "split-result chunk-map chunk-reduction"
    graph = saturated(("sum((a[:, None] - b) ** 2, -1)",), ARRAYS, rules, "n").saturation.graph
    looped = [c for c in graph.classes for node in c.nodes if isinstance(node.op, Concat)]
    assert [len(eclass.axes) for eclass in looped] == [2]


def test_a_mean_is_no_monoid() -> None:
    """The mean that centres a distance is taken of all points at once."""
    rules = "squared-distance split-reduction chunk-map"
    graph = saturated(("sum((a[:, None] - b) ** 2, -1)",), ARRAYS, rules, "m")
    assert graph.saturation.matches["squared-distance"]
    assert not any(text.startswith("mean") for text in closers(graph))


def test_a_loop_is_not_split_again() -> None:
    graph = saturated((f"sum({PAIRS}, 0)",), ARRAYS, "split-reduction chunk-map", "n")
    axis = axis_called("n", graph.program)
    for eclass in graph.saturation.graph.classes:
        for node in eclass.nodes:
            if isinstance(node.op, Fold):
                (body,) = node.children
                assert axis in graph.saturation.graph.classes[body].open
                assert axis not in eclass.open


# Many numbers and few: a loop has to be over the many. Their number is prime, so chunks are uneven.
LONG = "x: 20011   w: 7   y: 5 20011"


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("rule", "expression", "budget"),
    [
        ("split-reduction", "exp(-abs(x[:, None] - w)).sum(0)", 120_000),
        ("split-reduction", "exp(-abs(x[:, None] - w)).sum()", 120_000),
        ("split-unrounded", "(x[:, None] * w).max(0) - (x[:, None] - w).min(0)", 120_000),
        ("split-reduction", "log(sum(exp(x[:, None] * w), 0))", 120_000),
        ("split-unrounded", "(x[:, None] > w + 9).any(0)", 100_000),
        ("split-contraction", "exp(-abs(x[:, None] - w)).T @ x", 120_000),
        ("split-contraction", "sin(y) @ cos(x[:, None] * w)", 560_000),
        ("split-selection", "argmin(sort(abs(x[:, None] - w), 1), 0)", 300_000),
        ("split-selection", "lax.top_k(-abs(w[:, None] - x), 7)[0]", 130_000),
        ("split-selection", "lax.top_k(-abs(w[:, None] - x), 7)[1]", 130_000),
        ("split-accumulation", "zeros(7).at[int32(x)].add(exp(-abs(x[:, None] - w)).sum(1))", 170_000),
        ("split-accumulation", "w.at[int32(x)].set(exp(-abs(x[:, None] - w)).sum(1))", 170_000),
        ("split-accumulation", "jax.grad(lambda t: sin(t[int32(x)][:, None] * w).sum())(w)", 170_000),
        ("split-result", "sort(x[:, None] * w, 1)[:, 3]", 300_000),
        ("split-result", "cumsum(exp(x[:, None] * w), 1) @ w", 300_000),
    ],
)
def test_a_plan_with_it_fits_and_computes_the_same(rule: str, expression: str, budget: int) -> None:
    plan = optimized(expression, LONG, budget)
    assert plan.original_peak_bytes > budget
    assert rule in plan.rules_fired
    assert plan.loops
    assert any(loop.size % loop.chunk for loop in plan.loops)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("where", [0, 11_003, 20_010])
def test_a_selection_by_chunks_finds_nan_and_the_first_of_equals(where: int) -> None:
    x = np.round(np.random.default_rng(where).normal(size=20_011)).astype(np.float32)
    w = np.array([1, -1, 0, np.inf], np.float32)

    def best(x: jax.Array, w: jax.Array) -> tuple[jax.Array, ...]:
        scores = w[:, None] * x
        return jnp.argmax(scores, 1), jnp.argmin(scores, 1), *jax.lax.top_k(scores, 3)

    small = eqsat.optimize(best, budget=130_000)
    assert "split-selection" in small.plan(x, w).rules_fired
    for value in (x[where], np.float32(np.nan)):
        x[where] = value
        for result, reference in zip(small(x, w), jax.jit(best)(x, w), strict=True):
            np.testing.assert_array_equal(result, reference)


CAPTURED = "(lambda e: (e / e.sum(0)).sum(1))(exp(-((x[:, None] - y) ** 2)))"


def test_a_plan_for_a_loop_within_a_loop_over_the_same_axis() -> None:
    """Columns are normalised, rows summed, in tiles: sum_b e_ab / sum_a e_ab."""
    optimized(CAPTURED, "x: 601   y: 503", 10_832)


def test_the_meaning_of_a_loop_within_a_loop_over_the_same_axis() -> None:
    """concat[a] fold[b, sum] sum[b] (e / fold[a, sum] sum[a] e) with e = chunk[a] chunk[b] x."""
    a, b = Axis(0, 5), Axis(1, 3)
    terms = Terms()
    x = terms.make(Leaf(0, (a, b), "float32"))
    tile = terms.make(Chunk(a), [terms.make(Chunk(b), [x])])
    columns = terms.make(Fold(a, "sum"), [terms.make(Reduce("sum", frozenset({a}), "float32"), [tile])])
    ratio = terms.make(Map("div", "float32"), [tile, columns])
    rows = terms.make(Fold(b, "sum"), [terms.make(Reduce("sum", frozenset({b}), "float32"), [ratio])])
    program = Program((x,), (Output(terms.make(Concat(a), [rows]), (a,)),), terms)
    check_program(program)
    array = np.random.default_rng(0).uniform(1, 2, (5, 3))
    (result,) = interpret(program, [array], {a: 2, b: 2})
    np.testing.assert_allclose(result, (array / array.sum(0)).sum(1))


def test_the_gradient_of_a_convolution_by_chunks_of_the_batch() -> None:
    def loss(kernel: jax.Array, images: jax.Array) -> jax.Array:
        hidden = jnp.tanh(jax.lax.conv(images, kernel, (1, 1), "VALID"))
        return jnp.sum(hidden**2) / images.shape[0]

    gradient = jax.grad(loss)
    rng = np.random.default_rng(0)
    args = [rng.normal(size=shape).astype(np.float32) for shape in [(8, 2, 3, 3), (211, 2, 12, 12)]]
    small = eqsat.optimize(gradient, budget=800_000)
    plan = small.plan(*args)
    assert plan.original_peak_bytes > 1_500_000
    assert "split-summing-call" in plan.rules_fired
    np.testing.assert_allclose(small(*args), jax.jit(gradient)(*args), rtol=1e-4, atol=1e-5)


def test_a_convolution_by_chunks_of_its_features() -> None:
    """Of a call that sums, the axis is neither passed nor kept; here it is the letter k, of length 3."""
    conv = "lax.conv(exp(a)[None, :, :].transpose(0, 2, 1), b[:, :, None], (1,), 'VALID')"
    can_stream(conv, ARRAYS, "k", "split-summing-call chunk-map")
    cannot_stream(
        conv, ARRAYS, "k", "split-reduction split-contraction split-accumulation chunk-map chunk-call"
    )


@pytest.mark.parametrize(
    ("expression", "tiles"),
    [
        (f"cumsum({PAIRS}, 0) + cumsum({PAIRS}, 1)", True),
        (f"{PAIRS} + 1", True),
        (f"sum({PAIRS}, 1)", False),  # has no second axis
    ],
)
def test_a_chunk_of_what_is_stored_is_computed_by_tiles(expression: str, tiles: bool) -> None:
    rules = "split-result chunk-map split-chunk"

    def tiled(rules: str) -> bool:
        graph = saturated((expression,), ARRAYS, rules, "n m").saturation.graph
        return any(
            isinstance(node.op, Concat) and eclass.open for eclass in graph.classes for node in eclass.nodes
        )

    assert tiled(rules) == tiles
    assert not tiled(rules.removesuffix(" split-chunk"))
