"""Programs are compiled for the vectors with which they are faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.backend import certificate, vectors
from eqsat.backend.certificate import certify
from eqsat.backend.vectors import saved
from eqsat.targets import cpu
from eqsat.targets.catalogue import find_target
from eqsat.targets.cpu import WIDTH
from tests.stages import normal

N = 64
VECTOR = jax.ShapeDtypeStruct((N,), np.float32)


def saved_by(function: Callable[..., Any], dtype: str = "float32") -> float:
    with jax.enable_x64(True):
        return saved(jax.make_jaxpr(function)(jax.ShapeDtypeStruct((N,), dtype)).jaxpr)


def test_exponentials_are_faster_in_proportion_to_their_entries() -> None:
    once = saved_by(jnp.exp)
    assert once > 0
    assert saved_by(lambda x: jnp.exp(x[:, None] - x)) == pytest.approx(N * once)
    assert saved_by(jnp.exp, "float64") > once


def test_estimates_of_roots_are_slower_in_single_precision_only() -> None:
    assert saved_by(lax.rsqrt) < 0 < saved_by(lax.rsqrt, "float64")
    assert saved_by(lambda x: lax.rsqrt(jnp.exp(x))) > 0, "the exponential gains more"


@pytest.mark.parametrize(
    "function",
    [lambda x: 2 * x + 1, lambda x: x @ x, jnp.sqrt, jnp.log, jnp.sin, jnp.cumsum],
)
def test_arithmetic_does_not_mind(function: Callable[..., Any]) -> None:
    assert saved_by(function) == 0


def test_loops_count_as_often_as_they_turn() -> None:
    once = saved_by(jnp.exp)
    assert saved_by(lambda x: lax.fori_loop(0, 7, lambda _, y: jnp.exp(y), x)) == pytest.approx(7 * once)
    assert saved_by(lambda x: lax.while_loop(lambda y: y[0] < 9, jnp.exp, x)) == pytest.approx(once)
    both = saved_by(lambda x: lax.cond(x[0] < 0, jnp.exp, lambda y: jnp.exp(y + 1), x))
    assert both == pytest.approx(2 * once)


UNARY = (
    "abs cbrt ceil cos cosh erf erfc exp exp2 expm1 floor is_finite log log1p logistic neg round rsqrt sign"
    " sin sinh sqrt square tan tanh"
)
BINARY = "add div eq ge gt le lt max min mul ne nextafter pow rem sub"
INTEGERS = (
    "bitwise_and bitwise_or bitwise_xor bitwise_not shift_left shift_right_arithmetic shift_right_logical"
)
ALONG = "cumlogsumexp cummax cummin cumprod cumsum"
INTO = "add max min mul set subtract"


def everything(x: Any, y: Any, n: Any) -> list[Any]:
    """Elementwise functions and reductions of positive numbers and of integers, alone and in company."""
    found = [getattr(lax, name)(x) for name in UNARY.split()]
    found += [lax.erf_inv(x / 3), lax.reduce_precision(x, exponent_bits=5, mantissa_bits=6)]
    found += [getattr(lax, name)(x, y) for name in BINARY.split()]
    found += [getattr(lax, name)(*([n] if name.endswith("not") else [n, n % 5])) for name in INTEGERS.split()]
    found += [lax.argmax(x, 1, np.int32), lax.argmin(x, 0, np.int32), lax.integer_pow(x, 3)]
    found += [getattr(lax, name)(x, 1) for name in ALONG.split()]
    found += [lax.sort(x), *lax.top_k(x, 3), jnp.where(x > y, x, 2 * y), jnp.clip(x, y, 2)]
    found += [getattr(y.at[:, n[0] % 9], name)(x) for name in INTO.split()]
    found += [lax.reduce_xor(n, (1,)), y[n[:, 0] % 3], x.sum(1), x.max(0), x.min(1), x[:, :9].prod(1)]
    found += [jnp.any(x > y, 1), jnp.all(x > y, 0), x @ y.T]
    found += [x.astype(n.dtype), n.astype(x.dtype), lax.bitcast_convert_type(x, n.dtype)]
    found += [x.astype(dtype) for dtype in ("float32", "float64", "bfloat16", "float16", "int8", "bool")]
    together = [1.5 * value + y for value in found if value.dtype == x.dtype and value.shape == x.shape]
    return [*found, *together, sum(jnp.exp(-value) @ jnp.ones_like(y[0]) for value in together)]


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="of CPUs")
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        ("float32", 2e-6),
        pytest.param("float64", 1e-13, marks=pytest.mark.nightly),
        pytest.param("bfloat16", 2e-2, marks=pytest.mark.nightly),
    ],
)
def test_what_is_compiled_for_wide_vectors_is_right(dtype: str, tolerance: float) -> None:
    """Where the processor has no such vectors, LLVM compiles them as pairs of shorter ones."""
    with jax.enable_x64(True):
        random = np.random.default_rng(0)
        x, y = (jnp.asarray(random.uniform(0.1, 2, (3, 131)), dtype) for _ in range(2))
        n = jnp.asarray(random.integers(0, 99, (3, 131)), f"int{8 * x.dtype.itemsize}")
        traced = jax.jit(everything).trace(x, y, n)
        assert saved(traced.jaxpr.jaxpr) > 0, "all of them are said to be right"
        wide, plain = (
            traced.lower().compile(compiler_options={WIDTH: width})(x, y, n) for width in (512, 256)
        )
        for one, other in zip(wide, plain, strict=True):
            one, other = (np.asarray(value).astype("float64") for value in (one, other))
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def test_arc_tangents_are_compiled_as_ever() -> None:
    """For 512 bits, jaxlib 0.10 makes them from half of the numbers."""
    assert saved_by(lambda x: jnp.exp(jnp.arctan(x))) < 0
    assert saved_by(lambda x: jnp.abs(jnp.exp(1j * x))) < 0, "nothing is known of complex numbers"
    x = normal(1000)
    found = certify(lambda x: [jnp.exp(jnp.arctan(x))], [jax.ShapeDtypeStruct(x.shape, x.dtype)])(x)
    np.testing.assert_allclose(found[0], np.exp(np.arctan(x)), rtol=1e-5)


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """All options that programs are compiled with, where the one for wide vectors is not known."""
    tried: list[dict[str, Any]] = []
    compiled = jax.stages.Lowered.compile

    def watched(self: Any, compiler_options: Any = None) -> Any:
        tried.append(compiler_options)
        return compiled(self, compiler_options=compiler_options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", watched)
    monkeypatch.setattr(certificate, "has_wide", lambda: True)
    profile = replace(cpu.COMPILER, wide={"xla_cpu_no_such_width": 512})
    target = replace(find_target("cpu"), compiler=profile)
    monkeypatch.setattr(certificate, "default_target", lambda: target)
    return tried


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="of CPUs")
def test_wide_vectors_are_asked_for_where_they_pay_and_a_compiler_may_not_know_them(
    unknown: list[dict[str, Any]],
) -> None:
    x = normal(N)
    found = certify(lambda x: [jnp.exp(x)], [VECTOR])(x)
    assert [("xla_cpu_no_such_width" in options) for options in unknown] == [True, False]
    np.testing.assert_allclose(found[0], np.exp(x), rtol=1e-5)
    unknown.clear()
    certify(lambda x: [lax.rsqrt(x)], [VECTOR])
    assert [("xla_cpu_no_such_width" in options) for options in unknown] == [False]


def test_the_compiler_knows_the_option() -> None:
    """A later one may not: then this module is to go."""
    if jax.default_backend() != "cpu":
        pytest.skip("of CPUs")
    jax.jit(jnp.exp).lower(VECTOR).compile(compiler_options={WIDTH: 512})


def test_a_width_that_the_user_has_set_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors.has_wide.cache_clear()
    monkeypatch.setenv("XLA_FLAGS", f"--{WIDTH}=128")
    assert not vectors.has_wide()
    vectors.has_wide.cache_clear()
