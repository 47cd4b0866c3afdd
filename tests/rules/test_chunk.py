"""A chunk of a result from chunks of its operands."""

from __future__ import annotations

import pytest

from tests.rules.proving import can_stream, cannot_stream, optimized

ARRAYS = "x: n   y: m   a: n k   b: k m   v: m   c: k   s:   q: n i p   r: m m   t: n i j   h: i n"
PAIRS = "(x[:, None] * y)"
DIFFERENCES = "(lambda e: exp(e[:, :, None] - e[:, None]).sum((1, 2)))"


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
        # names: every cumulated value beside every other one
        (f"{DIFFERENCES}(cumsum(exp(t[:, 0]), 1))", "n", "chunk-map chunk-reduction chunk-call chunk-rename"),
    ],
)
def test_a_chunk_of_it(expression: str, over: str, rules: str) -> None:
    can_stream(expression, ARRAYS, over, f"split-result {rules}")


@pytest.mark.parametrize(
    ("expression", "over"),
    [
        # along the axis that a call needs whole
        (f"sort({PAIRS}, 0)", "n"),
        (f"cumsum({PAIRS}, 0)", "n"),
        (f"sin({PAIRS})[::-1]", "n"),
        ("concatenate([exp(a), sin(a)], 0)[3:14]", "n"),
        ("linalg.cholesky(exp(r) @ exp(r).T + eye(4))", "m"),
        # along the axis of the best entries
        (f"lax.top_k({PAIRS}, 3)[0] + c", "k"),
    ],
)
def test_what_is_needed_whole(expression: str, over: str) -> None:
    rules = "chunk-map chunk-reduction chunk-contraction chunk-selection chunk-call chunk-rename"
    cannot_stream(expression, ARRAYS, over, f"split-result {rules}")


MANY = "x: 20011   w: 7   a: 20011 3   b: 3 7   q: 20011 5"


@pytest.mark.parametrize(
    ("rules", "expression", "budget"),
    [
        ("chunk-map chunk-reduction", "tanh(sort(sin(x)[:, None] - w, 1)).max(1)", 300_000),
        ("chunk-map chunk-contraction", "exp(sin(a) @ b) @ w", 500_000),
        ("chunk-selection", "argmin(sort(abs(x[:, None] - w), 1), 1)", 300_000),
        ("chunk-selection", "lax.top_k(x[:, None] * w, 3)[0][:, 2]", 300_000),
        ("chunk-call", "sort(x[:, None] * w, 1)[:, 0]", 300_000),
        ("chunk-call", "cumsum(exp(x[:, None] * w), 1) @ w", 300_000),
        ("chunk-call chunk-rename", f"{DIFFERENCES}(cumsum(exp(q), 1))", 700_000),
    ],
)
def test_a_plan_with_it_fits_and_computes_the_same(rules: str, expression: str, budget: int) -> None:
    plan = optimized(expression, MANY, budget)
    assert plan.original_peak_bytes > budget
    assert set(rules.split()) <= set(plan.rules_fired)
