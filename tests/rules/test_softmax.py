"""Softmax, logsumexp and attention: their names, their shifts, and in one pass over a long axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from tests.rules.proving import can_stream, cannot_prove, cannot_stream, fires, prove
from tests.stages import normal

ARRAYS = "x: i k   c: i   d: k   s:   v: k j   m: bool i k   z: i j k"
SOFTMAX = "max-with-lowest softmax"
AS_WRITTEN = (
    "max-with-lowest absolute-value-of-nonnegative nonnegative-exponential nonnegative-sum logsumexp-in-full"
)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        (
            "max-with-lowest",
            "softmax(x)",
            "(lambda e: e / e.sum(1, keepdims=True))(exp(x - x.max(1, keepdims=True)))",
        ),
        (
            f"{SOFTMAX} softmax-without-maximum",
            "softmax(x)",
            "(lambda e: e / e.sum(1, keepdims=True))(exp(x))",
        ),
        (f"{SOFTMAX} softmax-without-maximum", "softmax(x, 0)", "exp(x) / exp(x).sum(0)"),
        (
            "logsumexp absolute-value-of-nonnegative nonnegative-exponential nonnegative-sum"
            " logsumexp-without-maximum",
            "jax.nn.logsumexp(x, 1)",
            "log(exp(x).sum(1))",
        ),
        (
            f"{SOFTMAX} logsumexp-without-maximum softmax-by-logsumexp",
            "softmax(x)",
            "exp(x - log(exp(x).sum(1, keepdims=True)))",
        ),
        (f"{SOFTMAX} logarithm-of-softmax", "log(softmax(x))", "jax.nn.log_softmax(x)"),
        (
            "log-softmax logsumexp-without-maximum",
            "jax.nn.log_softmax(x)",
            "x - log(exp(x).sum(1, keepdims=True))",
        ),
        (
            f"{SOFTMAX} softmax-of-logarithm nonnegative-square",
            "softmax(log(x ** 2))",
            "x ** 2 / (x ** 2).sum(1, keepdims=True)",
        ),
        (f"{SOFTMAX} softmax-of-shifted", "softmax(x + c[:, None])", "softmax(x)"),
        (f"{SOFTMAX} softmax-of-shifted", "softmax(s + x)", "softmax(x)"),
        (f"{SOFTMAX} softmax-of-decreased", "softmax(x - c[:, None])", "softmax(x)"),
        (
            "logsumexp-without-maximum logsumexp-of-shifted",
            "log(exp(x + s).sum(1))",
            "log(exp(x).sum(1)) + s",
        ),
        (
            "logsumexp-without-maximum logsumexp-of-decreased",
            "log(exp(x - s).sum(1))",
            "log(exp(x).sum(1)) - s",
        ),
        (
            "logsumexp-without-maximum logsumexp-of-complement",
            "log(exp(c[:, None] - x).sum(1))",
            "log(exp(-x).sum(1)) + c",
        ),
        (
            f"{AS_WRITTEN} logsumexp-of-outer-sum",
            "jax.nn.logsumexp(c[:, None] + d)",
            "jax.nn.logsumexp(c) + jax.nn.logsumexp(d)",
        ),
        (
            f"{AS_WRITTEN} logsumexp-of-shifted-in-full",
            "jax.scipy.special.logsumexp(c[:, None] + d, axis=1)",
            "jax.nn.logsumexp(d) + c",
        ),
        (f"{SOFTMAX} argmax-of-softmax", "argmax(softmax(x), 1)", "argmax(x, 1)"),
    ],
)
def test_identities(rules: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rules)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        (f"{SOFTMAX} softmax-without-maximum", "softmax(x, 0)", "exp(x) / exp(x).sum(1, keepdims=True)"),
        (f"{SOFTMAX} softmax-without-maximum", "softmax(x)", "exp(x) / exp(2 * x).sum(1, keepdims=True)"),
        (f"{SOFTMAX} softmax-of-shifted", "softmax(x + d)", "softmax(x)"),
        (f"{SOFTMAX} softmax-of-decreased", "softmax(s - x)", "softmax(x)"),
        (f"{SOFTMAX} softmax-of-logarithm", "softmax(log(x))", "x / x.sum(1, keepdims=True)"),
        (
            "logsumexp-without-maximum logsumexp-of-shifted",
            "log(exp(x + d).sum(1))",
            "log(exp(x).sum(1)) + d[0]",
        ),
        ("logsumexp-without-maximum", "log(exp(x).max(1))", "log(exp(x).sum(1))"),
        (
            f"{AS_WRITTEN} logsumexp-of-outer-sum",
            "jax.nn.logsumexp(x + d)",
            "jax.nn.logsumexp(x) + jax.nn.logsumexp(d)",
        ),
        (
            f"{AS_WRITTEN} logsumexp-of-shifted-in-full",
            "jax.nn.logsumexp(x + d, axis=1)",
            "jax.nn.logsumexp(x, axis=1) + jax.nn.logsumexp(d)",
        ),
        (f"{SOFTMAX} argmax-of-softmax", "argmax(softmax(x), 0)", "argmax(x, 0)"),
    ],
)
def test_what_is_not_so(rules: str, left: str, right: str) -> None:
    cannot_prove(left, right, ARRAYS, rules)


def test_logsumexp_is_by_a_number_that_every_entry_has_in_common() -> None:
    assert fires("logsumexp-without-maximum", "log(sum(exp(x), 1))", ARRAYS)
    assert fires("logsumexp", "log(sum(exp(x - c[:, None]), 1)) + c", ARRAYS)
    assert not fires("logsumexp", "log(sum(exp(x - d), 1)) + c", ARRAYS)
    assert not fires("logsumexp", "log(sum(exp(x - c[:, None]), 1)) + s", ARRAYS)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("axis", [None, 1])
def test_logsumexp_of_an_outer_sum_is_that_of_jax_whatever_the_data(axis: int | None) -> None:
    """By a guard in the class that is the default: no table where the data allows it."""

    def total(x: Any, y: Any) -> Any:
        return jax.nn.logsumexp(x[:, None] + y, axis=axis)

    x, y = normal(3_000), normal(4_000, seed=1)
    optimized = eqsat.optimize(total, budget="30MB")
    name = "logsumexp-of-outer-sum" if axis is None else "logsumexp-of-shifted-in-full"
    assert optimized.plan(x, y).rules_fired[name] == 1
    masked, infinite = np.where(x > 0, -np.inf, x), np.where(x > 2, np.inf, x)
    nothing, lost = np.full_like(x, -np.inf), np.where(x > 2, np.nan, x)
    cases = [(x, y), (x - 1e6, y + 1e6), (1e37 * x, y - 3e38), (masked, y), (nothing, y), (nothing, nothing)]
    cases += [(infinite, y), (infinite, np.where(y > 0, -np.inf, y)), (lost, y), (masked, masked)]
    for one, other in cases:
        other = np.resize(other, y.shape).astype(np.float32)
        one = one.astype(np.float32)
        np.testing.assert_allclose(optimized(one, other), jax.jit(total)(one, other), rtol=2e-6)


# ------------------------------------------------------------------------------------ in one pass

SPLIT = "split-exponentials split-weighted-exponentials chunk-contraction"
ATTENTION = f"max-with-lowest pull-divisor-from-dot {SPLIT}"
AVERAGE = "max-with-lowest split-softmax-average chunk-contraction"
MASKED = "max-with-lowest split-masked-softmax-average chunk-contraction"
STREAMED = "a: i l   b: n l   v: n j   m: bool i n   w: n"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("rules", "expression"),
    [
        (ATTENTION, "softmax(a @ b.T) @ v"),
        (AVERAGE, "softmax(a @ b.T) @ v"),
        (f"{AVERAGE} chunk-map", "softmax(where(m, a @ b.T, -inf)) @ v"),
        (f"{ATTENTION} chunk-map", "softmax(where(m, a @ b.T, -inf)) @ v"),
        (MASKED, "softmax(a @ b.T, where=m) @ v"),
        (f"{ATTENTION} chunk-map", "softmax(where(arange(5)[:, None] >= arange(11), a @ b.T, -1e30)) @ v"),
        # the maximum and the sum by hand; a user's own way to say so
        (
            SPLIT,
            "(lambda e: (e @ v) / e.sum(1, keepdims=True))"
            "((lambda t: exp(t - t.max(1, keepdims=True)))(a @ b.T))",
        ),
        (
            "split-safe-exponentials max-with-lowest split-unrounded chunk-contraction",
            "jax.nn.logsumexp(a @ b.T, 1)",
        ),
        (
            "split-weighted-safe-exponentials sum-of-product max-with-lowest split-unrounded"
            " chunk-contraction chunk-map",
            "jax.nn.logsumexp(a @ b.T, 1, b=w ** 2)",
        ),
        ("logsumexp-without-maximum split-logsumexp chunk-contraction", "log(sum(exp(a @ b.T), 1))"),
    ],
)
def test_in_one_pass(rules: str, expression: str) -> None:
    can_stream(expression, STREAMED, "n", rules, one_pass=True)


def test_another_divisor_is_no_average() -> None:
    expression = (
        "(lambda e: (e / e.sum(1, keepdims=True) ** 2) @ v)(exp(a @ b.T - (a @ b.T).max(1, keepdims=True)))"
    )
    rules = f"{AVERAGE} split-reduction split-unrounded split-contraction"
    cannot_stream(expression, STREAMED, "n", rules, one_pass=True)


def test_what_is_masked_after_a_softmax_is_what_was_masked_in_it() -> None:
    for mask in ("m", "m & (a[:, :1] > 0)"):
        expression = f"where({mask}, softmax(a @ b.T), 0) @ v"
        cannot_stream(expression, STREAMED, "n", f"{MASKED} split-reduction split-contraction", one_pass=True)


def test_a_maximum_of_something_else_is_another_pass() -> None:
    expression = "(lambda t: (exp(t - t.max(1, keepdims=True) / 2) @ v))(a @ b.T)"
    rules = f"{ATTENTION} split-reduction split-unrounded split-contraction"
    cannot_stream(expression, STREAMED, "n", rules, one_pass=True)


Attention = Callable[..., jax.Array]
LONG = 5003


def scores(q: jax.Array, k: jax.Array) -> jax.Array:
    return jnp.einsum("hid,hjd->hij", q, k) / 4


ATTENTIONS: dict[str, Attention] = {
    "plain": lambda q, k, v, m: jax.nn.softmax(scores(q, k)) @ v,
    "masked": lambda q, k, v, m: jax.nn.softmax(jnp.where(m, scores(q, k), -jnp.inf)) @ v,
    "masked twice": lambda q, k, v, m: jax.nn.softmax(scores(q, k), where=m) @ v,
    "causal": lambda q, k, v, m: (
        jax.nn.softmax(jnp.where(100 * jnp.arange(16)[:, None] >= jnp.arange(LONG), scores(q, k), -jnp.inf))
        @ v
    ),
    "of JAX": lambda q, k, v, m: jax.nn.dot_product_attention(
        *(jnp.moveaxis(x, 0, 1)[None] for x in (q, k, v)), is_causal=True
    ),
    "logsumexp": lambda q, k, v, m: jax.nn.logsumexp(scores(q, k), -1),
    "cross entropy": lambda q, k, v, m: (
        -(jax.nn.one_hot(jnp.arange(16), LONG) * jax.nn.log_softmax(scores(q, k))).sum(-1).mean()
    ),
}


def heads(masked: slice) -> list[Any]:
    """Queries, keys and values of two heads, and which keys each query may see: none of the `masked` ones."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, n, 16)).astype(np.float32) for n in (16, LONG, LONG))
    mask = rng.random((2, 16, LONG)) < 0.5
    mask[:, :, masked] = False
    mask[0, 3] = False  # a query that sees nothing
    return [q, k, v, mask]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_is_one_loop_over_the_keys(name: str) -> None:
    attention, args = ATTENTIONS[name], heads(slice(0, 2000))
    fixed = sum(x.nbytes for x in args) + 8_000
    small = eqsat.optimize(attention, budget=fixed + 350_000)
    plan = small.plan(*args)
    assert plan.guard is None
    assert plan.source.count("lax.scan") == 1
    assert plan.peak_bytes - fixed < 350_000 < plan.original_peak_bytes - fixed
    np.testing.assert_allclose(small(*args), jax.jit(attention)(*args), rtol=2e-4, atol=2e-5)


def test_rows_without_a_number_come_out_as_jax_has_them() -> None:
    """0 where all is masked, and NaN where all that is not is -inf, or anything is NaN or inf."""
    q, k, v, mask = heads(slice(0, 2000))
    q[0, 1], q[0, 2], q[0, 4], k[0, 4000] = 0, np.nan, np.inf, 1e38
    mask[0, 5], mask[0, 5, 4000] = False, True
    q[0, 5], q[0, 6] = -3e38, 1e30
    args = (q, k, v, mask)
    fixed = sum(x.nbytes for x in args) + 8_000
    masked = ATTENTIONS["masked twice"]
    small = eqsat.optimize(masked, budget=fixed + 350_000)
    assert "split-masked-softmax-average" in small.plan(*args).rules_fired
    found, wanted = small(*args), np.asarray(jax.jit(masked)(*args))
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)
    assert not wanted[0, 3].any()
    assert np.isnan(wanted[0, [2, 4, 5]]).all()


def test_averages_of_the_largest_values_do_not_overflow() -> None:
    # Weights of a chunk add up to a little more than 1 in half of the rows; its own weight is small.
    q, k, v, mask = heads(slice(0, 0))
    q, largest = np.abs(q), np.finfo(np.float32).max
    k[:, :2500], v[:, :2500] = -8 + 0.1 * k[:, :2500], -largest
    args = (q, k, v, mask)
    fixed = sum(x.nbytes for x in args) + 8_000
    small = eqsat.optimize(ATTENTIONS["plain"], budget=fixed + 350_000)
    assert "split-softmax-average" in small.plan(*args).rules_fired
    wanted = np.asarray(jax.jit(ATTENTIONS["plain"])(*args))
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(small(*args), wanted, rtol=1e-3, atol=1e-3)
