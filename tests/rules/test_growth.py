"""The whole library at once: how large the e-graphs of typical programs become, and that no rule explodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from eqsat.ir.ops import Operation
from eqsat.planning.capped_extraction import attempts
from eqsat.planning.search_space import SearchSpace, prepare
from eqsat.rulesets.selection import rules_for
from eqsat.targets.cpu import CPU
from examples import programs


def shapes(*lengths: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in lengths)


def shapes_of(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), np.asarray(leaf).dtype), tree)


GP = shapes_of(programs.sparse_gp_data(4000, 100))


def explored(fn: Callable[..., Any], arguments: Any, budget: int, accuracy: str) -> SearchSpace:
    program, _ = lower(trace(fn, arguments, {}).closed)
    return prepare(program, rules_for((), accuracy), budget, CPU)


@pytest.mark.parametrize("accuracy", ["reassociates", "cancels"])
@pytest.mark.parametrize(
    ("fn", "arguments", "budget", "most"),
    [
        (programs.kernel_matvec, shapes((10**5, 3), (10**5, 3), (10**5,)), 500_000_000, 300),
        (programs.attention, shapes(*[(8192, 64)] * 3), 50_000_000, 400),
        (programs.nearest_neighbours, shapes((60_000, 784), (10_000, 784)), 300_000_000, 200),
        (programs.chain, shapes((20_000, 500), (500, 20_000), (20_000,)), 100_000_000, 100),
        (programs.sparse_gp_bound, GP, 4_000_000, 3500),
    ],
)
def test_typical_programs_are_explored_to_the_end(
    fn: Callable[..., Any], arguments: Any, budget: int, most: int, accuracy: str
) -> None:
    saturation = explored(fn, arguments, budget, accuracy).saturation
    assert saturation.stop_reason == "saturated"
    assert saturation.graph.node_count <= most


def test_a_large_program_stays_within_bounds() -> None:
    search = explored(programs.sparse_gp, GP, 4_000_000, "reassociates")
    assert search.saturation.graph.node_count <= 8000
    assert len(search.saturation.banned) <= 1
    # What has several names is computed under one of them.
    candidate = next(attempts(search, 4_000_000))[0]
    ops = [term.op for term in candidate.schedule.program.reachable()]
    assert sum(isinstance(op, Operation) and op.spec.name == "cholesky" for op in ops) == 2
