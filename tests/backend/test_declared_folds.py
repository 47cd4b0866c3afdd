"""Folds with declared monoids as text: attention along its keys, moments, maxima and where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.ir.axis import Axis
from eqsat.ir.formula import Monoid
from eqsat.ir.ops import Chunk, Concat, Const, Dot, Fold, Iota, Leaf, Map, Op, Reduce
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Term, Terms
from tests.backend.running import check_emitted, emitted
from tests.ir.monoids import ARGMAX, ATTENTION, LOGSUMEXP, MEAN, RESCALED, WELFORD, monoid

HEAD, ROW, KEY, FEATURE, INNER = Axis(3, 2), Axis(0, 11), Axis(1, 101), Axis(2, 3), Axis(4, 5)
F32 = "float32"
LENGTHS = (1, 10, 50, 101)
RNG = np.random.default_rng(0)


class Builder:
    """Terms over queries{head row inner}, keys{head key inner}, values{head key feature}, bias{row key}."""

    def __init__(self, dtype: str = F32) -> None:
        self.terms = Terms()
        self.dtype = dtype
        layouts = [(HEAD, ROW, INNER), (HEAD, KEY, INNER), (KEY, HEAD, FEATURE), (ROW, KEY)]
        self.inputs = [self(Leaf(place, layout, dtype)) for place, layout in enumerate(layouts)]
        self.arrays = [RNG.normal(size=[axis.size for axis in layout]) for layout in layouts]

    def __call__(self, op: Op, *args: Term) -> Term:
        return self.terms.make(op, args)

    def map(self, name: str, *args: Term) -> Term:
        return self(Map(name, self.dtype), *args)

    def reduce(self, kind: str, term: Term) -> Term:
        return self(Reduce(kind, frozenset({KEY}), self.dtype), term)

    def dot(self, axis: Axis, *args: Term) -> Term:
        return self(Dot(frozenset({axis}), self.dtype), *args)

    def fold(self, monoid: Monoid, *operands: Term) -> Term:
        return self(Fold(KEY, monoid), *operands)

    def state(self, rows: bool = False) -> tuple[Term, Term, Term]:
        """A chunk's maximum{head row}, normaliser{head row} and weighted sum{head row feature}."""
        queries, keys, values, bias = self.inputs
        if rows:
            queries, bias = self(Chunk(ROW), queries), self(Chunk(ROW), bias)
        products = self.dot(INNER, queries, self(Chunk(KEY), keys))
        scores = self.map("add", products, self(Chunk(KEY), bias))
        largest = self.reduce("max", scores)
        same = self(Map("eq", "bool"), scores, largest)
        relative = self.map("exp", self.map("sub", scores, largest))
        weights = self.map("select_n", same, relative, self(Const("1.0", self.dtype)))
        return largest, self.reduce("sum", weights), self.dot(KEY, weights, self(Chunk(KEY), values))

    def check(self, *results: tuple[Term, Sequence[Axis]], length: int, rtol: float = 2e-5) -> str:
        return check_emitted(self.program(*results), self.arrays, {KEY: length, ROW: 4}, rtol)

    def run(self, result: Term, layout: Sequence[Axis], length: int) -> Any:
        """What the emitted text gives for a result."""
        module = emitted(self.program((result, layout)), {KEY: length})
        (value,) = jax.jit(module.function())(*(jnp.asarray(array, self.dtype) for array in self.arrays))
        return value

    def program(self, *results: tuple[Term, Sequence[Axis]]) -> Program:
        outputs = tuple(Output(term, tuple(layout)) for term, layout in results)
        return Program(tuple(self.inputs), outputs, self.terms)


def attended(arrays: Sequence[Any]) -> Any:
    queries, keys, values, bias = (jnp.asarray(array, F32) for array in arrays)
    weights = jax.nn.softmax(jnp.einsum("hri,hki->hrk", queries, keys) + bias, -1)
    return jnp.einsum("hrk,khf->hrf", weights, values)


@pytest.mark.parametrize("length", LENGTHS)
def test_attention_in_one_pass(length: int) -> None:
    b = Builder()
    b.check((b.fold(ATTENTION, *b.state()), (ROW, FEATURE, HEAD)), length=length)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("length", LENGTHS)
def test_attention_by_chunks_of_rows_and_keys(length: int) -> None:
    b = Builder()
    inner = b.fold(ATTENTION, *b.state(rows=True))
    b.check((b(Concat(ROW), inner), (HEAD, ROW, FEATURE)), length=length)


def test_attention_in_double_precision() -> None:
    with jax.enable_x64(True):
        b = Builder("float64")
        b.check((b.fold(ATTENTION, *b.state()), (HEAD, ROW, FEATURE)), length=13, rtol=1e-13)


def test_half_floats_are_carried_in_single_precision() -> None:
    b = Builder("bfloat16")
    result = b.fold(MEAN, b.reduce("sum", ones(b)), b.reduce("sum", ones(b)))
    source = b.check((result, ()), length=1, rtol=0)
    assert "jnp.full((), 0.0, jnp.float32)" in source
    scores = b.fold(ATTENTION, *b.state())
    b.check((scores, (HEAD, ROW, FEATURE)), length=10, rtol=5e-2)


def ones(b: Builder) -> Term:
    """One thousandth for every key: in half precision, their sum would stop growing."""
    zero = b.map("mul", b(Chunk(KEY), b(Iota(KEY, b.dtype))), b(Const("0.0", b.dtype)))
    return b.map("exp", zero)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("length", LENGTHS)
def test_masked_chunks_leave_no_trace(length: int) -> None:
    """Rows 1, 2 and 4 have chunks in which all is masked: at the start, at the end, all but one key."""
    b = Builder()
    bias = b.arrays[3]
    bias[1, :90] = bias[2, 20:] = bias[4] = -np.inf
    bias[4, 57] = 0
    result, layout = b.fold(ATTENTION, *b.state()), (HEAD, ROW, FEATURE)
    b.check((result, layout), length=length)
    np.testing.assert_allclose(b.run(result, layout, length), attended(b.arrays), rtol=2e-5, atol=2e-5)
    bias[7] = -np.inf
    b.check((result, layout), length=length)


def test_infinite_scores_of_either_sign() -> None:
    b = Builder()
    b.arrays[3][3, 10], b.arrays[3][5, :50] = np.inf, -np.inf
    b.check((b.fold(LOGSUMEXP, *b.state()[:2]), (ROW, HEAD)), length=10)


def test_folds_share_the_parts_that_are_equal() -> None:
    b = Builder()
    largest, normaliser, total = b.state()
    below, above = b.fold(LOGSUMEXP, largest, normaliser), b.fold(RESCALED, largest, total)
    plain = b.fold(RESCALED, largest, normaliser)
    source = b.check((below, (ROW, HEAD)), (above, (HEAD, ROW, FEATURE)), (plain, (ROW, HEAD)), length=10)
    assert source.count("lax.scan") == 1
    assert source.count("jnp.full(") == 3, "one maximum, one normaliser, one weighted sum"
    body = source[: source.index("return (")]
    assert body.count("jnp.maximum") == 1
    assert body.count("lax.exp(") == 3, "of the scores, and of how far either maximum is from theirs"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("length", LENGTHS)
def test_moments(length: int) -> None:
    b = Builder()
    chunk = b(Chunk(KEY), b.inputs[3])
    mean = b.reduce("mean", chunk)
    spread = b.reduce("sum", b.map("square", b.map("sub", chunk, mean)))
    variance = b.fold(WELFORD, b.reduce("sum", ones(b)), mean, spread)
    b.arrays[3] += 1000
    source = b.check((variance, (ROW,)), length=length, rtol=1e-3)
    assert "# welford over b" in source
    expected = np.var(b.arrays[3].astype(np.float32).astype(np.float64), 1)
    np.testing.assert_allclose(b.run(variance, (ROW,), length), expected, rtol=1e-4)


@pytest.mark.parametrize("dtype", [F32, "int32", "uint8", "float16"])
@pytest.mark.one_in(4)
@pytest.mark.parametrize("length", LENGTHS)
def test_a_maximum_and_where_it_is(length: int, dtype: str) -> None:
    b = Builder(dtype)
    b.arrays = [np.round(np.abs(array * 4)).astype(dtype) for array in b.arrays]
    if dtype == F32:
        b.arrays[3][2, [30, 70]] = np.nan
        b.arrays[3][5, :] = -np.inf
    chunk = b(Chunk(KEY), b.inputs[3])
    largest = b.reduce("max", chunk)
    index = b(Chunk(KEY), b(Iota(KEY, "int32")))
    found = b(Map("or", "bool"), b(Map("eq", "bool"), chunk, largest), b(Map("ne", "bool"), chunk, chunk))
    where = b(Map("select_n", "int32"), found, b(Const("1000", "int32")), index)
    first = b(Reduce("min", frozenset({KEY}), "int32"), where)
    result = b.fold(ARGMAX, largest, first)
    b.check((result, (ROW,)), length=length)
    np.testing.assert_array_equal(b.run(result, (ROW,), length), jnp.argmax(b.arrays[3], 1))


def test_parts_broadcast_and_may_not_vary() -> None:
    both = monoid("both", {"a": ("0", "a1 + a2"), "b": ("0", "b1 + b2"), "c": ("1", "c1 * 2 + c2 * 0")})
    b = Builder()
    row, head = b.reduce("sum", b(Chunk(KEY), b.inputs[3])), b.reduce("sum", b(Chunk(KEY), b.inputs[1]))
    one = b(Const("1.0", F32))
    counted = b.fold(both, row, head, one)
    assert counted.axes == {ROW, HEAD, INNER}
    b.check((counted, (INNER, ROW, HEAD)), length=30)


def test_all_kinds_of_results_share_a_loop() -> None:
    b = Builder()
    largest, normaliser, total = b.state()
    plain = b(Fold(KEY, "sum"), normaliser)
    rows = b(Concat(KEY), b.map("neg", b(Chunk(KEY), b.inputs[2])))
    results = [
        (b.fold(RESCALED, largest, total), (HEAD, ROW, FEATURE)),
        (plain, (ROW, HEAD)),
        (rows, (KEY, HEAD, FEATURE)),
        (b.fold(LOGSUMEXP, largest, normaliser), (ROW, HEAD)),
    ]
    source = b.check(*results, length=7)
    assert "# rescaled, sum, logsumexp over b (argument_1.1): 101 in chunks of 7" in source


def test_comments_name_the_rule_that_made_the_fold() -> None:
    b = Builder()
    largest, _, total = b.state()
    fold = b.fold(RESCALED, largest, total)
    program = b.program((fold, (HEAD, ROW, FEATURE)))
    source = emitted(program, {KEY: 10}, {fold.number: "split-softmax"}).source
    lines = [line for line in source.splitlines() if line.endswith("# split-softmax")]
    assert len(lines) == 1 + 2 * 5 + 1, source
    assert "jnp.maximum(m_" in lines[0]
