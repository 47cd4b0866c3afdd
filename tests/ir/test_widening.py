"""What loops sum in narrow floats has partial results that are as wide as what it is accumulated in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.ir.axis import Axis
from eqsat.ir.ops import Chunk, Const, Dot, Fold, Leaf, Map, Op, Reduce
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term, Terms
from eqsat.ir.widening import widened
from eqsat.planning.blocks import Schedule
from eqsat.planning.liveness import simulate
from eqsat.planning.loops import build
from eqsat.targets.cpu import CPU
from tests.backend.running import emitted
from tests.ir.monoids import ATTENTION, RESCALED, WELFORD
from tests.planning.replay import replayed_peak

ROW, KEY, LONG = Axis(0, 3), Axis(1, 101), Axis(2, 40)
LENGTH = 33
"""Chunks that lie on both sides of where numbers change sign, and leave a remainder."""
NARROW = ["float16", "bfloat16"]


class Builder:
    """Terms over x{row key} and y{key long}, of a narrow dtype."""

    def __init__(self, dtype: str, *layouts: tuple[Axis, ...]) -> None:
        self.terms = Terms()
        self.dtype = dtype
        layouts = layouts or ((ROW, KEY), (KEY, LONG))
        self.inputs = tuple(self(Leaf(place, layout, dtype)) for place, layout in enumerate(layouts))

    def __call__(self, op: Op, *args: Term) -> Term:
        return self.terms.make(op, args)

    def map(self, name: str, *args: Term) -> Term:
        return self(Map(name, self.dtype), *args)

    def chunk(self, term: Term, *axes: Axis) -> Term:
        for axis in axes:
            term = self(Chunk(axis), term)
        return term

    def reduce(self, kind: str, term: Term, *axes: Axis) -> Term:
        return self(Reduce(kind, frozenset(axes or (KEY,)), self.dtype), term)

    def dot(self, left: Term, right: Term, *axes: Axis) -> Term:
        return self(Dot(frozenset(axes or (KEY,)), self.dtype), left, right)

    def program(self, *results: Term) -> Program:
        outputs = tuple(Output(term, tuple(sorted(term.axes))) for term in results)
        program = Program(self.inputs, outputs, self.terms)
        check_program(program)
        return program

    def run(self, result: Term, lengths: Mapping[Axis, int], *arrays: Any) -> Any:
        """The values of a result, its loops by chunks of those lengths."""
        module = emitted(widened(self.program(result)).program, lengths)
        values = (jnp.asarray(array, self.dtype) for array in arrays)
        (value,) = jax.jit(module.function())(*values)
        assert value.dtype == self.dtype
        return np.asarray(value).astype(np.float64)


def cancelling(size: int) -> Any:
    """Numbers of which parts overflow float16, and of bfloat16 lose what all of them come to, which is 3."""
    large = np.repeat([60416.0, -60416.0], size // 2)
    return np.concatenate([large, [3.0] * (size % 2), []])


@pytest.mark.parametrize("dtype", NARROW)
def test_products_of_chunks_are_rounded_once(dtype: str) -> None:
    b = Builder(dtype)
    x, y = (b.chunk(term, KEY) for term in b.inputs)
    values = np.tile(cancelling(KEY.size), (ROW.size, 1)), np.ones((KEY.size, LONG.size))
    plain = b.run(b(Fold(KEY, "sum"), b.dot(x, y)), {KEY: LENGTH}, *values)
    np.testing.assert_array_equal(plain, 3)
    negated = b.run(b(Fold(KEY, "sum"), b.map("neg", b.dot(x, y))), {KEY: LENGTH}, *values)
    np.testing.assert_array_equal(negated, -3)
    half = b(Const("0.5", dtype))
    scaled = b.run(b(Fold(KEY, "sum"), b.map("mul", half, b.dot(x, y))), {KEY: LENGTH}, *values)
    np.testing.assert_array_equal(scaled, 1.5)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("kind", ["sum", "prod"])
def test_reductions_of_chunks_are_rounded_once(dtype: str, kind: str) -> None:
    b = Builder(dtype)
    values = cancelling(KEY.size)
    if kind == "prod":
        values = np.ones(KEY.size)
        values[:4], values[-4:], values[50] = 256, 1 / 256, 3
    result = b(Fold(KEY, kind), b.reduce(kind, b.chunk(b.inputs[0], KEY)))
    found = b.run(result, {KEY: LENGTH}, np.tile(values, (ROW.size, 1)), np.ones((KEY.size, LONG.size)))
    np.testing.assert_array_equal(found, 3)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("lengths", [(1, 40), (33, 9)])
def test_sums_over_tiles_are_rounded_once(dtype: str, lengths: tuple[int, int]) -> None:
    b = Builder(dtype, (ROW, KEY, LONG), (KEY, LONG))
    x, y = (b.chunk(term, KEY, LONG) for term in b.inputs)
    result = b(Fold(KEY, "sum"), b(Fold(LONG, "sum"), b.dot(x, y, KEY, LONG)))
    values = cancelling(KEY.size * LONG.size + 1)[:-1].reshape(KEY.size, LONG.size)
    values[-1, -1] += 2048
    found = b.run(
        result, dict(zip((KEY, LONG), lengths, strict=True)), [values] * ROW.size, np.ones_like(values)
    )
    np.testing.assert_array_equal(found, 2048)


def attention(b: Builder, *, mean: bool) -> Term:
    """A weighted sum of values by the exponentials of scores, or their mean."""
    scores, values = (b.chunk(term, KEY) for term in b.inputs)
    largest = b.reduce("max", scores)
    weights = b.map("exp", b.map("sub", scores, largest))
    total = b.dot(weights, values)
    if mean:
        return b(Fold(KEY, ATTENTION), largest, b.reduce("sum", weights), total)
    return b(Fold(KEY, RESCALED), largest, total)


def test_states_of_several_parts_are_rounded_once() -> None:
    b = Builder("float16")
    scores = np.zeros((ROW.size, KEY.size))
    np.testing.assert_array_equal(
        b.run(attention(b, mean=True), {KEY: LENGTH}, scores, np.full((KEY.size, LONG.size), 60_000)), 60_000
    )
    values = np.tile(cancelling(KEY.size)[:, None], LONG.size)
    np.testing.assert_array_equal(b.run(attention(b, mean=False), {KEY: LENGTH}, scores, values), 3)


def test_deviations_are_from_the_mean_as_it_was_rounded() -> None:
    """A state's mean is what was subtracted: wide, it would be another one."""
    b = Builder("bfloat16")
    x = b.chunk(b.inputs[0], KEY)
    count = b.reduce("sum", b.map("exp", b.map("mul", x, b(Const("0.0", b.dtype)))))
    mean = b.map("div", b.reduce("sum", x), count)
    deviations = b.reduce("sum", b.map("square", b.map("sub", x, mean)))
    result = b(Fold(KEY, WELFORD), count, mean, deviations)
    fold = wide_fold(b, result)
    found = [arg.op for arg in fold.args]
    assert found[1] == Map("convert", "float32")
    assert found[2] == Reduce("sum", frozenset({KEY}), "float32")
    values = 1000 + np.arange(ROW.size * KEY.size).reshape(ROW.size, KEY.size) % 5 * 8
    variances = b.run(result, {KEY: 10}, values, np.ones((KEY.size, LONG.size)))
    np.testing.assert_allclose(variances, np.var(values, 1), rtol=1e-2)


def wide_fold(b: Builder, result: Term) -> Term:
    (output,) = widened(b.program(result)).program.outputs
    assert output.term.op == Map("convert", b.dtype)
    (fold,) = output.term.args
    assert fold.dtype == "float32"
    return fold


def test_what_was_rounded_as_written_stays_rounded() -> None:
    """The sums over keys are a program's own: one that overflows is infinite, whatever is done with it."""
    b = Builder("float16", (ROW, KEY, LONG))
    sums = b(Fold(KEY, "sum"), b.reduce("sum", b.chunk(b.inputs[0], KEY)))
    result = b(Fold(LONG, "sum"), b.reduce("sum", b.chunk(sums, LONG), LONG))
    values = np.ones((ROW.size, KEY.size, LONG.size))
    values[0, :, 5], values[1, :, 5], values[1, :, 6] = 60_000, 60_000, -60_000
    found = b.run(result, {KEY: 10, LONG: 7}, values)
    assert found[0] == np.inf
    assert np.isnan(found[1])
    assert found[2] == KEY.size * LONG.size


def test_a_partial_result_that_is_read_besides_is_computed_once() -> None:
    b = Builder("float16")
    part = b.dot(*(b.chunk(term, KEY) for term in b.inputs))
    largest = b(Fold(KEY, "max"), b.map("abs", part))
    program = widened(b.program(b(Fold(KEY, "sum"), part), largest)).program
    products = [term for term in program.reachable() if isinstance(term.op, Dot)]
    assert [term.dtype for term in products] == ["float32"]


@pytest.mark.parametrize("dtype", ["float32", "int8", "float16"])
def test_what_needs_no_wider_parts_is_left_as_it_is(dtype: str) -> None:
    b = Builder(dtype)
    x, y = (b.chunk(term, KEY) for term in b.inputs)
    result = (
        b(Fold(KEY, "max"), b.reduce("max", x)) if dtype == "float16" else b(Fold(KEY, "sum"), b.dot(x, y))
    )
    program = b.program(result)
    assert widened(program).program is program


def test_the_simulator_counts_wide_parts() -> None:
    b = Builder("float16")
    program = widened(
        b.program(b(Fold(KEY, "sum"), b.dot(*(b.chunk(term, KEY) for term in b.inputs))))
    ).program
    schedule = Schedule(program, build(program), {1: 10})
    peak, usage = simulate(schedule, replace(CPU, widens=False))
    assert peak == replayed_peak(schedule)
    parts = {term.op: size for term, size in usage.live}
    assert parts[Fold(KEY, "sum")] == parts[Dot(frozenset({KEY}), "float32")] == 4 * ROW.size * LONG.size
