"""Formulas get axes and dtypes from a fold's operands; folds with declared monoids mean what they should."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from eqsat.errors import EqsatError
from eqsat.ir.axis import Axis, Layout
from eqsat.ir.formula import Monoid
from eqsat.ir.interpret import interpret
from eqsat.ir.merging import Merging
from eqsat.ir.ops import Chunk, Concat, Const, Dot, Fold, Iota, Leaf, Map, Op, Reduce, Select
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term, Terms
from tests.ir.monoids import ARGMAX, ATTENTION, LOGSUMEXP, MEAN, RESCALED, WELFORD, monoid

ROW, KEY, FEATURE = Axis(0, 5), Axis(1, 7), Axis(2, 3)
F32 = "float32"
RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(5, 7)).astype(np.float32)
VALUES = RNG.normal(size=(7, 3)).astype(np.float32)
LENGTHS = (1, 2, 3, 7)


class Builder:
    """Terms over scores{row key} and values{key feature}."""

    def __init__(self, dtype: str = F32) -> None:
        self.terms = Terms()
        self.dtype = dtype
        self.scores = self(Leaf(0, (ROW, KEY), dtype))
        self.values = self(Leaf(1, (KEY, FEATURE), dtype))

    def __call__(self, op: Op, *args: Term) -> Term:
        return self.terms.make(op, args)

    def map(self, name: str, *args: Term) -> Term:
        return self(Map(name, self.dtype), *args)

    def reduce(self, kind: str, term: Term, axis: Axis = KEY) -> Term:
        return self(Reduce(kind, frozenset({axis}), self.dtype), term)

    def weights(self, scores: Term) -> tuple[Term, Term]:
        """The maximum of the scores, and their exponentials relative to it; 1 where they are the maximum."""
        largest = self.reduce("max", scores)
        same = self(Map("eq", "bool"), scores, largest)
        one = self(Const("1.0", self.dtype))
        relative = self.map("exp", self.map("sub", scores, largest))
        return largest, self.map("select_n", same, relative, one)

    def state(self) -> tuple[Term, Term, Term]:
        """A chunk's maximum{row}, normaliser{row} and weighted sum{row feature}."""
        largest, weights = self.weights(self(Chunk(KEY), self.scores))
        values = self(Chunk(KEY), self.values)
        total = self(Dot(frozenset({KEY}), self.dtype), weights, values)
        return largest, self.reduce("sum", weights), total

    def fold(self, monoid: Monoid, *operands: Term) -> Term:
        return self(Fold(KEY, monoid), *operands)

    def run(self, term: Term, layout: Layout, length: int, arrays: Sequence[np.ndarray]) -> np.ndarray:
        program = Program((self.scores, self.values), (Output(term, layout),), self.terms)
        check_program(program)
        (result,) = interpret(program, arrays, {KEY: length, ROW: 2})
        return result


def attended(scores: np.ndarray, values: np.ndarray) -> np.ndarray:
    weights = np.exp(scores.astype(np.float64) - scores.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True) @ values.astype(np.float64)


@pytest.mark.parametrize("length", LENGTHS)
def test_attention_along_the_keys(length: int) -> None:
    b = Builder()
    result = b.run(b.fold(ATTENTION, *b.state()), (ROW, FEATURE), length, [SCORES, VALUES])
    np.testing.assert_allclose(result, attended(SCORES, VALUES), rtol=1e-6)


@pytest.mark.parametrize("length", LENGTHS)
def test_attention_with_masked_chunks_and_rows(length: int) -> None:
    masked = SCORES.copy()
    masked[1, :4] = masked[2, 3:] = masked[3] = -np.inf
    b = Builder()
    with np.errstate(invalid="ignore"):
        expected = attended(masked, VALUES)
    result = b.run(b.fold(ATTENTION, *b.state()), (ROW, FEATURE), length, [masked, VALUES])
    rows = [0, 1, 2, 4]
    np.testing.assert_allclose(result[rows], expected[rows], rtol=1e-6)


@pytest.mark.parametrize("length", LENGTHS)
def test_parts_that_lack_axes_of_others_broadcast(length: int) -> None:
    """The state's m has rows only, the result features, too; inside a loop over the rows as well."""
    b = Builder()
    scores = b(Chunk(ROW), b.scores)
    largest, weights = b.weights(b(Chunk(KEY), scores))
    total = b(Dot(frozenset({KEY}), F32), weights, b(Chunk(KEY), b.values))
    whole = b(Concat(ROW), b.fold(RESCALED, largest, total))
    result = b.run(whole, (FEATURE, ROW), length, [SCORES, VALUES])
    expected = np.exp(SCORES.astype(np.float64) - SCORES.max(1, keepdims=True)) @ VALUES
    np.testing.assert_allclose(result, expected.T, rtol=1e-6)


def test_logsumexp() -> None:
    b = Builder()
    largest, normaliser, _ = b.state()
    result = b.run(b.fold(LOGSUMEXP, largest, normaliser), (ROW,), 3, [SCORES * 1000, VALUES])
    np.testing.assert_allclose(result, SCORES.max(1) * 1000.0, rtol=1e-6)


def test_means_and_variances() -> None:
    b = Builder()
    chunk = b(Chunk(KEY), b.scores)
    ones = b.map("exp", b.map("mul", b(Chunk(KEY), b(Iota(KEY, F32))), b(Const("0.0", F32))))
    count = b.reduce("sum", ones)
    mean = b.reduce("mean", chunk)
    spread = b.reduce("sum", b.map("square", b.map("sub", chunk, mean)))
    for length in LENGTHS:
        result = b.run(b.fold(WELFORD, count, mean, spread), (ROW,), length, [SCORES, VALUES])
        np.testing.assert_allclose(result, SCORES.astype(np.float64).var(1), rtol=1e-12)


def test_an_operand_may_be_the_same_for_every_chunk() -> None:
    b = Builder()
    one = b(Const("1.0", F32))
    total = b.reduce("sum", b(Chunk(KEY), b.scores))
    result = b.run(b.fold(MEAN, one, total), (ROW,), 1, [SCORES, VALUES])
    np.testing.assert_allclose(result, SCORES.astype(np.float64).mean(1), rtol=1e-12)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [F32, "int32"])
def test_a_maximum_and_where_it_is(length: int, dtype: str) -> None:
    b = Builder(dtype)
    data = np.round(SCORES * 2).astype(dtype)
    if dtype == F32:
        data[1, [3, 5]] = np.nan
    chunk = b(Chunk(KEY), b.scores)
    largest = b.reduce("max", chunk)
    index = b(Chunk(KEY), b(Iota(KEY, "int32")))
    is_largest = b(
        Map("or", "bool"), b(Map("eq", "bool"), chunk, largest), b(Map("ne", "bool"), chunk, chunk)
    )
    far = b(Const("99", "int32"))
    first = b(Reduce("min", frozenset({KEY}), "int32"), b(Map("select_n", "int32"), is_largest, far, index))
    result = b.run(b.fold(ARGMAX, largest, first), (ROW,), length, [data, VALUES.astype(dtype)])
    np.testing.assert_array_equal(result, np.argmax(data, 1))


def test_the_result_has_all_axes_even_if_the_last_part_lacks_some() -> None:
    both = monoid("both", {"a": ("0", "a1 + a2"), "b": ("0", "b1 + b2")})
    b = Builder()
    row = b.reduce("sum", b(Chunk(KEY), b.scores))
    column = b.reduce("sum", b(Chunk(KEY), b.values))
    result = b.run(b.fold(both, row, column), (ROW, FEATURE), 3, [SCORES, VALUES])
    np.testing.assert_allclose(result, np.tile(VALUES.astype(np.float64).sum(0), (5, 1)), rtol=1e-12)


# Formulas as terms.


def operands(*dtypes: str) -> list[Term]:
    terms = Terms()
    return [terms.make(Leaf(i, (ROW,), dtype)) for i, dtype in enumerate(dtypes)]


def test_states_have_the_axes_that_their_merges_need() -> None:
    b = Builder()
    largest, normaliser, total = b.state()
    state = Merging().state(ATTENTION, (largest, normaliser, total))
    assert [part.axes for part in state.earlier] == [{ROW}, {ROW}, {ROW, FEATURE}]
    assert [part.axes for part in state.merged] == [{ROW}, {ROW}, {ROW, FEATURE}]
    narrow = Merging().state(RESCALED, (total, normaliser))
    assert [part.axes for part in narrow.earlier] == [{ROW, FEATURE}, {ROW, FEATURE}]


def test_half_floats_are_merged_in_single_precision() -> None:
    state = Merging().state(RESCALED, operands("bfloat16", "bfloat16"))
    assert {part.dtype for part in (*state.earlier, *state.merged, *state.identity)} == {F32}


def test_equal_parts_of_several_folds_are_one() -> None:
    b = Builder()
    largest, normaliser, total = b.state()
    merging = Merging()
    first = merging.state(RESCALED, (largest, normaliser))
    second = merging.state(RESCALED, (largest, total))
    again = merging.state(ATTENTION, (largest, normaliser, total))
    assert first.earlier[0] is second.earlier[0] is again.earlier[0]
    assert first.merged[0] is second.merged[0]
    assert first.earlier[1] is not second.earlier[1]
    assert again.earlier[2] is second.earlier[1], "the same part of another monoid"
    assert again.earlier[1] is not first.earlier[1], "of another name"
    other = merging.state(RESCALED, (b.map("neg", largest), normaliser))
    assert other.earlier[1] is not first.earlier[1], "its scale is another"


MEANINGLESS: dict[str, Callable[[], object]] = {
    "add of int32, float32": lambda: Merging().state(
        monoid("odd", {"a": ("0", "a1 + a2"), "b": ("0", "a1 + b1")}), operands("int32", F32)
    ),
    "0.5 is not a number of dtype int32": lambda: Merging().state(
        monoid("odd", {"a": ("0.5", "a1 + a2")}), operands("int32")
    ),
    "monoid odd: the merge of a is bool, not float32": lambda: Merging().state(
        monoid("odd", {"a": ("0", "a1 > a2")}), operands(F32)
    ),
    "monoid odd: c3 is no part of its state": lambda: Merging().state(
        monoid("odd", {"a": ("0", "a1 + c3")}), operands(F32)
    ),
    "monoid odd: what it finishes with is int32, not float32": lambda: Merging().state(
        monoid("odd", {"a": ("0", "a1 + a2"), "b": ("0", "b1 + b2")}, "a"), operands("int32", F32)
    ),
}


@pytest.mark.parametrize("reason", MEANINGLESS)
def test_formulas_without_a_meaning_are_refused(reason: str) -> None:
    with pytest.raises(EqsatError) as error:
        MEANINGLESS[reason]()
    assert reason in str(error.value)


def test_a_conversion_is_to_what_the_part_is() -> None:
    mixed = monoid("mixed", {"n": ("0", "n1 + n2"), "s": ("0", "s1 + s2 * convert(n1 - n1 + 1)")})
    state = Merging().state(mixed, operands("int32", F32))
    assert [part.dtype for part in state.merged] == ["int32", F32]


def test_selections_still_fold() -> None:
    b = Builder()
    best = b(Fold(KEY, Select("argmax", KEY, 1, None, "indices", "int32")), b(Chunk(KEY), b.scores))
    result = b.run(best, (ROW,), 2, [SCORES, VALUES])
    np.testing.assert_array_equal(result, SCORES.argmax(1))
