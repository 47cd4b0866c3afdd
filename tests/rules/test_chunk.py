"""A chunk of a result from chunks of its operands."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.ir.axis import Axis
from eqsat.ir.ops import Chunk, Const, Delta, Leaf, Map, Reduce, Rename
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Term, Terms
from tests.rules.proving import can_stream, cannot_stream, optimized, saturated_program, streaming

ARRAYS = "x: n   y: m   a: n k   b: k m   v: m   c: k   s:   q: n i p   r: m m   t: n i j   h: i n   g: m n"
PAIRS = "(x[:, None] * y)"
DIFFERENCES = "(lambda e: exp(e[:, :, None] - e[:, None]).sum((1, 2)))"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("expression", "over", "rules"),
    [
        # functions of one, two and three operands, some without the axis
        (f"sin({PAIRS})", "n", "chunk-map"),
        (f"{PAIRS} - v", "n", "chunk-map"),
        (f"{PAIRS} - v", "m", "chunk-map"),
        (f"where({PAIRS} > 0, {PAIRS}, v)", "n", "chunk-map"),
        (f"clip({PAIRS}, 0, s)", "n", "chunk-map"),
        (f"where(arange(11)[:, None] > arange(4), {PAIRS}, 0)", "n", "chunk-map"),
        ("exp(x[:, None] * y).astype(int32)", "n", "chunk-map"),
        # reductions and contractions of another axis
        (f"max({PAIRS}, 1)", "n", "chunk-map chunk-reduction"),
        (f"sum({PAIRS}, 0)", "m", "chunk-map chunk-reduction"),
        ("prod(exp(t), (1, 2))", "n", "chunk-map chunk-reduction"),
        ("exp(a @ b)", "n", "chunk-map chunk-contraction"),
        ("exp(a @ b)", "m", "chunk-map chunk-contraction"),
        ("exp(a) @ c", "n", "chunk-map chunk-contraction"),
        ("einsum('nk,nij->ijkn', exp(a), exp(t))", "n", "chunk-map"),
        ("einsum('nk,nij,k->ijn', exp(a), exp(t), c)", "n", "chunk-map chunk-contraction"),
        # selections along another axis
        (f"argmax({PAIRS}, 1)", "n", "chunk-map chunk-selection"),
        (f"lax.top_k({PAIRS}, 2)[0]", "n", "chunk-map chunk-selection"),
        (f"lax.top_k({PAIRS}, 2)[1]", "n", "chunk-map chunk-selection"),
        # calls, along what passes through them
        (f"sort({PAIRS}, 1)", "n", "chunk-map chunk-call"),
        (f"cumsum({PAIRS}, 1)", "n", "chunk-map chunk-call"),
        ("lax.linalg.cholesky(9 * eye(5) + 0 * q, symmetrize_input=False)", "n", "chunk-map chunk-call"),
        ("lax.linalg.triangular_solve(eye(5), exp(h), left_side=True)", "n", "chunk-map chunk-call"),
        ("concatenate([exp(a), sin(a)], 1)", "n", "chunk-map chunk-call"),
        # named operations, along all axes but their own
        (f"sort({PAIRS}, 1)", "n", "chunk-map chunk-operation"),
        (f"argsort({PAIRS}, 1)", "n", "chunk-map chunk-operation"),
        (f"{PAIRS}[:, ::-1]", "n", "chunk-map chunk-operation"),
        (f"sort({PAIRS}, 1)[:, :3]", "n", "chunk-map chunk-operation"),
        (f"{PAIRS}.reshape(11, 2, 2)", "n", "chunk-map chunk-operation"),
        ("exp(t).reshape(11, -1)", "n", "chunk-map chunk-operation"),
        ("linalg.solve(r, exp(g))", "n", "chunk-map chunk-operation"),
        ("linalg.inv(9 * eye(4) + exp(x)[:, None, None])", "n", "chunk-map chunk-operation"),
        # names: every cumulated value beside every other one
        (f"{DIFFERENCES}(cumsum(exp(t[:, 0]), 1))", "n", "chunk-map chunk-reduction chunk-call chunk-rename"),
    ],
)
def test_a_chunk_of_it(expression: str, over: str, rules: str) -> None:
    can_stream(expression, ARRAYS, over, f"split-result {rules}")


@pytest.mark.parametrize(
    ("expression", "over"),
    [
        # along the axis that a call, or an operation, needs whole
        (f"sort({PAIRS}, 0)", "n"),
        (f"cumsum({PAIRS}, 0)", "n"),
        (f"sin({PAIRS})[::-1]", "n"),
        ("concatenate([exp(a), sin(a)], 0)[3:14]", "n"),
        (f"{PAIRS}.reshape(-1)", "n"),
        ("linalg.inv(r) @ exp(v)", "m"),
        ("linalg.cholesky(exp(r) @ exp(r).T + eye(4))", "m"),
        # along the axis of the best entries
        (f"lax.top_k({PAIRS}, 3)[0] + c", "k"),
    ],
)
def test_what_is_needed_whole(expression: str, over: str) -> None:
    rules = (
        "chunk-map chunk-reduction chunk-contraction chunk-selection chunk-call chunk-operation chunk-rename"
    )
    cannot_stream(expression, ARRAYS, over, f"split-result {rules}")


MANY = "x: 20011   w: 7   a: 20011 3   b: 3 7   q: 20011 5"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("rules", "expression", "budget"),
    [
        ("chunk-map chunk-reduction", "tanh(cumsum(sin(x)[:, None] - w, 1)).max(1)", 300_000),
        ("chunk-map chunk-contraction", "exp(sin(a) @ b) @ w", 500_000),
        ("chunk-selection", "argmin(sort(abs(x[:, None] - w), 1), 1)", 300_000),
        ("chunk-selection", "lax.top_k(x[:, None] * w, 3)[0][:, 2]", 300_000),
        ("chunk-operation/chunk-call", "sort(x[:, None] * w, 1) @ w", 300_000),
        ("chunk-call", "cumsum(exp(x[:, None] * w), 1) @ w", 300_000),
        ("chunk-call chunk-rename", f"{DIFFERENCES}(cumsum(exp(q), 1))", 700_000),
    ],
)
def test_a_plan_with_it_fits_and_computes_the_same(rules: str, expression: str, budget: int) -> None:
    plan = optimized(expression, MANY, budget)
    assert plan.original_peak_bytes > budget
    assert all(set(either.split("/")) & set(plan.rules_fired) for either in rules.split())


N, M, D = Axis(0, 11), Axis(1, 11), Axis(2, 3)


def streams_delta(over: Axis, result: str, rules: str) -> bool:
    """Whether what is done with a diagonal matrix can be done by chunks: the IR has deltas, JAX has not."""
    terms = Terms()
    v = terms.make(Leaf(0, (N,), "float32"))
    x = terms.make(Leaf(1, (M, D), "float32"))
    zero = terms.make(Const("0.0", "float32"))
    matrix = terms.make(Map("select_n", "float32"), [terms.make(Delta(N, M)), zero, v])
    written: dict[str, Term] = {
        "matrix": matrix,
        "rows": terms.make(Reduce("max", frozenset({M}), "float32"), [matrix]),
        "renamed": terms.make(Map("mul", "float32"), [matrix, terms.make(Rename(N, M), [v])]),
    }
    output = Output(written[result], tuple(axis for axis in (N, M) if axis in written[result].axes))
    program = Program((v, x), (output,), terms)
    rng = np.random.default_rng(0)
    graph = saturated_program(program, (rng.normal(size=11), rng.normal(size=(11, 3))), rules, [over])
    return streaming(graph, over)


@pytest.mark.parametrize("result", ["matrix", "rows", "renamed"])
def test_a_chunk_of_a_diagonal_matrix(result: str) -> None:
    rules = "split-result chunk-map chunk-reduction chunk-rename"
    assert streams_delta(N, result, f"{rules} chunk-delta")
    assert not streams_delta(N, result, rules)


def test_a_chunk_of_the_other_axis_of_a_diagonal_matrix() -> None:
    rules = "split-result split-unrounded chunk-map chunk-reduction"
    assert streams_delta(M, "matrix", f"{rules} chunk-delta")
    assert streams_delta(M, "rows", f"{rules} chunk-delta")
    assert not streams_delta(M, "rows", rules)


def test_chunks_of_two_loops_change_places() -> None:
    """A slice by both loops is the same whichever loop takes its slice first."""

    def merged(rules: str) -> bool:
        terms = Terms()
        x = terms.make(Leaf(0, (N, M), "float32"))
        program = Program((x,), (Output(terms.make(Map("exp", "float32"), [x]), (N, M)),), terms)
        arrays = (np.ones((N.size, M.size)),)
        graph = saturated_program(program, arrays, f"split-result chunk-map {rules}", [N, M])
        found = [
            {node.op.axis for node in eclass.nodes if isinstance(node.op, Chunk)}
            for eclass in graph.saturation.graph.classes
        ]
        return {N, M} in found

    assert merged("split-chunk chunk-past-chunk")
    assert not merged("split-chunk")
