"""Functions called inside a `shard_map` that talk over the mesh: planned for one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec

import eqsat
from eqsat.frontend.per_device import per_device
from eqsat.frontend.trace_context import NOWHERE, TraceContext
from tests.kernels import close
from tests.stages import normal

DEVICES = len(jax.devices())
ROWS, EVERYTHING = PartitionSpec("rows"), PartitionSpec()


def mapped(f: Callable[..., Any], specs: Any, out: Any, check_vma: bool = True) -> Callable[..., Any]:
    mesh = jax.make_mesh((DEVICES,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    return jax.shard_map(f, mesh=mesh, in_specs=specs, out_specs=out, check_vma=check_vma)


def kernel_sums(x: Any, v: Any) -> tuple[Any, Any]:
    """All points are gathered; each device has the rows of its own."""
    y, w = (lax.all_gather(each, "rows", tiled=True) for each in (x, v))
    row = jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, -1)) @ w
    return row, lax.psum(jnp.sum(row), "rows")


@pytest.mark.parametrize("check_vma", [True, False])
def test_a_function_with_collectives_is_planned_for_one_device(check_vma: bool) -> None:
    x, v = normal(400, 3), normal(400)
    small = eqsat.optimize(kernel_sums, budget=60_000)
    out = (ROWS, EVERYTHING)
    options = eqsat.compiler_options()
    run = jax.jit(mapped(small, (ROWS, ROWS), out, check_vma), compiler_options=options)
    close(run(x, v), jax.jit(mapped(kernel_sums, (ROWS, ROWS), out, check_vma))(x, v), rtol=1e-4)
    used = run.lower(x, v).compile().memory_analysis()
    assert used is not None
    assert used.temp_size_in_bytes < 60_000


def test_all_collectives_are_kept() -> None:
    def talks(x: Any) -> Any:
        around = [(device, (device + 1) % DEVICES) for device in range(DEVICES)]
        return (
            lax.psum(x, "rows") + lax.pmax(x, "rows") - lax.pmin(x, "rows"),
            lax.ppermute(jnp.exp(x), "rows", around) * (1 + lax.axis_index("rows")),
            lax.psum_scatter(jnp.tile(x, (DEVICES, 1)), "rows", tiled=True),
            lax.all_to_all(jnp.tile(x, (DEVICES, 1)), "rows", 0, 1, tiled=True),
            lax.all_gather(x, "rows", axis=1).reshape(len(x), -1),
        )

    x = normal(8 * DEVICES, 6)
    optimized = eqsat.optimize(talks, budget="1MB")
    got, wanted = (jax.jit(mapped(f, ROWS, ROWS, check_vma=False))(x) for f in (optimized, talks))
    close(got, wanted)


def test_loops_and_choices_with_collectives_inside() -> None:
    def talks(x: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            return lax.pmean(carry, "rows") + row, lax.psum(row, "rows")

        carry, stacked = lax.scan(step, jnp.zeros(x.shape[1:]), jnp.sin(x))
        chosen = lax.cond(lax.psum(jnp.sum(x), "rows") > 0, jnp.exp, jnp.cos, carry)
        return chosen + jnp.sum(stacked, 0)

    x = normal(4 * DEVICES, 6)
    got, wanted = (
        jax.jit(mapped(f, ROWS, ROWS, check_vma=False))(x)
        for f in (eqsat.optimize(talks, budget="1MB"), talks)
    )
    close(got, wanted)


def test_scatters_and_reductions_by_a_function_stay() -> None:
    """They have programs inside that say nothing to other devices."""

    def talks(x: Any) -> Any:
        counts = jnp.zeros(5).at[jnp.arange(len(x)) % 5].add(x[:, 0])
        tops = lax.reduce(x, -jnp.inf, lambda a, b: jnp.maximum(a, b), (1,))
        rolled = jax.nn.relu(x)
        return lax.psum(counts, "rows"), tops, rolled

    x = normal(8 * DEVICES, 6)
    out = (EVERYTHING, ROWS, ROWS)
    got, wanted = (jax.jit(mapped(f, ROWS, out))(x) for f in (eqsat.optimize(talks, budget="1MB"), talks))
    close(got, wanted)
    inside = eqsat.optimize(mapped(talks, ROWS, out), budget="1MB")
    close(inside(x), wanted)


def test_what_is_called_elsewhere_is_no_program_of_one_device() -> None:
    closed = jax.make_jaxpr(jnp.sin)(1.0)
    assert per_device(closed, NOWHERE) is None
    batch = TraceContext(NOWHERE.mesh, (("batch", 3),))
    assert per_device(closed, batch) is None
