"""A well-formed program passes; every way to be ill-formed is refused with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from jax import lax

from eqsat.errors import EqsatError
from eqsat.ir.axis import Axis, Layout
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.ops import (
    Call,
    Chunk,
    Concat,
    Const,
    Delta,
    Dot,
    Fold,
    Iota,
    Leaf,
    Map,
    Op,
    Opaque,
    Operation,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program, check_term
from eqsat.ir.term import Term, Terms
from tests.ir.monoids import LOGSUMEXP, monoid

I, J, K, TWO = Axis(0, 5), Axis(1, 7), Axis(2, 3), Axis(3, 2)  # noqa: E741
FIVE, SEVEN, PAIRS = Axis(4, 5), Axis(5, 7), Axis(6, 15)
F32 = "float32"
TOP_TWO = Select("top_k", J, 2, TWO, "values", F32)


class Builder:
    """Terms over two inputs, a{i k} and b{j k}."""

    def __init__(self) -> None:
        self.terms = Terms()
        self.a = self(Leaf(0, (I, K), F32))
        self.b = self(Leaf(1, (J, K), F32))

    def __call__(self, op: Op, *args: Term) -> Term:
        return self.terms.make(op, args)

    def add(self, x: Term, y: Term) -> Term:
        return self(Map("add", F32), x, y)

    def sum(self, x: Term, *axes: Axis) -> Term:
        return self(Reduce("sum", frozenset(axes), F32), x)

    def program(self, term: Term, layout: Layout) -> Program:
        return Program((self.a, self.b), (Output(term, layout),), self.terms)

    def operation(self, name: str, axes: Sequence[Axis], *args: Term) -> Term:
        return self(Operation(OPERATIONS[name], tuple(axes), F32), *args)

    def gram(self) -> Term:
        """A matrix {i i'} for each k."""
        return self(Map("mul", F32), self.a, self(Rename(I, FIVE), self.a))

    def logsumexp(self, largest: Term, total: Term) -> Term:
        return self(Fold(I, LOGSUMEXP), largest, total)


@pytest.fixture
def make() -> Builder:
    return Builder()


def call(arg: Layout, out: Layout, passing: Sequence[Axis] = ()) -> Opaque:
    return Opaque(Call(0, lax.sort_p, {}, (arg,), (out,), (F32,), frozenset(passing)), 0)


def accumulation(into: Layout, along: Axis) -> Opaque:
    """Adding {a} to an array, or to its entries, along an axis."""
    layouts = (into, (I,))
    return Opaque(Call(0, lax.add_p, {}, layouts, (into,), (F32,), frozenset(), frozenset({along})), 0)


def test_a_call_that_accumulates_may_take_a_chunk_at_a_time(make: Builder) -> None:
    zero = make(Const("0.0", F32))
    check_term(make(Fold(I, accumulation((J,), I)), zero, make(Chunk(I), make.sum(make.a, K))))


def test_a_call_may_take_a_chunk_of_what_it_sums_over(make: Builder) -> None:
    op = Opaque(
        Call(0, lax.dot_general_p, {}, ((I, K),), ((K,),), (F32,), frozenset(), sums=frozenset({I})), 0
    )
    check_term(make(Fold(I, "sum"), make(op, make(Chunk(I), make.a))))


def test_a_matrix_product_with_a_loop_is_well_formed(make: Builder) -> None:
    product = make(Dot(frozenset({K}), F32), make(Chunk(I), make.a), make.b)
    summed = make(Fold(I, "sum"), make.sum(product, I))
    whole = make(Concat(I), product)
    check_program(make.program(make.add(whole, summed), (I, None, J)))


def test_a_streamed_top_k_is_well_formed(make: Builder) -> None:
    best = make(Fold(J, TOP_TWO), make(Chunk(J), make.b))
    check_program(make.program(best, (K, TWO)))


def test_a_call_may_take_a_chunk_of_a_passing_axis(make: Builder) -> None:
    sort = call((I, K), (I, K), passing=[I])
    check_program(make.program(make(Concat(I), make(sort, make(Chunk(I), make.a))), (I, K)))


def test_nested_loops_over_one_axis_are_well_formed_when_the_inner_is_closed(make: Builder) -> None:
    total = make(Fold(I, "sum"), make.sum(make(Chunk(I), make.a), I))
    centred = make.add(make(Chunk(I), make.a), total)
    check_program(make.program(make(Concat(I), centred), (I, K)))


def test_operations_with_batch_axes_by_chunks_are_well_formed(make: Builder) -> None:
    gram = make(Chunk(K), make.gram())
    solved = make.operation("solve", (I, FIVE), gram, make(Chunk(K), make.a))
    check_program(make.program(make(Concat(K), solved), (K, FIVE)))
    pairs = make.operation("merge", (I, K, PAIRS), make.a)
    check_program(make.program(make.operation("split", (PAIRS, I, K), pairs), (I, K)))


def test_a_fold_with_a_state_of_several_parts_is_well_formed(make: Builder) -> None:
    chunk = make(Chunk(I), make.a)
    largest = make(Reduce("max", frozenset({I}), F32), chunk)
    check_program(make.program(make.logsumexp(largest, make.sum(chunk, I)), (K,)))
    check_program(make.program(make.logsumexp(make(Const("0.0", F32)), make.sum(chunk, I)), (K,)))


ILL_FORMED = {
    "contracted, but operand 1 does not have it": lambda m: m(Dot(frozenset({I}), F32), m.a, m.b),
    "no axes are contracted": lambda m: m(Dot(frozenset(), F32), m.a, m.b),
    "takes 2 operands, but has 1\n": lambda m: m(Map("add", F32), m.a),
    "no axes are reduced": lambda m: m.sum(m.a),
    "reduced, but operand 0 does not have it": lambda m: m.sum(m.a, J),
    "unknown reduction 'median'": lambda m: m(Reduce("median", frozenset({I}), F32), m.a),
    "not a known elementwise function": lambda m: m(Map("frobnicate", F32), m.a),
    "gives truth values, not float32": lambda m: m(Map("lt", F32), m.a, m.a),
    "is not the name of a dtype": lambda m: m(Map("neg", "float33"), m.a),
    "is not a constant of dtype int32": lambda m: m(Const("1.5", "int32")),
    "a dimension of length 1 is no axis": lambda m: m(Iota(Axis(9, 1), F32)),
    "names an axis twice": lambda m: m(Leaf(0, (I, I), F32)),
    "renames axis b:7, which the operand does not have": lambda m: m(Rename(J, Axis(9, 7)), m.a),
    "is already an axis": lambda m: m(Rename(I, K), m.a),
    "differ in length": lambda m: m(Rename(I, J), m.a),
    "renames axis a:5, of which the operand is only": lambda m: m(Rename(I, Axis(9, 5)), m(Chunk(I), m.a)),
    "unknown selection": lambda m: m(Select("median", I, 1, None, "indices", "int32"), m.a),
    "selects along axis b:7, which": lambda m: m(TOP_TWO, m.a),
    "selects along axis b:7, of which": lambda m: m(TOP_TWO, m(Chunk(J), m.b)),
    "argmax has no result 'values'": lambda m: m(Select("argmax", I, 1, None, "values", F32), m.a),
    "cannot select 9 of 5": lambda m: m(Select("top_k", I, 9, Axis(9, 9), "values", F32), m.a),
    "need an axis of their own": lambda m: m(replace(TOP_TWO, out_axis=None), m.b),
    "should have length 2": lambda m: m(replace(TOP_TWO, out_axis=I), m.b),
    "are not in its layout": lambda m: m(call((I,), (I,)), m.a),
    "given a chunk of axis a:5, which it needs whole": lambda m: m(call((I, K), (I, K)), m(Chunk(I), m.a)),
    "add does not accumulate along axis a:5": lambda m: m(
        Fold(I, accumulation((J,), J)), m(Const("0.0", F32)), m(Chunk(I), m.sum(m.a, K))
    ),
    "what add accumulates into has the axis a:5 itself": lambda m: m(
        Fold(I, accumulation((I,), I)), m(Const("0.0", F32)), m(Chunk(I), m.sum(m.a, K))
    ),
    "is given a chunk of axis a:5, which it needs": lambda m: m(
        accumulation((J,), I), m(Const("0.0", F32)), m(Chunk(I), m.sum(m.a, K))
    ),
    "the call has no result -1": lambda m: m(replace(call((I, K), (I, K)), result=-1), m.a),
    "of which its operand already is one": lambda m: m(Chunk(I), m(Chunk(I), m.a)),
    "the body takes no chunk of it": lambda m: m(Concat(I), m.a),
    "the body has no axis a:5 to concatenate": lambda m: m(Concat(I), m.sum(m(Chunk(I), m.a), I)),
    "the body still has axis a:5": lambda m: m(Fold(I, "sum"), m(Chunk(I), m.a)),
    "'mean' is not a monoid": lambda m: m(Fold(I, "mean"), m.sum(m(Chunk(I), m.a), I)),
    "a loop over c:3 cannot select along b:7": lambda m: m(Fold(K, TOP_TWO), m(Chunk(K), m.b)),
    "at full length, another one a chunk of it": lambda m: m.add(m.a, m(Chunk(I), m.a)),
    "compares axis a:5 with itself": lambda m: m(Delta(I, I)),
    "axes a:5 and b:7 differ in length": lambda m: m(Delta(I, J)),
    "takes 1 operands, but has 2": lambda m: m.operation("inv", (I, FIVE), m.gram(), m.gram()),
    "stands for two of the core axes": lambda m: m.operation("inv", (I, I), m.a),
    "operand A of inv[i, j](A: i j) -> j i lacks axis e:5": lambda m: m.operation("inv", (I, FIVE), m.a),
    "has axis e:5, a core axis that is not its own": lambda m: m.operation(
        "solve", (I, FIVE), m.gram(), m.gram()
    ),
    "varies with chunks of axis a:5; inv needs it whole": lambda m: m.operation(
        "inv", (I, FIVE), m(Chunk(I), m.gram())
    ),
    "operand a varies with chunks of axis b:7; split": lambda m: m.operation(
        "split", (PAIRS, I, J), m.add(m(Iota(PAIRS, F32)), m.sum(m(Chunk(J), m.b), J, K))
    ),
    "inv cannot be applied": lambda m: m.operation("inv", (I, K), m.a),
    "cholesky cannot be applied": lambda m: m.operation("cholesky", (I, K), m.a),
    "merge cannot be applied": lambda m: m.operation("merge", (I, K, Axis(9, 14)), m.a),
    "split cannot be applied": lambda m: m.operation("split", (PAIRS, I, J), m(Iota(PAIRS, F32))),
    "kron gives an array of shape (35, 9), not (35, 15)": lambda m: m.operation(
        "kron", (I, K, J, Axis(9, 3), Axis(8, 35), PAIRS), m.a, m(Rename(K, Axis(9, 3)), m.b)
    ),
    "the part m still has axis a:5": lambda m: m.logsumexp(m(Chunk(I), m.a), m.sum(m(Chunk(I), m.a), I)),
    "takes 2 operands, but has 1": lambda m: m(Fold(I, LOGSUMEXP), m.sum(m(Chunk(I), m.a), I)),
    "loops over axis a:5, but the body takes": lambda m: m.logsumexp(m.sum(m.a, I), m.sum(m.a, I)),
    "add of int32, float32": lambda m: m(
        Fold(I, monoid("odd", {"n": ("0", "n1"), "s": ("0", "n1 + s1")})),
        m(Const("1", "int32")),
        m.sum(m(Chunk(I), m.a), I),
    ),
}


@pytest.mark.parametrize("reason", ILL_FORMED)
def test_ill_formed_terms_are_refused(make: Builder, reason: str) -> None:
    with pytest.raises(EqsatError, match="ill-formed term") as error:
        check_term(ILL_FORMED[reason](make))
    assert reason in str(error.value)


def test_a_full_length_axis_does_not_meet_a_value_that_varies_with_its_loop(make: Builder) -> None:
    varying = make.sum(make(Chunk(I), make.a), I)
    with pytest.raises(EqsatError, match="at full length"):
        check_term(make.add(make.a, varying))
    check_term(make.add(make(Chunk(I), make.a), varying))


def test_outputs_are_closed_and_have_the_axes_of_their_terms(make: Builder) -> None:
    with pytest.raises(EqsatError, match="still open"):
        check_program(make.program(make(Chunk(I), make.a), (I, K)))
    with pytest.raises(EqsatError, match="not in"):
        check_program(make.program(make.a, (I,)))
    with pytest.raises(EqsatError, match="names an axis twice"):
        check_program(make.program(make.a, (I, K, K)))


def test_an_axis_has_one_length_in_a_program(make: Builder) -> None:
    other = make(Iota(Axis(I.id, 6), F32))
    with pytest.raises(EqsatError, match="elsewhere in the program"):
        check_program(
            make.program(make(Map("sub", F32), make.sum(make.a, I), make.sum(other, *other.axes)), (K,))
        )


def test_inputs_are_leaves_in_order(make: Builder) -> None:
    program = make.program(make.a, (I, K))
    with pytest.raises(EqsatError, match="input 0 should be Leaf number 0"):
        check_program(replace(program, inputs=program.inputs[::-1]))
    with pytest.raises(EqsatError, match="not among the program's inputs"):
        check_program(replace(program, inputs=()))
