"""Arrays that repeat entries of one array: turned, and padded by its own entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.frontend.flat import FlatJaxpr
from eqsat.frontend.placed_rows import is_cyclic, with_placed_rows
from eqsat.frontend.row_primitives import NOWHERE, PLACED_ROWS, SUMMED_ROWS
from eqsat.frontend.tiles import tilings
from tests.flat_values import evaluated
from tests.frontend.test_tiles import SPECIALS, check, conv
from tests.nightly import THOROUGH
from tests.stages import normal

MODES = ("wrap", "edge", "reflect", "symmetric")


def placed(fn: Callable[[Any], Any], x: Any, around: bool = True) -> list[Any]:
    """The places that equations of a function take rows from, after checking that they give the same."""
    closed = jax.make_jaxpr(fn)(x)
    flat = with_placed_rows(FlatJaxpr(closed.jaxpr), around)
    for found, wanted in zip(evaluated(flat, closed, flat.results, x), jax.tree.leaves(fn(x)), strict=True):
        np.testing.assert_array_equal(found, wanted)
    return [one.params["places"] for one in flat.equations if one.name == PLACED_ROWS]


@settings(max_examples=60 if THOROUGH else 5)
@given(
    st.sampled_from(MODES),
    st.tuples(st.integers(2, 9), st.integers(2, 9)),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=2, max_size=2),
)
def test_every_pad_takes_rows_from_known_places(
    mode: str, shape: tuple[int, int], widths: list[tuple[int, int]]
) -> None:
    x = normal(*shape)
    found = placed(lambda x: jnp.pad(x, widths, mode=mode), x)
    few = all(max(width) < size for width, size in zip(widths, shape, strict=True))
    assert not few or len(found) >= sum(map(any, widths))


@settings(max_examples=20 if THOROUGH else 6)
@given(st.integers(1, 9), st.integers(-20, 20), st.integers(0, 1))
def test_every_roll_goes_around(size: int, shift: int, dimension: int) -> None:
    x = normal(size, 3) if dimension == 0 else normal(3, size)
    (places,) = placed(lambda x: jnp.roll(x, shift, dimension), x) or (np.arange(size),)
    assert is_cyclic(places, size)
    assert places[0] == -shift % size
    assert placed(lambda x: jnp.roll(x, shift, dimension), x, around=False) == []


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.concatenate([x[:2], 2 * x]),
        lambda x: jnp.concatenate([x[1:], x[:1, ::-1]]),
        lambda x: jnp.concatenate([x[::2, :3], x[1:, 3:6]]),
        lambda x: jnp.concatenate(
            [x[i : i + 1] for i in (5, 2, 7, 0, 3, 6, 1, 9, 4)]
        ),  # places of no pattern
        lambda x: jnp.concatenate([jnp.broadcast_to(x[:1, :1], (2, 8)), x]),
    ],
)
def test_other_concatenations_stay(fn: Callable[[Any], Any]) -> None:
    assert placed(fn, normal(10, 8)) == []


def places_of_derivative(fn: Callable[[Any], Any], x: Any) -> list[Any]:
    """The places from which equations of a function's derivative take rows, after checking that they do."""
    derivative = jax.vjp(fn, x)[1]
    return placed(lambda given: derivative(given)[0], np.asarray(fn(x)))


@settings(max_examples=20 if THOROUGH else 6)
@given(st.integers(2, 9), st.integers(-20, 20), st.integers(0, 1))
def test_the_derivative_of_a_roll_goes_around_the_other_way(size: int, shift: int, dimension: int) -> None:
    x = normal(size, 3) if dimension == 0 else normal(3, size)
    found = places_of_derivative(lambda x: jnp.roll(x, shift, dimension), x)
    (places,) = found or (np.arange(size),)
    assert is_cyclic(places, size)
    assert places[0] == shift % size


@settings(max_examples=60 if THOROUGH else 5)
@given(
    st.sampled_from(MODES), st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=2)
)
def test_derivatives_of_pads_add_rows_from_known_places(mode: str, widths: list[tuple[int, int]]) -> None:
    places_of_derivative(lambda x: jnp.pad(x, widths, mode=mode), normal(7, 9))


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("dimension", [0, 1])
def test_an_edge_that_is_repeated_has_a_sum_for_a_derivative(width: int, dimension: int) -> None:
    widths = [(width, width) if d == dimension else (0, 0) for d in range(2)]
    x = normal(6, 5)
    derivative = jax.vjp(lambda x: jnp.pad(x, widths, mode="edge"), x)[1]
    given = np.asarray(jnp.pad(x, widths))
    closed = jax.make_jaxpr(lambda given: derivative(given)[0])(given)
    flat = with_placed_rows(FlatJaxpr(closed.jaxpr), around=True)
    names = [one.name for one in flat.equations]
    assert names.count(SUMMED_ROWS if width > 1 else PLACED_ROWS) == 2
    np.testing.assert_allclose(
        evaluated(flat, closed, flat.results, given)[0], derivative(given)[0], rtol=1e-6
    )


def test_rows_in_one_place_are_added() -> None:
    x = normal(10, 8)
    ends = [(3, 4), (2, 5)]  # Both have rows 3 and 4.

    def pad(part: Any, low: int, high: int, by: float = 0.0) -> Any:
        return jax.lax.pad(part, by, [(low, high, 0), (0, 0, 0)])

    assert placed(lambda x: sum(pad(x[:3], *one) for one in ends), x) == []
    (places,) = placed(lambda x: pad(x[7:], 0, 5) + pad(x[:4], 4, 0), x)
    assert list(places) == [7, 8, 9, NOWHERE, 0, 1, 2, 3]
    assert placed(lambda x: pad(x[7:], 0, 5, 1.0) + pad(x[:4], 4, 0), x) == []
    assert placed(lambda x: pad(x[7:], 0, 5, -0.0) + pad(x[:4], 4, 0), x) == []
    assert placed(lambda x: pad(x[7:], 0, 5) + pad(2 * x[:4], 4, 0), x) == []
    assert placed(lambda x: pad(x[7:], 0, 5) - pad(x[:4], 4, 0), x) == []


def test_a_sum_with_zeros_has_no_negative_zero() -> None:
    x = np.full((6, 2), -0.0, np.float32)
    (derivative,) = jax.vjp(lambda x: jnp.roll(x, 1, 0), x)[1](x)
    assert not np.signbit(derivative).any()
    closed = jax.make_jaxpr(lambda c: jax.vjp(lambda x: jnp.roll(x, 1, 0), x)[1](c)[0])(x)
    flat = with_placed_rows(FlatJaxpr(closed.jaxpr), around=True)
    (found,) = evaluated(flat, closed, flat.results, x)
    assert not np.signbit(found).any()


# ------------------------------------------------------------------------------------- stencils


def around(x: Any) -> Any:
    """The sum over an entry and its eight neighbours on a torus."""
    return sum(jnp.roll(x, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1))


def padded(x: Any, mode: str, far: int = 1) -> Any:
    rows, columns = x.shape
    p = jnp.pad(x, far, mode=mode)
    return sum(p[i : i + rows, j : j + columns] for i in (0, far, 2 * far) for j in (0, far, 2 * far))


def waves(h: Any, u: Any) -> Any:
    """A step of two fields, each of which the other one reads."""
    across = lambda a, d: (jnp.roll(a, -1, d) - jnp.roll(a, 1, d)) / 2  # noqa: E731
    return h - 0.1 * across(h * u, 0) - 0.1 * across(u, 1), u - 0.1 * (u * across(u, 0) + across(h, 1))


PERIODIC: dict[str, Callable[[Any], Any]] = {
    "torus": lambda x: jnp.tanh(around(x)),
    "torus, two steps": lambda x: jnp.tanh(around(jnp.tanh(around(x)))),
    "two fields": lambda x: waves(*waves(x, jnp.cos(x))),
    "with positions": lambda x: around(x * jnp.arange(x.shape[0], dtype=x.dtype)[:, None]),
    "far": lambda x: jnp.roll(x, 17, 0) + jnp.roll(x, -17, 0) + jnp.roll(x, 5, 1) - jnp.roll(x, 1, 1),
    "wrapped, two steps": lambda x: padded(jnp.tanh(padded(x, "wrap")), "wrap", 2),
    "torus within edges": lambda x: padded(around(x), "edge"),
    "edges on a torus": lambda x: around(padded(x, "edge")),
    "zeros on a torus": lambda x: around(jnp.pad(x[2:-1], ((1, 2), (0, 0)))),
    "part of an array": lambda x: around(x[3:-4, 2:]),
    "ring": lambda x: jnp.tanh(jnp.roll(x[:, 0], 1) + jnp.roll(x[:, 0], -1) - 2 * x[:, 0]),
    "live cells": lambda x: around((x > 0).astype(jnp.int8)) == 3,
    **{
        f"{mode}, two steps": lambda x, mode=mode: padded(jnp.sin(padded(x, mode, 2)), mode) for mode in MODES
    },
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("shape", [(96, 64), (251, 300)])
@pytest.mark.parametrize("name", PERIODIC)
def test_stencils_whose_edges_are_entries_have_tiles(name: str, shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    found = check(PERIODIC[name], x)
    assert found or name in ("part of an array", "edges on a torus", "zeros on a torus")
    random = np.random.default_rng(0)
    hostile = np.where(random.random(shape) < 0.002, random.choice(SPECIALS, shape), x).astype(np.float32)
    check(PERIODIC[name], hostile)


def test_networks_on_a_torus_have_tiles() -> None:
    def layer(x: Any, features: int) -> Any:
        wrapped = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="wrap")
        return conv(wrapped, features, padding="VALID")

    assert check(lambda x: layer(jax.nn.relu(layer(x, 4)), 2), normal(1, 120, 50, 3)) == 1
    # Beside windows that pad by zeros, rows beyond the edges are not those of the other end.
    assert check(lambda x: conv(jax.nn.relu(layer(x, 4)), 2), normal(1, 120, 50, 3)) == 1


@pytest.mark.parametrize("mode", MODES[1:])
def test_networks_that_pad_by_entries_between_convolutions_have_tiles(mode: str) -> None:
    def layer(x: Any, features: int) -> Any:
        return conv(jnp.pad(x, ((0, 0), (2, 1), (1, 1), (0, 0)), mode=mode), features, padding="VALID")

    fn = lambda x: layer(jax.nn.relu(layer(x, 4)), 2)  # noqa: E731
    x = normal(1, 127, 50, 3)
    (tiling,) = tilings(jax.make_jaxpr(fn)(x).jaxpr)
    assert next(var.aval.shape for var in tiling.program.jaxpr.invars) == x.shape
    assert check(fn, x) == 1


def variation(x: Any) -> Any:
    """Total variation: differences along rows and along columns, zero at the end."""
    down, right = jnp.diff(x, axis=0, append=x[-1:]), jnp.diff(x, axis=1, append=x[:, -1:])
    return jnp.sqrt(down**2 + right**2 + 1e-3)


PERIODIC["variation"] = variation
PERIODIC["variation on the way"] = lambda x: jnp.tanh(variation(jnp.sin(x)))

DERIVATIVES = (
    *("torus, two steps", "two fields", "variation", "variation on the way"),
    # Rows that are wrapped by are at both ends of the derivative, which is longer.
    *(f"{mode}, two steps" for mode in MODES if mode != "wrap"),
)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("shape", [(96, 64), (251, 300)])
@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_of_stencils_have_tiles(name: str, shape: tuple[int, ...]) -> None:
    total = lambda x: sum(jnp.sum(jnp.tanh(part)) for part in jax.tree.leaves(PERIODIC[name](x)))  # noqa: E731
    x = normal(*shape)
    assert check(jax.grad(total), x)
    random = np.random.default_rng(0)
    hostile = np.where(random.random(shape) < 0.002, random.choice(SPECIALS, shape), x).astype(np.float32)
    check(jax.grad(total), hostile)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("rows", [512, 509])
@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_of_stencils_keep_to_a_budget(name: str, rows: int) -> None:
    x = normal(rows, 500)
    total = lambda x: sum(jnp.sum(jnp.sin(part)) for part in jax.tree.leaves(PERIODIC[name](x)))  # noqa: E731
    optimized = eqsat.optimize(jax.grad(total), budget=3.2 * x.nbytes)
    assert optimized.plan(x).peak_bytes <= 3.2 * x.nbytes
    np.testing.assert_allclose(optimized(x), jax.jit(jax.grad(total))(x), rtol=1e-4, atol=1e-4)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("rows", [512, 509])
@pytest.mark.parametrize("name", ["torus, two steps", "two fields", "edge, two steps", "reflect, two steps"])
def test_stencils_whose_edges_are_entries_keep_to_a_budget(name: str, rows: int) -> None:
    x = normal(rows, 500)
    fn = lambda x: jax.tree.leaves(PERIODIC[name](x))[0]  # noqa: E731
    optimized = eqsat.optimize(fn, budget=2 * x.nbytes + x.nbytes // 2)
    assert optimized.plan(x).peak_bytes <= 2.5 * x.nbytes
    np.testing.assert_allclose(optimized(x), jax.jit(fn)(x), rtol=1e-5, atol=1e-5)


def test_one_array_twice_is_no_stencil() -> None:
    x = normal(40, 30)
    assert tilings(jax.make_jaxpr(lambda x: jnp.concatenate([x, x]) * 2)(x).jaxpr) == []
    assert tilings(jax.make_jaxpr(lambda x: jnp.roll(x, 1, 0) - x)(x).jaxpr) == []


def test_the_rows_of_a_long_array_are_not_listed() -> None:
    ends = lambda x: jnp.concatenate([x[:3], x[-2:]])  # noqa: E731
    closed = jax.make_jaxpr(ends)(jax.ShapeDtypeStruct((10**12,), jnp.float32))
    flat = with_placed_rows(FlatJaxpr(closed.jaxpr), around=True)
    (places,) = (one.params["places"] for one in flat.equations if one.name == PLACED_ROWS)
    assert list(places) == [0, 1, 2, 10**12 - 2, 10**12 - 1]


def test_wide_edges_of_few_tiles_move_with_the_image() -> None:
    """Three steps of Richardson and Lucy: each reflects the image twice, by more rows than tiles are off."""

    def sharpened(y: Any) -> Any:
        def blurred(x: Any) -> Any:
            around = jnp.pad(x, ((0, 0), (3, 3), (3, 3), (0, 0)), mode="reflect")
            return jax.lax.conv_general_dilated(
                around,
                jnp.ones((7, 7, 1, 1)) / 49,
                (1, 1),
                "VALID",
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )

        x = y
        for _ in range(3):
            x = x * blurred(y / (blurred(x) + 1e-3))
        return x

    y = np.abs(normal(1, 601, 400, 1))
    optimized = eqsat.optimize(sharpened, budget=2 * y.nbytes + y.nbytes // 2)
    assert optimized.plan(y).peak_bytes <= 2 * y.nbytes + y.nbytes // 2
    wanted = jax.jit(sharpened)(y)
    np.testing.assert_allclose(optimized(y), wanted, rtol=1e-4, atol=1e-4 * float(wanted.max()))


def test_sums_of_padded_complex_numbers_are_looked_at() -> None:
    x = normal(6, 3) * np.complex64(1 + 2j)

    def parts(x: jax.Array) -> jax.Array:
        zero = jnp.complex64(0)
        return jax.lax.pad(x[:2], zero, [(0, 4, 0), (0, 0, 0)]) + jax.lax.pad(
            x[2:], zero, [(2, 0, 0), (0, 0, 0)]
        )

    placed(parts, x)
    negative = np.complex64(complex(0, -0.0))
    placed(lambda x: jax.lax.pad(x[:2], negative, [(0, 4, 0), (0, 0, 0)]) + x, x)
