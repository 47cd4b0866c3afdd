"""Programs in which several axes are split over the same devices, so that parts are passed round in rings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from eqsat.ir.axis import Axis
from eqsat.ir.control import Scan
from eqsat.ir.formula import Application, Constant, Monoid, Scalar
from eqsat.ir.ops import Chunk, Fold, Leaf, Map, Opaque, Reduce
from eqsat.ir.partitioning import Partition, partitioned
from eqsat.ir.program import Output, Program
from eqsat.ir.ring import AxesMeetError
from eqsat.ir.ring_states import is_commutative
from eqsat.ir.spec import check_program
from eqsat.ir.term import Terms
from eqsat.planning.ring_loops import axes_that_meet, in_rings
from eqsat.rulesets.selection import rules_for
from eqsat.targets.cpu import CPU
from tests.ir.devices import DEVICES, collectives, on_devices, program_of
from tests.nightly import nightly_but
from tests.stages import normal

N, M = 24, 16
"""The lengths of the axes that are split, which no other axis has."""

RULES = rules_for((), "rescales")


def rings(fn: Callable[..., Any], *args: Any) -> list[Partition]:
    """What one device does if the devices pass parts round."""
    program = program_of(fn, args)
    found = []
    for axes in axes_that_meet(program, DEVICES):
        for looped in in_rings(program, axes, DEVICES, RULES, CPU):
            try:
                part = partitioned(looped, axes, "data", DEVICES)
            except AxesMeetError:
                continue
            check_program(part.program)
            found.append(part)
    return found


def check(fn: Callable[..., Any], *args: Any, rtol: float = 1e-4) -> list[Partition]:
    """Compare a function with what devices make of it in rings."""
    wanted = [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(fn)(*args))]
    found = rings(fn, *args)
    assert found
    for part in found:
        for one, other in zip(on_devices(part, args), wanted, strict=True):
            assert one.dtype == other.dtype
            if other.dtype.kind in "fc" or other.dtype == jnp.bfloat16:
                one, other = one.astype(np.float64), other.astype(np.float64)
                np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)
            else:
                np.testing.assert_array_equal(one, other)
    return found


def squares(x: Any, y: Any) -> Any:
    return jnp.sum((x[:, None] - y[None]) ** 2, -1)


def kernel(x: Any, y: Any, v: Any) -> Any:
    return jnp.exp(-squares(x, y)) @ v


def sinkhorn(x: Any, y: Any) -> Any:
    cost = squares(x, y)

    def step(state: Any, _: Any) -> Any:
        f = -jax.nn.logsumexp(state[1][None] - cost, 1)
        return (f, -jax.nn.logsumexp(f[:, None] - cost, 0)), None

    return lax.scan(step, (jnp.zeros(len(x)), jnp.zeros(len(y))), None, length=2)[0]


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T / 4, -1) @ v


def causal(q: Any, k: Any, v: Any) -> Any:
    later = jnp.arange(len(q))[:, None] < jnp.arange(len(k))[None]
    return jax.nn.softmax(jnp.where(later, -jnp.inf, q @ k.T), -1) @ v


def discrepancy(x: Any, y: Any) -> Any:
    def mean(a: Any, b: Any) -> Any:
        return jnp.mean(jnp.exp(-squares(a, b)))

    return mean(x, x) + mean(y, y) - 2 * mean(x, y)


def largest(x: Any, y: Any) -> Any:
    """The largest products. `top_k` sorts NaNs by sign, and those of products differ between processors."""
    products = x @ y.T
    return lax.top_k(jnp.where(jnp.isnan(products), jnp.nan, products), 3)


def extremes(x: Any, y: Any) -> Any:
    table = x @ y.T
    best = jnp.argmax(table, 1), jnp.argmin(table, 1), jnp.max(table, 1), jnp.min(table, 1)
    return *best, (table > 0).all(1), (table > 0).any(1)


X, Y, V = normal(N, 3), normal(M, 3), normal(M)
ROUNDED = np.round(X), np.round(Y)
QKV = normal(M, 4), normal(M, 4, seed=1), normal(M, 4, seed=2)

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "kernel": (kernel, (X, Y, V)),
    "gradient": (jax.grad(lambda *xs: jnp.sum(kernel(*xs) ** 2), (0, 1, 2)), (X, Y, V)),
    "nearest": (lambda x, y: lax.top_k(-squares(x, y), 3), (X, Y)),
    "nearest of its own": (lambda x: lax.top_k(-squares(x, x), 3), (X,)),
    "equal entries": (largest, ROUNDED),
    "extremes": (extremes, ROUNDED),
    "Sinkhorn": (sinkhorn, (X, Y)),
    "attention": (attention, QKV),
    "causal attention": (causal, QKV),
    "its gradient": (jax.grad(lambda *xs: jnp.sum(attention(*xs) ** 2), (0, 1, 2)), QKV),
    "discrepancy": (discrepancy, (X, Y)),
    "a diagonal": (lambda x: jnp.sum((jnp.eye(len(x)) + x @ x.T) ** 2, 1), (X,)),
    "variances": (lambda x, y: jnp.var(jnp.exp(-squares(x, y)), 1), (X, Y)),
    "products": (lambda x, y: jnp.prod(jnp.cos(x @ y.T), 1), (X, Y)),
    "integers": (lambda x, y: jnp.sum((x @ y.T) // 3, 1), tuple(np.int8(1e3 * one) for one in (X, Y))),
}
QUICK = ["kernel", "equal entries", "extremes", "variances"]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", nightly_but(QUICK, sorted(CASES)))
def test_devices_pass_parts_round(name: str) -> None:
    fn, args = CASES[name]
    best = check(fn, *args)[0]
    assert "all_gather" not in collectives(best.program)
    assert "ppermute" in collectives(best.program)
    assert best.inputs == (0,) * len(args)


@pytest.mark.parametrize("name", ["kernel", "causal attention"])
def test_neither_side_is_whole_anywhere(name: str) -> None:
    fn, args = CASES[name]
    for part in rings(fn, *args):
        sizes = {axis.size for inner in part.program.inside() for t in inner.reachable() for axis in t.axes}
        assert not sizes & {N, M}


def test_attention_passes_keys_and_values_once() -> None:
    assert min(len(collectives(part.program)) for part in rings(attention, *QKV)) == 2


def test_sums_of_narrow_floats_are_rounded_once() -> None:
    x, y = (jnp.asarray(10 * one, "bfloat16") for one in (X, Y))
    check(lambda x, y: (jnp.sum(jnp.cos(x @ y.T), 1), jnp.max(x @ y.T, 1)), x, y, rtol=1e-2)


ENTRIES = st.sampled_from([0.0, -0.0, 1.0, -2.5, np.nan, np.inf, -np.inf])


def check_with(name: str, entries: list[tuple[int, int, float]]) -> None:
    """Compare on rounded data with some entries replaced, by row and column."""
    args = [np.round(one) for one in QKV[: len(CASES[name][1])]]
    for number, arg in enumerate(args):
        for row, column, value in entries:
            arg[(row + number) % M, column] = value
    check(CASES[name][0], *args)


@pytest.mark.parametrize("name", ["causal attention", "extremes", "equal entries"])
def test_on_hostile_data(name: str) -> None:
    check_with(name, [(3, 1, np.nan), (7, 2, np.inf), (9, 2, -np.inf), (14, 1, np.nan), (5, 0, -0.0)])


@pytest.mark.nightly
@settings(max_examples=20)
@given(entries=st.lists(st.tuples(st.integers(0, M - 1), st.integers(0, 3), ENTRIES), max_size=6))
@pytest.mark.parametrize("name", ["causal attention", "extremes", "equal entries"])
def test_on_any_data(name: str, entries: list[tuple[int, int, float]]) -> None:
    check_with(name, entries)


def test_rows_without_entries() -> None:
    def masked(q: Any, k: Any, v: Any) -> Any:
        apart = jnp.arange(len(q))[:, None] % 3 != jnp.arange(len(k))[None] % 2
        return jax.nn.softmax(jnp.where(apart, -jnp.inf, q @ k.T), -1) @ v

    check(masked, *QKV)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: x @ y.T,  # the result is a table
        lambda x, y: jnp.linalg.eigvalsh(jnp.exp(x @ x.T)),
        lambda x, y: jnp.sort(x @ y.T, 1)[:, 3],
        lambda x, y: jnp.sum(jnp.sin(jnp.cumsum(jnp.exp(x @ y.T), 0)), 1),
        lambda x, y: jnp.sum(jnp.exp(-squares(x[:-1], y[:-1])), 1),  # four devices don't divide these
    ],
)
def test_where_no_ring_is_possible(fn: Callable[..., Any]) -> None:
    assert rings(fn, X, Y) == []


def test_a_table_that_is_given_is_not_passed_round() -> None:
    assert rings(lambda table, v: jnp.exp(table) @ v, normal(N, M), V) == []


def test_more_entries_than_a_device_has() -> None:
    assert rings(lambda x, y: lax.top_k(x @ y.T, M // DEVICES + 1), X, Y) == []


def test_values_of_two_split_axes_are_refused() -> None:
    program = program_of(lambda x, y: jnp.sum(jnp.exp(x @ y.T), 1), (X, Y))
    axes = axes_that_meet(program, DEVICES)[0]
    with pytest.raises(AxesMeetError):
        partitioned(program, axes, "data", DEVICES)


def test_a_loop_with_a_ring_is_not_repeated_for_slices() -> None:
    """Of the scan's axes, none passes that what is passed round lacks."""
    (part, *_) = rings(kernel, X, Y, V)
    loops = [
        term.op.call
        for term in part.program.reachable()
        if isinstance(term.op, Opaque) and isinstance(term.op.call.control, Scan)
    ]
    assert loops
    rows = part.program.outputs[0].layout
    assert not any(call.cut & {axis for axis in rows if isinstance(axis, Axis)} for call in loops)


IS_SET = Application("eq", (Scalar("f2"), Constant("1")))
LAST = Monoid(
    "last",
    ("f", "l"),
    (Constant("0"), Constant("0")),
    (
        Application("max", (Scalar("f1"), Scalar("f2"))),
        Application(
            "select_n", (Application("eq", (Scalar("f2"), Constant("1"))), Scalar("l1"), Scalar("l2"))
        ),
    ),
    Scalar("l"),
)
"""The last entry whose flag is 1."""


def test_the_order_counts_for_a_monoid_that_does_not_commute() -> None:
    assert not is_commutative(LAST)
    terms, rows, along = Terms(), Axis(0, N), Axis(1, M)
    x = terms.make(Leaf(0, (rows,), "float32"))
    y = terms.make(Leaf(1, (along,), "float32"))
    chunk = terms.make(Chunk(along), [y])
    greater = terms.make(Map("gt", "bool"), [chunk, x])
    flag = terms.make(
        Reduce("max", frozenset({along}), "float32"), [terms.make(Map("convert", "float32"), [greater])]
    )
    entry = terms.make(Reduce("sum", frozenset({along}), "float32"), [chunk])
    fold = terms.make(Fold(along, LAST), [flag, terms.make(Map("add", "float32"), [entry, x])])
    program = Program((x, y), (Output(fold, (rows,)),), terms)
    part = partitioned(program, (rows, along), "data", DEVICES)
    check_program(part.program)
    args = normal(N), normal(M)
    (got,) = on_devices(part, args)
    wanted = []
    for one in args[0]:
        found = [piece.sum() + one for piece in np.split(args[1], DEVICES) if (piece > one).any()]
        wanted.append(found[-1] if found else 0.0)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_which_monoids_commute() -> None:
    turned = Application("add", (Scalar("s2"), Scalar("s1")))
    assert is_commutative(Monoid("sum", ("s",), (Constant("0"),), (turned,), Scalar("s")))
    apart = Application("sub", (Scalar("s1"), Scalar("s2")))
    assert not is_commutative(Monoid("apart", ("s",), (Constant("0"),), (apart,), Scalar("s")))
