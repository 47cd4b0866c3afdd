"""The names of linear algebra: what is recognised, and what only looks like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import pytest
from jax import lax

from eqsat.ir.ops import Operation, Rename
from tests.frontend.named import named, names, spd, texts
from tests.stages import lowered, normal

A, B, V = spd(4, 4), normal(4, 3), normal(4)
BATCH, BATCH_B = spd(5, 4, 4), normal(5, 4, 3)
solve_triangular = jax.scipy.linalg.solve_triangular


def core_first(program: Any) -> list[list[str]]:
    """For each named operation without renamings around it, its core axes."""
    return [
        [axis.name for axis in name.op.axes]
        for _, name in program.equalities
        if isinstance(name.op, Operation)
    ]


# Solves.

SOLVES: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (jnp.linalg.solve, (A, V), "solve[4 4](0, 1)"),
    (jnp.linalg.solve, (A, B), "solve[4 4](0, 1)"),
    (jnp.linalg.solve, (A, normal(4, 4)), "solve[4 4](0, 1)"),
    (jnp.linalg.solve, (A, B[:, :1]), "solve[4 4](0, 1)"),
    (jnp.linalg.solve, (BATCH, BATCH_B), "solve[4 4](0, 1)"),
    (jnp.linalg.solve, (BATCH, V), "solve[4 4](0, 1)"),
    (jnp.linalg.solve, (A, BATCH_B), "solve[4 4](0, 1)"),
    (lambda a, b: jnp.linalg.solve(a.T, b), (normal(4, 4), V), "solve[4 4](0, 1)"),
    (lambda a: jnp.linalg.solve(a, a), (A,), "solve[4 4](0, 0)"),
    (lambda a: jnp.linalg.solve(a, a.T), (normal(4, 4),), "solve[4 4](0, 0)"),
    (jax.scipy.linalg.solve, (A, B), "solve[4 4](0, 1)"),
    (lambda a, b: jax.scipy.linalg.solve(a, b, assume_a="pos"), (A, V), "solve[4 4](0, 1)"),
    (jax.vmap(jnp.linalg.solve, in_axes=(None, 1)), (A, B), "solve[4 4](0, 1)"),
    (jax.vmap(jnp.linalg.solve, in_axes=(2, 0)), (BATCH.transpose(1, 2, 0), BATCH_B), "solve[4 4](0, 1)"),
    (
        jax.vmap(jax.vmap(jnp.linalg.solve, in_axes=(None, 1)), in_axes=(0, None)),
        (BATCH, B),
        "solve[4 4](0, 1)",
    ),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("fn", "args", "wanted"), SOLVES)
def test_a_solve_is_named(fn: Callable[..., Any], args: tuple[Any, ...], wanted: str) -> None:
    assert wanted in names(fn, *args)


def test_a_transposed_solve_has_its_axes_the_other_way_round() -> None:
    (plain,) = core_first(named(lambda a, b: (a, jnp.linalg.solve(a, b)), A, V))
    (transposed,) = core_first(named(lambda a, b: (a, jnp.linalg.solve(a.T, b)), A, V))
    assert plain == transposed[::-1]


def test_the_parts_of_a_solve_have_no_names() -> None:
    assert names(jnp.linalg.solve, A, V) == ["solve[4 4](0, 1)"]


def test_solves_in_derivatives_are_named() -> None:
    def loss(a: Any, b: Any) -> Any:
        return jnp.sum(jnp.linalg.solve(a, b) ** 2)

    found = names(jax.grad(loss), A, V)
    assert len(found) == 2
    assert all(name.startswith("solve[4 4](0, ") for name in found)
    found = names(lambda a, b: jax.jvp(jnp.linalg.solve, (a, b), (a, b)), A, V)
    assert [name[:17] for name in found] == ["solve[4 4](0, 1)", "solve[4 4](0, add"]


def test_a_vector_that_is_the_same_everywhere_has_no_axis_to_solve_along() -> None:
    assert names(lambda a: jnp.linalg.solve(a, jnp.ones(4)), A) == []


def test_a_matrix_of_one_row_has_no_axes() -> None:
    assert names(jnp.linalg.solve, A[:1, :1], V[:1]) == []


def test_an_iterative_solve_is_no_solve() -> None:
    def fn(a: Any, b: Any) -> Any:
        return jax.scipy.sparse.linalg.cg(lambda x: a @ x, b, maxiter=2)[0]

    assert texts(lowered(fn, A, V)[0]) == []


def test_a_solve_with_the_factors_of_another_matrix_is_none() -> None:
    def fn(a: Any, c: Any, b: Any) -> Any:
        lu, _, order = lax.linalg.lu(c)

        def by_factors(_: Any, x: Any) -> Any:
            return solve_triangular(lu, solve_triangular(lu, x[order], lower=True, unit_diagonal=True))

        return lax.custom_linear_solve(lambda x: a @ x, b, by_factors)

    assert not [name for name in names(fn, A, A + 1, V) if name.startswith("solve[")]
    assert names(lambda a, b: fn(a, a, b), A, V) == ["solve[4 4](0, 1)"]


# Triangular solves.

VARIANTS = [
    (left, lower, transpose)
    for left in (True, False)
    for lower in (True, False)
    for transpose in (True, False)
]


@pytest.mark.parametrize(("left", "lower", "transpose"), VARIANTS)
@pytest.mark.parametrize("batch", [(), (5,)])
def test_triangular_solves(left: bool, lower: bool, transpose: bool, batch: tuple[int, ...]) -> None:
    a = normal(*batch, 4, 4) + 4 * np.eye(4, dtype=np.float32)
    b = normal(*batch, *((4, 3) if left else (3, 4)))

    def fn(a: Any, b: Any) -> Any:
        return lax.linalg.triangular_solve(a, b, left_side=left, lower=lower, transpose_a=transpose)

    # From the left, a.T has its other triangle filled; from the right, x a = b is a.T x.T = b.T.
    kind = "solve_lower" if lower != (left == transpose) else "solve_upper"
    assert names(fn, a, b) == [f"{kind}[4 4](0, 1)"]


def test_triangular_solves_that_are_none() -> None:
    assert names(lambda a, b: solve_triangular(a, b, lower=True, unit_diagonal=True), A, V) == []


def test_a_solve_by_a_cholesky_factor_is_two_triangular_ones() -> None:
    found = names(lambda a, b: jax.scipy.linalg.cho_solve((a, True), b), A, B)
    assert found == ["solve_lower[4 4](0, 1)", "solve_upper[4 4](0, triangular_solve(0, 1))"]
    program = named(lambda a, b: jax.scipy.linalg.cho_solve((a, True), b), A, B)
    first, second = core_first(program)
    assert first == second[::-1]


# Factorisations.


@pytest.mark.parametrize(
    ("fn", "a"),
    [
        (jnp.linalg.cholesky, A),
        (jnp.linalg.cholesky, BATCH),
        (jax.vmap(jnp.linalg.cholesky, in_axes=2), BATCH.transpose(1, 2, 0)),
        (jax.vmap(jax.vmap(jnp.linalg.cholesky)), spd(2, 3, 4, 4)),
        (lambda a: jax.scipy.linalg.cholesky(a, lower=True), A),
        (jax.scipy.linalg.cholesky, A),
        (jax.vmap(lambda a: jax.scipy.linalg.cholesky(a), in_axes=2), BATCH.transpose(1, 2, 0)),
        (lambda a: jax.scipy.linalg.cho_factor(a, lower=True)[0], A),
        (lambda a: jnp.linalg.cholesky(a, upper=True), A),
        (jnp.linalg.cholesky, A + 1j * (normal(4, 4) - normal(4, 4).T)),
        (lambda a: jax.scipy.linalg.cholesky(a, lower=True), A + 0j),
    ],
)
def test_cholesky_factors(fn: Callable[..., Any], a: Any) -> None:
    assert "cholesky[4 4](0)" in names(fn, a)


@pytest.mark.parametrize(
    "fn",
    [
        lambda a: jnp.tril(lax.linalg.cholesky_p.bind(a)),
        lambda a: jnp.linalg.cholesky(a, symmetrize_input=False),
        lambda a: lax.linalg.cholesky(a, symmetrize_input=False),
        lambda a: jnp.linalg.cholesky(a + 0j, upper=True),
        lambda a: jax.scipy.linalg.cholesky(a + 0j),
    ],
)
def test_factors_that_are_not_those_of_the_whole_matrix(fn: Callable[..., Any]) -> None:
    """They are of the lower triangle only, or conjugated."""
    assert not [name for name in names(fn, np.tril(A)) if name.startswith("cholesky")]


def test_the_primitive_leaves_rubbish_above_the_diagonal() -> None:
    assert lowered(lambda a: lax.linalg.cholesky_p.bind(a), A)[0].equalities == ()


def test_a_cholesky_factor_in_a_gradient() -> None:
    def loss(a: Any) -> Any:
        return jnp.sum(jnp.linalg.cholesky(a) ** 3)

    assert "cholesky[4 4](0)" in names(jax.value_and_grad(loss), A)


@pytest.mark.parametrize(
    "fn", [jnp.linalg.eigvalsh, lambda a: jnp.linalg.eigh(a)[0], lambda a: jnp.linalg.eigh(a, "L")[0]]
)
@pytest.mark.parametrize("a", [A, BATCH])
def test_eigenvalues(fn: Callable[..., Any], a: Any) -> None:
    assert names(fn, a) == ["eigenvalues[4 4](0)"]


# Names and their axes.


def test_the_name_of_a_result_has_the_axes_of_the_result() -> None:
    program = named(lambda a: jnp.linalg.inv(a) @ a + a.T, A)
    assert any(isinstance(name.op, Rename) for _, name in program.equalities)


def test_an_inverse_is_not_also_a_solution() -> None:
    assert names(lambda a, b: jnp.linalg.inv(a) @ b, A, V) == ["inv[4 4](0)"]
    assert len(names(lambda a, b: jnp.linalg.inv(a) @ jnp.linalg.solve(a, b), A, V)) == 2


def test_names_do_not_change_the_program() -> None:
    program, _ = lowered(lambda a, b: jnp.linalg.inv(a) @ b, A, V)
    assert not [term for term in program.reachable() if isinstance(term.op, (Operation, Rename))]


def test_what_nobody_needs_has_no_name() -> None:
    assert names(lambda a: (jnp.linalg.inv(a), a * 2)[1], A) == []
