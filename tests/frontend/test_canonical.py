"""Calls that are operations: recognised by name and by what they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.errors import EqsatError
from eqsat.frontend import canonical
from tests.frontend.named import names, spd, text, texts
from tests.stages import check_meaning, lowered, normal

A, B, BATCH = spd(4, 4), normal(4, 3), spd(5, 4, 4)


def logdet(a: Any) -> Any:
    return jnp.linalg.slogdet(a)[1]


SQUARE: list[tuple[Callable[..., Any], str]] = [
    (jnp.linalg.inv, "inv[4 4](0)"),
    (jnp.linalg.det, "det[4 4](0)"),
    (logdet, "logdet[4 4](0)"),
    (lambda a: jnp.diagonal(a, axis1=-2, axis2=-1), "diagonal[4 4](0)"),
    (jnp.tril, "tril[4 4](0)"),
    (jnp.triu, "triu[4 4](0)"),
]


@pytest.mark.parametrize(("fn", "wanted"), SQUARE)
def test_matrices(fn: Callable[..., Any], wanted: str) -> None:
    assert wanted in names(fn, A)
    assert wanted in names(lambda a: fn(a.T), A)


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("fn", "wanted"), SQUARE)
def test_batches_of_matrices(fn: Callable[..., Any], wanted: str) -> None:
    assert wanted in names(fn, BATCH)
    assert wanted in names(jax.vmap(fn), BATCH)
    assert wanted in names(jax.vmap(fn, in_axes=1, out_axes=-1), BATCH.transpose(1, 0, 2))
    assert wanted in names(jax.vmap(fn, in_axes=2), BATCH.transpose(1, 2, 0))
    assert wanted in names(jax.vmap(jax.vmap(fn)), spd(2, 3, 4, 4))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_determinants_of_every_size(size: int) -> None:
    assert f"det[{size} {size}](0)" in names(jnp.linalg.det, spd(size, size))


def test_both_results_of_a_signed_determinant() -> None:
    found = names(lambda a: jnp.linalg.slogdet(a), A)
    assert [name for name in found if name.endswith("det[4 4](0)")] == ["logdet[4 4](0)"]


@pytest.mark.parametrize(("fn", "wanted"), [(jnp.linalg.inv, "inv[4 4](0)"), (logdet, "logdet[4 4](0)")])
def test_calls_in_a_gradient(fn: Callable[..., Any], wanted: str) -> None:
    assert wanted in names(jax.value_and_grad(lambda a: jnp.sum(fn(a) ** 2)), A)


@pytest.mark.parametrize("shape", [(4, 6), (6, 4)])
def test_triangles_of_rectangles(shape: tuple[int, int]) -> None:
    rows, columns = shape
    assert names(jnp.tril, normal(*shape)) == [f"tril[{rows} {columns}](0)"]


def test_kronecker_products() -> None:
    found = names(jnp.kron, A, B)
    assert "kron[4 4 4 3 16 12](0, 1)" in found
    assert "kron[4 4 4 3 16 12](0, 1)" in names(jax.vmap(jnp.kron, in_axes=(0, None)), BATCH, B)
    assert "kron[4 3 4 3 16 9](0, 0)" in names(lambda b: jnp.kron(b, b), B)


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (lambda a: jnp.diagonal(a, 1), (A,)),
        (lambda a: jnp.tril(a, -1), (A,)),
        (lambda a: jnp.triu(a, 2), (A,)),
        (jnp.diagonal, (B,)),
        (jnp.diagonal, (B.T,)),
        (lambda a: jnp.kron(a[0], a[1]), (A,)),
        (lambda a: jnp.kron(a[:1], a), (A,)),
        (lambda a: jnp.linalg.inv(a[:1, :1]), (A,)),
        (lambda x: jnp.tril(jnp.broadcast_to(x, (4, 4))), (normal(4),)),
        (lambda x: jnp.linalg.inv(jnp.full((4, 4), x) + jnp.eye(4)), (np.float32(0.1),)),
    ],
)
def test_calls_that_are_not_these_operations(fn: Callable[..., Any], args: Any) -> None:
    for name in names(fn, *args):
        parts = ("merge", "split", "head", "reverse", "take")
        assert name.startswith((*parts, "inv[4 4](add", "solve[4 4](add")), name


# Impostors.


@pytest.mark.parametrize("name", sorted(canonical.JAX))
def test_users_have_functions_of_the_same_names(name: str) -> None:
    def mine(a: Any) -> Any:
        return a @ a

    mine.__name__ = name
    assert f"name={name}" in str(jax.make_jaxpr(jax.jit(mine))(A))
    assert names(jax.jit(mine), A) == []
    assert names(jax.vmap(jax.jit(mine)), BATCH) == []


def test_the_tangent_of_a_call_is_not_the_call() -> None:
    found = names(lambda a, t: jax.jvp(jnp.linalg.inv, (a,), (t,)), A, normal(4, 4))
    assert found.count("inv[4 4](0)") == 1
    program, _ = lowered(lambda a, t: jax.jvp(jnp.linalg.inv, (a,), (t,))[1], A, normal(4, 4))
    (name,) = [name for body, name in program.equalities if body is program.outputs[0].term]
    assert text(name).startswith("solve[4 4](0, neg(")


def test_an_almost_equal_function_is_another() -> None:
    @jax.jit
    def det(a: Any) -> Any:
        return jnp.linalg.det(a) * 2

    assert "det[4 4](0)" in names(det, A)  # the inner call is one
    program = check_meaning(det, A, rtol=1e-4)
    assert program.outputs[0].term not in [body for body, _ in program.equalities]


def test_a_copy_of_the_function_is_the_function() -> None:
    @jax.jit
    def tril(a: Any) -> Any:
        rows, columns = jnp.arange(4)[:, None], jnp.arange(4)
        return jnp.where(rows >= columns, a, 0)

    assert names(tril, A) in ([], ["tril[4 4](0)"])  # and it does not matter whether that is seen
    check_meaning(tril, A)


def test_functions_are_traced_once_for_all_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = []
    before = canonical._traced
    monkeypatch.setattr(canonical, "_traced", lambda *args: (traced.append(args), before(*args))[1])

    def fn(a: Any) -> Any:
        for _ in range(30):
            a = jnp.tril(a) + jnp.exp(a)
        return a

    program, _ = lowered(fn, A)
    assert len(program.equalities) == 30
    assert len(traced) == 1


# The user's own.


def kernel(x: Any, y: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, -1))


X, Y = normal(4, 3), normal(5, 3)
BATCH_X, BATCH_Y = normal(2, 4, 3), normal(6, 5, 3)
KERNEL = "rbf[4 5 3](0, 1)"


def test_a_users_operation() -> None:
    rbf = eqsat.operation(kernel, signature="rbf[i, j, k](x: i k, y: j k) -> i j")
    assert names(rbf, X, Y) == [KERNEL]
    assert names(lambda x, y: rbf(y, x).T, Y, X) == ["rbf[4 5 3](1, 0)"]
    assert names(lambda x: rbf(x, x), X) == ["rbf[4 4 3](0, 0)"]
    assert names(lambda x, y: rbf(x.T, y), X.T, Y) == [KERNEL]
    assert names(jax.jit(lambda x, y: rbf(x, y) @ y), X, Y) == [KERNEL]


@pytest.mark.parametrize(
    ("in_axes", "args"),
    [
        ((None, 0), (X, BATCH_Y)),
        ((0, None), (BATCH_X, Y)),
        ((0, 0), (BATCH_X, BATCH_Y[:2])),
        ((1, 2), (BATCH_X.transpose(1, 0, 2), BATCH_Y[:2].transpose(1, 2, 0))),
    ],
)
@pytest.mark.parametrize("out", [0, 2])
def test_vmaps_of_a_users_operation(in_axes: Any, args: Any, out: int) -> None:
    rbf = eqsat.operation(kernel, signature="rbf[i, j, k](x: i k, y: j k) -> i j")
    assert names(jax.vmap(rbf, in_axes=in_axes, out_axes=out), *args) == [KERNEL]


def test_nested_vmaps_of_a_users_operation() -> None:
    rbf = eqsat.operation(kernel, signature="rbf[i, j, k](x: i k, y: j k) -> i j")
    inner = jax.vmap(rbf, in_axes=(None, 0))
    assert names(jax.vmap(inner, in_axes=(0, None)), BATCH_X, BATCH_Y) == [KERNEL]
    assert names(jax.vmap(inner, in_axes=(0, None), out_axes=1), BATCH_X, BATCH_Y) == [KERNEL]


def test_derivatives_of_a_users_operation() -> None:
    rbf = eqsat.operation(kernel, signature="rbf[i, j, k](x: i k, y: j k) -> i j")
    found = names(jax.value_and_grad(lambda x, y: jnp.sum(rbf(x, y))), X, Y)
    assert set(found) == {KERNEL}


def test_a_users_operation_that_holds_arrays() -> None:
    weights = jnp.asarray(normal(3))

    @eqsat.operation(signature="(i,k),(j,k)->(i,j)")
    def weighted(x: Any, y: Any) -> Any:
        return (x * weights) @ y.T

    program, _ = lowered(weighted, X, Y)
    assert texts(program) == ["weighted[4 3 5](0, 1)"]
    scale = jnp.asarray(2.0)
    program, _ = lowered(lambda x, y: weighted(x, y) * scale, X, Y)
    assert texts(program) == ["weighted[4 3 5](0, 1)"]


def test_a_users_operation_with_scalars() -> None:
    @eqsat.operation(signature="(k),()->()")
    def scaled(x: Any, factor: Any) -> Any:
        return jnp.sum(x) * factor

    assert names(scaled, X[0], np.float32(2)) == ["scaled[3](0, 1)"]
    assert names(jax.vmap(scaled, in_axes=(0, None)), X, np.float32(2)) == ["scaled[3](0, 1)"]
    assert names(jax.vmap(scaled), X, normal(4)) == ["scaled[3](0, 1)"]


def test_a_users_operation_of_another_dtype() -> None:
    @eqsat.operation(signature="(k)->()")
    def positives(x: Any) -> Any:
        return jnp.sum(x > 0)

    assert names(positives, X[0]) == ["positives[3](0)"]


def test_a_users_operation_called_in_another_way() -> None:
    rbf = eqsat.operation(kernel, signature="rbf[i, j, k](x: i k, y: j k) -> i j")
    check_meaning(rbf, X, Y[:, :1])  # the last axes broadcast: not what the signature says
    assert names(rbf, X, Y[:, :1]) == []


def test_a_function_that_can_not_be_traced_again() -> None:
    seen: list[int] = []

    @eqsat.operation(signature="(k)->(k)")
    def once(x: Any) -> Any:
        seen.append(1)
        if len(seen) > 2:
            raise RuntimeError("too often")
        return x * len(seen)

    once(X[0])
    assert names(jax.jit(lambda x: once(x) + 1), X[0]) == []
    with pytest.raises(EqsatError, match="more than a signature"):
        eqsat.operation(signature='f[k](x: k) -> k from "module:f"')(once)
