"""What the certificate says a program needs is what XLA gave it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.backend.certificate import Certified, certify, compiler_options
from eqsat.targets.compiler_profile import HONEST, OWN, UNORDERED
from tests.stages import normal

N = 500
VECTOR = jax.ShapeDtypeStruct((N,), np.float32)
MATRIX = jax.ShapeDtypeStruct((N, N), np.float32)


def test_arguments_outputs_and_temporaries_are_counted() -> None:
    certified = certify(lambda x: [jnp.exp(x[:, None] - x) @ x], [VECTOR])
    assert certified.arguments == certified.outputs == 4 * N
    assert certified.temporaries >= 4 * N * N, "the matrix is an operand of a product"
    assert certified.peak == certified.arguments + certified.outputs + certified.temporaries


def test_fused_values_are_not() -> None:
    certified = certify(lambda x: [jnp.exp(x) * 2 + jnp.sin(x)], [MATRIX])
    assert certified.peak < 2.1 * 4 * N * N


def test_arguments_that_nothing_uses_are_counted() -> None:
    certified = certify(lambda x, y: [y + 1], [MATRIX, VECTOR])
    assert certified.arguments == 4 * N * N + 4 * N


def test_big_values_one_after_the_other_share_memory() -> None:
    """By default XLA keeps both at once."""
    certified = certify(lambda x: [jnp.exp(x[:, None] - x) @ x + jnp.cos(x[:, None] * x) @ x], [VECTOR])
    assert certified.temporaries < 1.5 * 4 * N * N


def test_honest_options_count_what_fusions_hide() -> None:
    """Attention by default: XLA's own fusions keep the scores in scratch that its analysis does not see."""

    def attention(q: Any, k: Any, v: Any) -> list[Any]:
        return [jax.nn.softmax(q @ k.T) @ v]

    shapes = [jax.ShapeDtypeStruct((N, 16), np.float32)] * 3
    assert certify(attention, shapes).temporaries >= 4 * N * N


def variance(x: Any) -> list[Any]:
    return [jnp.var(jnp.exp(x), axis=1)]


def test_values_that_fusions_hide_are_counted_as_scratch() -> None:
    """XLA's own options fuse a variance into one op, whose squares are nowhere in its analysis."""
    own = certify(variance, [MATRIX], OWN)
    assert own.options == OWN
    assert own.scratch >= 4 * N * N
    assert own.peak == own.arguments + own.outputs + own.temporaries + own.scratch
    x = np.asarray(normal(N, N))
    np.testing.assert_allclose(own(x)[0], variance(x)[0], rtol=2e-5)


def test_aliased_bytes_count_once() -> None:
    assert Certified(None, 100, 100, 10, 100).peak == 110


def test_scratch_is_part_of_the_peak() -> None:
    assert Certified(None, 100, 100, 10, 100, 7).peak == 117


def test_the_certified_program_is_what_runs() -> None:
    certified = certify(lambda x: (x + 1, x.sum()), [VECTOR])
    x = normal(N)
    total = certified(x)
    assert isinstance(total, list)
    np.testing.assert_array_equal(total[0], x + 1)
    with pytest.raises(TypeError, match="called with"):
        certified(x[:3])


def test_options_are_for_this_platform_and_a_copy() -> None:
    options = compiler_options()
    assert options, "tests run on CPU"
    options.clear()
    assert compiler_options()


@pytest.mark.parametrize("shape", [(), (0,), (0, 5), (1,)])
def test_small_and_empty_programs(shape: tuple[int, ...]) -> None:
    certified = certify(lambda x: [x * 2], [jax.ShapeDtypeStruct(shape, np.float32)])
    assert certified(np.ones(shape, np.float32))[0].shape == shape
    assert certify(lambda: [], []).peak >= 0


def attention_gradient(q: Any, k: Any, v: Any) -> list[Any]:
    return list(
        jax.grad(lambda *qkv: jnp.sum(jax.nn.softmax(qkv[0] @ qkv[1].T) @ qkv[2]), (0, 1, 2))(q, k, v)
    )


def chunked(x: Any) -> list[Any]:
    return [jax.lax.map(lambda row: jnp.sort(jnp.exp(row - x))[:10] @ x[:10], x)]


def messages(x: Any, edges: Any) -> list[Any]:
    """Along the edges of a graph; of gathers and scatters, XLA makes other loops in a hurry."""
    weights = jax.nn.leaky_relu(x[edges[0]].sum(-1) + x[edges[1]].sum(-1))
    largest = jnp.full(x.shape[:1], -jnp.inf).at[edges[1]].max(weights)
    weights = jnp.exp(weights - largest[edges[1]])
    weights = weights / jnp.zeros(x.shape[:1]).at[edges[1]].add(weights)[edges[1]]
    return [jnp.zeros_like(x).at[edges[1]].add(weights[:, None] * x[edges[0]])]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("options", [HONEST, OWN])
@pytest.mark.parametrize(
    ("function", "avals"),
    [
        (variance, [MATRIX]),
        (messages, [MATRIX, jax.ShapeDtypeStruct((2, 20 * N), np.int32)]),
        (lambda x: [jnp.linalg.cholesky(x @ x.T + jnp.eye(N)), jnp.sin(x) @ x], [MATRIX]),
        (attention_gradient, [jax.ShapeDtypeStruct((N, 16), np.float32)] * 3),
        (chunked, [VECTOR]),
    ],
)
def test_a_draft_needs_what_the_program_compiled_in_full_needs(
    function: Any, avals: list[Any], options: str
) -> None:
    draft = certify(function, avals, options, draft=True)
    full = certify(function, avals, options)
    assert draft.draft == (jax.default_backend() == "cpu")
    assert not full.draft
    assert full.doubt == 0
    assert not draft.in_doubt or function is messages
    assert abs(draft.temporaries - full.temporaries) <= draft.doubt * draft.in_doubt
    assert replace(draft, executable=None, draft=False, doubt=0, temporaries=full.temporaries) == replace(
        full, executable=None
    )
    close = certify(function, avals, options, draft=True, closely=True)
    assert replace(close, executable=None, draft=False) == replace(full, executable=None)
    expected = certify(function, avals, options, draft=True, expected=full.temporaries)
    assert not expected.in_doubt


@pytest.mark.parametrize("options", [HONEST, UNORDERED])
def test_what_is_rounded_is_rounded_wherever_it_is_computed(options: str) -> None:
    """A product is stored, and computed once more in the sum of its differences from what was stored."""
    x = jnp.linspace(-3, 3, N * 20).reshape(N, 20).astype(jnp.bfloat16)
    factor = jnp.bfloat16(1.7)

    def differences(x: Any, stored: Any) -> list[Any]:
        return [jnp.sum(jnp.abs((x * factor).astype(np.float32) - stored), 1)]

    stored = (x * factor).astype(np.float32)
    (result,) = certify(differences, [x, stored], options)(x, stored)
    np.testing.assert_array_equal(result, 0)
