"""Integers that are known while planning become expressions of the position, or captured arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.frontend import evaluation
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Iota, Opaque
from tests.nightly import nightly_but
from tests.stages import lowered, ops

N = 190
PAIRS = N * (N - 1) // 2
X = jnp.asarray(np.random.default_rng(0).integers(-9, 9, N), jnp.float32)
FIRST, SECOND = np.triu_indices(N, 1)
COUNTS = np.random.default_rng(2).integers(60, 200, N)
MASK = np.random.default_rng(3).random((N, N)) < 0.6
SHUFFLED = np.random.default_rng(4).integers(-N, N, PAIRS)


def program_of(fn: Callable[..., Any], *args: Any) -> tuple[set[str], list[Any]]:
    """The primitives that a function's program calls, and its constants; its results are the function's."""
    program, constants = lowered(fn, *args)
    results = interpret(program, [*jax.tree.leaves(args), *constants])
    for result, wanted in zip(results, jax.tree.leaves(fn(*args)), strict=True):
        np.testing.assert_array_equal(result, np.asarray(wanted, result.dtype))
    return {op.call.primitive.name for inner in program.inside() for op in ops(inner, Opaque)}, constants


def taken(indices: Callable[[], Iterable[Any]]) -> Callable[[Any], Any]:
    """A function that looks entries up at some indices, and adds to the entries at others."""

    def looked_up(x: Any) -> Any:
        entries = [x[where] for where in indices()]
        return entries, jnp.zeros_like(x).at[list(indices())[-1]].add(entries[0])

    return looked_up


ARITHMETIC: dict[str, Callable[[], Iterable[Any]]] = {
    "triu": lambda: jnp.triu_indices(N, 1),
    "tril": lambda: jnp.tril_indices(N, -1),
    "nonzero": lambda: jnp.nonzero(jnp.arange(N)[:, None] < jnp.arange(N), size=PAIRS),
    "captured": lambda: (FIRST, SECOND),
    "captured columns": lambda: (jnp.asarray(np.stack([FIRST, SECOND], 1))[:, k] for k in (0, 1)),
    "captured on the device": lambda: map(jnp.asarray, (FIRST, SECOND)),
    "repeat and tile": lambda: (jnp.repeat(jnp.arange(N), 99), jnp.tile(jnp.arange(N), 99)),
    "sorted": lambda: [jnp.sort(jnp.tile(jnp.arange(N), 99))],
    "reversed": lambda: [(jnp.cumsum(jnp.ones(99 * N, int)) - 1)[::-1] % N],
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("long", [1, evaluation.LONG], ids=["counted in pieces", "counted at once"])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_by_arithmetic(name: str, long: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "LONG", long)
    called, constants = program_of(taken(ARITHMETIC[name]), X)
    assert called == {"gather", "scatter-add"}
    assert constants == []


def test_by_search() -> None:
    """Repetitions of any numbers are looked for in small tables."""
    total = int(COUNTS.sum())
    repeated = taken(lambda: [jnp.repeat(jnp.arange(N), COUNTS, total_repeat_length=total)])
    called, constants = program_of(repeated, X)
    assert called == {"gather", "scatter-add"}
    assert 0 < sum(constant.nbytes for constant in constants) < total


def test_as_they_are() -> None:
    """What has no runs becomes a captured array, or stays one."""
    called, constants = program_of(taken(lambda: jnp.nonzero(MASK, size=int(MASK.sum()))), X)
    assert called == {"gather", "scatter-add"}
    assert {constant.shape for constant in constants} == {(int(MASK.sum()),)}
    called, constants = program_of(taken(lambda: [SHUFFLED]), X)
    assert called == {"gather", "scatter-add"}
    assert {constant.shape[0] for constant in constants} == {PAIRS}


@pytest.mark.parametrize("pieces", [(2, -1), (4, 2, -1), (-1, 2)])
def test_as_they_are_beside_reshapes(pieces: tuple[int, ...]) -> None:
    """An equal array is captured once, whichever of the axes that it is multiplied along were split since."""
    length = 1 << 13

    def parity() -> Any:
        digits = (jnp.arange(length)[:, None] >> jnp.arange(13)) & 1
        return (digits * jnp.roll(digits, -1, 1)).sum(1) % 2

    def signed(x: Any, y: Any) -> Any:
        parts = (x * parity()).reshape(pieces)
        looped, _ = jax.lax.scan(lambda z, _: (z * parity(), None), parts.reshape(-1), length=2)
        return parts.sum(0), y * parity(), looped, (y * parity())[::-1].reshape(-1, 4)

    x = jnp.arange(length, dtype=jnp.float32)
    _, constants = program_of(signed, x, 1 - x)
    assert [constant.shape for constant in constants] == [(length,)]


def test_few_entries() -> None:
    """A few entries of what is known are a small array."""
    called, constants = program_of(lambda x: x[jnp.triu_indices(N, 1)[1][::700]], X)
    assert called == {"gather"}
    assert {constant.shape for constant in constants} == {(26,)}


@pytest.mark.parametrize("start", [X, -X])
def test_branches_and_conditions(start: jax.Array) -> None:
    """The tables that a search needs are given to all bodies."""

    def run(x: Any) -> Any:
        i = jnp.repeat(jnp.arange(N), COUNTS, total_repeat_length=int(COUNTS.sum()))

        def goes_on(state: Any) -> Any:
            return (state[0] < 2) & (jnp.max(state[1][i]) < 1e6)

        def step(state: Any) -> Any:
            count, x = state
            return count + 1, jax.lax.cond(x[0] > 0, lambda x: x.at[i].add(x[i]) % 7, lambda x: x + 8, x)

        return jax.lax.while_loop(goes_on, step, (0, x))[1]

    assert "cumsum" not in program_of(run, start)[0]


def test_entries_of_a_matrix() -> None:
    """The two columns of a pair of indices are sequences each, though both together are none."""
    table = X[:, None] * X
    called, constants = program_of(lambda table: table[jnp.triu_indices(N, 1)], table)
    assert called == {"gather", "concatenate"}
    assert constants == []


@pytest.mark.parametrize("where", ["around", "inside", "searched", "captured"])
def test_inside_a_loop(where: str) -> None:
    """A loop computes what it is given of them from the position, instead of being given arrays."""
    total = int(COUNTS.sum())

    def indices() -> Any:
        if where == "captured":
            return FIRST, SECOND
        if where == "searched":
            return [jnp.repeat(jnp.arange(N), COUNTS, total_repeat_length=total)] * 2
        return jnp.triu_indices(N, 1)

    def run(x: Any) -> Any:
        around = indices()

        def step(x: Any, _: Any) -> Any:
            i, j = indices() if where == "inside" else around
            return x.at[i].add(x[j]) % 17, None

        return jax.lax.scan(step, x, None, length=2)[0]

    called, constants = program_of(run, X)
    assert called == {"scan", "gather", "scatter-add"}
    assert all(constant.nbytes < total for constant in constants)
    program, _ = lowered(run, X)
    (scan,) = (op.call for op in ops(program, Opaque) if op.call.primitive.name == "scan")
    lengths = [axis.size for layout in scan.arg_layouts for axis in layout if hasattr(axis, "size")]
    assert max(lengths) < PAIRS


def test_what_is_left_alone() -> None:
    """Small arrays, floats, indices that depend on inputs, and what elementwise functions give in chunks."""
    for fn in (
        lambda x: x[jnp.triu_indices(9, 1)[0]],
        lambda x: x * jnp.max(jnp.cumsum(jnp.full(20_000, 0.5))),
        lambda x: x[jnp.cumsum(jnp.zeros(20_000, int).at[0].set(x[0].astype(int))) % N],
    ):
        assert "cumsum" in program_of(fn, X)[0]
    program, _ = lowered(lambda x: jnp.where(jnp.arange(N)[:, None] < jnp.arange(N), x, 0), X)
    assert len(list(ops(program, Iota))) == 2


def test_integers_of_64_bits() -> None:
    with jax.enable_x64(True):
        wide = jnp.asarray(np.repeat([2**40, 7], 20_000))
        assert len(program_of(lambda x: x + wide, jnp.arange(40_000))[1]) == 1
        narrow = jnp.asarray(np.repeat([2**30, 7], 20_000))
        assert program_of(lambda x: x + narrow, jnp.arange(40_000))[1] == []


@pytest.mark.parametrize(
    ("long", "piece"), nightly_but({(evaluation.LONG, 1000)}, product([1, evaluation.LONG], [170, 1000]))
)
def test_pieces(long: int, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, or parts of one, at a time: the sums go on, and what is outside is dropped, or the last."""
    monkeypatch.setattr(evaluation, "LONG", long)
    monkeypatch.setattr(evaluation, "PIECE", piece)

    def counted(mode: str) -> Any:
        where = jnp.cumsum((jnp.arange(34_000) % 2 == 0).astype(int))
        return jnp.cumsum(jnp.zeros(16_700, int).at[where].add(1, mode=mode)) % N

    def moved(mode: str) -> Any:
        where = jnp.cumsum((jnp.arange(17_000) % 3 == 0).astype(int)) - 40
        return jnp.cumsum(jnp.zeros(17_000, int).at[where].add(1, mode=mode)) % N

    def along_rows() -> Any:
        where = jnp.cumsum(jnp.arange(40_000).reshape(200, 200) % 2 == 0, axis=1)
        return jnp.cumsum(jnp.zeros(17_000, int).at[where].add(1)) % N

    def transposed() -> Any:
        where = jnp.cumsum((jnp.arange(40_000) % 2 == 0).astype(int)).reshape(200, 200).T
        return jnp.cumsum(jnp.zeros(20_002, int).at[where].add(1)) % N

    def wrapped() -> Any:
        where = jnp.cumsum((jnp.arange(40_000) % 2 == 0).astype(jnp.int8), dtype=jnp.int8)
        return jnp.cumsum(jnp.zeros(20_002, int).at[where.astype(int)].add(1)) % N

    for indices in (
        lambda: jnp.triu_indices(N, 1),
        lambda: [along_rows()],
        lambda: [transposed()],
        lambda: [wrapped()],
        lambda: [counted("drop")],
        lambda: [counted("clip")],
        lambda: [moved("drop")],
        lambda: [moved("clip")],
    ):
        called, _ = program_of(lambda x, indices=indices: [x[where] for where in indices()], X)
        assert called == {"gather"}


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes too much memory to evaluate is left as it is."""
    monkeypatch.setattr(evaluation, "MOST_KEPT", 1 << 14)
    assert "cumsum" in program_of(taken(lambda: jnp.triu_indices(N, 1)), X)[0]
