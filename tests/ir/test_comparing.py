"""What is compared with something selected from it, and what is between it and the comparison."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.frontend.lower import lower
from eqsat.ir.comparing import compared, compared_with_tiles, same_bits
from eqsat.ir.tiled_values import tiled_values
from tests.stages import lowered, normal, text

X = normal(5, 4)


def values_of(fn: Any, *args: Any) -> set[str]:
    """The compared values of a function, as text."""
    program, _ = lowered(fn, *args)
    return {text(value) for value in compared(program).values}


def between_of(fn: Any, *args: Any) -> set[str]:
    """The ops that stay what they are."""
    program, _ = lowered(fn, *args)
    between = compared(program).between
    return {text(term).split("(")[0].split("[")[0] for term in program.reachable() if term.number in between}


def gradient(fn: Any) -> Any:
    """The gradient of the sum of a function of a product."""
    return jax.grad(lambda x: jnp.sum(fn(x @ x.T)))


PRODUCT = "dot[4](0{5 4}, rename[5](0{5 4}))"


@pytest.mark.parametrize(
    "fn",
    [
        lambda v: jnp.max(v, 1),
        lambda v: jnp.min(v, 0),
        jnp.max,
        lambda v: jnp.ptp(v, 1),
        lambda v: jnp.linalg.norm(v, ord=jnp.inf, axis=1),
        lambda v: jax.ops.segment_max(v, jnp.arange(5) % 2, 2),
        lambda v: jnp.where(v == v.max(1, keepdims=True), v, 0.0),
        lambda v: jnp.where(v >= jnp.sort(v, 1)[:, -2:-1], v, 0.0),
        lambda v: jnp.where(v >= lax.top_k(v, 2)[0][:, -1:], v, 0.0),
        lambda v: v * jnp.sign(v - v.max(1, keepdims=True)),
    ],
)
def test_a_value_that_is_compared_with_an_entry_of_it(fn: Any) -> None:
    assert values_of(gradient(fn), X) == {PRODUCT}


@pytest.mark.parametrize("fn", [lambda v: jnp.maximum(v, 0.0), lambda v: jnp.clip(v, -1, 1)])
def test_a_value_that_may_be_compared_with_the_larger_of_it_and_a_number(fn: Any) -> None:
    """Since JAX 0.12, it is compared with the number instead."""
    assert values_of(gradient(fn), X) <= {PRODUCT}


@pytest.mark.parametrize(
    "fn",
    [
        jax.nn.softmax,
        jax.nn.logsumexp,
        jax.nn.relu,
        lambda v: v[jnp.arange(5), jnp.argmax(v, 1)],
        lambda v: jnp.sort(v, 1)[:, :2],
        lambda v: lax.top_k(v, 2)[0],
        lambda v: jnp.where(v > v.sum(1, keepdims=True), v, 0.0),
    ],
)
def test_a_value_that_is_not(fn: Any) -> None:
    """Most are subtracted from, looked up in, or compared with constants or with sums."""
    assert values_of(gradient(fn), X) == set()


def test_a_running_maximum_is_compared_step_by_step() -> None:
    assert PRODUCT in values_of(gradient(lambda v: lax.cummax(v, 1)), X)


def test_inputs_are_the_same_bits_anyway() -> None:
    assert values_of(jax.grad(lambda x: jnp.sum(jnp.max(x, 1))), X) == set()


def test_what_both_sides_have_in_common_last_is_the_value() -> None:
    """What it is made of is whatever it is."""
    scaled = gradient(lambda v: jnp.max(1.7 * v + jnp.sum(v, 1), 1))
    (value,) = values_of(scaled, X)
    assert value.startswith("add(")
    assert {"max", "eq"} <= between_of(scaled, X)
    assert not {"add", "dot"} & between_of(scaled, X)


def test_what_is_computed_of_an_entry_before_it_is_compared_stays_what_it_is() -> None:
    def near(v: Any) -> Any:
        return jnp.where(v >= 0.9 * jnp.max(v, 1, keepdims=True), v, 0.0)

    assert values_of(near, X @ X.T) == set()
    assert {"mul", "max", "ge"} <= between_of(lambda x: near(x @ x.T), X)


@pytest.mark.parametrize(
    "fn",
    [
        lambda v: v / (v + 2) > 0.5,
        lambda v: jnp.exp(v) - v > 0.5,
        lambda v: (v[1] / (v[1] + v.max())) > 0.5,
    ],
)
def test_a_function_of_one_entry_compares_nothing(fn: Any) -> None:
    assert between_of(lambda x: fn(x @ x.T), X) == set()


@pytest.mark.parametrize(
    "fn",
    [
        lambda v: jnp.sign(v - 0.9 * v.max()),
        lambda v: jnp.floor(5 * (v - v.min()) / (v.max() - v.min())),
        lambda v: v - jnp.floor(v) > 0.5,
        lambda v: v / jnp.maximum(v, 0.0) >= 1,
    ],
)
def test_a_difference_from_a_selection_or_from_the_same_bits_does(fn: Any) -> None:
    assert between_of(lambda x: fn(x @ x.T), X)


def test_an_index_that_is_computed_says_nothing_of_which_entries_are_larger() -> None:
    """A quantile's place between two entries is of the same number as their indices."""

    def below(x: Any, q: Any) -> Any:
        return jnp.sum(x < jnp.quantile(x, q))

    assert not {"gather", "sort", "take"} & between_of(below, X, np.float32(0.3))


def test_an_index_that_is_found_by_comparing_does() -> None:
    def above_those_of_the_largest(x: Any, y: Any) -> Any:
        values = x @ x.T
        return jnp.sum(values[0] >= y[jnp.argsort(values[0])[-2:]].min())

    assert "gather" in between_of(above_those_of_the_largest, X, X[:, 0])


def same_bits_of(fn: Any, *args: Any) -> bool:
    """Whether the last function of a program is the same bits, beside whichever entries it is computed."""
    program, _ = lowered(fn, *args)
    (output,) = program.outputs
    return same_bits(output.term, output.term.axes)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x - x.mean(),
        lambda x: x / 3.7,
        lambda x: (x - x.mean()) / x.std(),
        lambda x: x > 2 * x.std(),
        lambda x: x + 7 * (x > 0).astype(int),
        jnp.abs,
        jnp.sqrt,
    ],
)
def test_what_is_rounded_once_is_the_same_bits(fn: Any) -> None:
    assert same_bits_of(fn, X)


@pytest.mark.parametrize(
    "fn", [lambda x: 3 * x + 1, lambda x: x / 3.7 - 1, jnp.exp, jnp.sin, lambda x: x @ x.T]
)
def test_what_may_be_rounded_otherwise_is_not(fn: Any) -> None:
    assert not same_bits_of(fn, X)


def test_a_test_for_nan_compares_nothing() -> None:
    def centred(x: Any) -> Any:
        difference = (x @ x.T) - jnp.max(x @ x.T)
        return jnp.where(difference != difference, 0.0, difference)

    assert values_of(centred, X) == set()
    assert between_of(centred, X) == set()


def once_of(fn: Any, *args: Any) -> set[str]:
    """The ops that no other body may compute again."""
    program, _ = lowered(fn, *args)
    numbers = compared(program).once
    terms = {term.number: term for inner in program.inside() for term in inner.reachable()}
    return {text(terms[number]).split("(")[0].split("[")[0] for number in numbers}


def test_what_a_loop_compares_with_what_was_selected_outside_is_found() -> None:
    def largest(x: Any) -> Any:
        def step(total: Any, given: Any) -> Any:
            row, most = given
            return total + jnp.where(row == most, row, 0.0), None

        products = x @ x.T
        return lax.scan(step, jnp.zeros(len(x)), (products, products.max(1)))[0]

    assert values_of(largest, X) == {PRODUCT}
    assert once_of(largest, X) == {"dot"}


def test_what_one_loop_stacks_and_another_compares_is_found_where_it_is_computed() -> None:
    def largest(x: Any) -> Any:
        def forward(most: Any, row: Any) -> Any:
            score = x @ row
            return jnp.maximum(most, score), score

        def backward(total: Any, score: Any) -> Any:
            return total + jnp.where(score == most, score, 0.0), None

        most, scores = lax.scan(forward, jnp.zeros(len(x)), x)
        return lax.scan(backward, jnp.zeros(len(x)), scores)[0]

    assert once_of(largest, X) == {"dot"}


def test_what_a_body_computes_and_compares_itself_may_be_computed_again() -> None:
    def largest(x: Any) -> Any:
        def step(total: Any, row: Any) -> Any:
            score = x @ row
            return total + jnp.where(score == score.max(), score, 0.0), None

        return lax.scan(step, jnp.zeros(len(x)), x)[0]

    assert once_of(largest, X) == set()


def steps(x: Any) -> Any:
    for _ in range(2):
        x = jnp.sin(sum(jnp.roll(x, shift, axis) for shift in (1, -1) for axis in (0, 1)))
    return x - jnp.roll(x, 1, 0) > 0.1


def test_a_result_by_tiles_is_compared_in_them() -> None:
    program, _ = lower(jax.make_jaxpr(steps)(normal(96, 64)))
    ((whole, tiles),) = tiled_values(program)
    assert whole.number in compared(program).between
    assert {whole.number, tiles.number} <= compared_with_tiles(program).between


def test_a_result_by_tiles_that_something_reads_is_compared_as_it_is() -> None:
    def fn(x: Any) -> Any:
        found = steps(x)
        return found, jnp.cumsum(found, 0)

    program, _ = lower(jax.make_jaxpr(fn)(normal(96, 64)))
    assert any(whole.number in compared(program).between for whole, _ in tiled_values(program))
    assert compared_with_tiles(program) == compared(program)
