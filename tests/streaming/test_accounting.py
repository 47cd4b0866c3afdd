"""How much memory reading takes beside the device: never more than is counted."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.errors import BudgetError
from eqsat.streaming.accounting import ahead_bytes, chunk_bytes, current_bytes, longest_chunks, saved_bytes
from eqsat.streaming.buffers import ALIGNMENT, Buffers
from eqsat.streaming.chunk_lengths import usable
from eqsat.streaming.planner import StreamPlanner
from eqsat.streaming.step_uses import StepUses
from eqsat.streaming.steps import ControlFlow, Pass, Step, Streaming, passes_in
from eqsat.targets.catalogue import find_target
from tests.stages import normal
from tests.streaming.unplanned import every_steps, planner, run_by_passes, steps_of

X, Y = normal(4_000, 2), normal(3_000, 2)


def settled(x: Any, y: Any) -> Any:
    """A loop for each block of x, every iteration of which reads all of y."""

    def pulled(_: Any, centre: Any) -> Any:
        return 0.5 * centre + jnp.max(jnp.tanh(y * centre), 0)

    return jax.vmap(lambda block: lax.fori_loop(0, 3, pulled, block.sum(0)))(x.reshape(40, 100, 2))


def products(x: Any, y: Any) -> Any:
    return jnp.max(x @ y.T, 1)


def of_two_shapes(x: Any, y: Any) -> Any:
    """Passes of chunks of different sizes, one after the other."""
    return (x - x.mean(0)).max(), jnp.exp(y[:, 0] - y[:, 0].max()).sum(), (y - y.mean(0)).max()


def loops_around_passes(steps: Sequence[Step]) -> bool:
    """Whether control flow inside of a pass makes passes."""
    flows = [step for one in passes_in(steps) for step in one.steps if isinstance(step, ControlFlow)]
    return any(next(passes_in(body), None) for flow in flows for body in flow.bodies)


def with_loops_around_passes() -> tuple[StreamPlanner, Streaming]:
    """Steps with control flow inside of a pass that makes passes, and both read."""
    plan = planner(settled, (X, Y), (0, 1))

    def all_read(steps: Streaming) -> bool:
        longest = longest_chunks(steps, {one.id: 1 for one in steps.passes})
        return all(chunk_bytes(one, longest) for one in steps.passes)

    with plan.settings.alone():
        found = every_steps(plan, 16_000)
        return plan, next(s for s in found if loops_around_passes(s.steps) and all_read(s))


class Watched:
    """The bytes of all buffers that there are, and the most that there were at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.most = 0
        self.known: set[int] = set()
        take = Buffers.take

        def watched(buffers: Buffers, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
            found = raw = take(buffers, shape, dtype)
            while isinstance(raw.base, np.ndarray):
                raw = raw.base
            if id(raw) not in self.known:
                self.changed(id(raw), raw.nbytes - ALIGNMENT)
                weakref.finalize(raw, self.changed, id(raw), ALIGNMENT - raw.nbytes)
            return found

        monkeypatch.setattr(Buffers, "take", watched)

    def changed(self, number: int, count: int) -> None:
        self.known ^= {number}
        self.now += count
        self.most = max(self.most, self.now)


def slowly(_: Any) -> None:
    """What happens after each chunk: meanwhile, readers come as far as they may."""
    time.sleep(0.005)


def test_control_flow_in_a_pass_reads_ahead_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, steps = with_loops_around_passes()
    lengths = dict(zip((one.id for one in steps.passes), (10, 500), strict=True))
    longest = longest_chunks(steps, lengths)
    outer, inner = (chunk_bytes(one, longest) for one in steps.passes)
    assert outer > inner > 0
    assert ahead_bytes(steps.steps, longest) == current_bytes(steps.steps, longest) == outer + inner
    watched = Watched(monkeypatch)
    (found,) = run_by_passes(plan, steps, (eqsat.on_host(X), eqsat.on_host(Y)), lengths, slowly)
    np.testing.assert_allclose(found, settled(X, Y), rtol=1e-5)
    assert watched.most == 2 * (outer + inner)


def test_chunks_that_are_freed_late_count_on_the_device() -> None:
    plan = planner(products, (X, Y), (0, 1))
    steps = steps_of(plan, 4_000)
    lengths = {one.id: usable(one, 300) for one in steps.passes}
    early, late = (list(StepUses(steps, lengths, {}, late=count)) for count in (0, 1))
    ahead = ahead_bytes(steps.steps, longest_chunks(steps, lengths))
    assert [use.beside - other.beside for use, other in zip(late, early, strict=True)] == [ahead] * len(early)
    assert find_target("h100").machine.late_chunks == 1


def test_states_that_are_saved_count_on_the_host() -> None:
    plan = planner(lambda x: (jnp.cumsum(x, 0) * lax.cumsum(x, 0, reverse=True)).max(0), (X,), (0,))
    steps = steps_of(plan, 4_000)
    saving, last = steps.passes
    assert saving.id == last.id
    lengths = {saving.id: 100}
    assert saved_bytes(steps, lengths) == 2 * 40 * 2 * 4  # totals, and their excess
    found: dict[str, Any] = {}
    sizes = lambda run: found.update(  # noqa: E731
        {key.kind: array.nbytes for key, array in run.arrays.items() if key.kind == "saved"}
    )
    run_by_passes(plan, steps, (eqsat.on_host(X),), lengths, sizes)
    assert found == {"saved": 40 * 2 * 4}


def test_nested_passes_are_each_at_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planner(products, (X, Y), (0, 1))
    steps = steps_of(plan, 4_000)
    length = 300
    longest = longest_chunks(steps, {one.id: usable(one, length) for one in steps.passes})
    outer, inner = (chunk_bytes(one, longest) for one in steps.passes)
    assert isinstance(steps.steps[0], Pass)
    watched = Watched(monkeypatch)
    run_by_passes(plan, steps, (eqsat.on_host(X), eqsat.on_host(Y)), length, slowly)
    counted = current_bytes(steps.steps, longest) + ahead_bytes(steps.steps, longest)
    assert watched.most == counted == outer + inner + max(outer, inner)


def test_buffers_of_earlier_passes_go(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = np.repeat(Y, 3, axis=1)
    plan = planner(of_two_shapes, (X, wide), (0, 1))
    steps = steps_of(plan, 8_000)
    length = 100
    longest = longest_chunks(steps, {one.id: usable(one, length) for one in steps.passes})
    sizes = {chunk_bytes(one, longest) for one in steps.passes}
    assert len(sizes) > 1
    watched = Watched(monkeypatch)
    run_by_passes(plan, steps, (eqsat.on_host(X), eqsat.on_host(wide)), length, slowly)
    assert watched.most == 2 * max(sizes)


@pytest.mark.parametrize("options", [{}, {"checkpoint": "folder"}])
def test_results_in_arrays_share_the_host_budget(options: dict[str, Any]) -> None:
    """Whether they are there from the start, or are read from a checkpoint's file in the end."""
    x = eqsat.on_host(X)
    just = eqsat.optimize(lambda x: 2 * x, budget="20kB", host_budget=X.nbytes + 2_000, **options).plan(x)
    assert isinstance(just, eqsat.StreamPlan)
    assert X.nbytes < just.host_bytes <= X.nbytes + 2_000
    for host in (X.nbytes, X.nbytes + 20):
        with pytest.raises(BudgetError, match=r"results in arrays of NumPy.*: name files for them"):
            eqsat.optimize(lambda x: 2 * x, budget="20kB", host_budget=host, **options).plan(x)


def test_results_elsewhere_do_not_count() -> None:
    x = eqsat.on_host(X)
    plan = eqsat.optimize(lambda x: 2 * x, budget="20kB", host_budget="2kB", out="out.npy").plan(x)
    assert isinstance(plan, eqsat.StreamPlan)
    assert plan.host_bytes <= 2_000
