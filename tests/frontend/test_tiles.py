"""Images by tiles of rows: the same values, whatever lies between the image and the last convolution."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.extend.core import jaxpr_as_fun

import eqsat
from eqsat.frontend.flat import FlatJaxpr
from eqsat.frontend.image_values import FEWEST_ROWS, MOST_IMAGES
from eqsat.frontend.lower import lower
from eqsat.frontend.tiles import tilings
from eqsat.ir.exact_forms import with_exact_forms
from eqsat.ir.tiled_values import tiled_values
from tests.flat_values import evaluated
from tests.nightly import THOROUGH, nightly_but
from tests.stages import normal

NHWC = ("NHWC", "HWIO", "NHWC")
SPECIALS = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, 1e-40]


def conv(x: Any, features: int, size: int = 3, **options: Any) -> Any:
    """A convolution of images (N, H, W, C) whose kernel depends on the shapes alone."""
    groups = options.get("feature_group_count", 1)
    kernel = normal(size, size, x.shape[-1] // groups, features, seed=features) / size
    given = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": NHWC, **options}
    return lax.conv_general_dilated(x, kernel, **given)


def enlarged(x: Any) -> Any:
    """Pixel shuffle: four features of a pixel become four pixels."""
    n, h, w, c = x.shape
    return x.reshape(n, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * h, 2 * w, c // 4)


def resized(x: Any, factor: float) -> Any:
    n, h, w, c = x.shape
    return jax.image.resize(x, (n, int(h * factor), int(w * factor), c), "nearest")


def pooled(x: Any, lowest: float, function: Any, size: int, step: int, padding: str) -> Any:
    return lax.reduce_window(x, lowest, function, (1, size, size, 1), (1, step, step, 1), padding)


def normalised(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-3)


LAYERS: dict[str, Callable[[Any], Any]] = {
    "convolution": lambda x: conv(x, 4),
    "few features": lambda x: conv(x, 2, 5),
    "even kernel": lambda x: conv(x, 4, 2),
    "one by one": lambda x: conv(x, 6, 1),
    "stride": lambda x: conv(x, 4, window_strides=(2, 2)),
    "stride of three": lambda x: conv(x, 4, window_strides=(3, 1)),
    "valid": lambda x: conv(x, 4, padding="VALID"),
    "lopsided": lambda x: conv(x, 4, padding=((4, 1), (0, 2))),
    "cropping": lambda x: conv(x, 4, padding=((-2, -1), (1, 1))),
    "dilated": lambda x: conv(x, 4, rhs_dilation=(2, 2)),
    "transposed": lambda x: conv(x, 4, lhs_dilation=(2, 2), padding=((1, 2), (2, 1))),
    "depthwise": lambda x: conv(x, x.shape[-1], feature_group_count=x.shape[-1]),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "bias": lambda x: x + normal(x.shape[-1]),
    "scaled": lambda x: 0.5 * x,
    "norm": normalised,
    "features mixed": lambda x: jnp.einsum("nhwc,cd->nhwd", x, normal(x.shape[-1], 3)),
    "max": lambda x: pooled(x, -jnp.inf, lax.max, 2, 2, "VALID"),
    "max of three": lambda x: pooled(x, -jnp.inf, lax.max, 3, 2, "SAME"),
    "sum": lambda x: pooled(x, 0.0, lax.add, 3, 1, "SAME"),
    "minimum": lambda x: pooled(x, jnp.inf, lax.min, 2, 1, "VALID"),
    "repeated": lambda x: jnp.repeat(x, 2, axis=1),
    "nearest": lambda x: resized(x, 2),
    "nearest, three times": lambda x: resized(x, 3),
    "shuffled": lambda x: enlarged(conv(x, 8)),
    "pad": lambda x: jnp.pad(x, ((0, 0), (2, 1), (1, 0), (0, 0)), constant_values=0.5),
    "slice": lambda x: x[:, 2:-1, ::2],
    "every other row": lambda x: x[:, 1::2],
    "residual": lambda x: x + conv(jax.nn.relu(x), x.shape[-1]),
    "joined": lambda x: jnp.concatenate([x, conv(x, 2)], axis=-1),
    "stacked": lambda x: jnp.stack([x, -x], axis=-1).max(-1),
    "by rows": lambda x: jnp.cumsum(x, axis=2),
    "jit": jax.jit(lambda x: jnp.where(x > 0, x, jnp.expm1(x))),
    "positions": lambda x: x + jnp.arange(x.shape[1], dtype=x.dtype)[:, None, None],
    "features first": lambda x: jnp.moveaxis(jnp.tanh(jnp.moveaxis(x, -1, 1)), 1, -1),
}


def by_tiles(fn: Callable[..., Any], *args: Any) -> list[tuple[Any, Any]]:
    """What `fn` computes by tiles, and the same as it is written."""
    closed = jax.make_jaxpr(fn)(*args)
    flat = FlatJaxpr(closed.jaxpr)
    number_of = {variable: value for value, variable in enumerate(flat.variables)}
    pairs = []
    for tiling in tilings(closed.jaxpr):
        variables = [*(result.variable for result in tiling.results), *tiling.inputs]
        seen = partial(evaluated, flat, closed, [number_of[variable] for variable in variables])
        # Compiled, as plans are: XLA rounds the places of resized images otherwise.
        values = jax.jit(seen)(*jax.tree.leaves(args))
        count = len(tiling.results)
        pairs += zip(jax.jit(jaxpr_as_fun(tiling.program))(*values[count:]), values[:count], strict=True)
    return pairs


def check(fn: Callable[..., Any], *args: Any) -> int:
    pairs = by_tiles(fn, *args)
    for found, whole in pairs:
        assert (found.shape, found.dtype) == (whole.shape, whole.dtype)
        largest = np.abs(whole, where=np.isfinite(whole), out=np.zeros(whole.shape)).max(initial=0)
        np.testing.assert_allclose(found, whole, rtol=2e-5, atol=2e-5 * max(float(largest), 1e-30))
    return len(pairs)


DIFFERENT = {
    "bilinear",
    "transposed",
    "max of three",
    "nearest, three times",
    "shuffled",
    "pad",
    "residual",
    "joined",
    "dilated",
}
"""Layers of which others are like them."""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", nightly_but(DIFFERENT, LAYERS))
def test_layers_between_convolutions(name: str) -> None:
    def between(x: Any) -> Any:
        return conv(LAYERS[name](conv(x, 4)), 2)

    x = normal(1, 96, 16, 3)
    assert check(between, x) == 1
    jaxpr = jax.make_jaxpr(between)(x).jaxpr
    (tiling,) = tilings(jaxpr)
    computed = {one.var for one in tiling.inputs} - {*jaxpr.invars, *jaxpr.constvars}
    assert all(var.aval.size <= 3 * 96 for var in computed), "of what is between, places of rows at most"


@settings(max_examples=60 if THOROUGH else 3)
@given(
    st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=6),
    st.integers(FEWEST_ROWS, 150),
    st.integers(10, 16),
    st.integers(1, 2),
    st.integers(0, 1000),
)
def test_networks_on_hostile_images(
    names: list[str], rows: int, columns: int, images: int, seed: int
) -> None:
    def network(x: Any) -> Any:
        for name in names:
            if min(x.shape[1:3]) > 8 and x.size < 100_000:
                x = LAYERS[name](x)
        return conv(x, 2)

    random = np.random.default_rng(seed)
    x = normal(images, rows, columns, 3, seed=seed)
    hostile = random.random(x.shape) < random.choice([0.0, 0.001, 0.05])
    # XLA for CPUs drops NaN from most windows, but not from all (jaxlib 0.10 and 0.12).
    drops = any("max" in name or "minimum" in name for name in names)
    x = np.where(hostile & (not drops), random.choice(SPECIALS, x.shape), x).astype(np.float32)
    check(network, x)


def between(layer: Callable[[Any], Any], kernels: Any, x: Any) -> Any:
    """A loss of two convolutions with a layer between them."""
    same = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": NHWC}
    y = layer(lax.conv_general_dilated(x, kernels[0], **same))
    return jnp.mean(
        jnp.tanh(lax.conv_general_dilated(y, jnp.resize(kernels[1], (3, 3, y.shape[-1], 2)), **same))
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", nightly_but(DIFFERENT - {"shuffled", "pad", "joined", "dilated"}, LAYERS))
def test_derivatives(name: str) -> None:
    """By the image, and by the kernels, of which each tile gives a part."""
    kernels = [normal(3, 3, 3, 4) / 3, normal(3, 3, 4, 2) / 3]
    # 91 rows look like fifteen sixteenths of 96, not like all that is left of them.
    x = normal(1, 192 if name == "cropping" else 96, 16, 3)
    grad = jax.grad(lambda kernels, x: between(LAYERS[name], kernels, x), (0, 1))
    assert check(grad, kernels, x) >= 3


def unet(x: Any) -> Any:
    first = jax.nn.relu(conv(jax.nn.relu(conv(x, 8)), 8))
    second = jax.nn.relu(conv(conv(first, 12, window_strides=(2, 2)), 12))
    third = jax.nn.relu(conv(conv(second, 16, window_strides=(2, 2)), 16))
    up = conv(jnp.concatenate([resized(third, 2), second], -1), 12)
    return conv(jnp.concatenate([resized(jax.nn.relu(up), 2), first], -1), 2)


@pytest.mark.nightly
@pytest.mark.parametrize("rows", nightly_but({500}, [512, 500]))
def test_a_network_with_skips_fits_a_quarter(rows: int) -> None:
    x = normal(1, rows, 64, 3)
    plain = eqsat.optimize(unet, budget="1GB").plan(x)
    fixed = x.nbytes + 2 * 4 * rows * 64
    budget = fixed + (plain.peak_bytes - fixed) // 4
    optimized = eqsat.optimize(unet, budget=budget)
    assert optimized.plan(x).peak_bytes <= budget
    wanted = jax.jit(unet)(x)
    np.testing.assert_allclose(optimized(x), wanted, atol=1e-5 * float(abs(wanted).max()))


def trained(x: Any, labels: Any, kernels: Any) -> Any:
    """The mean cross-entropy of pixels by a U-Net with maxima, and its derivatives by the kernels."""

    def one(x: Any, kernel: Any) -> Any:
        same = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": NHWC}
        return jax.nn.relu(lax.conv_general_dilated(x, kernel, **same))

    def loss(kernels: Any) -> Any:
        fine = one(one(x, kernels[0]), kernels[1])
        coarse = one(one(LAYERS["max"](fine), kernels[2]), kernels[3])
        scores = one(jnp.concatenate([resized(coarse, 2), fine], -1), kernels[4])
        found = jnp.take_along_axis(jax.nn.log_softmax(scores), labels[..., None], -1)
        return -jnp.mean(found)

    return jax.value_and_grad(loss)(kernels)


@pytest.mark.nightly
def test_a_step_of_training_on_one_image_fits_a_fifth() -> None:
    x, labels = normal(1, 512, 32, 3), np.random.default_rng(0).integers(0, 3, (1, 512, 32))
    kernels = [normal(3, 3, *size) / 5 for size in [(3, 12), (12, 12), (12, 16), (16, 16), (28, 3)]]
    plain = eqsat.optimize(trained, budget="1GB").plan(x, labels, kernels)
    fixed = x.nbytes + labels.size * 4 + 2 * sum(kernel.nbytes for kernel in kernels)
    budget = fixed + (plain.peak_bytes - fixed) // 5
    optimized = eqsat.optimize(trained, budget=budget)
    assert optimized.plan(x, labels, kernels).peak_bytes <= budget
    wanted = jax.tree.leaves(jax.jit(trained)(x, labels, kernels))
    for found, other in zip(jax.tree.leaves(optimized(x, labels, kernels)), wanted, strict=True):
        np.testing.assert_allclose(found, other, atol=2e-5 * float(abs(other).max()))


def test_a_derivative_by_a_kernel_is_one_convolution_over_the_tiles_of_a_chunk() -> None:
    """Neither one in groups, for which libraries are slow, nor are results of tiles stored."""
    x = normal(2, 512, 32, 3)
    kernels = [normal(3, 3, 3, 12) / 5, normal(3, 3, 12, 8) / 5, normal(3, 3, 8, 2) / 5]

    def loss(kernels: Any) -> Any:
        value = x
        for kernel in kernels:
            value = jnp.tanh(lax.conv_general_dilated(value, kernel, (1, 1), "SAME", dimension_numbers=NHWC))
        return jnp.sum(value)

    step = jax.grad(loss)
    plain = eqsat.optimize(step, budget="1GB").plan(kernels)
    budget = plain.peak_bytes - (3 * plain.peak_bytes) // 5
    optimized = eqsat.optimize(step, budget=budget)
    plan = optimized.plan(kernels)
    assert plan.loops
    assert all(loop.combines == ("sum",) for loop in plan.loops)
    assert "group_count=" not in plan.source
    for found, other in zip(optimized(kernels), jax.jit(step)(kernels), strict=True):
        np.testing.assert_allclose(found, other, atol=2e-5 * float(abs(other).max()))


def test_sums_over_narrow_floats_are_not_of_tiles() -> None:
    """They would be rounded for every tile."""
    x, kernel = jnp.ones((1, 96, 16, 3), jnp.bfloat16), jnp.ones((3, 3, 3, 4), jnp.bfloat16)

    def loss(kernel: Any) -> Any:
        return jnp.sum(lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=NHWC))

    closed = jax.make_jaxpr(jax.grad(loss))(kernel)
    assert all(result.dimension is not None for one in tilings(closed.jaxpr) for result in one.results)


def test_rows_that_no_tile_divides_are_cut_off_at_the_end() -> None:
    x = normal(1, 509, 64, 3)

    def two(x: Any) -> Any:
        return conv(jax.nn.relu(conv(x, 16)), 2)

    plan = eqsat.optimize(two, budget="1.6MB").plan(x)
    assert plan.peak_bytes <= 1_600_000 < 509 * 64 * 16 * 4
    np.testing.assert_allclose(eqsat.optimize(two, budget="1.6MB")(x), two(x), rtol=1e-4, atol=1e-5)


def test_a_value_that_everyone_reads_is_computed_once_for_each_tile() -> None:
    def residual(x: Any) -> Any:
        for _ in range(6):
            x = x + conv(jnp.tanh(x), x.shape[-1])
        return conv(x, 2)

    closed = jax.make_jaxpr(residual)(normal(1, 256, 8, 3))
    (tiling,) = tilings(closed.jaxpr)
    text = str(tiling.program)
    assert text.count("conv_general_dilated[") == 7
    assert check(residual, normal(1, 256, 8, 3)) == 1


def test_what_is_large_between_is_a_reduction_after_tiles() -> None:
    def mean(x: Any) -> Any:
        return jnp.mean(jnp.exp(-(conv(x, 30) ** 2)))

    x = normal(1, 300, 40, 3)
    optimized = eqsat.optimize(mean, budget="500kB")
    assert optimized.plan(x).peak_bytes <= 500_000 < 4 * 30 * 300 * 40
    np.testing.assert_allclose(optimized(x), mean(x), rtol=1e-5)


@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        (lambda x: conv(x, 2), (MOST_IMAGES + 1, 96, 8, 3)),  # a batch, of which images are chunks
        (lambda x: conv(x, 2), (1, FEWEST_ROWS - 1, FEWEST_ROWS - 1, 3)),
        (lambda x: conv(conv(x, 4, 31), 2, 31), (1, 40, 40, 3)),  # tiles would be more than twice the work
        (lambda x: jnp.sum(x, 1), (1, 96, 8, 3)),
    ],
)
def test_what_is_not_worth_tiles_has_none(fn: Callable[..., Any], shape: tuple[int, ...]) -> None:
    assert tilings(jax.make_jaxpr(fn)(jnp.zeros(shape)).jaxpr) == []


def test_rows_that_something_needs_whole_are_taken_from_it() -> None:
    """Statistics of the image, of which each tile reads all, and rows in reverse."""

    def centred(x: Any) -> Any:
        y = conv(x, 4)
        return conv(jax.nn.relu((y - y.mean((1, 2), keepdims=True))[:, ::-1]), 2)

    assert check(centred, normal(1, 96, 12, 3)) == 2


def test_images_of_several_sizes_have_tiles_of_their_own() -> None:
    def both(x: Any, y: Any) -> Any:
        return conv(conv(x, 4), 2).sum() + conv(conv(y, 4), 2).max()

    x, y = normal(1, 96, 8, 3), normal(1, 131, 8, 3)
    assert check(both, x, y) == 2
    assert len(tilings(jax.make_jaxpr(both)(x, y).jaxpr)) == 2


def test_images_in_loops_have_tiles() -> None:
    """As those that a diffusion model makes, step by step."""

    def steps(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, x: x - 0.1 * conv(jnp.tanh(conv(x, 16)), 3), x)

    x = normal(1, 256, 32, 3)
    optimized = eqsat.optimize(steps, budget=2 * x.nbytes + 4 * 256 * 32 * 16)
    assert optimized.plan(x).peak_bytes < eqsat.optimize(steps, budget="1GB").plan(x).peak_bytes / 1.5
    np.testing.assert_allclose(optimized(x), steps(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("factor", [1.5, 0.5])
def test_places_that_depend_on_how_floats_are_rounded_are_not_known(factor: float) -> None:
    """The nearest pixels are at floor((i + 0.5) / 1.5), of which XLA may compute 0.99999994 where it is 1."""

    def enlarged(x: Any) -> Any:
        return conv(resized(conv(x, 4), factor), 2)

    for rows in (96, 122):
        assert check(enlarged, normal(1, rows, 10, 3)) == 2


def test_places_beyond_the_image_are_not_rows_of_tiles() -> None:
    """What is there is NaN, and not the last row."""

    def shifted(x: Any) -> Any:
        return conv(conv(x, 4).at[:, jnp.arange(96) + 2].get(mode="fill"), 2)

    assert check(shifted, normal(1, 96, 8, 3)) == 2


def test_derivatives_of_maxima_go_where_they_are_among_infinities() -> None:
    """Padded rows are -inf like others: of equal ones, the first is the maximum."""
    x = normal(1, 96, 16, 3)
    x[:, :3] = -np.inf

    def loss(x: Any) -> Any:
        around = ((0, 0), (1, 1), (1, 1), (0, 0))
        return jnp.sum(conv(lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), around), 2))

    assert check(jax.grad(loss), x) == 1


def test_rows_that_are_mixed_by_a_matrix_are_stored() -> None:
    """The matrix has few entries in a row, but infinity times 0 is not 0."""

    def enlarged(x: Any) -> Any:
        y = conv(x, 4)
        return conv(jax.image.resize(y, (1, 2 * y.shape[1], *y.shape[2:]), "bilinear"), 2)

    assert check(enlarged, normal(1, 96, 8, 3)) == 2
    hostile = normal(1, 96, 8, 3)
    hostile[0, 40, 4, 0] = np.inf
    check(enlarged, hostile)


def test_no_tiles_where_results_have_to_be_the_same_bits() -> None:
    program, _ = lower(jax.make_jaxpr(lambda x: conv(conv(x, 8), 2))(normal(1, 96, 16, 3)))
    assert list(tiled_values(program))
    assert not list(tiled_values(with_exact_forms(program)))
    x = normal(1, 96, 64, 3)
    assert eqsat.optimize(lambda x: conv(conv(x, 30), 2), budget="400kB").plan(x).changed
    with pytest.raises(eqsat.BudgetError, match="conv_general_dilated makes it as a whole"):
        eqsat.optimize(lambda x: conv(conv(x, 30), 2), budget="400kB", accuracy="exact").plan(x)


def shifted(x: Any, mode: str = "constant", far: int = 1) -> list[Any]:
    """All shifts of an image by so much."""
    rows, columns = x.shape[:2]
    around = jnp.pad(x, ((far, far), (far, far), *((0, 0),) * (x.ndim - 2)), mode=mode)
    places = range(2 * far + 1)
    return [around[i : i + rows, j : j + columns] for i in places for j in places]


STENCILS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: sum(shifted(x)),
    "edges": lambda x: jnp.tanh(sum(shifted(x, "edge")) - 9 * x),
    "mirror": lambda x: jnp.stack(shifted(x, "reflect", 2)).max(0),
    "mirror of edges": lambda x: jnp.stack(shifted(x, "symmetric", 3)).min(0),
    "inside": lambda x: jnp.hypot(x[1:, 1:] - x[:-1, 1:], x[1:, 1:] - x[1:, :-1]),
    "joined": lambda x: (lambda p: p[2:, 1:] - p[:-2, :-1])(
        jnp.concatenate([x[:1], x, jnp.zeros((1, *x.shape[1:]), x.dtype)])
    ),
    "twice": lambda x: sum(shifted(jnp.sin(sum(shifted(x, "edge"))), "constant", 2)),
    "every other": lambda x: x[::2, ::2] * x[1::2, ::2] - x[::2, 1::2],
    "neighbours that live": lambda x: sum((part > 0).astype(jnp.int8) for part in shifted(x)),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", nightly_but({"inside", "joined", "mirror", "sum"}, STENCILS))
@pytest.mark.parametrize("shape", nightly_but([((96, 64),)], [((96, 64),), ((102, 40, 3),), ((40, 128),)]))
def test_stencils_have_tiles(name: str, shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    assert check(STENCILS[name], x) > 0 or min(shape) < 64, "there may be too few rows"
    places = np.random.default_rng(0).integers(0, x.size, 40)
    x.reshape(-1)[places] = np.resize(np.float32([np.inf, -np.inf, np.nan, 3e38, 0, -0.0, 1e-40]), 40)
    check(STENCILS[name], x)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[:48, :32] @ x[48:, 32:].T,  # blocks of a matrix are no shifts of one another
        lambda x: x[1:, 1:],
        lambda x: x[1:] - x[:-1],  # the other axis is one of a loop as it is
    ],
)
def test_slices_that_are_no_stencil_have_no_tiles(fn: Callable[..., Any]) -> None:
    assert tilings(jax.make_jaxpr(fn)(jnp.zeros((96, 64))).jaxpr) == []


@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        (lambda x: jnp.exp(-(sum(shifted(x)) ** 2)).sum(), (600, 500)),
        (lambda x: filtered(x, "edge"), (200, 300)),
        (lambda x: lax.fori_loop(0, 3, lambda _, u: jnp.tanh(filtered(u)), x).sum(), (200, 300)),
    ],
)
def test_stencils_keep_to_a_budget(fn: Callable[..., Any], shape: tuple[int, ...]) -> None:
    """Of an image padded on all sides, no axis passes through its shifts; rows and those beside them do."""
    x = normal(*shape)
    optimized = eqsat.optimize(fn, budget=4 * x.nbytes)
    np.testing.assert_allclose(optimized(x), jax.jit(fn)(x), rtol=1e-4, atol=1e-4)


def filtered(x: Any, mode: str = "constant") -> Any:
    """A mean of entries nearby, of those more that are alike."""
    near = jnp.stack(shifted(x, mode, 2))
    weights = jnp.exp(-((near - x) ** 2))
    return (weights * near).sum(0) / weights.sum(0)
