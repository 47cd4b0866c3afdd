"""What is computed of a history segment by segment: it means the same, and is found where it is needed."""

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

import eqsat
from eqsat.ir.ops import Opaque
from eqsat.ir.program import Program
from eqsat.ir.term import Term, reachable
from eqsat.planning.rematerialisation import with_rematerialised_operands
from tests.nightly import THOROUGH
from tests.planning.test_rematerialisation import check_equalities
from tests.planning.test_segmented_scans import is_scan
from tests.stages import lowered, normal
from tests.test_random_programs import UNHURRIED

WIDTH = 12

ROOM = 8 * 4 * 10 * (WIDTH + 1)
"""Bytes, for segments of ten states and their sums."""


def run(w: Any, xs: Any, reverse: bool = False) -> tuple[Any, tuple[Any, Any]]:
    """The last state of a loop, all of its states, and a number of each of them."""

    def step(state: Any, x: Any) -> Any:
        state = jnp.tanh(w @ state + x)
        return state, (state, jnp.sum(state))

    return lax.scan(step, jnp.zeros(WIDTH), xs, reverse=reverse)


READERS: dict[str, Callable[..., Any]] = {
    "products": lambda h, e, last, w, xs: h.T @ h,
    "with what it goes through": lambda h, e, last, w, xs: h.T @ xs,
    "of other functions": lambda h, e, last, w, xs: jnp.einsum("ti,tj->ij", jnp.exp(h), jnp.sin(xs)),
    "covariances": lambda h, e, last, w, xs: jnp.cov(h.T),
    "after some": lambda h, e, last, w, xs: h[7:].T @ h[7:],
    "every third": lambda h, e, last, w, xs: h[2::3].T @ xs[2::3],
    "one apart": lambda h, e, last, w, xs: h[1:].T @ h[:-1],
    "two apart": lambda h, e, last, w, xs: h[:-2].T @ h[2:],
    "of differences": lambda h, e, last, w, xs: jnp.diff(h, axis=0).T @ jnp.diff(xs, axis=0),
    "weighted": lambda h, e, last, w, xs: jnp.einsum("ti,t,tj->ij", h, e, xs),
    "slices of sums": lambda h, e, last, w, xs: (h.T @ xs, e[5:].sum(), jnp.abs(e[2:] * e[:-2]).max()),
    "weighted slices": lambda h, e, last, w, xs: jnp.einsum("ti,t,tj->ij", h[1:], e[:-1], xs[1:]),
    "slices of sums beside blocks": lambda h, e, last, w, xs: (
        h.reshape(4, -1, WIDTH).mean(1), e[5:].sum(), jnp.diff(e).max(), e.max()
    ),
    "from the last": lambda h, e, last, w, xs: (h - last).T @ xs,
    "single states and lags": lambda h, e, last, w, xs: (h[7], h[3:].T @ h[:-3], h[:2]),
    "beside other results": lambda h, e, last, w, xs: (last, e, h[-1], h[3:5], h.T @ xs, jnp.argmax(h, 0)),
    "largest of projections": lambda h, e, last, w, xs: jnp.max(jnp.abs(jnp.tanh(h @ w) @ w.T), 0),
    "least squares": lambda h, e, last, w, xs: jnp.mean((xs - h @ (h.T @ xs / len(xs))) ** 2),
    "sorted projections": lambda h, e, last, w, xs: jnp.sort(h, 1).T @ h,
    "means of blocks": lambda h, e, last, w, xs: h.reshape(4, -1, WIDTH).mean(1),
    "largest of blocks": lambda h, e, last, w, xs: h.reshape(4, -1, WIDTH).max(1),
    "statistics of blocks": lambda h, e, last, w, xs: (
        h.reshape(4, -1, WIDTH).mean(1), h.reshape(4, -1, WIDTH).mean(1).std(0), h.mean(0), last, e
    ),
    "spectra of blocks": lambda h, e, last, w, xs: jnp.mean(
        jnp.abs(jnp.fft.rfft(h.reshape(-1, 10, WIDTH), axis=1)) ** 2, 0
    ),
    "medians of blocks": lambda h, e, last, w, xs: jnp.sort(h.reshape(-1, 10, WIDTH), 1)[:, 5],
    "products of blocks": lambda h, e, last, w, xs: jnp.einsum(
        "bti,btj->bij", h[:, :2].reshape(4, -1, 2), xs[:, :2].reshape(4, -1, 2)
    ),
    "blocks of blocks": lambda h, e, last, w, xs: (
        h.reshape(4, -1, WIDTH).mean(1), h.reshape(20, -1, WIDTH).max((1, 2))
    ),
    "products and blocks": lambda h, e, last, w, xs: (h.reshape(-1, 15, WIDTH).mean(1), h.T @ xs),
}  # fmt: skip


def reading(name: str, reverse: bool) -> Callable[[Any, Any], Any]:
    """A program that reads a history, and other results of its loop."""

    def program(w: Any, xs: Any) -> Any:
        last, (states, sums) = run(w, xs, reverse)
        return READERS[name](states, sums, last, w, xs)

    return program


def in_segments(program: Program, threshold: float, room: float) -> set[int]:
    """The results of a program that are known to be computed of scans over segments, by number."""
    known = with_rematerialised_operands(program, threshold, room)
    found = set()
    for number, output in enumerate(program.outputs):
        read = {term.number for term in reachable([output.term])}
        forms = [other for term, other in known.equalities if term.number in read]
        if any(map(is_nested, reachable(forms))):
            found.add(number)
    return found


def is_nested(term: Term) -> bool:
    """Whether a term is a result of a scan in whose body a scan runs."""
    if not isinstance(term.op, Opaque):
        return False
    inner = (one for body in term.op.call.bodies for one in body.program.reachable())
    return any(map(is_scan, inner))


CASES = [
    (name, steps, reverse)
    for name in READERS
    for steps in (60, 59)
    for reverse in (False, True)
    if steps == 60 or "blocks" not in name
]


@pytest.mark.parametrize(("name", "steps", "reverse"), CASES)
def test_segments_mean_the_same(name: str, steps: int, reverse: bool) -> None:
    args = normal(WIDTH, WIDTH), normal(steps, WIDTH)
    program, constants = lowered(reading(name, reverse), *args)
    check_equalities(program, [*args, *constants], 1000, ROOM)
    assert in_segments(program, 1000, ROOM)


FUNCTIONS = [
    "h",
    "h * h + xs",
    "jnp.exp(h)",
    "h @ w",
    "jnp.cumsum(h, 1)",
    "jnp.sort(h, 1)",
    "h - last",
    "h[5:]",
    "h[:-5]",
]
ENDS = [
    "f.T @ f", "jnp.max(f, 0)", "(f * f).sum()", "f[2:].T @ f[:-2]", "f[::2].T @ jnp.sin(f[::2])",
    "f[1:].sum(0)", "jnp.mean(f, 0)", "jnp.cov(f.T)", "f @ w[0]", "h[-1]", "h[17]", "jnp.argmin(f, 0)", "e",
]  # fmt: skip
OF_BLOCKS = [
    "f.reshape(6, -1, n).mean(1)",
    "jnp.cumsum(f.reshape(6, -1, n), 1).max(0)",
    "f.reshape(6, -1, n)[:, 3]",
]


@settings(UNHURRIED, max_examples=60 if THOROUGH else 15)
@given(
    st.sampled_from([60, 59]),
    st.booleans(),
    st.sampled_from(FUNCTIONS),
    st.lists(st.sampled_from(ENDS + OF_BLOCKS), min_size=1, max_size=3),
)
def test_random_readers_mean_the_same(steps: int, reverse: bool, function: str, ends: list[str]) -> None:
    if steps % 6 or "[" in function:
        ends = [end for end in ends if end not in OF_BLOCKS] or ENDS[:1]
    namespace: dict[str, Any] = {"jnp": jnp, "n": WIDTH}
    exec(f"def read(h, e, last, w, xs):\n    f = {function}\n    return ({', '.join(ends)},)\n", namespace)

    def program(w: Any, xs: Any) -> Any:
        last, (states, sums) = run(w, xs, reverse)
        return namespace["read"](states, sums, last, w, xs)

    args = normal(WIDTH, WIDTH), normal(steps, WIDTH)
    written, constants = lowered(program, *args)
    check_equalities(written, [*args, *constants], 1000, ROOM)


TIGHT = [
    "products", "single states and lags", "covariances", "one apart", "of differences", "least squares",
    "means of blocks", "spectra of blocks", "products and blocks",
]  # fmt: skip


@pytest.mark.parametrize("name", TIGHT)
def test_what_is_read_of_a_history_keeps_to_its_budget(name: str) -> None:
    args = normal(WIDTH, WIDTH) / 5, normal(6000, WIDTH)
    plain = jax.jit(reading(name, False))
    memory = plain.lower(*args).compile().memory_analysis()
    fixed = memory.argument_size_in_bytes + memory.output_size_in_bytes
    budget = fixed + memory.temp_size_in_bytes // 5
    small = eqsat.optimize(reading(name, False), budget=budget, max_slowdown=None)
    assert small.plan(*args).peak_bytes <= budget
    for one, other in zip(jax.tree.leaves(plain(*args)), jax.tree.leaves(small(*args)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * float(abs(one).max()))


def test_rows_that_are_not_read_may_be_infinite() -> None:
    """In a segment, they are zeros, as their factors are."""
    w, xs = normal(WIDTH, WIDTH), normal(6000, WIDTH)

    def products(w: Any, xs: Any, ys: Any) -> Any:
        return run(w, xs)[1][0][100:].T @ ys[100:]

    plain = jax.jit(products)
    memory = plain.lower(w, xs, xs).compile().memory_analysis()
    fixed = memory.argument_size_in_bytes + memory.output_size_in_bytes
    small = eqsat.optimize(products, budget=fixed + memory.temp_size_in_bytes // 5, max_slowdown=None)
    ys = xs.copy()
    ys[:100] = np.inf
    wanted = plain(w, xs, ys)
    np.testing.assert_allclose(small(w, xs, ys), wanted, rtol=1e-4, atol=1e-5 * float(abs(wanted).max()))


def test_the_largest_of_blocks_are_the_same_to_the_last_bit() -> None:
    xs = normal(6000, 40)

    def largest(xs: Any) -> Any:
        states = lax.scan(lambda state, x: (state + x, state + x), jnp.zeros(40), xs)[1]
        return states.reshape(10, -1, 40).max(1)

    plain = jax.jit(largest)
    memory = plain.lower(xs).compile().memory_analysis()
    fixed = memory.argument_size_in_bytes + memory.output_size_in_bytes
    small = eqsat.optimize(largest, budget=fixed + memory.temp_size_in_bytes // 5, accuracy="exact")
    np.testing.assert_array_equal(small(xs), plain(xs))


def test_narrow_sums_are_rounded_once() -> None:
    """Products of segments in bfloat16 would lose most of what they add."""
    xs = jnp.abs(normal(6000, 40)).astype(jnp.bfloat16)

    def products(xs: Any) -> Any:
        states = lax.scan(lambda state, x: (x, x + state * 0), jnp.zeros(40, xs.dtype), xs)[1]
        return states.T @ states

    memory = jax.jit(products).lower(xs).compile().memory_analysis()
    fixed = memory.argument_size_in_bytes + memory.output_size_in_bytes
    small = eqsat.optimize(products, budget=fixed + memory.temp_size_in_bytes // 2, max_slowdown=None)
    wide = np.asarray(xs, np.float64)
    np.testing.assert_allclose(np.asarray(small(xs), np.float64), wide.T @ wide, rtol=2**-8)
