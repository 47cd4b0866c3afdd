"""Programs are compiled for the vectors with which they are faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.backend import certificate, vectors
from eqsat.backend.certificate import certify
from eqsat.backend.vectors import WIDTH, saved
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
    [lambda x: 2 * x + 1, lambda x: x @ x, jnp.sqrt, jnp.log, jnp.sin, lambda x: jnp.cumsum(x)],
)
def test_arithmetic_does_not_mind(function: Callable[..., Any]) -> None:
    assert saved_by(function) == 0


def test_loops_count_as_often_as_they_turn() -> None:
    once = saved_by(jnp.exp)
    assert saved_by(lambda x: lax.fori_loop(0, 7, lambda _, y: jnp.exp(y), x)) == pytest.approx(7 * once)
    assert saved_by(lambda x: lax.while_loop(lambda y: y[0] < 9, jnp.exp, x)) == pytest.approx(once)
    both = saved_by(lambda x: lax.cond(x[0] < 0, jnp.exp, lambda y: jnp.exp(y + 1), x))
    assert both == pytest.approx(2 * once)


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
    monkeypatch.setitem(certificate.WIDE, "cpu", {"xla_cpu_no_such_width": 512})
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
