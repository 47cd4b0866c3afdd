"""Named operations are done slice by slice, whatever axes the operands have besides the core ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.ir.axis import Axis
from eqsat.ir.interpret import interpret
from eqsat.ir.operations import OPERATIONS, OperationSpec, parse_signature
from eqsat.ir.ops import Call, Chunk, Concat, Const, Delta, Dot, Leaf, Map, Opaque, Operation, Reduce, Rename
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term, Terms
from tests.ir.operations import EXAMPLES, regular

RNG = np.random.default_rng(3)
BATCH, COLUMN = Axis(0, 3), Axis(40, 4)


def operands(name: str) -> tuple[Program, list[np.ndarray]]:
    """The operation with a batch axis in the first operand and a column axis in the last; its arrays.

    With one operand, that one has both. The ids of the core axes are between theirs, and descend.
    """
    spec, example = OPERATIONS[name], EXAMPLES[name]
    core = tuple(Axis(20 - 2 * place, length) for place, length in enumerate(example.lengths))
    op = Operation(spec, core, spec.dtype or "float32")
    terms, leaves, arrays = Terms(), [], []
    for place, (operand, letters) in enumerate(spec.signature.operands):
        extra = [BATCH] * (place == 0) + [COLUMN] * (place == len(spec.signature.operands) - 1)
        layout = (*extra, *op.core(letters))
        array = RNG.normal(size=[axis.size for axis in layout])
        if operand == "index":
            array = RNG.integers(-9, 9, array.shape).astype(np.int32)
        arrays.append(example.prepare(array) if len(letters) == 2 else array)
        leaves.append(terms.make(Leaf(place, layout, "int32" if operand == "index" else "float32")))
    chunked = [terms.make(Chunk(COLUMN), (leaf,)) if COLUMN in leaf.axes else leaf for leaf in leaves]
    result = terms.make(Concat(COLUMN), (terms.make(op, chunked),))
    output = Output(result, (COLUMN, BATCH, *op.core(spec.signature.result)))
    return Program(tuple(leaves), (output,), terms), arrays


def test_every_operation_has_an_example() -> None:
    assert set(EXAMPLES) == set(OPERATIONS)


@pytest.mark.parametrize("length", [1, 3, 4])
@pytest.mark.parametrize("name", EXAMPLES)
def test_operations_are_done_for_each_slice(name: str, length: int) -> None:
    program, arrays = operands(name)
    check_program(program)
    (result,) = interpret(program, arrays, {COLUMN: length})
    for column in range(COLUMN.size):
        for row in range(BATCH.size):
            slices = list(arrays)
            slices[0] = slices[0][row]
            slices[-1] = slices[-1][column]
            expected = EXAMPLES[name].reference(*slices)
            np.testing.assert_allclose(result[column, row], expected, rtol=1e-10, atol=1e-12)


def test_the_axes_say_which_way_round_a_matrix_is() -> None:
    """solve[j, i](A, b) solves with the transpose of A; inv[i, j] A goes from j to i."""
    i, j, k = Axis(5, 4), Axis(1, 4), Axis(9, 4)
    terms = Terms()
    a, b = terms.make(Leaf(0, (i, j), "float32")), terms.make(Leaf(1, (j,), "float32"))
    solved = terms.make(Operation(OPERATIONS["solve"], (j, i), "float32"), (a, b))
    inverse = terms.make(Operation(OPERATIONS["inv"], (i, j), "float32"), (a,))
    product = terms.make(Dot(frozenset({j}), "float32"), (a, terms.make(Rename(i, k), (inverse,))))
    program = Program((a, b), (Output(solved, (i,)), Output(product, (i, k))), terms)
    check_program(program)
    arrays = [regular(RNG.normal(size=(4, 4))), RNG.normal(size=4)]
    x, one = interpret(program, arrays)
    np.testing.assert_allclose(arrays[0].T @ x, arrays[1], rtol=1e-12)
    np.testing.assert_allclose(one, np.eye(4), atol=1e-12)


def test_along_an_axis_of_length_zero() -> None:
    empty, i, j = Axis(0, 0), Axis(1, 3), Axis(2, 3)
    terms = Terms()
    a = terms.make(Leaf(0, (empty, i, j), "float32"))
    inverse = terms.make(Operation(OPERATIONS["inv"], (i, j), "float32"), (a,))
    program = Program((a,), (Output(inverse, (empty, j, i)),), terms)
    (result,) = interpret(program, [np.zeros((0, 3, 3))])
    assert result.shape == (0, 3, 3)


def test_a_users_operation_is_their_function() -> None:
    signature = parse_signature("rbf[i, j, k](x: i k, y: j k) -> i j")

    def rbf(x: Any, y: Any) -> Any:
        assert x.ndim == y.ndim == 2
        return jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1))

    i, j, k = Axis(3, 4), Axis(2, 5), Axis(1, 2)
    terms = Terms()
    x, y = (terms.make(Leaf(n, axes, "float32")) for n, axes in enumerate([(i, k, BATCH), (k, j)]))
    kernel = terms.make(Operation(OperationSpec(signature, function=rbf), (i, j, k), "float32"), (x, y))
    program = Program((x, y), (Output(kernel, (BATCH, i, j)),), terms)
    check_program(program)
    arrays = [RNG.normal(size=(4, 2, 3)), RNG.normal(size=(2, 5))]
    (result,) = interpret(program, arrays)
    distances = np.sum((arrays[0][:, None] - arrays[1].T[..., None]) ** 2, 2)
    np.testing.assert_allclose(result, np.exp(-distances).transpose(2, 0, 1), rtol=1e-12)


# Precision.


def sums(term: Callable[[Terms, Term], Term], array: np.ndarray, dtype: str = "float32") -> Any:
    terms = Terms()
    i, j = Axis(0, array.shape[0]), Axis(1, array.shape[1])
    a = terms.make(Leaf(0, (i, j), dtype))
    result = term(terms, a)
    program = Program((a,), (Output(result, tuple(sorted(result.axes))),), terms)
    check_program(program)
    (value,) = interpret(program, [array], precision="single")
    return value


def test_single_precision_rounds() -> None:
    tiny = np.full((2, 1000), 1e-9, np.float32)
    tiny[:, 0] = 1
    i, j = Axis(0, 2), Axis(1, 1000)

    def total(kind: str) -> Callable[[Terms, Term], Term]:
        return lambda terms, a: terms.make(Reduce(kind, frozenset({j}), "float32"), (a,))

    for kind in ("sum", "mean", "max"):
        value = sums(total(kind), tiny)
        assert value.dtype == np.float32
    np.testing.assert_array_equal(
        sums(lambda t, a: t.make(Map("rsqrt", "bfloat16"), (a,)), tiny, "bfloat16"), 1 / np.sqrt(tiny)
    )
    square = sums(lambda t, a: t.make(Dot(frozenset({i}), "float32"), (a, a)), tiny)
    assert square.dtype == np.float32


def test_single_precision_reaches_operations_calls_and_constants() -> None:
    data = np.asarray(regular(RNG.normal(size=(4, 4))), np.float32)
    i, j = Axis(0, 4), Axis(1, 4)
    inverse = sums(lambda t, a: t.make(Operation(OPERATIONS["inv"], (i, j), "float32"), (a,)), data)
    np.testing.assert_allclose(inverse, np.asarray(jnp.linalg.inv(data)).T, rtol=1e-5)
    assert inverse.dtype == np.float32
    call = Call(
        0, lax.cumsum_p, {"axis": 0, "reverse": False}, ((i, j),), ((i, j),), ("float32",), frozenset()
    )
    summed = sums(lambda t, a: t.make(Opaque(call, 0), (a,)), data)
    np.testing.assert_array_equal(summed, np.asarray(jnp.cumsum(data, 0)))
    scaled = sums(
        lambda t, a: t.make(Map("mul", "float64"), (a, t.make(Const("1e300", "float64")))), data, "float64"
    )
    assert np.isinf(scaled).all()
    assert scaled.dtype == np.float32


def test_deltas_are_truth_values() -> None:
    i, j = Axis(0, 4), Axis(1, 4)
    chosen = sums(
        lambda t, a: t.make(
            Map("select_n", "float32"), (t.make(Delta(j, i)), t.make(Const("0.0", "float32")), a)
        ),
        np.ones((4, 4)),
    )
    np.testing.assert_array_equal(chosen, np.eye(4))
