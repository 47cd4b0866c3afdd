"""Which entries of sorted arrays are found by counting, and that programs that count find these entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.backend.certificate import certify
from eqsat.ir.ops import Opaque
from eqsat.ir.term import reachable
from tests.stages import lowered, normal

X = normal(72, 80)
LONG = normal(3, 5000)
BATCH = normal(3, 72, 64)
PLACES = np.array([7, 4999, 0], np.int32)


def scans(fn: Callable[..., Any], *args: Any) -> int:
    """Returns how many loops over passes are equal to something in a function's program."""
    program, _ = lowered(fn, *args)
    made = reachable(equal for _, equal in program.equalities)
    calls = {term.op.call for term in made if isinstance(term.op, Opaque)}
    return sum(call.primitive.name == "scan" for call in calls)


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (jnp.median, (X,)),
        (lambda x: jnp.quantile(x, jnp.array([0.1, 0.5, 0.9])), (X,)),
        (lambda x: jnp.percentile(x, 30.0, axis=1), (LONG,)),
        (jnp.nanmedian, (X,)),
        (lambda x: jnp.sort(x, 1)[:, 1234], (LONG,)),
        (lambda x: jnp.sort(x.T, 0)[-5], (LONG,)),
        (lambda x: jnp.sort(x.ravel(), descending=True)[5], (X,)),
        (lambda x: jnp.sort(x, 1)[:, ::-1][::-1, 5], (LONG,)),
        (lambda x, k: jnp.sort(x, 1)[:, k], (LONG, PLACES)),
        (lambda x, k: jnp.sort(x.ravel())[k[0]], (X, PLACES)),
        (jax.vmap(lambda x, k: jnp.sort(x)[k]), (LONG, PLACES)),
        (jax.vmap(jnp.median), (BATCH,)),
        (lambda x: jnp.sort(x.ravel(), stable=False)[5], (X.astype(np.int32),)),
        (lambda x: jnp.sort(x.ravel(), stable=False)[5], (X,)),
        (lambda x: lax.sort((x, x), num_keys=1)[0][:, 7], (LONG,)),
    ],
)
def test_all_entries_of_a_sort_are_found_in_one_loop(fn: Callable[..., Any], args: Any) -> None:
    assert scans(fn, *args) == 1


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (lambda x: jnp.sort(x, 0)[1], (LONG,)),  # short
        (lambda x: jnp.sort(x, 1)[:, 1:9], (LONG,)),  # several entries
        (lambda x: jnp.sort(x, 1)[1], (LONG,)),  # along another axis
        (lambda x: jnp.sort(x.ravel() > 0)[5], (X,)),
        (lambda x: jnp.sort(x.ravel() * 1j)[5], (X,)),
        (lambda x: jnp.argsort(x.ravel())[5], (X,)),
        (lambda x: lax.sort((x, x), num_keys=2)[0][:, 7], (LONG,)),
        (lambda x: jnp.cumsum(x, 1)[:, 7], (LONG,)),
        (lambda x: jnp.sort(x, 1)[::-1, 5].reshape(3, 1)[0], (normal(3, 7),)),
    ],
)
def test_others_are_left_as_they_are(fn: Callable[..., Any], args: Any) -> None:
    assert scans(fn, *args) == 0


def distances(x: Any) -> Any:
    """Returns the squared distances of all pairs of rows."""
    return jnp.sum((x[:, None] - x[None]) ** 2, -1)


def signed(x: Any) -> Any:
    """Returns products of pairs: most are zeros of either sign, some infinite or NaN."""
    return (x[:, None] * x[None]).ravel()


POINTS = (10 * normal(500, 3)).round()
"""Points whose distances are integers, which any program finds exactly."""

SPARSE = np.where(normal(500) > 1, normal(500, seed=1), np.where(normal(500, seed=2) > 0, 0.0, -0.0))
HOSTILE = np.concatenate([SPARSE, [np.inf, -1.0, np.nan]]).astype(np.float32)


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        pytest.param(
            lambda x: jnp.median(jnp.abs(distances(x) - jnp.median(distances(x)))),
            (POINTS,),
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            lambda x: jnp.sort(signed(x))[jnp.array([0, 90_000, -9])], (HOSTILE,), marks=pytest.mark.nightly
        ),
        (lambda x: jnp.sort(signed(x), descending=True)[77], ((100 * normal(500)).astype(np.int16),)),
        pytest.param(
            jax.vmap(lambda x: jnp.median(distances(x))),
            (POINTS.reshape(2, 250, 3),),
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_what_is_found_in_little_memory(fn: Callable[..., Any], args: Any) -> None:
    plain = certify(fn, args)
    budget = plain.fixed + (plain.peak - plain.fixed) // 3
    counted = eqsat.optimize(fn, budget=budget)
    found, wanted = np.asarray(counted(*args)), np.asarray(jax.jit(fn)(*args))
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))
    assert "bitcast_convert_type" in counted.plan(*args).source


@pytest.mark.parametrize(
    "fn",
    [
        jnp.median,
        pytest.param(lambda x: jnp.sort(x)[jnp.array([3, 99_999, -5])], marks=pytest.mark.nightly),
        lambda x: jnp.sum(jnp.where(x < jnp.quantile(x, 0.3), x, 0.0) != 0),
    ],
)
def test_entries_of_one_long_array_that_is_given(fn: Callable[..., Any]) -> None:
    """What is compared in a pass is several times as large as the array: a chunk is as much shorter."""
    x = jnp.asarray(normal(300_007))
    counted = eqsat.optimize(fn, budget=x.nbytes + x.nbytes // 5)
    np.testing.assert_array_equal(counted(x), jax.jit(fn)(x))
    assert counted.plan(x).loops


def test_what_is_compared_with_its_entry_is_sorted() -> None:
    """Computed twice, the entry could differ from all that it is compared with."""

    def fn(x: Any) -> Any:
        return jnp.sum(distances(x) <= jnp.sort(distances(x).ravel())[500])

    plain = certify(fn, [POINTS])
    with pytest.raises(eqsat.BudgetError, match="sort"):
        eqsat.optimize(fn, budget=plain.peak // 4).plan(POINTS)


def test_a_gradient_survives() -> None:
    fn = jax.grad(lambda x: jnp.median(distances(x)))
    found = eqsat.optimize(fn, budget="1GB")(POINTS)
    np.testing.assert_allclose(found, fn(POINTS), rtol=1e-5, atol=1e-6)
