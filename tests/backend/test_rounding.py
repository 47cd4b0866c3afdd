"""Products are rounded where sums with them are compared with what was selected from them, or jump."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.backend.rounding import rounded_products
from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from tests.nightly import nightly_but

ROWS, COLUMNS = 100, 1000


def softmax(a: jax.Array, b: jax.Array) -> jax.Array:
    return jax.nn.softmax(a * b[:, None], axis=1)


def averaged(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.sum(jax.nn.softmax(a * b[:, None], axis=1) * a, axis=1)


def of_negated_squares(a: jax.Array, b: jax.Array) -> jax.Array:
    return jax.nn.log_softmax(-((a * b[:, None]) ** 2), axis=1).sum(1)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("magnitude", [1e5, 1e10, 1e37, 1e17])
@pytest.mark.parametrize("budget", nightly_but(["600kB", "20MB"], ["600kB", "1MB", "1.3MB", "20MB"]))
@pytest.mark.parametrize("function", [softmax, averaged, of_negated_squares])
def test_a_softmax_of_large_products_is_what_it_is_op_by_op(
    function: Callable[..., jax.Array], budget: str, magnitude: float
) -> None:
    rng = np.random.default_rng(0)
    a = jnp.asarray(rng.standard_normal((ROWS, COLUMNS)) * magnitude, jnp.float32)
    b = jnp.asarray(rng.standard_normal(ROWS), jnp.float32)
    optimized = eqsat.optimize(function, budget=budget)
    if budget == "600kB" and function is softmax:
        with pytest.raises(eqsat.BudgetError):
            optimized(a, b)
        return
    np.testing.assert_allclose(optimized(a, b), function(a, b), rtol=2e-6)


def names(function: Callable[..., jax.Array]) -> list[str]:
    shapes = (jax.ShapeDtypeStruct((3, 4), jnp.float32), jax.ShapeDtypeStruct((3,), jnp.float32))
    program, _ = lower(trace(function, shapes, {}).closed)
    rounded = rounded_products(program)
    return [term.op.name for term in program.reachable() if term.number in rounded]  # type: ignore[union-attr]


def test_only_products_beside_what_was_selected_are_rounded() -> None:
    assert names(softmax) == ["mul"]
    assert names(lambda a, b: a * b[:, None] - jnp.sum(a * b[:, None], 1, keepdims=True)) == []
    assert names(lambda a, b: jax.nn.softmax(a + b[:, None], axis=1)) == []
    assert names(lambda a, b: jax.nn.softmax(0.125 * (a + b[:, None]), axis=1)) == []
    assert names(lambda a, b: jax.nn.softmax(0.3 * (a + b[:, None]), axis=1)) == ["mul"]


def test_products_are_rounded_beside_an_entry_that_meets_many_but_not_in_stencils() -> None:
    product = lambda a, b: a * b[:, None]  # noqa: E731
    assert names(lambda a, b: product(a, b) - product(a, b)[:, :1]) == ["mul"]
    assert names(lambda a, b: product(a, b) - (product(a, b)[:, :1] + jnp.sin(a))) == ["mul"]
    assert names(lambda a, b: product(a, b) - product(a, b)[jnp.argmax(a.sum(1))]) == ["mul"]
    assert names(lambda a, b: product(a, b) - jnp.sort(product(a, b), 1)[:, ::-1]) == ["mul"]
    assert names(lambda a, b: product(a, b) - jnp.roll(product(a, b), 1, 1)) == []
    assert names(lambda a, b: product(a, b) - jnp.pad(product(a, b)[1:], ((0, 1), (0, 0)))) == []
    assert names(lambda a, b: product(a, b) - jnp.zeros((3, 4)).at[jnp.argsort(b)].add(product(a, b))) == []


def test_products_behind_values_that_jump_are_rounded() -> None:
    place = lambda a, b: 3.3 * a - a * b[:, None]  # noqa: E731
    assert names(lambda a, b: place(a, b) - jnp.floor(place(a, b))) == ["mul", "mul"]
    assert names(lambda a, b: place(a, b) * place(a, b).astype(jnp.int32)) == ["mul", "mul"]
    assert names(lambda a, b: jnp.floor(place(a, b))) == []  # nothing else is computed of it
    assert names(lambda a, b: jnp.floor(a * b[:, None]) + jnp.sin(a)) == []


def test_places_and_shares_of_pixels_belong_together() -> None:
    """A rotated image: the place of one pixel, with the share of another one, is wrong by all of it."""
    size, count = 160, 120
    angles, across = jnp.linspace(0, jnp.pi, count, endpoint=False), jnp.arange(size) - (size - 1) / 2
    image = jax.random.uniform(jax.random.key(0), (size, size))
    seen = jax.random.uniform(jax.random.key(1), (count, size))

    def misfit(image: jax.Array, angles: jax.Array, across: jax.Array) -> jax.Array:
        x, y = jnp.meshgrid(across, across, indexing="ij")

        def projected(angle: jax.Array) -> jax.Array:
            turned = [jnp.cos(angle) * x - jnp.sin(angle) * y, jnp.sin(angle) * x + jnp.cos(angle) * y]
            places = jnp.stack(turned) + (size - 1) / 2
            return jax.scipy.ndimage.map_coordinates(image, places, order=1, mode="constant").sum(0)

        return jnp.mean((jax.vmap(projected)(angles) - seen.astype(image.dtype)) ** 2)

    optimized = eqsat.optimize(jax.grad(misfit), budget="28.6MB")
    found = np.asarray(optimized(image, angles, across))
    with jax.enable_x64(True):
        wide = [jnp.asarray(np.asarray(one), jnp.float64) for one in (image, angles, across)]
        wanted = np.asarray(jax.jit(jax.grad(misfit))(*wide))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("share", [0.25, 0.5, 1])
def test_a_row_is_among_the_rows_that_it_was_taken_from(share: float) -> None:
    """In chunks, one kernel would add to the exact product, and another one to the rounded one."""

    def found(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        sums = jnp.tanh(x) * 1.1 + 0.3 * x
        cost = jnp.sum(sums**2, 1)
        best = sums[jnp.argmin(cost)]
        return jnp.sum(jnp.all(sums == best, 1)), jnp.sum(cost == cost.min())

    x = np.random.default_rng(0).normal(size=(4000, 40)).astype(np.float32)
    budget = int((1 + share) * x.nbytes)
    assert [int(count) for count in eqsat.optimize(found, budget=budget, max_slowdown=1e4)(x)] == [1, 1]
