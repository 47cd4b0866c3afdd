"""Lowering: what becomes of JAX functions. Every program in here is also run and compared."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.ir.ops import Const, Iota, Map, Opaque, Reduce
from tests.stages import check_meaning, lowered, no_nodes, normal, ops, result_text

X, Y, V = normal(5, 3), normal(7, 3), normal(7)
A, B = normal(5, 7), normal(7, 3)


# One term for all ways to write the same.

PRODUCT = "dot[7](0{7 5}, 1{7 3})"


@pytest.mark.parametrize("letters", ["".join(p) for p in permutations("ijk")])
def test_einsum_in_any_letters(letters: str) -> None:
    i, j, k = letters
    assert result_text(lambda a, b: jnp.einsum(f"{i}{j},{j}{k}->{i}{k}", a, b), A, B) == PRODUCT
    assert result_text(lambda a, b: jnp.einsum(f"{j}{k},{i}{j}->{k}{i}", b, a), A, B) == PRODUCT


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: a @ b,
        lambda a, b: (b.T @ a.T).T,
        lambda a, b: jnp.tensordot(a, b, 1),
        lambda a, b: jax.vmap(lambda row: row @ b)(a),
        lambda a, b: jax.vmap(lambda column: a @ column, in_axes=1, out_axes=1)(b),
        lambda a, b: jax.vmap(lambda row: jax.vmap(lambda column: row @ column, 1)(b))(a),
        lambda a, b: lax.dot_general(b, a, (((0,), (1,)), ((), ()))).T,
        lambda a, b: jnp.matmul(a[None], b[None])[0],
        lambda a, b: jnp.einsum("ij,jk->ki", a, b),
    ],
)
def test_a_product_is_one_term_however_written(fn: Callable[..., Any]) -> None:
    assert result_text(fn, A, B) == PRODUCT


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: jnp.sum((x[:, None] - y[None]) ** 2, -1),
        lambda x, y: jax.vmap(lambda p: jax.vmap(lambda q: jnp.sum((p - q) ** 2))(y))(x),
        lambda x, y: jax.vmap(lambda q: jnp.sum((x - q) ** 2, 1), out_axes=1)(y),
        lambda x, y: jnp.sum(jnp.square(jnp.expand_dims(x.T, 2) - y.T[:, None, :]), 0),
    ],
)
def test_a_distance_is_one_term_however_written(fn: Callable[..., Any]) -> None:
    assert result_text(fn, X, Y) == "sum[3](square(sub(0{5 3}, 1{7 3})))"


def test_batched_products() -> None:
    a, b = normal(4, 5, 7), normal(4, 7, 3)
    wanted = "dot[7](0{7 5 4}, 1{7 4 3})"
    assert result_text(lambda a, b: a @ b, a, b) == wanted
    assert result_text(lambda a, b: jax.vmap(jnp.matmul)(a, b), a, b) == wanted
    assert result_text(lambda a, b: jnp.einsum("bij,bjk->kbi", a, b), a, b) == wanted


# Layouts make no nodes.


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.T,
        lambda x: x[None],
        lambda x: x[:, None, :, None],
        lambda x: jnp.squeeze(x[None, :, None]),
        lambda x: x.reshape(1, 5, 1, 3),
        lambda x: x[None].reshape(5, 3),
        lambda x: x.reshape(15),
        lambda x: x.T.reshape(15),
        lambda x: x.reshape(-1, order="F"),
        lambda x: x.reshape(5, 1, 3).reshape(1, 15, 1).reshape(5, 3),
        lambda x: jnp.repeat(x, 2, axis=0),
        lambda x: jnp.broadcast_to(x, (4, 5, 3)),
        lambda x: jnp.swapaxes(jnp.broadcast_to(x[:, None], (5, 4, 3)), 0, 2),
        lambda x: lax.stop_gradient(x),
        lambda x: x.astype(np.float32),
    ],
)
def test_layouts_make_no_nodes(fn: Callable[..., Any]) -> None:
    no_nodes(fn, X)


def test_a_reshape_of_a_constant_is_free() -> None:
    assert result_text(lambda x: jnp.zeros((2, 3)).reshape(6) + x, normal(6)) == "add(0.0, 0{6})"


# Constants.


def test_scalar_constants_are_written_into_the_program() -> None:
    program, constants = lowered(lambda x: x * 2.5 + jnp.float32(-0.0), X)
    assert constants == []
    assert {op.text for op in ops(program, Const)} == {"2.5", "-0.0"}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0, 1e-45, 3.4028235e38])
def test_special_floats(value: float) -> None:
    program, _ = lowered(lambda x: x + np.float32(value), X)
    (constant,) = ops(program, Const)
    np.testing.assert_array_equal(np.float32(float(constant.text)), np.float32(value))


def test_constant_arrays_are_hoisted_once() -> None:
    table = jnp.asarray(normal(5, 3, seed=9))
    program, constants = lowered(lambda x: (x + table, x * table), X)
    assert len(constants) == 1
    assert len(program.inputs) == 2
    np.testing.assert_array_equal(constants[0], table)


def test_converted_constants_are_constants() -> None:
    program, _ = lowered(lambda n: n + jnp.full((3,), 2.7).astype(np.int32), np.arange(3, dtype=np.int32))
    assert [op.text for op in ops(program, Const)] == ["2"]
    assert ops(program, Map) == [Map("add", "int32")]


@pytest.mark.parametrize("value", [300, -1, 2**31 - 1])
def test_narrowing_constants_wraps_around(value: int) -> None:
    check_meaning(lambda n: n + jnp.full((2,), value, np.int32).astype(np.uint8), np.zeros(2, np.uint8))


def test_iota() -> None:
    program = check_meaning(lambda x: x + lax.broadcasted_iota(np.float32, (5, 3), 1), X)
    assert len(ops(program, Iota)) == 1
    check_meaning(lambda x: x + lax.broadcasted_iota(np.float32, (5, 1), 1), X)


def test_numbers_that_a_dtype_has_not_got_are_no_indices() -> None:
    """An index that overflows, or is rounded, is the same as another one."""
    for dtype, length in (("int8", 200), ("float16", 3000)):
        assert not ops(lowered(lambda d=dtype, n=length: lax.iota(d, n))[0], Iota)
        assert ops(lowered(lambda d=dtype: lax.iota(d, 128))[0], Iota)
    check_meaning(lambda: jnp.eye(5) + lax.broadcasted_iota(np.int8, (5, 5), 0))


# Calls that are inlined.


@jax.custom_jvp
def clipped(x: Any) -> Any:
    return jnp.clip(x, -1, 1)


clipped.defjvp(lambda primals, tangents: (clipped(*primals), tangents[0]))


@jax.custom_vjp
def doubled(x: Any) -> Any:
    return x * 2


doubled.defvjp(lambda x: (doubled(x), None), lambda _, g: (g * 2,))


@pytest.mark.parametrize(
    "fn",
    [
        jax.jit(lambda x: jnp.exp(x) * 2),
        lambda x: jax.jit(jax.jit(jnp.exp))(x) + 1,
        clipped,
        doubled,
        jax.checkpoint(lambda x: jnp.sin(x) ** 2),
        jax.grad(lambda x: jnp.sum(jax.checkpoint(lambda y: jnp.sin(y) ** 2)(x))),
        jax.nn.relu,
        jax.nn.softmax,
        jax.nn.gelu,
        jax.nn.logsumexp,
        lambda x: jnp.where(x > 0, x, 0),
        lambda x: jax.named_call(jnp.exp, name="named")(x),
    ],
)
def test_calls_are_inlined(fn: Callable[..., Any]) -> None:
    program = check_meaning(fn, X)
    assert ops(program, Opaque) == []


def test_the_constants_of_inner_functions() -> None:
    table = jnp.asarray(normal(5, 3, seed=3))
    check_meaning(jax.jit(lambda x: jax.jit(lambda y: y + table)(x) * table), X)


# Everything else is called as it is.


def triangle(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, c: c + i * x, x)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: lax.cumsum(x, 0),
        lambda x: jnp.sort(x, 1),
        lambda x: x[1:4, ::2],
        lambda x: x[jnp.asarray([3, 0, 3])],
        lambda x: jnp.pad(x, ((1, 2), (0, 0))),
        lambda x: jnp.concatenate([x, x * 2], 1),
        lambda x: x.at[2].add(1.0),
        lambda x: jnp.flip(x, 0),
        lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
        lambda x: lax.scan(lambda c, row: (c + row, c * row), jnp.zeros(3), x),
        triangle,
        lambda x: jnp.linalg.cholesky(x.T @ x + jnp.eye(3)),
        lambda x: jnp.diag(x[:3]),
    ],
)
def test_other_primitives_are_called(fn: Callable[..., Any]) -> None:
    program, _ = lowered(fn, X)
    assert ops(program, Opaque)
    check_meaning(fn, X, rtol=1e-4)


def test_an_operand_that_is_only_broadcast_lets_no_axis_pass() -> None:
    """A chunk of it would be the whole, and the chunk of the call the call itself."""

    def fn(u: Any, w: Any) -> Any:
        return w @ jnp.sort(jnp.broadcast_to(u, (7, 4)), axis=1)

    (call,) = ops(check_meaning(fn, normal(4), normal(7)), Opaque)
    assert call.call.passing == frozenset()
    (call,) = ops(check_meaning(lambda x: jnp.sort(x, 1), normal(7, 4)), Opaque)
    assert {axis.size for axis in call.call.passing} == {7}


def test_zeros_make_a_dimension_of_length_one_as_long_as_theirs() -> None:
    def entries(x: Any, indices: Any) -> Any:
        return jnp.take_along_axis(x, indices[:, None] + jnp.zeros((1, 2, 1), int), axis=0)

    check_meaning(entries, normal(9, 2, 5), jnp.arange(15).reshape(3, 5) % 9)
    check_meaning(lambda i: (jnp.zeros((1, 2, 1), int) + i[:, None]).reshape(6, 5), jnp.ones((3, 5), int))


def test_a_split_into_one_part_is_nothing() -> None:
    x = normal(5, 6)
    no_nodes(lambda x: lax.split(x, (6,), 1)[0], x)
    check_meaning(lambda x: [jnp.exp(part) for part in lax.split(x, (2, 4), 1)], x)


def test_empty_arrays_are_not_concatenated() -> None:
    """SciPy's transforms append what a signal lacks of whole segments, which may be nothing."""
    x = normal(5, 4)
    no_nodes(lambda x: jnp.concatenate([x[:, :0], x, jnp.zeros((5, 0))], 1), x)
    program = check_meaning(lambda x: jnp.concatenate([x, jnp.zeros((5, 0)), jnp.sin(x)], 1), x)
    (op,) = ops(program, Opaque)
    assert len(op.call.arg_layouts) == 2
    assert {axis.size for axis in op.call.passing} == {5}
    check_meaning(lambda x: jnp.concatenate([x[:0], x[:0]]), x)
    keys = jax.random.split(jax.random.key(0), 3)
    lowered(lambda keys: jnp.concatenate([keys, keys[:0], keys]), keys)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jax.lax.pad(x[:0], 2.5, ((1, 2, 0), (0, 0, 0))),
        lambda x: jax.lax.pad(x[:, :0], x.sum(), ((1, 0, 0), (3, 1, 2))),
        lambda x: jax.lax.pad(x[:0], 0.0, ((0, 0, 0), (1, 1, 0))),
        lambda x: [part * 2 for part in lax.split(x, (0, 5), 0)],
        lambda x: (x[:0] * x[:0]).sum(0),
        lambda x: jnp.sort(x[:0], 1),
        lambda x: (x[:0] > 0, x[:0].astype(jnp.int8), jnp.concatenate([x[:0] + 1, x])),
    ],
)
def test_arrays_without_entries_are_computed_from_nothing(function: Callable[..., Any]) -> None:
    """No slice of what they would be computed from has to pass through."""
    program = check_meaning(function, normal(5, 4))
    assert not [op for op in ops(program, Opaque) if any(axis.size == 0 for axis in op.call.passing)]
    assert not [op for op in ops(program, Opaque) if op.call.primitive in (lax.slice_p, lax.pad_p)]


@pytest.mark.nightly
def test_a_scan_by_halves_passes_through_in_chunks_of_a_batch() -> None:
    """Its shortest halves are empty."""
    x = normal(8, 6)

    def both(x: Any) -> Any:
        return lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (x, jnp.sin(x)))[1]

    program = check_meaning(jax.grad(lambda x: (both(x) ** 2).sum()), x)
    assert all(6 in {axis.size for axis in op.call.passing} for op in ops(program, Opaque))


def test_equal_calls_are_one_term() -> None:
    def fn(x: Any) -> Any:
        return jnp.sort(jnp.exp(x), 1).sum(0), jnp.sort(jnp.exp(x), 1).max(0), jnp.sort(jnp.exp(x), 0)

    assert len(ops(check_meaning(fn, X), Opaque)) == 2


def test_equal_calls_of_equal_functions_are_one_term() -> None:
    def larger(a: Any, b: Any) -> Any:
        return jnp.maximum(a, b) + 0

    def largest(x: Any) -> Any:
        return jax.lax.reduce(x, -jnp.inf, larger, (1,))

    assert len(ops(check_meaning(lambda x: largest(x) + largest(x), X), Opaque)) == 1
    assert len(ops(check_meaning(lambda x: largest(x) + largest(x + 1), X), Opaque)) == 2


def test_a_call_is_not_that_of_a_transposed_array() -> None:
    square = normal(4, 4)
    assert len(ops(check_meaning(lambda x: jnp.sort(x, 1) + jnp.sort(x.T, 1), square), Opaque)) == 2
    assert len(ops(check_meaning(lambda x: jnp.sort(x, 1) + jnp.sort(x, 0), square), Opaque)) == 2


def test_calls_with_integers_and_keys() -> None:
    check_meaning(lambda x: x + jax.random.normal(jax.random.key(0), (5, 3)), X)
    check_meaning(lambda key, x: x * jax.random.uniform(key, (5, 3)), jax.random.key(1), X)


def test_complex_numbers() -> None:
    z = (normal(4, 3) + 1j * normal(4, 3, seed=1)).astype(np.complex64)
    check_meaning(lambda z: jnp.abs(jnp.sum(z * (2 + 1j), 0)), z)
    check_meaning(lambda z: (z.real, z.imag, z.conj() * z), z)


# Programs.


def test_inputs_that_nothing_uses_are_still_there() -> None:
    program = check_meaning(lambda x, y: x + 1, X, Y)
    assert len(program.inputs) == 2


def test_results_that_are_inputs_or_constants() -> None:
    program = check_meaning(lambda x: (x, jnp.float32(1), x.T, jnp.ones((2, 1))), X)
    assert [output.shape for output in program.outputs] == [(5, 3), (), (3, 5), (2, 1)]


def test_origins_point_into_the_users_code() -> None:
    program, _ = lowered(lambda x: jnp.exp(x), X)
    (place,) = {program.terms.origins[term.number] for term in program.reachable() if term.args}
    assert place.file == __file__
    assert place.code == "program, _ = lowered(lambda x: jnp.exp(x), X)"
    assert str(place).endswith(f"test_lower.py:{place.line} in a lambda")


def test_equal_computations_are_one_term() -> None:
    program, _ = lowered(lambda x: (jnp.exp(x) + jnp.exp(x), jnp.exp(x)), X)
    assert sum(isinstance(term.op, Map) and term.op.name == "exp" for term in program.reachable()) == 1


def test_a_sum_over_two_axes_at_once() -> None:
    program, _ = lowered(lambda x: jnp.sum(x, (0, 2)), normal(4, 5, 3))
    (reduction,) = ops(program, Reduce)
    assert {axis.size for axis in reduction.axes} == {4, 3}


def test_transposes_share_their_spare_names() -> None:
    """Names that never meet in one term are one name: then equal terms are one term, too."""
    x, y = normal(5, 5), normal(5, 5, seed=1)
    program = check_meaning(lambda x, y: (x + x.T, y + y.T, (x @ y).T @ x), x, y)
    assert len(program.axes()) == 3

    def kernel(a: Any, b: Any) -> Any:
        return jnp.exp(-jnp.sum((a[:, None] - b) ** 2, -1))

    program = check_meaning(lambda x, v: (kernel(x, x) @ v, jnp.sum(kernel(x, x) ** 2)), X, normal(5))
    assert len(ops(program, Map)) == 5


def test_a_sharding_over_no_devices_says_nothing() -> None:
    """Derivatives of conversions have one; they are elementwise all the same."""
    gradient = jax.grad(lambda x: jnp.sum(jnp.real(x.astype(jnp.complex64) * 2j * 1j)))
    program, _ = lowered(gradient, normal(5))
    assert ops(program, Opaque) == []


def test_a_number_too_large_for_its_dtype_is_infinite_without_a_warning() -> None:
    _, constants = lowered(
        lambda x: x * lax.convert_element_type(lax.full(x.shape, np.float32(1e30)), np.float16),
        normal(5).astype(np.float16),
    )
    assert constants == []
