"""Identity and diagonal matrices, in all their spellings, and what need not be computed with them."""

from __future__ import annotations

import pytest

from tests.rules.proving import cannot_prove, fires, optimized, prove

ARRAYS = "a: i k   b: k p   s: i p   t: i p   v: i   w: p   c:   x: n i p   z: complex64 i   n: int32 i p"
EYE = "equal-indices identity-is-diagonal"
ROWS = "diagonal-along-rows"
RENAMING = (
    "rename-map rename-reduction rename-contraction rename-iota rename-delta rename-operation rename-twice"
    " rename-back rename-contracted rename-reduced"
)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        (EYE, "eye(5)", "diag(ones(5))"),
        (EYE, "identity(5)", "where(arange(5)[:, None] == arange(5), 1.0, 0.0)"),
        (
            "equal-indices",
            "diag(v)",
            "where(arange(5, dtype=uint32)[:, None] == arange(5, dtype=uint32), v[:, None], 0)",
        ),
        ("equal-indices diagonal-along-rows", "diag(v)", "where(eye(5, dtype=bool), v, 0)"),
        (f"{EYE} scaled-diagonal times-one", "v[:, None] * eye(5)", "diag(v)"),
        (f"{EYE} scaled-diagonal times-one diagonal-along-rows", "v * eye(5)", "diag(v)"),
        (
            "equal-indices unequal-indices choice-by-negation",
            "where(arange(5)[:, None] != arange(5), 0, v[:, None])",
            "diag(v)",
        ),
        (
            "equal-indices added-to-diagonal",
            "where(eye(5, dtype=bool), s + c, s)",
            "s + where(eye(5, dtype=bool), c, 0)",
        ),
        ("equal-indices diagonal-along-rows", "diag(v).T", "diag(v)"),
        # the mask of a matrix is its diagonal
        ("equal-indices mask-of-diagonal", "where(eye(5, dtype=bool), s, 0)", "diag(diagonal(s))"),
        (f"{EYE} mask-of-diagonal scaled-diagonal times-one", "s * eye(5)", "diag(diagonal(s))"),
        # arithmetic
        ("equal-indices scaled-diagonal", "c * diag(v)", "diag(c * v)"),
        ("equal-indices divided-diagonal positive-constant", "diag(v) / 3", "diag(v / 3)"),
        ("equal-indices function-of-diagonal", "-diag(v)", "diag(-v)"),
        ("equal-indices function-of-diagonal", "jax.numpy.real(diag(z))", "diag(jax.numpy.real(z))"),
        ("equal-indices sum-of-diagonals", "diag(v) + diag(w)", "diag(v + w)"),
        ("equal-indices difference-of-diagonals", "diag(v) - diag(w)", "diag(v - w)"),
        # products
        ("equal-indices diagonal-times-matrix", "diag(v) @ a", "v[:, None] * a"),
        (f"{EYE} diagonal-times-matrix times-one", "eye(5) @ a", "a"),
        (f"{EYE} diagonal-times-matrix times-one", "b @ eye(5)", "b"),
        (f"{EYE} diagonal-times-matrix scaled-diagonal times-one", "(c * eye(5)) @ v", "c * v"),
        ("equal-indices diagonal-times-matrix diagonal-along-rows", "b @ diag(v)", "v * b"),
        ("equal-indices diagonal-times-matrix scaled-diagonal", "diag(v) @ diag(w)", "diag(v * w)"),
        # where the matrix differs for each row of the diagonal one
        (
            "equal-indices diagonal-times-slices",
            "einsum('ij,nij->ni', diag(v), x)",
            "v * diagonal(x, axis1=1, axis2=2)",
        ),
        (
            "equal-indices trace-with-diagonal",
            "einsum('ij,ij->', diag(v), s)",
            "sum(v * diagonal(s))",
        ),
        (
            "equal-indices matrix-plus-diagonal-times",
            "(s + diag(v)) @ w",
            "s @ w + v * w",
        ),
        ("equal-indices matrix-minus-diagonal-times", "(s - diag(v)) @ w", "s @ w - v * w"),
        ("equal-indices diagonal-minus-matrix-times", "(diag(v) - s) @ w", "v * w - s @ w"),
        # sums
        ("equal-indices sum-of-diagonal-rows", "diag(v).sum(1)", "v"),
        ("equal-indices sum-of-diagonal-rows diagonal-along-rows", "diag(v).sum(0)", "v"),
        (
            "equal-indices mask-of-diagonal diagonal-of-diagonal sum-of-diagonal-matrix",
            "trace(diag(v))",
            "sum(v)",
        ),
        ("equal-indices mask-of-diagonal sum-of-diagonal-matrix", "trace(s)", "sum(diagonal(s))"),
        (f"equal-indices mask-of-diagonal sum-of-diagonal-rows {ROWS}", "einsum('ii->i', s)", "diagonal(s)"),
    ],
)
def test_diagonal_matrices(rules: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rules, RENAMING)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("diagonal-of-diagonal equal-indices", "diagonal(diag(v))", "v"),
        ("diagonal-of-function", "diagonal(exp(s))", "exp(diagonal(s))"),
        ("diagonal-of-both", "diagonal(s - t)", "diagonal(s) - diagonal(t)"),
        ("diagonal-of-both", "diagonal(s * t)", "diagonal(s) * diagonal(t)"),
        ("diagonal-of-matrix-and-columns", "diagonal(s / c)", "diagonal(s) / c"),
        ("diagonal-of-matrix-and-columns", "diagonal(s - w)", "diagonal(s) - w"),
        ("diagonal-of-columns-and-matrix", "diagonal(w - s)", "w - diagonal(s)"),
        ("diagonal-of-matrix-and-rows", "diagonal(s - v[:, None])", "diagonal(s) - v"),
        ("diagonal-of-rows-and-matrix", "diagonal(v[:, None] - s)", "v - diagonal(s)"),
        ("diagonal-of-rows-and-columns", "diagonal(v[:, None] - w)", "v - w"),
        ("diagonal-of-columns-and-rows", "diagonal(v - w[:, None])", "v - w"),
        ("diagonal-of-reduction", "diagonal(x.max(0))", "diagonal(x, axis1=1, axis2=2).max(0)"),
        ("diagonal-of-product", "diagonal(a @ b)", "einsum('ik,ki->i', a, b)"),
        ("diagonal-of-product", "diagonal(a @ a.T)", "einsum('ik,ik->i', a, a)"),
        # a kernel matrix of two sets of points, of which only the pairs are wanted
        (
            "diagonal-of-function diagonal-of-reduction diagonal-of-rows-and-columns",
            "diagonal(exp(-sum((a[:, None] - b.T) ** 2, -1)))",
            "exp(-sum((a - b.T) ** 2, -1))",
        ),
    ],
)
def test_diagonals_of_matrices(rules: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rules, RENAMING)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        # off the diagonal, or another diagonal
        ("equal-indices diagonal-times-matrix", "eye(5, k=1) @ a", "a"),
        (f"{EYE} scaled-diagonal times-one", "eye(5, 3) @ b", "a"),
        ("equal-indices mask-of-diagonal", "where(tril(s) > 0, s, 0)", "diag(diagonal(s))"),
        # a mask of truths is no matrix of zeros
        ("equal-indices sum-of-diagonal-rows", "where(eye(5, dtype=bool), v[:, None], 1).sum(1)", "v"),
        # the largest entry of a row may be one of the zeros
        ("equal-indices sum-of-diagonal-rows", "diag(v).max(1)", "v"),
        ("equal-indices sum-of-diagonals", "diag(v) * diag(w)", "diag(v + w)"),
        ("equal-indices function-of-diagonal", "exp(diag(v))", "diag(exp(v))"),
        ("equal-indices diagonal-times-matrix", "diag(v) @ s", "s * v"),
        ("equal-indices matrix-plus-diagonal-times", "(s * diag(v)) @ w", "s @ w + v * w"),
        ("equal-indices sum-of-diagonal-matrix", "diag(v).sum(1)", "sum(v)"),
        # of a matrix of rows and one of columns, the slices would be meant
        ("equal-indices diagonal-times-matrix", "einsum('ij,nij->ni', diag(v), x)", "v * x.sum(1)"),
        ("diagonal-of-product", "diagonal(s @ t)", "diagonal(s) * diagonal(t)"),
        ("diagonal-of-rows-and-columns", "diagonal(v[:, None] - w)", "w - v"),
        ("diagonal-of-reduction", "diagonal(x).max(1)", "diagonal(x.max(0))"),
    ],
)
def test_what_is_not_diagonal(rules: str, left: str, right: str) -> None:
    cannot_prove(left, right, ARRAYS, f"{rules} {RENAMING}")


@pytest.mark.parametrize(
    ("rule", "expression"),
    [
        ("diagonal-times-matrix", "widened(diag(x), y)"),
        ("diagonal-times-matrix", "widened(eye(5, dtype=int8), y)"),
        ("matrix-plus-diagonal-times", "widened(y[:, :5] + diag(x), y)"),
    ],
)
def test_a_widening_product_is_left_alone(rule: str, expression: str) -> None:
    """Without it, its result would be in the operands' dtype, which is too narrow."""
    given = f"{EYE} diagonal-along-rows {RENAMING}"
    assert not fires(rule, expression, "x: int8 i   y: int8 p j", given)
    assert fires(rule, expression.replace("widened", "matmul"), "x: int8 i   y: int8 p j", given)


@pytest.mark.parametrize(
    ("expression", "rule"),
    [
        ("eye(500) @ a", "diagonal-times-matrix"),
        ("diag(v) @ a", "diagonal-times-matrix"),
        ("trace(a @ b)", "diagonal-of-product"),
        ("diagonal(a @ b)", "diagonal-of-product"),
        ("diagonal(exp(-sum((a[:, None] - b.T) ** 2, -1)))", "diagonal-of-rows-and-columns"),
    ],
)
def test_no_square_matrix_is_made(expression: str, rule: str) -> None:
    plan = optimized(expression, "a: 500 20   b: 20 500   v: 500", 250_000)
    assert rule in plan.rules_fired
    assert "(500, 500)" not in plan.source


def test_a_dense_matrix_need_not_be_changed_to_add_a_diagonal() -> None:
    plan = optimized("(s + diag(v)) @ v", "s: 500 500   v: 500", 1_100_000, "cancels")
    assert "matrix-plus-diagonal-times" in plan.rules_fired
