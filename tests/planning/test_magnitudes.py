"""Tests of magnitudes: where they hold, two orders of a contraction differ by rounding alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.engine.contraction_orders import Order, better_orders
from eqsat.ir.axis import NO_AXES
from eqsat.ir.guard import NoTest
from eqsat.ir.interpret import interpret
from eqsat.ir.program import Output, Program
from eqsat.planning.magnitudes import Bounds, in_range
from tests.stages import lowered, normal

LARGEST = np.finfo(np.float32).max


def chain(a: Any, b: Any, c: Any, v: Any) -> Any:
    return ((a @ b) @ c) @ v


def tucker(core: Any, a: Any, b: Any, c: Any) -> Any:
    return jnp.einsum("abc,ia,jb,kc->ijk", core, a, b, c, optimize=False)


def shared(a: Any, b: Any, v: Any) -> Any:
    """With a batch axis, a matrix that is used twice and what is summed over alone."""
    return jnp.einsum("bij,bjk,bkl,l,m->bi", a, b, a, v, v, optimize=False)


def batched(a: Any, b: Any, v: Any) -> Any:
    """With an axis that all have and that is summed over at the end."""
    return jnp.einsum("sij,sjk,sk->i", a, b, v, optimize=False)


def divided(a: Any, b: Any, d: Any, v: Any) -> Any:
    return -((a @ b) / d) @ v


SHAPES: dict[Callable[..., Any], list[tuple[int, ...]]] = {
    chain: [(7, 5), (5, 8), (8, 6), (6,)],
    tucker: [(2, 3, 2), (5, 2), (4, 3), (6, 2)],
    shared: [(2, 5, 5), (2, 5, 5), (5,)],
    batched: [(3, 9, 2), (3, 2, 8), (3, 8)],
    divided: [(7, 3), (3, 8), (7, 1), (8,)],
}


def arrays(fn: Callable[..., Any]) -> list[Any]:
    return [normal(*shape, seed=place) for place, shape in enumerate(SHAPES[fn])]


def computed(program: Program, outputs: Sequence[Output], given: Sequence[Any], precision: str) -> list[Any]:
    found = replace(program, outputs=tuple(outputs), equalities=(), facts=())
    with np.errstate(all="ignore"):
        return interpret(found, given, precision=precision)


def orders_of(fn: Callable[..., Any], given: Sequence[Any]) -> tuple[Program, list[Order]]:
    program, constants = lowered(fn, *given)
    assert not constants
    orders = better_orders(program)
    assert orders
    return program, orders


def holds(fn: Callable[..., Any], given: Sequence[Any]) -> list[bool]:
    """Whether all tests of each order hold of data."""
    program, orders = orders_of(fn, given)
    found = []
    for order in orders:
        tests = [Output(test, ()) for test in in_range(order, program.terms)]
        found.append(all(map(bool, computed(program, tests, given, "single"))))
    return found


@pytest.mark.parametrize("fn", SHAPES)
def test_ordinary_numbers_are_in_range(fn: Callable[..., Any]) -> None:
    assert all(holds(fn, arrays(fn)))


@pytest.mark.parametrize("fn", SHAPES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e38, LARGEST, 1e-38, 1e-45])
def test_one_number_that_is_out_of_range_is_seen_wherever_it_is(fn: Callable[..., Any], value: float) -> None:
    for place in range(len(SHAPES[fn])):
        given = arrays(fn)
        given[place].flat[given[place].size // 2] = value
        if value in (1e-38, 1e-45):
            # All of it, since what is small beside others is lost in rounding anyhow.
            given[place][...] = value
        assert not any(holds(fn, given))


def test_zeros_are_in_range() -> None:
    given = [np.where(normal(*one.shape, seed=9) > 0.3, one, 0) for one in arrays(chain)]
    given[1][2] = 0
    assert all(holds(chain, given))


def test_a_zero_that_divides_is_out_of_range() -> None:
    given = arrays(divided)
    given[2][3] = 0
    assert not any(holds(divided, given))


def test_long_chains_need_no_small_entry_to_be_large() -> None:
    # Among so many normally distributed numbers, the product of the least of each is out of range.
    given = [normal(60, 60, seed=seed) / 8 for seed in range(7)]
    given += [normal(60, seed=8)]
    for one in given[:-1]:
        one[3, 5] = 1e-7

    def product(*factors: Any) -> Any:
        result = factors[0]
        for factor in factors[1:]:
            result = result @ factor
        return result

    assert all(holds(product, given))


@pytest.mark.parametrize("dtype", [np.complex64, np.int32])
def test_what_is_no_real_float_has_no_tests(dtype: Any) -> None:
    program, orders = orders_of(chain, [one.astype(dtype) for one in arrays(chain)])
    with pytest.raises(NoTest):
        in_range(orders[0], program.terms)


@st.composite
def hostile(draw: st.DrawFn) -> tuple[Callable[..., Any], list[Any]]:
    """A program, and data for it on scales of their own, some entries far off those, or 0."""
    fn = draw(st.sampled_from(list(SHAPES)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    given = []
    for shape in SHAPES[fn]:
        one = rng.normal(size=shape) * 10.0 ** draw(st.integers(-25, 25))
        far = rng.random(shape) < draw(st.sampled_from([0.0, 0.1, 0.5]))
        one = np.where(far, one * 10.0 ** rng.integers(-12, 12, shape), one)
        zero = rng.random(shape) < draw(st.sampled_from([0.0, 0.0, 0.2, 0.8]))
        with np.errstate(over="ignore"):
            given.append(np.where(zero, 0, one).astype(np.float32))
    return fn, given


@settings(max_examples=300)
@given(hostile())
def test_both_orders_are_as_accurate_as_the_sums_of_magnitudes_let_them_be(
    drawn: tuple[Callable[..., Any], list[Any]],
) -> None:
    fn, given = drawn
    if not any(held := holds(fn, given)):
        return
    program, orders = orders_of(fn, given)
    for order, in_both in zip(orders, held, strict=True):
        if not in_both:
            continue
        layout = tuple(sorted(order.root.axes))
        both = [Output(order.root, layout), Output(order.winner, layout)]
        exact = computed(program, both, given, "double")[0]
        sums = computed(program, both, [np.abs(one) for one in given], "double")[0]
        for result in computed(program, both, given, "single"):
            assert np.isfinite(result).all()
            assert (np.abs(result - exact) <= 100 * np.finfo(np.float32).eps * np.abs(sums)).all()


@settings(max_examples=200)
@given(hostile())
def test_sums_of_magnitudes_are_within_their_bounds(
    drawn: tuple[Callable[..., Any], list[Any]],
) -> None:
    fn, given = drawn
    if fn is divided:
        given[2] = np.where(given[2] == 0, 1, given[2])
    program, orders = orders_of(fn, given)
    magnitudes = [np.abs(one) for one in given]
    for order in orders:
        bounds = Bounds(order, program.terms)
        for value in order.values():
            (sums,) = computed(program, [Output(value, tuple(sorted(value.axes)))], magnitudes, "double")
            wanted = [*bounds.norms(value, NO_AXES), bounds.least(value)]
            low, high, least = computed(program, [Output(one, ()) for one in wanted], given, "double")
            sums = np.abs(sums)
            assert low <= sums.min() * (1 + 1e-9)
            assert high >= sums.max() * (1 - 1e-9)
            assert least <= sums[sums > 0].min(initial=np.inf) * (1 + 1e-9)
