"""On a mesh of one device, shardings and collectives say nothing, and programs are planned."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import eqsat
from eqsat.frontend.one_device import on_one_device
from tests.stages import normal

X, Y = normal(900, 3), normal(800, 3, seed=1)
MESH = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
TWO = jax.sharding.AbstractMesh((2,), ("data",), axis_types=(AxisType.Auto,))
ROWS = NamedSharding(MESH, PartitionSpec("data"))
BUDGET = 400_000
"""Bytes: a seventh of the kernel matrix."""


def kernel(x: Any, y: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1))


def constrained(x: Any, y: Any) -> Any:
    return lax.with_sharding_constraint(kernel(x, y), ROWS).sum(1)


def mapped(x: Any, y: Any) -> Any:
    def shard(x: Any, y: Any) -> Any:
        rows = lax.axis_index("data") + lax.all_gather(x, "data", tiled=True)
        return lax.pmean(kernel(rows, y), "data").sum(1), lax.psum(jnp.sum(x), "data")

    specs = PartitionSpec("data"), PartitionSpec()
    return jax.shard_map(shard, mesh=MESH, in_specs=specs, out_specs=specs, check_vma=False)(x, y)


def exchanged(x: Any, y: Any) -> Any:
    def shard(x: Any, y: Any) -> Any:
        rows = lax.psum_scatter(lax.all_to_all(x[:, None], "data", 1, 0), "data")
        columns = lax.psum_scatter(lax.all_to_all(y, "data", 1, 0, tiled=True), "data", tiled=True)
        return kernel(rows, columns + lax.ppermute(y, "data", [])).sum(1)

    spec = PartitionSpec("data")
    return jax.shard_map(shard, mesh=MESH, in_specs=spec, out_specs=spec)(x, y)


def in_a_loop(x: Any, y: Any) -> Any:
    def step(total: Any, _: Any) -> Any:
        return lax.with_sharding_constraint(total + kernel(x, y).sum(1), ROWS), None

    return lax.scan(step, jnp.zeros(len(x)), None, length=3)[0]


def differentiated(x: Any, y: Any) -> Any:
    return jax.grad(lambda x: jnp.sum(constrained(x, y) ** 2))(x)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("fn", [constrained, mapped, exchanged, in_a_loop, differentiated])
@pytest.mark.parametrize("ambient", [False, True])
def test_it_is_planned_within_the_budget(fn: Callable[..., Any], ambient: bool) -> None:
    with jax.set_mesh(MESH) if ambient else contextlib.nullcontext():
        optimized = eqsat.optimize(fn, budget=BUDGET)
        plan = optimized.plan(X, Y)
        found, expected = optimized(X, Y), jax.jit(fn)(X, Y)
    assert plan.changed
    assert plan.peak_bytes <= BUDGET < plan.original_peak_bytes
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.abs(one - other).max() <= 1e-5 * np.abs(other).max()


def test_on_several_devices_it_stays_as_it_is() -> None:
    mesh = TWO
    spec = PartitionSpec("data")

    def program(x: Any) -> Any:
        return jax.shard_map(lambda x: lax.psum(x, "data") + x, mesh=mesh, in_specs=spec, out_specs=spec)(x)

    assert on_one_device(jax.make_jaxpr(program)(X)) is None


def test_a_constraint_on_several_devices_is_not_dropped() -> None:
    sharding = NamedSharding(
        jax.sharding.AbstractMesh((2,), ("data",), axis_types=(AxisType.Auto,)), PartitionSpec("data")
    )
    closed = jax.make_jaxpr(lambda x: lax.with_sharding_constraint(x, sharding) + 1)(X)
    assert on_one_device(closed) is None


def test_checkpoints_stay() -> None:
    def loss(x: Any) -> Any:
        return jnp.sum(jax.checkpoint(lambda x: lax.with_sharding_constraint(jnp.sin(x), ROWS) ** 2)(x))

    found = on_one_device(jax.make_jaxpr(jax.grad(loss))(X))
    assert found is not None
    assert "prevent_cse" in str(found)
    assert "sharding_constraint" not in str(found)


def test_a_message_to_nobody_is_not_taken_for_one_to_itself() -> None:
    spec = PartitionSpec("data")
    program = jax.shard_map(lambda x: lax.ppermute(x, "data", []), mesh=MESH, in_specs=spec, out_specs=spec)
    found = on_one_device(jax.make_jaxpr(program)(X))
    assert found is not None
    (result,) = jax.core.eval_jaxpr(found.jaxpr, found.consts, X)
    assert (result == program(X)).all()
    assert (result == 0).all()


def test_it_is_planned_for_an_absent_device_too() -> None:
    """The mesh is one of the device at hand, whichever way it was set."""
    with jax.set_mesh(MESH):
        plan = eqsat.optimize(constrained, budget=BUDGET, target="h100").plan(X, Y)
    assert plan.peak_bytes <= BUDGET


def summed(x: Any, y: Any) -> Any:
    """What is inside of a `shard_map`: its results are the same on all devices, or not."""
    total = lax.psum(kernel(x, y).sum(1), "data")
    return total, jnp.sum(total) > 0, total * (1 + lax.axis_index("data"))


def in_a_shard_map(fn: Callable[..., Any], checked: bool) -> Callable[..., Any]:
    rows, same = PartitionSpec("data"), PartitionSpec()
    return jax.shard_map(
        fn, mesh=MESH, in_specs=(rows, same), out_specs=(same, same, rows), check_vma=checked
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("checked", [True, False])
def test_what_is_inside_of_a_shard_map_is_planned(checked: bool) -> None:
    inside = jax.jit(in_a_shard_map(eqsat.optimize(summed, budget=BUDGET), checked))
    expected = in_a_shard_map(summed, checked)
    temporary = inside.lower(X, Y).compile(eqsat.compiler_options()).memory_analysis().temp_size_in_bytes
    assert temporary <= BUDGET
    for one, other in zip(inside(X, Y), expected(X, Y), strict=True):
        assert np.abs(one - 1.0 * other).max() <= 1e-5 * np.abs(other).max()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("checked", [True, False])
def test_what_is_inside_of_a_shard_map_is_differentiated(checked: bool) -> None:
    def gradient(fn: Callable[..., Any]) -> Any:
        return jax.grad(lambda y: jnp.sum(in_a_shard_map(fn, checked)(X[:50], y)[0] ** 2))(Y[:40])

    found, expected = gradient(eqsat.optimize(summed, budget=BUDGET)), gradient(summed)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def test_what_varies_over_a_mapped_axis_too_agrees() -> None:
    """Here it is called in a `vmap` in a `shard_map`."""

    def batch(fn: Callable[..., Any]) -> Any:
        def each(x: Any) -> Any:
            return lax.psum(fn(x, Y[:40])[0], "batch")

        rows = PartitionSpec("data")
        mapped = jax.vmap(each, axis_name="batch")
        return jax.shard_map(mapped, mesh=MESH, in_specs=rows, out_specs=rows, check_vma=False)(
            X[:50].reshape(5, 10, 3)
        )

    found, expected = batch(eqsat.optimize(summed, budget="10MB")), batch(summed)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
