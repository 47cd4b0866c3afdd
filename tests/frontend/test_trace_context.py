"""Optimised functions under meshes and mapped axes, and on arrays that are spread over devices."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import eqsat
from tests.kernels import close, kernel
from tests.nightly import nightly_but
from tests.stages import normal

BUDGET = 20_000
"""The kernel matrix of 80 and 100 points takes 32 kB."""

POINTS = normal(80, 3), normal(100, 3), normal(100)
SMALL = eqsat.optimize(kernel, budget=BUDGET)
DEVICES = len(jax.devices())
"""One; this file also runs by itself, with four."""


def mesh(axis_type: AxisType = AxisType.Auto) -> Mesh:
    return jax.make_mesh((DEVICES,), ("rows",), axis_types=(axis_type,))


def by_rows(f: Callable[..., Any], check_vma: bool) -> Callable[..., Any]:
    """Every device has some of the first points, and all of the others."""
    rows, everything = PartitionSpec("rows"), PartitionSpec()
    return jax.shard_map(
        f, mesh=mesh(), in_specs=(rows, everything, everything), out_specs=rows, check_vma=check_vma
    )


def with_mean(x: Any, y: Any, v: Any) -> Any:
    return kernel(x, y, v) - lax.pmean(jnp.mean(x), "rows")


def looped(f: Callable[..., Any]) -> Callable[..., Any]:
    def loop(x: Any, y: Any, v: Any) -> Any:
        return lax.scan(lambda c, w: (c + f(x, y, w), None), x[:, 0], jnp.stack([v, -2 * v]))[0]

    return loop


INSIDE: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "loop": looped,
    "gradient": lambda f: jax.grad(lambda *xs: jnp.sum(f(*xs) ** 2)),
    "tangent": lambda f: lambda *xs: sum(jax.jvp(f, xs, xs)),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("name", "check_vma"), [("loop", True), ("gradient", True), ("tangent", True), ("loop", False)]
)
def test_inside_shard_map(name: str, check_vma: bool) -> None:
    inside = INSIDE[name]
    got, wanted = (jax.jit(by_rows(inside(f), check_vma))(*POINTS) for f in (SMALL, kernel))
    close(got, wanted, rtol=1e-3)


def gradient_through(f: Callable[..., Any], check_vma: bool) -> Any:
    mapped = by_rows(f, check_vma)
    return jax.jit(jax.value_and_grad(lambda *xs: jnp.sum(mapped(*xs) ** 2), (0, 1, 2)))(*POINTS)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("check_vma", nightly_but({True}, [True, False]))
@pytest.mark.parametrize(("fn", "budget"), [(kernel, BUDGET), (with_mean, 10 * BUDGET)])
def test_gradients_through_shard_map(fn: Callable[..., Any], budget: int, check_vma: bool) -> None:
    """What all devices have gets what comes from all of them; functions may talk over the mesh's axis."""
    small = eqsat.optimize(fn, budget=budget)
    close(gradient_through(small, check_vma), gradient_through(fn, check_vma), rtol=1e-3)


@pytest.mark.nightly
@pytest.mark.one_in(2)
@pytest.mark.parametrize("check_vma", [True, False])
def test_what_talks_over_a_mesh_keeps_to_the_budget_of_each_device(check_vma: bool) -> None:
    mapped = by_rows(eqsat.optimize(with_mean, budget=BUDGET // 2), check_vma)
    close(jax.jit(mapped)(*POINTS), jax.jit(by_rows(with_mean, check_vma))(*POINTS))
    with pytest.raises(eqsat.BudgetError, match="with_mean"):
        jax.jit(by_rows(eqsat.optimize(with_mean, budget=2_000), check_vma))(*POINTS)
    # Its gradient needs more than it does.
    with pytest.raises(eqsat.BudgetError, match="the gradient of with_mean"):
        gradient_through(eqsat.optimize(with_mean, budget=4_200), check_vma)


def test_shard_map_without_jit() -> None:
    close(by_rows(SMALL, True)(*POINTS), kernel(*POINTS))


def test_functions_may_talk_over_an_axis_of_vmap() -> None:
    def centred(x: Any) -> Any:
        return (x - lax.pmean(x, "batch")) * lax.axis_index("batch") / lax.axis_size("batch")

    for size in (3, 4):
        batch = normal(size, 5)
        got, wanted = (
            jax.vmap(f, axis_name="batch")(batch) for f in (eqsat.optimize(centred, budget="1MB"), centred)
        )
        close(got, wanted)


def test_what_talks_over_an_axis_of_vmap_is_planned_as_a_program_over_the_batch() -> None:
    def centred(x: Any, y: Any, v: Any) -> Any:
        return kernel(x - lax.pmean(x, "batch"), y, v)

    optimized = eqsat.optimize(centred, budget=BUDGET)
    batch = normal(2, 80, 3)

    def over_batch(f: Callable[..., Any]) -> Callable[..., Any]:
        return jax.vmap(f, (0, None, None), axis_name="batch")

    def asking(*args: Any) -> Any:
        with pytest.raises(eqsat.EqsatError, match="depends on the mapped axis"):
            optimized.plan(*args)
        return optimized(*args)

    wanted = over_batch(centred)(batch, *POINTS[1:])  # takes 64 kB
    close(over_batch(asking)(batch, *POINTS[1:]), wanted)
    close(jax.jit(over_batch(jax.jit(optimized)))(batch, *POINTS[1:]), wanted)
    gradient = [
        jax.grad(lambda *xs, f=f: jnp.sum(over_batch(f)(*xs) ** 2))(batch, *POINTS[1:])
        for f in (optimized, centred)
    ]
    close(*gradient, rtol=1e-3)


def test_an_axis_of_vmap_may_be_asked_for_what_does_not_vary_along_it() -> None:
    def asks(x: Any) -> Any:
        return x * lax.axis_index("batch") + lax.psum(1.0, "batch")

    for f in (eqsat.optimize(asks, budget="1MB"), asks):
        got = jax.vmap(f, in_axes=None, axis_name="batch", axis_size=3)(jnp.float32(2))
        close(got, jnp.array([3.0, 5.0, 7.0]))


def spread(array: Any, *axes: str | None, axis_type: AxisType = AxisType.Auto) -> Any:
    return jax.device_put(array, NamedSharding(mesh(axis_type), PartitionSpec(*axes)))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("spread_over", [(0,), (1, 2)])
def test_arrays_spread_over_devices(spread_over: tuple[int, ...]) -> None:
    args = [spread(a, "rows") if n in spread_over else a for n, a in enumerate(POINTS)]
    close(SMALL(*args), kernel(*POINTS))
    close(jax.jit(SMALL)(*args), kernel(*POINTS))
    gradient = jax.grad(lambda f, *xs: jnp.sum(f(*xs) ** 2), 2)
    close(jax.jit(functools.partial(gradient, SMALL))(*args), gradient(kernel, *POINTS), rtol=1e-3)


def test_the_budget_is_that_of_each_device() -> None:
    array = normal(400, 100)
    double = eqsat.optimize(lambda x: 2 * x, budget=array.nbytes)
    if DEVICES == 1:
        with pytest.raises(eqsat.BudgetError, match="no rewriting can help"):
            double(spread(array, "rows"))
    else:
        close(double(spread(array, "rows")), 2 * array)


def test_arrays_on_another_device_stay_there() -> None:
    last = jax.devices()[-1]
    result = SMALL(*(jax.device_put(array, last) for array in POINTS))
    assert result.devices() == {last}
    close(result, kernel(*POINTS))


def test_types_with_shardings_are_compiled_as_they_are() -> None:
    with jax.set_mesh(mesh(AxisType.Explicit)):
        x = spread(POINTS[0], "rows", axis_type=AxisType.Explicit)
        rest = [spread(array, axis_type=AxisType.Explicit) for array in POINTS[1:]]
        wanted = jax.jit(kernel)(x, *rest)
        fits = eqsat.optimize(kernel, budget=10_000 + 32_000 // DEVICES)
        for got in (jax.jit(fits)(x, *rest), fits(x, *rest)):
            assert jax.typeof(got) == jax.typeof(wanted)
            close(got, wanted)
        for small in (jax.jit(eqsat.optimize(kernel, budget=8_000)), eqsat.optimize(kernel, budget=8_000)):
            if DEVICES > 1:
                assert jax.typeof(small(x, *rest)) == jax.typeof(wanted)
                close(small(x, *rest), wanted)
                continue
            with pytest.raises(eqsat.BudgetError, match="depends on the mesh"):
                small(x, *rest)


def test_functions_may_name_a_mesh() -> None:
    def constrained(x: Any, y: Any, v: Any) -> Any:
        return kernel(lax.with_sharding_constraint(x, PartitionSpec("rows")), y, v)

    with jax.set_mesh(mesh()):
        close(eqsat.optimize(constrained, budget="1MB")(*POINTS), kernel(*POINTS))
        close(SMALL(*POINTS), kernel(*POINTS))
        for small in (
            eqsat.optimize(constrained, budget=5_000),
            jax.jit(eqsat.optimize(constrained, budget=5_000)),
        ):
            close(small(*POINTS), kernel(*POINTS))


@pytest.mark.nightly
@pytest.mark.skipif(DEVICES > 1, reason="this is what it runs")
def test_all_of_this_on_four_devices() -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", __file__]
    root = Path(__file__).parents[1]
    run = subprocess.run(command, env=os.environ | flags, cwd=root, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-3000:]
    assert "1 deselected" in run.stdout
