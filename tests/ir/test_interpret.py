"""The reference interpreter against NumPy and JAX, with and without loops."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
import pytest
from jax import lax

from eqsat.errors import EqsatError
from eqsat.ir.axis import Axis, Layout
from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.ir.interpret import interpret
from eqsat.ir.numpy_functions import apply
from eqsat.ir.ops import (
    Call,
    Chunk,
    Concat,
    Const,
    Dot,
    Fold,
    Iota,
    Leaf,
    Map,
    Op,
    Opaque,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term, Terms

I, J, K, TWO, OTHER = Axis(4, 5), Axis(1, 7), Axis(2, 3), Axis(3, 2), Axis(0, 5)  # noqa: E741
F32 = "float32"
RNG = np.random.default_rng(0)
A = RNG.normal(size=(5, 3)).astype(np.float32)
B = RNG.normal(size=(7, 3)).astype(np.float32)
LENGTHS = (1, 2, 3, 4, 5, 7, 100)


class Builder:
    """Terms over two inputs, a{i k} and b{j k}."""

    def __init__(self) -> None:
        self.terms = Terms()
        self.a = self(Leaf(0, (I, K), F32))
        self.b = self(Leaf(1, (J, K), F32))

    def __call__(self, op: Op, *args: Term) -> Term:
        return self.terms.make(op, args)

    def run(self, term: Term, layout: Layout, chunks: Mapping[Axis, int] | None = None) -> np.ndarray:
        program = Program((self.a, self.b), (Output(term, layout),), self.terms)
        check_program(program)
        (result,) = interpret(program, [A, B], chunks)
        return result


@pytest.fixture
def make() -> Builder:
    return Builder()


def double(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


def test_operands_broadcast_by_axis_name_and_outputs_follow_their_layout(make: Builder) -> None:
    total = make(Map("sub", F32), make.a, make.b)
    expected = double(A)[:, None] - double(B)[None]
    result = make.run(total, (J, None, I, K))
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, expected.transpose(1, 0, 2)[:, None])


def test_an_output_is_broadcast_over_axes_that_its_term_lacks(make: Builder) -> None:
    result = make.run(make.a, (K, J, I))
    np.testing.assert_array_equal(result, np.broadcast_to(double(A).T[:, None], (3, 7, 5)))


def test_constants_and_iotas(make: Builder) -> None:
    shifted = make(Map("add", "int32"), make(Iota(J, "int32")), make(Const("-3", "int32")))
    np.testing.assert_array_equal(make.run(shifted, (J,)), np.arange(7, dtype=np.int32) - 3)


def test_a_contraction_keeps_all_other_axes(make: Builder) -> None:
    product = make(Dot(frozenset({K}), F32), make.a, make.b)
    np.testing.assert_allclose(make.run(product, (I, J)), double(A) @ double(B).T, rtol=1e-14)


def test_an_integer_contraction_wraps_around(make: Builder) -> None:
    terms = Terms()
    x = terms.make(Leaf(0, (I,), "int8"))
    square = terms.make(Dot(frozenset({I}), "int8"), (x, x))
    program = Program((x,), (Output(square, ()),), terms)
    (result,) = interpret(program, [np.full(5, 100, np.int8)])
    assert result == np.int64(50_000).astype(np.int8)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "mean"])
def test_reductions(make: Builder, kind: str) -> None:
    reduced = make(Reduce(kind, frozenset({I, K}), F32), make(Map("sub", F32), make.a, make.b))
    expected = getattr(np, kind)(double(A)[:, None] - double(B)[None], axis=(0, 2))
    np.testing.assert_allclose(make.run(reduced, (J,)), expected, rtol=1e-13)


def test_a_rename_is_the_same_array(make: Builder) -> None:
    renamed = make(Rename(I, OTHER), make.a)
    outer = make(Map("mul", F32), make.a, renamed)
    expected = np.einsum("ik,jk->ijk", double(A), double(A))
    np.testing.assert_array_equal(make.run(outer, (I, OTHER, K)), expected)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_concatenation_of_chunks_is_the_whole(make: Builder, length: int) -> None:
    body = make(Map("exp", F32), make(Dot(frozenset({K}), F32), make(Chunk(I), make.a), make.b))
    result = make.run(make(Concat(I), body), (J, I), {I: length})
    np.testing.assert_allclose(result, np.exp(double(B) @ double(A).T), rtol=1e-13)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
def test_a_fold_of_chunks_is_the_reduction(make: Builder, kind: str, length: int) -> None:
    body = make(Reduce(kind, frozenset({J}), F32), make(Chunk(J), make.b))
    result = make.run(make(Fold(J, kind), body), (K,), {J: length})
    np.testing.assert_allclose(result, getattr(np, kind)(double(B), axis=0), rtol=1e-14)


@pytest.mark.parametrize("lengths", [(2, 3), (5, 1), (1, 7), (3, 100)])
def test_nested_loops(make: Builder, lengths: tuple[int, int]) -> None:
    tile = make(Map("sub", F32), make(Chunk(I), make.a), make(Chunk(J), make.b))
    row = make(Fold(J, "max"), make(Reduce("max", frozenset({J}), F32), tile))
    centred = make(Map("sub", F32), row, make(Chunk(I), make.a))
    result = make.run(make(Concat(I), centred), (I, K), dict(zip((I, J), lengths, strict=True)))
    np.testing.assert_allclose(result, np.tile(-double(B).min(0), (5, 1)), rtol=1e-13)


def test_a_body_runs_once_per_chunk(make: Builder) -> None:
    """A sum over the loop's own axis sees one chunk: the loop is not just an annotation."""
    body = make(
        Map("sub", F32),
        make(Chunk(J), make.b),
        make(Reduce("sum", frozenset({J}), F32), make(Chunk(J), make.b)),
    )
    result = make.run(make(Concat(J), body), (J, K), {J: 1})
    np.testing.assert_array_equal(result, np.zeros((7, 3)))


@pytest.mark.parametrize("length", LENGTHS)
def test_selections_by_chunks_keep_the_first_of_equals(length: int) -> None:
    terms = Terms()
    data = np.array([[1, 3, 3, 2, 3, 0, 3], [0, 0, 0, 0, 0, 0, 0]], np.int32)
    x = terms.make(Leaf(0, (TWO, J), "int32"))
    chunk = terms.make(Chunk(J), (x,))
    three = Axis(9, 3)
    outputs = [
        Output(terms.make(Fold(J, Select("top_k", J, 3, three, "values", "int32")), (chunk,)), (TWO, three)),
        Output(terms.make(Fold(J, Select("top_k", J, 3, three, "indices", "int32")), (chunk,)), (TWO, three)),
        Output(terms.make(Fold(J, Select("argmax", J, 1, None, "indices", "int32")), (chunk,)), (TWO,)),
        Output(terms.make(Fold(J, Select("argmin", J, 1, None, "indices", "int32")), (chunk,)), (TWO,)),
    ]
    program = Program((x,), tuple(outputs), terms)
    check_program(program)
    results = interpret(program, [data], {J: length})
    expected = [*lax.top_k(data, 3), data.argmax(1), data.argmin(1)]
    for result, reference in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, reference)


def test_top_k_orders_nans_and_zeros_as_jax_does() -> None:
    terms = Terms()
    data = np.array([1.0, np.nan, -0.0, 3.0, 0.0, 3.0, -np.inf], np.float32)
    x = terms.make(Leaf(0, (J,), F32))
    axis = Axis(9, 7)
    order = terms.make(Select("top_k", J, 7, axis, "indices", "int32"), (x,))
    (result,) = interpret(Program((x,), (Output(order, (axis,)),), terms), [data])
    np.testing.assert_array_equal(result, lax.top_k(data, 7)[1])


def cumulative(*passing: Axis) -> Opaque:
    """cumsum along the second dimension of an array {j k}."""
    params = {"axis": 1, "reverse": False}
    return Opaque(Call(0, lax.cumsum_p, params, ((J, K),), ((J, K),), (F32,), frozenset(passing)), 0)


def test_an_opaque_call_is_the_primitive_in_double_precision(make: Builder) -> None:
    result = make.run(make(cumulative(), make.b), (K, J))
    np.testing.assert_array_equal(result, np.cumsum(double(B), 1).T)


@pytest.mark.parametrize("length", LENGTHS)
def test_an_opaque_call_by_chunks_of_a_passing_axis(make: Builder, length: int) -> None:
    body = make(cumulative(J), make(Chunk(J), make.b))
    result = make.run(make(Concat(J), body), (J, K), {J: length})
    np.testing.assert_array_equal(result, np.cumsum(double(B), 1))


def test_an_axis_that_is_wrongly_said_to_pass_gives_a_wrong_result(make: Builder) -> None:
    body = make(cumulative(K), make(Chunk(K), make.b))
    result = make.run(make(Concat(K), body), (J, K), {K: 2})
    assert not np.allclose(result, np.cumsum(double(B), 1))


def test_arrays_that_do_not_fit_are_refused(make: Builder) -> None:
    program = Program((make.a,), (Output(make.a, (I, K)),), make.terms)
    with pytest.raises(EqsatError, match="got 2 arrays"):
        interpret(program, [A, B])
    with pytest.raises(EqsatError, match="does not fit the layout"):
        interpret(program, [B])


def _sample(name: str) -> tuple[str, list[np.ndarray], dict[str, object]]:
    """A dtype, operands in the domain and parameters to try the elementwise function with."""
    rng = np.random.default_rng(1)
    arity = ELEMENTWISE[name].arity
    params = {
        "integer_pow": {"y": 3},
        "round": {"rounding_method": lax.RoundingMethod.TO_NEAREST_EVEN},
        "reduce_precision": {"exponent_bits": 5, "mantissa_bits": 4},
    }.get(name, {})
    if name in ("and", "or", "xor", "not", "population_count", "clz", "mulhi") or name.startswith("shift"):
        return "int32", [rng.integers(0, 20, 9).astype(np.int32) for _ in range(arity)], params
    operands = [rng.uniform(0.05, 0.95, 9).astype(np.float32) for _ in range(arity)]
    if name in ("acosh", "zeta"):
        operands[0] += 2
    if name == "polygamma":
        operands[0] = np.ones(9, np.float32)
    if name == "select_n":
        operands[0] = operands[0] > 0.5
    if name in ("real", "imag", "conj"):
        operands = [(operands[0] + 1j).astype(np.complex64)]
    return "float32", operands, params


HERE = {name for name in ELEMENTWISE if hasattr(lax, name) or hasattr(lax, f"{name}_p")}
"""Not all versions of JAX have all of them."""


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", sorted(HERE - {"stop_gradient", "add_any"}))
def test_each_elementwise_function_is_what_jax_computes(name: str) -> None:
    dtype, operands, params = _sample(name)
    with jax.enable_x64(True):
        doubled = [
            x.astype({"f": np.float64, "c": np.complex128}.get(x.dtype.kind, x.dtype)) for x in operands
        ]
        function = {
            "regularized_incomplete_beta": lax.betainc,
            "copy": lambda x: x,
            "and": lax.bitwise_and,
            "or": lax.bitwise_or,
            "xor": lax.bitwise_xor,
            "not": lax.bitwise_not,
        }.get(name)
        if function is None and not hasattr(lax, name):
            function = getattr(lax, f"{name}_p").bind
        expected = np.asarray((function or getattr(lax, name))(*doubled, **params))
    dtype = {"b": "bool", "c": "complex64", "f": "float32"}.get(expected.dtype.kind, dtype)
    result = apply(name, dtype, doubled, dict(params))
    np.testing.assert_allclose(result, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("float32", "int8"),
        ("int32", "int8"),
        ("float32", "bool"),
        ("bool", "float32"),
        ("int32", "bfloat16"),
        ("complex64", "float32"),
        ("int32", "uint8"),
    ],
)
def test_conversions_are_those_of_jax(source: str, target: str) -> None:
    values = np.array([-300.7, -1.5, 0, 0.9, 2.5, 200, 1e9]).astype(source)
    real = values.real if target == "float32" else values
    expected = lax.convert_element_type(real, target)
    if target == "bfloat16":
        expected = values.astype(np.float64)  # the reference does not round
    wide = values.astype({"f": np.float64, "c": np.complex128}.get(values.dtype.kind, values.dtype))
    np.testing.assert_array_equal(apply("convert", target, [wide], {}), np.asarray(expected))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32"])
def test_integer_division_is_that_of_jax(dtype: str) -> None:
    limits = np.iinfo(dtype)
    numbers = [limits.min, limits.min + 1, -7, -1, 0, 1, 2, 3, 7, limits.max - 1, limits.max]
    inside = np.unique([number for number in numbers if number >= limits.min]).astype(dtype)
    x, y = np.meshgrid(inside, inside)
    np.testing.assert_array_equal(apply("div", dtype, [x, y], {}), lax.div(x, y))
    np.testing.assert_array_equal(apply("rem", dtype, [x, y], {}), lax.rem(x, y))
