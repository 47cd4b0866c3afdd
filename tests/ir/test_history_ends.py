"""Small functions of what a scan stacks, and a few of its entries, are read without it."""

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
from eqsat.ir.carried_histories import with_histories_carried
from eqsat.ir.control import Scan
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Opaque
from eqsat.ir.sliced_histories import with_sliced_histories
from eqsat.ir.spec import check_program
from tests.nightly import THOROUGH
from tests.stages import lowered, normal

LONG = normal(40, 5)
WIDE = normal(24, 24)


def wide(x: Any, reverse: bool = False) -> Any:
    """40 states of 24 entries each, and their squares."""

    def step(state: Any, row: Any) -> Any:
        state = jnp.tanh(state @ WIDE / 5 + row.sum())
        return state, (state, state**2)

    return lax.scan(step, jnp.ones(24), x, reverse=reverse)[1]


def of_wide(read: Callable[..., Any], reverse: bool = False) -> Callable[[Any], Any]:
    return lambda x: read(*wide(x, reverse))


def energy(h: Any) -> Any:
    return 0.5 * jnp.sum(h**2, 1) - jnp.prod(h, 1)


# What is read of states, and how many entries of each are stacked.
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "the energy": (of_wide(lambda h, _: energy(h)), 1),
    "energies of two results": (of_wide(lambda h, s: energy(h) + s.sum(1)), 1),
    "an energy and a mean": (of_wide(lambda h, _: (energy(h), h.mean(0))), 1),
    "an energy, also in the mean": (of_wide(lambda h, _: (energy(h), energy(h).mean())), 1),
    "a function of the energy that needs all": (of_wide(lambda h, _: jnp.sort(energy(h))), 1),
    "the energy after some": (of_wide(lambda h, _: energy(h[9:])), 1),
    "the energy of every third": (of_wide(lambda h, _: energy(h[4::3])), 1),
    "of steps that follow": (of_wide(lambda h, _: energy(h[1:] - h[:-1])), 1),
    "in reverse": (of_wide(lambda h, _: energy(h[2:] - h[1:-1]), reverse=True), 1),
    "with rows": (lambda x: jnp.sum(wide(x)[0] * x[:, :1], 1), 1),
    "a large function": (of_wide(lambda h, _: jnp.exp(h)), 24),
    "a function and all": (of_wide(lambda h, _: (energy(h), h)), 24),
    "differences from the first": (of_wide(lambda h, _: energy(h - h[0])), 1),
    "their mean": (of_wide(lambda h, _: ((h - h[0]) ** 2).mean(0)), 0),
    "differences of functions": (of_wide(lambda h, _: energy(jnp.exp(h) - jnp.exp(h)[0])), 1),
    "from a function of the first": (of_wide(lambda h, _: energy(h - jnp.exp(h[0]) * 2)), 1),
    "from the first of what follows": (of_wide(lambda h, _: energy(h[9:] - h[9])), 1),
    "the same, of a slice": (of_wide(lambda h, _: (lambda g: energy(g - g[0]))(h[9:])), 1),
    "from a later one": (of_wide(lambda h, _: energy(h - h[7])), 24),
    "of a function of a later one": (
        of_wide(lambda h, _: (energy(h[9:] - h[5]), jnp.exp(h - h[5])[2])),
        24,
    ),
    "of a function of an earlier one": (
        of_wide(lambda h, _: (energy(h[9:] - h[5]), jnp.exp(h - h[5])[7])),
        1,
    ),
    "from the first in reverse": (of_wide(lambda h, _: energy(h - h[-1]), reverse=True), 1),
    "from the last in reverse": (of_wide(lambda h, _: energy(h - h[0]), reverse=True), 24),
    "of two results": (of_wide(lambda h, s: energy(h - s[0])), 24),
    "one": (of_wide(lambda h, _: h[7]), 0),
    "some": (of_wide(lambda h, _: (h[0], h[5], h[-1], h[5] + h[6])), 0),
    "every tenth": (of_wide(lambda h, _: h[::10]), 0),
    "the last three": (of_wide(lambda h, _: h[-3:]), 0),
    "the first two in reverse, and a sum": (of_wide(lambda h, _: (h[:2], h.sum(0)), reverse=True), 0),
    "every other": (of_wide(lambda h, _: h[::2]), 0),
    "too many": (of_wide(lambda h, _: h[:21]), 24),
    "many that something reads": (of_wide(lambda h, _: jnp.linalg.qr(h[::4])[1]), 24),
    "too many single ones": (of_wide(lambda h, _: [h[row] for row in range(9)]), 24),
    "at places": (of_wide(lambda h, _: (h[jnp.array([3, 30, 3])], h[jnp.array([[-1, 2], [5, 0]])])), 0),
    "at places in reverse": (of_wide(lambda h, _: jnp.exp(h)[jnp.array([7, -40])], reverse=True), 0),
    "at a place that is computed": (lambda x: wide(x)[0][jnp.int32(x[3, 0] * 40)], 0),
    "at places that are computed": (lambda x: jnp.take(wide(x)[0], jnp.int32(x[3] * 40), axis=0), 0),
    "at places that are clipped": (
        lambda x: wide(x)[0].at[jnp.int32(x[3] * 40)].get(mode="clip").sum(1),
        0,
    ),
    "at places along another axis": (of_wide(lambda h, _: h.T[:, jnp.array([3, 30])]), 0),
    "at places of its own": (of_wide(lambda h, _: h[jnp.argsort(h[:, 0])[:2]]), 24),
    "at too many places": (of_wide(lambda h, _: h[jnp.arange(21)]), 24),
}

# The same, of entries that are moved within each state.
MOVES: dict[str, tuple[Callable[[Any], Any], int]] = {
    "of differences within a state": (of_wide(lambda h, _: energy(jnp.roll(h, 1, 1) - h)), 1),
    "of windows after some": (of_wide(lambda h, _: energy(h[9:, 3:-2] - h[9:, :-5])), 1),
    "of steps within a state that follow": (
        of_wide(lambda h, _: energy(jnp.diff(h, axis=1)[1:] * h[:-1, 1:])),
        1,
    ),
    "of sorted states": (of_wide(lambda h, _: (jnp.sort(h, 1)[:, 3], jnp.argmax(h, 1))), 1),
    "of spectra": (of_wide(lambda h, _: jnp.abs(jnp.fft.rfft(h, axis=1))[:, 2]), 1),
    "of padded states": (of_wide(lambda h, _: jnp.pad(h, ((0, 0), (1, 2)), mode="edge").prod(1)), 1),
    "parts of states": (of_wide(lambda h, _: (h[:, 5], h[4:, 3::8])), 3),
    "places of states": (of_wide(lambda h, s: (h + s)[:, jnp.array([3, 21])]), 2),
    "a part of one": (of_wide(lambda h, _: h[7, 3:9]), 0),
    "some of large functions": (of_wide(lambda h, _: jnp.roll(jnp.exp(h), 3, 1)[::10]), 0),
    "every other, moved": (of_wide(lambda h, _: jnp.sin(h)[1::2, ::-1]), 0),
    "turned": (of_wide(lambda h, _: energy(h.T[3:, 2:].T)), 1),
}


@pytest.mark.parametrize("name", [*FUNCTIONS, *MOVES])
def test_small_functions_of_a_history_and_a_few_entries_are_read_without_it(name: str) -> None:
    function, left = (FUNCTIONS | MOVES)[name]
    program, constants = lowered(jax.jit(function), LONG)
    found = with_histories_carried(with_sliced_histories(program)[0] if name in MOVES else program)
    check_program(found)
    results = (interpret(one, [LONG, *constants]) for one in (program, found))
    for before, after in zip(*results, strict=True):
        assert before.dtype == after.dtype
        np.testing.assert_allclose(before, after, rtol=1e-12, atol=1e-12)
    scans = [
        (term, term.op.call.control)
        for term in found.reachable()
        if isinstance(term.op, Opaque) and isinstance(term.op.call.control, Scan)
    ]
    histories = [term for term, control in scans if term.op.result >= len(control.carried)]
    assert max((term.bytes // len(LONG) for term in histories), default=0) == 4 * left


def test_entries_that_are_compared_are_computed_in_one_place() -> None:
    function = of_wide(lambda h, _: energy(h) == energy(h).max())
    program, _ = lowered(jax.jit(function), LONG)
    assert with_histories_carried(program) is program
    among = of_wide(lambda h, _: (h == h[0]).sum(0))
    program, _ = lowered(jax.jit(among), LONG)
    assert with_histories_carried(program) is program


@settings(max_examples=20 if THOROUGH else 6, derandomize=True)
@given(
    st.integers(-40, 39),
    st.integers(0, 12),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from(["int8", "uint32", "float32", "float16"]),
)
def test_random_entries_of_histories_mean_the_same(
    row: int, start: int, stride: int, reverse: bool, dtype: str
) -> None:
    rng = np.random.default_rng(start)
    x = rng.integers(-100, 100, (40, 11)).astype(dtype)
    if dtype.startswith("float"):
        x.flat[rng.integers(0, x.size, 12)] = [np.nan, np.inf, -np.inf, -0.0] * 3

    def function(x: Any) -> Any:
        h = lax.scan(lambda s, row: (row, row * s[::-1] + row), jnp.ones_like(x[0]), x, reverse=reverse)[1]
        part = h[start::stride]
        return h[row], part[-1], jnp.where(part > h[row], part, -part).max(1), (part - part[0]).min(0)

    program, constants = lowered(jax.jit(function), x)
    found = with_histories_carried(program)
    check_program(found)
    for wanted, result in zip(*(interpret(p, [x, *constants]) for p in (program, found)), strict=True):
        np.testing.assert_array_equal(wanted, result)
    for wanted, result in zip(jax.jit(function)(x), eqsat.optimize(function, budget="1GB")(x), strict=True):
        np.testing.assert_array_equal(wanted, result)
