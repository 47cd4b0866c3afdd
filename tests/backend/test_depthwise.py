"""Depthwise convolutions as sums of shifted images: the same results, and none of these is stored."""

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

import eqsat
from eqsat.backend.codegen_options import CodegenOptions, codegen_options
from eqsat.backend.convolutions import SHIFTED
from eqsat.engine.cost import CostModel
from eqsat.ir.depthwise import depthwise_taps
from eqsat.ir.ops import Opaque
from eqsat.planning.candidates import as_written
from eqsat.targets.cpu import CPU
from eqsat.targets.gpu import GPU
from eqsat.targets.tpu import TPU
from tests.backend.test_convolutions import NCHW, NHWC, convolved, run, source
from tests.nightly import THOROUGH
from tests.stages import lowered, normal

SHIFTS = CodegenOptions(orders_convolutions=True, orders_bodies=True, shifted_taps=128)
SPECIALS = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, 1e-40]


def depthwise(x: Any, y: Any, orders: tuple[str, str, str] = NHWC, **options: Any) -> Any:
    groups = x.shape[orders[0].index("C")]
    return convolved(x, y, orders, feature_group_count=groups, **options)


IMAGE, KERNEL = (2, 9, 7, 5), (3, 2, 1, 5)
CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "images": (depthwise, (IMAGE, KERNEL)),
    "strides": (partial(depthwise, window_strides=(2, 3)), (IMAGE, KERNEL)),
    "a dilated window": (partial(depthwise, rhs_dilation=(2, 3), padding=[(4, 1), (0, 3)]), (IMAGE, KERNEL)),
    "a cropped image": (partial(depthwise, padding=[(-2, 1), (0, -3)]), (IMAGE, KERNEL)),
    "valid": (partial(depthwise, padding="VALID"), (IMAGE, KERNEL)),
    "features first": (partial(depthwise, orders=NCHW), ((2, 5, 9, 7), (5, 1, 3, 2))),
    "sequences": (partial(depthwise, orders=("NHC", "HIO", "NHC")), ((2, 30, 5), (4, 1, 5))),
    "volumes": (partial(depthwise, orders=("NDHWC", "DHWIO", "NDHWC")), ((1, 4, 5, 6, 3), (2, 2, 3, 1, 3))),
    "one feature": (depthwise, ((2, 9, 7, 1), (3, 2, 1, 1))),
    "a filter": (lambda x, y: jnp.convolve(x, y, mode="same"), ((100,), (9,))),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_same_convolution(case: str) -> None:
    function, shapes = CASES[case]
    arrays = tuple(normal(*shape) for shape in shapes)
    text = source(function, arrays, SHIFTS)
    assert f" = {SHIFTED}(" in text
    assert "conv_general_dilated(" not in text
    np.testing.assert_allclose(run(text, arrays), function(*arrays), rtol=1e-4, atol=1e-5)


@settings(max_examples=60 if THOROUGH else 6)
@given(st.sampled_from(sorted(CASES)), st.integers(0, 1000))
def test_hostile_numbers(case: str, seed: int) -> None:
    """Zeros that are padded times an infinity of the kernel are NaN in both."""
    function, shapes = CASES[case]
    random = np.random.default_rng(seed)
    arrays = []
    for shape in shapes:
        hostile = random.random(shape) < random.choice([0.0, 0.05])
        arrays.append(np.where(hostile, random.choice(SPECIALS, shape), random.normal(size=shape)))
    given = tuple(array.astype(np.float32) for array in arrays)
    np.testing.assert_allclose(
        run(source(function, given, SHIFTS), given), function(*given), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_narrow_floats_are_added_up_in_single_precision(dtype: Any) -> None:
    x, y = (jnp.asarray(normal(*shape), dtype) for shape in ((1, 40, 40, 8), (7, 7, 1, 8)))
    found = run(source(depthwise, (x, y), SHIFTS), (x, y))
    assert found.dtype == dtype
    wanted = np.asarray(depthwise(x.astype(jnp.float32), y.astype(jnp.float32)))
    off = np.abs(found.astype(np.float32) - wanted).max()
    assert off <= float(jnp.finfo(dtype).eps) * np.abs(wanted).max()


def test_a_result_of_another_dtype() -> None:
    arrays = tuple(jnp.asarray(normal(*shape), jnp.bfloat16) for shape in (IMAGE, KERNEL))
    function = partial(depthwise, preferred_element_type=np.float32)
    found = run(source(function, arrays, SHIFTS), arrays)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, function(*arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("function", "shapes", "dtype"),
    [
        (partial(convolved, orders=NHWC), (IMAGE, (3, 2, 5, 5)), "float32"),
        (depthwise, (IMAGE, (3, 2, 1, 10)), "float32"),
        (partial(depthwise, lhs_dilation=(2, 1), padding=[(1, 1), (0, 0)]), (IMAGE, KERNEL), "float32"),
        (partial(convolved, orders=NHWC, batch_group_count=2), ((2, 9, 7, 1), (3, 2, 1, 2)), "float32"),
        (depthwise, (IMAGE, KERNEL), "int32"),
        (depthwise, (IMAGE, KERNEL), "complex64"),
        (depthwise, ((0, 9, 7, 5), KERNEL), "float32"),
    ],
)
def test_other_convolutions_stay(function: Any, shapes: tuple[tuple[int, ...], ...], dtype: str) -> None:
    arrays = tuple(jnp.asarray(np.ones(shape), dtype) for shape in shapes)
    program, _ = lowered(function, *arrays)
    calls = [term.op.call for term in program.reachable() if isinstance(term.op, Opaque)]
    assert all(depthwise_taps(call) is None for call in calls)


def test_kernels_of_many_entries_are_left_to_the_library() -> None:
    arrays = normal(1, 40, 40, 2), normal(12, 12, 1, 2)
    assert SHIFTED not in source(depthwise, arrays, SHIFTS)
    assert SHIFTED not in source(depthwise, (IMAGE_ARRAY, KERNEL_ARRAY), CodegenOptions())


IMAGE_ARRAY, KERNEL_ARRAY = normal(*IMAGE), normal(*KERNEL)


def test_who_shifts_images() -> None:
    assert codegen_options(CPU, exact=False).shifted_taps == CPU.shifted_taps > 0
    assert codegen_options(CPU, exact=True).shifted_taps == GPU.shifted_taps == TPU.shifted_taps == 0


@pytest.mark.parametrize("read", [lambda y: y, jnp.sum, lambda y: jnp.sum(y**2, (1, 2)), jax.nn.standardize])
def test_no_shifted_image_is_stored(read: Callable[[Any], Any]) -> None:
    """XLA's library of reductions takes such a sum apart, and stores all that it is of."""

    def fn(x: Any, y: Any) -> Any:
        return read(depthwise(x, y))

    arrays = jnp.asarray(normal(1, 64, 64, 16)), jnp.asarray(normal(5, 5, 1, 16))
    optimized = eqsat.optimize(fn, budget="100MB")
    plan = optimized.plan(*arrays)
    assert SHIFTED in plan.source
    assert plan.peak_bytes <= 5 * arrays[0].nbytes
    for found, wanted in zip(jax.tree.leaves(optimized(*arrays)), jax.tree.leaves(fn(*arrays)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-4)


def test_its_time_is_that_of_shifted_images() -> None:
    program, _ = lowered(depthwise, normal(1, 64, 64, 16), normal(5, 5, 1, 16))
    library, ours = (as_written(program, CPU, library).predicted_seconds for library in (True, False))
    assert ours < 0.1 * library
    assert CostModel(CPU, {}, library=True).library


def test_the_source_has_derivatives() -> None:
    text = source(depthwise, (IMAGE_ARRAY, KERNEL_ARRAY), SHIFTS)
    namespace: dict[str, Any] = {}
    exec(text, namespace)

    def loss(function: Any, x: Any, y: Any) -> Any:
        return jnp.sum(jnp.sin(function(x, y)))

    ours = jax.grad(lambda x, y: loss(lambda *args: namespace["optimized"](*args)[0], x, y), (0, 1))
    theirs = jax.grad(lambda x, y: loss(depthwise, x, y), (0, 1))
    for found, wanted in zip(ours(IMAGE_ARRAY, KERNEL_ARRAY), theirs(IMAGE_ARRAY, KERNEL_ARRAY), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
