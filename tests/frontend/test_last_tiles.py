"""Results by tiles where no tile divides the rows: the last tile begins earlier."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import eqsat
from eqsat.frontend.tile_windows import Misaligned, Window
from eqsat.frontend.tiles import tilings
from eqsat.ir.tiled_values import tile_axes, tiled_values
from tests.frontend.test_tiles import LAYERS, SPECIALS, STENCILS, check, conv
from tests.nightly import THOROUGH
from tests.stages import lowered, normal

ROWS = 251
"""A prime number."""


def begins_earlier(fn: Callable[..., Any], x: Any, cuts: bool = False) -> bool:
    """Whether tiles of a function write over one another at the end."""
    found = tilings(jax.make_jaxpr(fn)(x).jaxpr, cuts)
    return any(equation.primitive.name == "scatter" for one in found for equation in one.program.eqns)


def box(x: Any, size: int = 7) -> Any:
    return lax.reduce_window(x, 0.0, lax.add, (size, size), (1, 1), "SAME")


def test_a_last_tile_that_begins_earlier_has_rows_of_the_one_before() -> None:
    window = Window(0, 4, -1, 6, Fraction(9, 4))
    assert [list(window.places(tile)) for tile in (0, 2, 3)] == [
        [-1, 0, 1, 2, 3, 4],
        [7, 8, 9, 10, 11, 12],
        [8, 9, 10, 11, 12, 13],
    ]
    assert not window.inside(4, 20)
    assert Window(0, 4, 1, 6, Fraction(9, 4)).inside(4, 16)
    assert not Window(0, 4, 1, 6, Fraction(9, 4)).inside(4, 15)
    with pytest.raises(Misaligned):
        Window(0, 2, -1, 6, Fraction(9, 4))


@settings(max_examples=60 if THOROUGH else 4)
@given(
    st.lists(st.sampled_from(sorted(LAYERS)), max_size=4),
    st.sampled_from([37, 61, 101, 127, 149]),
    st.integers(0, 1000),
)
def test_networks_on_images_of_a_prime_number_of_rows(names: list[str], rows: int, seed: int) -> None:
    def network(x: Any) -> Any:
        for name in names:
            if min(x.shape[1:3]) > 8 and x.size < 100_000:
                x = LAYERS[name](x)
        return jnp.tanh(conv(x, 2)), x.sum(-1)

    random = np.random.default_rng(seed)
    x = normal(1, rows, 12, 3, seed=seed)
    hostile = random.random(x.shape) < random.choice([0.0, 0.01])
    drops = any("max" in name or "minimum" in name for name in names)
    check(network, np.where(hostile & (not drops), random.choice(SPECIALS, x.shape), x).astype(np.float32))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", sorted(STENCILS.keys() - {"every other", "inside", "joined"}))
def test_stencils_on_images_of_a_prime_number_of_rows(name: str) -> None:
    x = normal(ROWS, 2 * ROWS + 7)
    assert check(STENCILS[name], x)
    assert begins_earlier(STENCILS[name], x)
    program, _ = lowered(STENCILS[name], x)
    assert tile_axes(program) - {axis for term in program.reachable() for axis in term.axes}


def test_a_step_of_two_rows_has_no_last_tile_one_row_earlier() -> None:
    def fn(x: Any) -> Any:
        return conv(jax.nn.relu(conv(x, 4, window_strides=(2, 2))), 2)

    assert check(fn, normal(1, ROWS, 20, 3))
    # Of an image that was made smaller before, a tile can begin with every other row only.
    grown = lambda x: jnp.repeat(fn(x), 2, axis=1)[:, :ROWS] + x[..., :2].sum(2, keepdims=True)  # noqa: E731
    assert check(grown, normal(1, ROWS, 20, 3))


def test_reductions_beside_a_result_count_no_row_twice() -> None:
    def fn(x: Any) -> Any:
        y = box(box(x) ** 2)
        return y, y.sum(), y.max(), jnp.sum(y > 3000, axis=0), y.T @ x

    x = np.abs(normal(ROWS, 40))
    assert check(fn, x) == 5
    assert begins_earlier(fn, x)


def test_results_that_are_written_to_files_are_cut_off() -> None:
    fn, x = lambda x: box(box(x) ** 2), normal(ROWS, 40)
    assert begins_earlier(fn, x)
    assert not begins_earlier(fn, x, cuts=True)
    for streamed in (False, True):
        program, _ = lowered(fn, x, streamed=streamed)
        (tiles,) = (found for _, found in tiled_values(program))
        assert ("scatter" in str(tiles)) is not streamed


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        (lambda x: (lambda y: (y, y.sum()))(box(box(x) ** 2)), (1021, 500)),
        (lambda x: jnp.exp(-(STENCILS["twice"](x) ** 2)), (1021, 500)),
        (lambda x: jax.grad(lambda x: jnp.sum(conv(jax.nn.relu(conv(x, 8)), 2) ** 2))(x), (1, 509, 120, 3)),
        (lambda x: jnp.convolve(jnp.tanh(jnp.convolve(x, jnp.ones(9), "same")), jnp.ones(5)), (500_009,)),
    ],
)
def test_results_with_a_prime_number_of_rows_keep_to_a_budget(
    fn: Callable[[Any], Any], shape: tuple[int, ...]
) -> None:
    x = normal(*shape)
    budget = int(x.nbytes * (3 if len(shape) == 4 else 2.3))
    optimized = eqsat.optimize(fn, budget=budget)
    assert optimized.plan(x).peak_bytes <= budget
    for found, wanted in zip(jax.tree.leaves(optimized(x)), jax.tree.leaves(jax.jit(fn)(x)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * float(jnp.max(jnp.abs(wanted))))
