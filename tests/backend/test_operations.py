"""Named operations as text do what they mean, for any order and number of the operands' axes."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.ir.axis import Axis
from eqsat.ir.operations import OPERATIONS, OperationSpec, parse_signature
from eqsat.ir.ops import Chunk, Concat, Delta, Dot, Fold, Leaf, Map, Operation, Reduce
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Term, Terms
from tests.backend.running import check_emitted, emitted
from tests.ir.operations import EXAMPLES

EXTRA = (Axis(0, 3), Axis(50, 4))
"""Axes besides the core ones; the first one is done by chunks of 2, the second one whole."""


def made(
    spec: OperationSpec,
    lengths: Sequence[int],
    extras: Sequence[Sequence[Axis]],
    seed: int,
    dtype: str = "float32",
    chunked: bool = True,
) -> tuple[Program, list[Any], Operation]:
    """The operation on inputs whose dimensions come in some order, and arrays for them.

    **Arguments:**

    - `extras`: for each operand, which axes it has besides its core axes.
    """
    rng = np.random.default_rng(seed)
    core = tuple(Axis(20 - 2 * place, length) for place, length in enumerate(lengths))
    op = Operation(spec, core, spec.dtype or dtype)
    terms = Terms()
    leaves: list[Term] = []
    arrays: list[Any] = []
    for place, (operand, letters) in enumerate(spec.signature.operands):
        axes = [*extras[place], *op.core(letters)]
        array = rng.normal(size=[axis.size for axis in axes])
        if operand == "index":
            array = rng.integers(-2, 9, array.shape).astype(np.int32)
        elif len(letters) == 2 and spec.name in EXAMPLES:
            array = EXAMPLES[spec.name].prepare(array)
        order = rng.permutation(len(axes))
        layout = tuple(axes[place] for place in order)
        leaves.append(terms.make(Leaf(place, layout, "int32" if operand == "index" else dtype)))
        arrays.append(np.transpose(array, order))
    args = list(leaves)
    loop = EXTRA[0] if chunked and any(EXTRA[0] in leaf.axes for leaf in leaves) else None
    if loop is not None:
        args = [terms.make(Chunk(loop), (leaf,)) if loop in leaf.axes else leaf for leaf in leaves]
    result = terms.make(op, args)
    if loop is not None:
        result = terms.make(Concat(loop), (result,))
    return Program(tuple(leaves), (Output(result, _shuffled(result, rng)),), terms), arrays, op


def _shuffled(term: Term, rng: np.random.Generator) -> tuple[Axis, ...]:
    axes = sorted(term.axes)
    return tuple(axes[place] for place in rng.permutation(len(axes)))


ONE, OTHER = EXTRA
SINGLE = [((),), ((ONE,),), ((OTHER,),), ((ONE, OTHER),)]
PAIRS = [
    ((), ()), ((OTHER,), ()), ((), (OTHER,)), ((), (ONE,)), ((ONE,), (ONE,)), ((ONE, OTHER), (OTHER, ONE)),
    ((), (ONE, OTHER)), ((ONE, OTHER), (OTHER,)), ((OTHER,), (ONE,)),
]  # fmt: skip
"""Which axes the operands have besides their core axes."""


EITHER_SIGN = frozenset({"svd_u", "svd_v", "svd_v_beside_u"})
"""Operations whose results are singular vectors, of which NumPy's LAPACK may give the negative."""


def magnitudes(program: Program) -> Program:
    """The program with the magnitudes of its results."""
    outputs = (
        Output(program.terms.make(Map("abs", output.term.dtype), (output.term,)), output.layout)
        for output in program.outputs
    )
    return replace(program, outputs=tuple(outputs))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_as_they_are_meant(name: str) -> None:
    spec = OPERATIONS[name]
    for seed, extras in enumerate(SINGLE if len(spec.signature.operands) == 1 else PAIRS):
        program, arrays, _ = made(spec, EXAMPLES[name].lengths, extras, seed)
        program = magnitudes(program) if name in EITHER_SIGN else program
        check_emitted(program, arrays, {EXTRA[0]: 2}, rtol=2e-4)


@pytest.mark.parametrize("name", ["inv", "solve", "solve_lower", "logdet", "softmax", "sort", "take", "kron"])
def test_operations_in_double_precision(name: str) -> None:
    spec = OPERATIONS[name]
    extras = [(OTHER,)] * len(spec.signature.operands)
    with jax.enable_x64(True):
        program, arrays, _ = made(spec, EXAMPLES[name].lengths, extras, 7, "float64")
        check_emitted(program, arrays, rtol=1e-12)


@pytest.mark.parametrize(
    "name", ["softmax", "logsumexp", "merge", "split", "tril", "diagonal", "kron", "take", "argsort"]
)
def test_operations_in_half_precision(name: str) -> None:
    spec = OPERATIONS[name]
    extras = [(OTHER,)] * len(spec.signature.operands)
    program, arrays, _ = made(spec, EXAMPLES[name].lengths, extras, 8, "bfloat16")
    check_emitted(program, arrays, rtol=2e-2)


def test_indices_are_as_wide_as_they_are_said_to_be() -> None:
    program, arrays, _ = made(OPERATIONS["argsort"], (7,), [(OTHER,)], 1)
    with jax.enable_x64(True):
        check_emitted(program, arrays)


@pytest.mark.parametrize("extras", PAIRS)
def test_axes_of_length_zero(extras: Any) -> None:
    empty = {ONE: Axis(0, 0), OTHER: OTHER}
    renamed = [tuple(empty[axis] for axis in axes) for axes in extras]
    for name in ("solve", "solve_upper", "take", "kron"):
        program, arrays, _ = made(OPERATIONS[name], EXAMPLES[name].lengths, renamed, 2, chunked=False)
        check_emitted(program, arrays, rtol=2e-4)
    program, arrays, _ = made(OPERATIONS["merge"], (2, 5, 10), renamed[:1], 2, chunked=False)
    check_emitted(program, arrays)


# How it reads.

I, J, N, C = Axis(8, 5), Axis(9, 5), Axis(13, 6), Axis(2, 4)  # noqa: E741


def line_of(name: str, core: Sequence[Axis], *layouts: Sequence[Axis]) -> str:
    """The expression that an operation becomes on inputs of those layouts, which are called A, b."""
    terms = Terms()
    leaves = [terms.make(Leaf(place, tuple(layout), "float32")) for place, layout in enumerate(layouts)]
    result = terms.make(Operation(OPERATIONS[name], tuple(core), "float32"), leaves)
    program = Program(tuple(leaves), (Output(result, tuple(sorted(result.axes))),), terms)
    (line,) = re.findall(rf"    {name}_\d+ = (.*)", emitted(program).source)
    return str(line).replace("argument_0", "A").replace("argument_1", "b")


def test_what_jax_does_by_itself_is_called_directly() -> None:
    assert line_of("inv", (I, J), (I, J)) == "jnp.linalg.inv(A)"
    assert line_of("inv", (I, J), (C, I, J)) == "jnp.linalg.inv(A)"
    assert line_of("inv", (I, J), (J, I)) == "jnp.linalg.inv(jnp.transpose(A, (1, 0)))"
    assert line_of("solve", (I, J), (I, J), (I,)) == "jnp.linalg.solve(A, b)"
    assert line_of("solve", (I, J), (I, J), (I, C)) == "jnp.linalg.solve(A, b)"
    assert line_of("solve", (I, J), (I, J), (C, I)) == "jnp.linalg.solve(A, jnp.transpose(b, (1, 0)))"
    assert line_of("logdet", (I, J), (C, I, J)) == "jnp.linalg.slogdet(A)[1]"
    assert line_of("softmax", (N,), (N, C)) == "jax.nn.softmax(A, axis=0)"
    assert line_of("diagonal", (I, J), (I, J)) == "jnp.diagonal(A)"
    assert line_of("diagonal", (I, J), (I, C, J)) == "jnp.diagonal(A, axis1=0, axis2=2)"
    assert line_of("head", (N, C), (I, N)) == "lax.slice_in_dim(A, 0, 4, axis=1)"
    assert line_of("reverse", (N,), (I, N)) == "lax.rev(A, (1,))"
    assert line_of("merge", (C, I, Axis(30, 20)), (N, C, I)) == "jnp.reshape(A, (6, 20))"


def test_triangles_are_not_transposed() -> None:
    solve = "jax.scipy.linalg.solve_triangular"
    assert line_of("solve_lower", (I, J), (I, J), (I,)) == f"{solve}(A, b, lower=True)"
    assert line_of("solve_lower", (I, J), (J, I), (I,)) == f"{solve}(A, b, trans=1, lower=False)"
    assert line_of("solve_upper", (I, J), (J, I), (I,)) == f"{solve}(A, b, trans=1, lower=True)"
    # where there are several right-hand sides, they are read as they lie
    solve, b = "lax.linalg.triangular_solve", "jnp.transpose(b, (1, 0))"
    assert line_of("solve_lower", (I, J), (I, J), (C, I)) == f"{solve}(A, b, lower=True, transpose_a=True)"
    assert line_of("solve_lower", (I, J), (I, J), (I, C)) == f"{solve}(A, {b}, lower=True, transpose_a=True)"
    assert line_of("solve_upper", (I, J), (J, I), (I, C)) == f"{solve}(A, {b}, lower=True)"
    assert line_of("tril", (I, J), (J, I)) == "jnp.triu(A)"
    assert line_of("triu", (I, J), (C, J, I)) == "jnp.tril(A)"


def test_a_product_comes_out_as_columns() -> None:
    terms = Terms()
    a, x, y = (terms.make(Leaf(n, axes, "float32")) for n, axes in enumerate([(I, J), (C, N), (N, I)]))
    right = terms.make(Dot(frozenset({N}), "float32"), (x, y))
    solved = terms.make(Operation(OPERATIONS["solve"], (I, J), "float32"), (a, right))
    program = Program((a, x, y), (Output(solved, (C, J)),), terms)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(5, 5)) + 4 * np.eye(5), rng.normal(size=(4, 6)), rng.normal(size=(6, 5))]
    source = check_emitted(program, arrays)
    assert "jnp.linalg.solve(argument_0, dot_" in source


def test_everything_else_is_mapped() -> None:
    kron = (C, I, Axis(20, 2), N, Axis(21, 8), Axis(22, 30))
    assert line_of("kron", kron, (C, I), (Axis(20, 2), N)) == "jnp.kron(A, b)"
    line = line_of("kron", kron, (C, Axis(1, 3), I), (Axis(20, 2), N))
    assert line == "jax.vmap(lambda A, B: jnp.kron(A, B), in_axes=(1, None))(A, b)"


def rbf(x: Any, y: Any) -> Any:
    """A user's function of matrices."""
    assert x.ndim == y.ndim == 2
    return jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1))


RBF = parse_signature("rbf[i, j, k](x: i k, y: j k) -> i j")


@pytest.mark.parametrize("extras", PAIRS)
def test_a_users_function_is_imported_and_mapped(extras: Any) -> None:
    program, arrays, _ = made(OperationSpec(RBF, function=rbf), (5, 6, 2), extras, 3)
    source = check_emitted(program, arrays, {ONE: 2})
    assert f"from {__name__} import rbf\n" in source
    assert emitted(program, {ONE: 2}).objects == {}


def test_a_function_that_cannot_be_imported_is_given() -> None:
    spec = OperationSpec(RBF, function=lambda x, y: rbf(x, y))
    program, arrays, _ = made(spec, (5, 6, 2), [(OTHER,), ()], 3)
    assert list(emitted(program).objects) == ["rbf"]
    check_emitted(program, arrays)


def test_a_wrapper_that_says_what_it_calls_is_imported() -> None:
    spec = OperationSpec(parse_signature("doubled[n](a: n) -> n"), function=doubled.__operation__)
    program, arrays, _ = made(spec, (6,), [(OTHER,)], 4)
    source = check_emitted(program, arrays)
    assert f"from {__name__} import doubled\n" in source


def test_a_users_function_may_have_any_name() -> None:
    """That of a parameter, of a module, of a variable."""
    for name, function in {"argument_0": argument_0, "x1": x1}.items():
        spec = OperationSpec(parse_signature(f"{name}[n](a: n) -> n"), function=function)
        program, arrays, _ = made(spec, (6,), [()], 4)
        source = check_emitted(program, arrays)
        assert f"import {name} as " in source


def named(function: Any) -> Any:
    """A wrapper of a function that calls just that."""
    wrapper = functools.wraps(function)(lambda a: function(a))
    wrapper.__operation__ = function
    return wrapper


@named
def doubled(a: Any) -> Any:
    return a * 2


def argument_0(a: Any) -> Any:
    return a * 2


def x1(a: Any) -> Any:
    return a * 3


# Deltas.


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("rows_first", [True, False])
def test_deltas(length: int, rows_first: bool) -> None:
    terms = Terms()
    a = terms.make(Leaf(0, (I, J), "float32"))
    delta = terms.make(Delta(*((I, J) if rows_first else (J, I))))
    zero = terms.make(Map("sub", "float32"), (a, a))
    whole = terms.make(Map("select_n", "float32"), (delta, zero, a))
    chunks = [terms.make(Chunk(I), (term,)) for term in (delta, zero, a)]
    part = terms.make(Map("select_n", "float32"), chunks)
    looped = terms.make(Concat(I), (part,))
    tiles = [terms.make(Chunk(J), (chunk,)) for chunk in chunks]
    tile = terms.make(Map("select_n", "float32"), tiles)
    total = terms.make(Fold(J, "sum"), (terms.make(Reduce("sum", frozenset({J}), "float32"), (tile,)),))
    outputs = (
        Output(whole, (I, J)), Output(looped, (I, J)), Output(terms.make(Concat(I), (total,)), (I,)),
        Output(delta, (I, J)),
    )  # fmt: skip
    array = np.arange(25.0).reshape(5, 5)
    source = check_emitted(Program((a,), outputs, terms), [array], {I: length, J: 3})
    assert "jnp.eye(5, dtype=jnp.bool_)" in source
