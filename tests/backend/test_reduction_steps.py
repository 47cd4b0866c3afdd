"""Long reductions in two steps: the same results, and little between the steps."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import eqsat
from eqsat.backend.codegen_options import CodegenOptions
from eqsat.backend.layout import Emitted
from eqsat.backend.reduction_steps import EXTREMES
from eqsat.backend.reductions import reduction_text
from eqsat.ir import reduction_steps
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Leaf, Reduce
from eqsat.ir.reduction_steps import part_length
from eqsat.ir.term import Term, Terms

ROWS, LONG, SHORT = Axis(0, 30), Axis(1, 600), Axis(2, 3)
STEPS = CodegenOptions(split_reduction=200, split_columns=90, few_columns=4)
NUMBERS = [0.0, -0.0, 1.0, -1.0, 2.5, math.inf, -math.inf, math.nan]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction_steps, "LEAST_SAVED", 1)


def written(kind: str, axes: set[Axis], order: tuple[Axis, ...]) -> Emitted:
    operand: Term = Terms().make(Leaf(0, order, "float32"))
    op = Reduce(kind, frozenset(axes), "float32")
    return reduction_text(op, operand, Emitted("x", order), STEPS, {}, {})


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("axes", [{LONG}, {LONG, SHORT}])
@pytest.mark.parametrize("order", [(ROWS, LONG, SHORT), (ROWS, SHORT, LONG), (LONG, SHORT, ROWS)])
def test_two_steps_are_the_reduction(kind: str, axes: set[Axis], order: tuple[Axis, ...]) -> None:
    x = np.random.default_rng(0).uniform(0.99, 1.01, [axis.size for axis in order]).astype(np.float32)
    found = written(kind, axes, order)
    assert "optimization_barrier" in found.text
    value = eval(found.text, {"jnp": jnp, "lax": lax, "x": jnp.asarray(x)})
    dimensions = tuple(place for place, axis in enumerate(order) if axis in axes)
    np.testing.assert_allclose(value, getattr(np, kind)(x.astype(np.float64), axis=dimensions), rtol=1e-3)
    assert found.order == tuple(axis for axis in order if axis not in axes)


def test_rows_have_longer_parts_than_columns() -> None:
    assert "(30, 3, 200)" in written("sum", {LONG}, (ROWS, LONG)).text
    assert "(8, 75, 30)" in written("sum", {LONG}, (LONG, ROWS)).text
    assert "barrier" not in written("sum", {ROWS}, (LONG, ROWS)).text, "short"


def test_few_columns_are_reduced_as_rows() -> None:
    """A GPU reduces a column per thread: with three, most threads of a warp would idle."""
    assert "(30, 3, 8, 75)" in written("sum", {LONG}, (ROWS, LONG, SHORT)).text
    assert "transpose" not in written("sum", {LONG}, (SHORT, LONG, ROWS)).text


def test_parts_divide_the_length_or_are_left_to_the_library() -> None:
    assert part_length(100_000, 16_384, 1_000_000) == 12_500
    assert part_length(100_003, 16_384, 1_000_000) is None, "a prime"
    assert part_length(16_000, 16_384, 1_000_000) is None, "one step"
    assert part_length(30_000, 16_384, 1_000_000, divisor=10_000) == 10_000, "chunks of 20,000 and 10,000"


def test_few_rows_are_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert part_length(100_000, 16_384, 4) is None


def extreme(kind: str, a: Any, axis: int, length: int) -> Any:
    """What is emitted for argmin and argmax in parts of that length."""
    namespace: dict[str, Any] = {"jnp": jnp, "lax": lax}
    exec(EXTREMES, namespace)
    shape = (*a.shape[:axis], -1, length, *a.shape[axis + 1 :])
    better = lax.gt if kind == "argmax" else lax.lt
    return jax.jit(lambda a: namespace["arg_in_parts"](better, jnp.reshape(a, shape), axis, jnp.int32))(a)


@settings(max_examples=40)
@given(
    st.sampled_from(["argmin", "argmax"]),
    st.sampled_from(["float32", "float16", "bfloat16", "int8", "uint8", "int32"]),
    st.integers(0, 1),
    st.lists(st.sampled_from(NUMBERS), min_size=24, max_size=24),
)
def test_the_first_of_the_extremes_is_found_whatever_the_entries(
    kind: str, dtype: str, axis: int, entries: list[float]
) -> None:
    integers = "int" in dtype
    numbers = np.array(entries)
    a = jnp.asarray(np.nan_to_num(numbers, posinf=2, neginf=1) if integers else numbers, dtype)
    a = a.reshape((2, 12) if axis else (12, 2))
    found = extreme(kind, a, axis, 3)
    # NumPy takes the first NaN, as JAX says that it does.
    wanted = getattr(np, kind)(np.asarray(a).astype(np.float32), axis=axis)
    np.testing.assert_array_equal(found, wanted)


def test_places_may_be_the_largest_numbers_of_their_dtype() -> None:
    namespace: dict[str, Any] = {"jnp": jnp, "lax": lax}
    exec(EXTREMES, namespace)
    rows = jnp.zeros((1, 8, 16), "int32").at[0, 7, 15].set(-1)
    assert int(namespace["arg_in_parts"](lax.lt, rows, 1, jnp.int8)[0]) == 127


def test_the_extremes_of_the_least_numbers_are_found() -> None:
    for kind, number in (("argmin", np.inf), ("argmax", -np.inf)):
        np.testing.assert_array_equal(extreme(kind, jnp.full((2, 12), number), 1, 4), [0, 0])
    assert int(extreme("argmin", jnp.full((1, 12), 127, "int8"), 1, 4)[0]) == 0


def kernel(x: Any, y: Any, v: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1)) @ v


def nearest(x: Any, y: Any, v: Any) -> Any:
    return jnp.argmin(jnp.sum((x[:, None] - y) ** 2, -1), 1), jnp.max(x @ y.T, 1)


def test_sums_keep_the_order_that_xla_gives_them_if_they_must() -> None:
    def density(x: Any, y: Any) -> Any:
        return jnp.sum(jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1)), 1)

    shapes = [jax.ShapeDtypeStruct((100_000, 3), jnp.float32)] * 2
    for accuracy in ("exact", "reassociates"):
        optimized = eqsat.optimize(density, budget="90MB", target="h100", accuracy=accuracy)
        divided = "barrier(lax.reduce_sum" in optimized.plan(*shapes).source
        assert divided == (accuracy != "exact")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("function", [kernel, nearest])
@pytest.mark.parametrize("target", ["h100", "v100"])
def test_long_rows_need_no_loop_in_little_memory(
    function: Any, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As written, a hundred thousand rows of 200 or 250 parts are stored."""
    monkeypatch.undo()
    n = 40_000 if function is nearest else 100_000
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((n, 3), (n, 3), (n,))]
    plan = eqsat.optimize(function, budget="20MB", target=target).plan(*shapes)
    assert not plan.loops
    assert plan.peak_bytes < 20_000_000 < plan.original_peak_bytes
    assert plan.predicted_peak_bytes == pytest.approx(plan.peak_bytes, rel=0.15)
    scope: dict[str, Any] = {}
    exec(plan.source, scope)
    assert "barrier" in plan.source or "arg_in_parts" in plan.source


@pytest.mark.parametrize("kind", ["argmin", "argmax"])
def test_places_in_few_long_columns_are_found_where_the_parts_are(kind: str) -> None:
    """The columns are transposed, so the parts are not where the axis was."""

    def places(x: Any, y: Any) -> Any:
        return getattr(jnp, kind)((x[:, None] - y) ** 2, 1)

    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(n, 3)).astype(np.float32) for n in (40, 20_000))
    shapes = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in (x, y)]
    plan = eqsat.optimize(places, budget="4MB", target="h100").plan(*shapes)
    assert "arg_in_parts(lax" in plan.source
    assert "transpose" in plan.source
    scope: dict[str, Any] = {}
    exec(plan.source, scope)
    np.testing.assert_array_equal(scope["optimized"](x, y)[0], jax.jit(places)(x, y))
