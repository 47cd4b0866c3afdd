"""The time of a program, by its compiled text and the rates of a machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from eqsat.backend.certificate import certify
from eqsat.backend.hlo import parse
from eqsat.backend.module_time import estimated_seconds
from eqsat.targets.catalogue import find_target
from eqsat.targets.machine import Machine

N = 2048
LONG = 16_384
"""To read an array of so many rows and columns takes an H100 320 us, as long as 64 launches."""
H100 = find_target("h100").machine


def shape(*lengths: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(lengths, jnp.float32)


def seconds(function: Callable[..., Any], *avals: jax.ShapeDtypeStruct, target: str = "h100") -> float:
    """Returns the estimate for a function on a target."""
    found = certify(lambda *xs: jax.tree.leaves(function(*xs)), avals, target=find_target(target))
    assert found.seconds is not None
    return found.seconds


def test_a_copy_of_a_large_array_takes_its_bytes_over_the_bandwidth() -> None:
    entries = 1 << 30
    expected = 2 * 4 * entries / H100.bytes
    assert seconds(lambda x: x + 1, shape(entries)) == pytest.approx(expected, rel=0.01)


def test_a_large_product_takes_its_operations_over_the_rate_and_its_bytes_over_the_bandwidth() -> None:
    n = 16_384
    moving = 3 * 4 * n**2 / H100.bytes
    assert seconds(lambda x, y: x @ y, shape(n, n), shape(n, n)) == pytest.approx(
        2 * n**3 / H100.reduced_flops + moving, rel=0.01
    )
    precise = seconds(lambda x, y: jnp.matmul(x, y, precision="highest"), shape(n, n), shape(n, n))
    assert precise == pytest.approx(2 * n**3 / H100.flops + moving, rel=0.01)


def test_a_product_with_few_tiles_leaves_most_of_a_gpu_idle() -> None:
    """256 x 64 entries are four tiles of 64 x 64, for 132 processors that compute two at a time."""
    depth = 32_000
    operations = 2 * 256 * 64 * depth / H100.reduced_flops * (2 * 132 / 4)
    found = seconds(lambda x, y: x @ y.T, shape(256, depth), shape(64, depth))
    assert operations < found < 1.5 * operations


def test_what_a_loop_runs_counts_for_every_iteration() -> None:
    def loop(times: int) -> Callable[[Any], Any]:
        return lambda x: lax.fori_loop(0, times, lambda _, y: jnp.sin(y @ y), x)

    one, many = (seconds(loop(times), shape(N, N)) for times in (10, 1000))
    assert many == pytest.approx(100 * one, rel=0.05)


def test_a_slice_of_a_large_array_is_read_alone() -> None:
    """A loop that reads one row per iteration reads the array once."""

    def rows(x: Any) -> Any:
        return lax.scan(lambda total, row: (total + jnp.sin(row), None), jnp.zeros(LONG), x)[0]

    assert seconds(rows, shape(LONG, LONG)) < LONG * (H100.iteration + 4 * H100.call)


def test_an_update_in_place_writes_the_update_alone() -> None:
    def updated(x: Any) -> Any:
        return lax.scan(lambda c, row: (c, jnp.cos(row)), 0.0, x)[1]

    assert seconds(updated, shape(LONG, LONG)) < LONG * (H100.iteration + 4 * H100.call)


def test_the_largest_of_rows_cost_more_than_their_sums() -> None:
    x = shape(4_000, 100_000)
    assert seconds(lambda x: lax.top_k(x, 10)[1], x) > 5 * seconds(lambda x: jnp.sum(x, 1), x)


def test_a_long_sum_inside_of_another_costs_more_than_its_operations() -> None:
    """On an H200, a kernel matrix's entry took 1.4 ps with three coordinates, and 9.9 ps with ten."""

    def kernel(x: Any, y: Any) -> Any:
        return jnp.sum(jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, -1)), 1)

    n = 50_000
    short, long = (seconds(kernel, shape(n, d), shape(n, d)) for d in (3, 8))
    assert long > 3 * short


def test_expensive_functions_take_longer_than_cheap_ones() -> None:
    x, y = shape(1 << 16), shape(1 << 16)
    cheap = seconds(lambda x, y: jnp.sum(x[:, None] * y, 1), x, y)
    dear = seconds(lambda x, y: jnp.sum(jnp.tan(x[:, None] * y), 1), x, y)
    assert dear > 2 * cheap


def test_a_tpu_states_the_cycles_of_its_kernels() -> None:
    """For this kernel, they come to 1.8 times the operations alone, the optimal seconds."""
    n = 8192
    found = certify(lambda x, y: [x @ y], [shape(n, n)] * 2, target=find_target("tpu-v5e"))
    assert found.seconds is not None
    assert 1 <= found.seconds / found.executable.cost_analysis()["optimal_seconds"] < 2


def test_trips_come_from_the_condition_where_none_are_stated() -> None:
    text = """\
%body (p: (s32[], f32[1000000])) -> (s32[], f32[1000000]) {
  %p = (s32[], f32[1000000]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[1000000]{0} get-tuple-element(%p), index=1
  %y = f32[1000000]{0} negate(%x)
  ROOT %t = (s32[], f32[1000000]{0}) tuple(%i, %y)
}

%condition (p: (s32[], f32[1000000])) -> pred[] {
  %p = (s32[], f32[1000000]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %c = s32[] constant(7)
  ROOT %lt = pred[] compare(%i, %c), direction=LT
}

ENTRY %main (p: (s32[], f32[1000000])) -> (s32[], f32[1000000]) {
  %p = (s32[], f32[1000000]{0}) parameter(0)
  ROOT %w = (s32[], f32[1000000]{0}) while(%p), condition=%condition, body=%body
}
"""
    machine = Machine(call=0.0, elements=1e30, bytes=1e6, cached_bytes=1e6)
    one = 2 * 4.0  # four bytes are read and four are written, a million times, at a million bytes per second
    assert estimated_seconds(parse(text), machine) == pytest.approx(7 * one, rel=1e-3)
