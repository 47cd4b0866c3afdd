"""Functions that several devices share out, by `optimize(…, mesh=…)` or as they say themselves.

This file runs by itself with eight devices; with one, all that runs is that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import eqsat
from eqsat.targets.calibration import default_target
from eqsat.targets.meshes import mesh_of, parse_mesh
from tests.nightly import nightly_but
from tests.processes import check_processes
from tests.stages import normal

DEVICES = len(jax.devices())
COUNT = 8
several = pytest.mark.skipif(COUNT > DEVICES, reason="it needs eight devices")


def make_mesh(**axes: int) -> Mesh:
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def squares(x: Any, y: Any) -> Any:
    return jnp.sum((x[:, None] - y[None]) ** 2, -1)


def kernel(x: Any, y: Any, v: Any) -> Any:
    return jnp.exp(-squares(x, y)) @ v


def sinkhorn(x: Any, y: Any) -> Any:
    cost = squares(x, y)

    def step(state: Any, _: Any) -> Any:
        f, g = state
        f = -jax.nn.logsumexp(g[None] - cost, 1)
        return (f, -jax.nn.logsumexp(f[:, None] - cost, 0)), None

    return lax.scan(step, (jnp.zeros(len(x)), jnp.zeros(len(y))), None, length=3)[0]


def k_means(x: Any, centres: Any) -> Any:
    def step(_: Any, centres: Any) -> Any:
        labels = jnp.argmin(squares(x, centres), 1)
        sums = jax.ops.segment_sum(x, labels, len(centres))
        return sums / jnp.maximum(jnp.bincount(labels, length=len(centres)), 1)[:, None]

    return lax.fori_loop(0, 3, step, centres)


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T / 4, -1) @ v


def loss(weights: Any, x: Any, target: Any) -> Any:
    hidden = jax.nn.relu(x @ weights["in"])
    return jnp.mean((hidden @ weights["out"] - target) ** 2)


WEIGHTS = {"in": normal(16, 32), "out": normal(32, 4)}

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "kernel": (kernel, (normal(1600, 3), normal(800, 3), normal(800)), 150_000),
    "gradient": (
        jax.grad(lambda *xs: jnp.sum(kernel(*xs) ** 2), (0, 1)),
        (normal(1600, 3), normal(800, 3), normal(800)),
        400_000,
    ),
    "neighbours": (
        lambda x, y: lax.top_k(-squares(x, y), 3),
        (normal(1600, 3), normal(800, 3)),
        150_000,
    ),
    "sinkhorn": (sinkhorn, (normal(800, 3), normal(400, 3)), 150_000),
    "k-means": (k_means, (normal(6400, 4), normal(16, 4)), 150_000),
    "attention": (attention, (normal(512, 16), normal(512, 16), normal(512, 16)), 200_000),
    "training": (jax.value_and_grad(loss), (WEIGHTS, normal(1600, 16), normal(1600, 4)), 200_000),
}


LINE, SQUARE = {"data": 8}, {"data": 2, "model": 4}
ALL_MESHES = [(name, axes) for name in CASES for axes in (LINE, SQUARE)]


ON_SQUARES = [("sinkhorn", SQUARE), ("training", SQUARE)]


def agree(got: Any, wanted: Any) -> None:
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-4, atol=2e-4)


@several
@pytest.mark.parametrize(
    ("name", "axes"),
    nightly_but([*((name, LINE) for name in list(CASES)[::5]), *ON_SQUARES], ALL_MESHES),
)
def test_devices_share_it_out_within_the_budget_of_each(name: str, axes: dict[str, int]) -> None:
    fn, args, budget = CASES[name]
    optimized = eqsat.optimize(fn, budget=budget, mesh=make_mesh(**axes))
    agree(optimized(*args), jax.jit(fn)(*args))
    plan = optimized.plan(*args)
    assert plan.peak_bytes <= budget
    assert all(name in plan.devices for name in axes)
    assert "on each device" in str(plan)


@several
def test_each_device_does_its_share_of_the_work() -> None:
    fn, args, _ = CASES["kernel"]
    options = eqsat.compiler_options()

    def flops(function: Any, **where: Any) -> float:
        lowered = jax.jit(function, compiler_options=options, **where).lower(*args)
        return float(lowered.compile().cost_analysis()["flops"])

    shared = eqsat.optimize(fn, budget=10_000_000, mesh={"data": COUNT})
    assert flops(shared) < 1.1 * flops(fn) / COUNT


@several
def test_results_are_where_the_plan_says() -> None:
    mesh = make_mesh(data=COUNT)
    fn, args, budget = CASES["kernel"]
    result = eqsat.optimize(fn, budget=budget, mesh=mesh)(*args)
    assert result.sharding.is_equivalent_to(NamedSharding(mesh, PartitionSpec("data")), 1)


@several
@pytest.mark.parametrize("spec", [PartitionSpec("data"), PartitionSpec()])
def test_arguments_may_be_anywhere(spec: PartitionSpec) -> None:
    mesh = make_mesh(data=COUNT)
    fn, args, budget = CASES["kernel"]
    placed = [jax.device_put(arg, NamedSharding(mesh, spec)) for arg in args]
    optimized = eqsat.optimize(fn, budget=budget, mesh=mesh)
    agree(optimized(*placed), fn(*args))
    agree(optimized(*map(np.asarray, args)), fn(*args))


@several
def test_transformations_of_it() -> None:
    fn, args, budget = CASES["kernel"]
    shared = eqsat.optimize(fn, budget=4 * budget, mesh=make_mesh(data=COUNT))
    agree(jax.jit(shared)(*args), fn(*args))

    def total(f: Any) -> Any:
        return jax.grad(lambda *xs: jnp.sum(f(*xs) ** 2), 2)(*args)

    agree(total(shared), total(fn))
    batch = jnp.stack([args[2], 2 * args[2]])
    agree(
        jax.vmap(shared, (None, None, 0))(*args[:2], batch),
        jax.vmap(fn, (None, None, 0))(*args[:2], batch),
    )


@several
def test_devices_need_not_divide_the_axis() -> None:
    x, y, v = normal(1601, 3), normal(803, 3), normal(803)
    optimized = eqsat.optimize(kernel, budget="1MB", mesh=make_mesh(data=COUNT))
    agree(optimized(x, y, v), kernel(x, y, v))
    assert "data = 8: x.0 (1,601)" in optimized.plan(x, y, v).devices


RINGS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "kernel": (kernel, (normal(1600, 32), normal(1600, 32, seed=1), normal(1600)), 150_000),
    "attention": (attention, tuple(normal(1600, 32, seed=seed) for seed in range(3)), 260_000),
    "nearest of its own": (lambda x: lax.top_k(-squares(x, x), 3), (normal(1600, 32),), 150_000),
}


@several
@pytest.mark.parametrize("name", nightly_but(["kernel"], sorted(RINGS)))
def test_parts_are_passed_round_if_the_whole_does_not_fit(name: str) -> None:
    fn, args, budget = RINGS[name]
    optimized = eqsat.optimize(fn, budget=budget, mesh=make_mesh(data=COUNT))
    agree(optimized(*args), jax.jit(fn)(*args))
    plan = optimized.plan(*args)
    assert plan.peak_bytes <= budget < args[0].nbytes + args[-1].nbytes
    assert "passed round in a ring" in plan.devices
    assert plan.communicated_bytes == sum(arg.nbytes for arg in args[1:] or args)
    assert "lax.ppermute(" in plan.source
    assert "lax.all_gather(" not in plan.source


@several
def test_what_fits_is_not_passed_round() -> None:
    fn, args, _ = RINGS["kernel"]
    plan = eqsat.optimize(fn, budget=1_000_000, mesh={"data": COUNT}).plan(*args)
    assert plan.communicated_bytes == 0


@several
@pytest.mark.nightly
def test_exact_results_are_no_sums_in_rings() -> None:
    fn, args, _ = RINGS["kernel"]
    exact = eqsat.optimize(fn, budget=150_000, mesh={"data": COUNT}, accuracy="exact")
    with pytest.raises(eqsat.BudgetError):
        exact.plan(*args)


@several
def test_exact_results_are_no_sums_over_devices() -> None:
    x, y, v = normal(1600, 3), normal(800, 3), normal(800)

    def sums(x: Any, y: Any, v: Any) -> Any:
        return kernel(x, y, v), jnp.sum(x, 0)

    for fn, split in ((kernel, "x.0 (1,600)"), (sums, "repeats")):
        exact = eqsat.optimize(fn, budget="9MB", mesh=make_mesh(data=COUNT), accuracy="exact")
        assert split in exact.plan(x, y, v).devices
        agree(exact(x, y, v), fn(x, y, v))
    assert (
        "psum" not in eqsat.optimize(sums, mesh=make_mesh(data=COUNT), accuracy="exact").plan(x, y, v).source
    )


@several
@pytest.mark.parametrize("count", [1600, 1601])
def test_captured_arrays_and_keys_are_shared_out_too(count: int) -> None:
    points = np.asarray(normal(count, 3))

    def fn(keys: Any, y: Any, v: Any) -> Any:
        noise = jax.vmap(jax.random.normal)(keys)
        return kernel(points, y, v) + noise, jax.random.key_data(keys[jnp.argsort(noise)][:3])

    args = jax.random.split(jax.random.key(0), count), normal(800, 3), normal(800)
    optimized = eqsat.optimize(fn, budget="3MB", mesh=make_mesh(data=COUNT))
    agree(optimized(*args), jax.jit(fn)(*args))
    assert "repeats" not in optimized.plan(*args).devices


@several
def test_more_devices_than_there_is_to_share_out() -> None:
    optimized = eqsat.optimize(lambda x: jnp.exp(x) @ x.T, budget="1MB", mesh=make_mesh(data=COUNT))
    x = normal(5, 3)
    agree(optimized(x), jnp.exp(x) @ x.T)
    assert "repeats" in optimized.plan(x).devices


@several
def test_a_budget_that_cannot_be_kept_is_an_error() -> None:
    fn, args, _ = CASES["kernel"]
    with pytest.raises(eqsat.BudgetError, match="kernel"):
        eqsat.optimize(fn, budget=5_000, mesh={"data": COUNT})(*args)


@several
def test_what_cannot_be_shared_out_says_so() -> None:
    def printing(x: Any) -> Any:
        jax.debug.print("{}", x[0])
        return x + 1

    x = normal(80)
    optimized = eqsat.optimize(printing, budget="1MB", mesh=make_mesh(data=COUNT))
    agree(optimized(x), x + 1)
    assert "one device computes all of it, since it has side effects" in str(optimized.plan(x))


@several
def test_a_plan_is_saved_and_loaded(tmp_path: Path) -> None:
    fn, args, budget = CASES["kernel"]
    file = tmp_path / "kernel.plan"
    plan = eqsat.optimize(fn, budget=budget, mesh=make_mesh(data=4, model=2)).plan(*args)
    assert plan.export()
    plan.save(file)
    loaded = eqsat.load(file)
    assert loaded.peak_bytes <= budget
    agree(loaded(*args), fn(*args))
    turned = Mesh(np.array(jax.devices()[::-1]).reshape(4, 2), ("data", "model"))
    result = eqsat.load(file, mesh=turned)(*args)
    agree(result, fn(*args))
    assert list(result.sharding.mesh.devices.flat) == jax.devices()[::-1]
    with pytest.raises(eqsat.EqsatError, match="planned for data = 4, model = 2, not for"):
        eqsat.load(file, mesh={"data": 8})
    content = json.loads(file.read_text())
    content["plan"]["budget_bytes"] = 100_000
    file.write_text(json.dumps(content))
    with pytest.warns(UserWarning, match="planned again"):
        again = eqsat.load(file, fn)
    assert again.replanned
    agree(again(*args), fn(*args))


def gathered(x: Any, y: Any, v: Any) -> Any:
    y, v = (lax.all_gather(each, "data", tiled=True) for each in (y, v))
    row = kernel(x, y, v)
    return row, lax.psum(jnp.sum(row), "data")


@several
def test_chunks_of_a_file_are_shared_out() -> None:
    x, centres = normal(60_000, 4), normal(30, 4)

    def summed(x: Any, centres: Any) -> Any:
        weights = jnp.exp(-squares(x, centres))
        return jnp.sum(weights, 0), jnp.argmax(weights, 1)

    shared = eqsat.optimize(summed, budget="400kB", mesh={"data": COUNT})
    plan = shared.plan(eqsat.on_host(x), centres)
    assert isinstance(plan, eqsat.StreamPlan)
    assert any("data = 8: value" in step.devices for step in plan.steps)
    totals, labels = shared(eqsat.on_host(x), centres)
    wanted = jax.jit(summed)(x, centres)
    np.testing.assert_allclose(totals, wanted[0], rtol=1e-5)
    assert np.array_equal(labels, wanted[1])


@several
@pytest.mark.parametrize("outside", [True, False])
def test_a_function_that_maps_over_devices_is_planned_by_device(outside: bool) -> None:
    mesh = make_mesh(data=COUNT)
    rows = PartitionSpec("data")

    def mapped(f: Any) -> Any:
        return jax.shard_map(f, mesh=mesh, in_specs=rows, out_specs=(rows, PartitionSpec()))

    x, y, v = CASES["kernel"][1]
    small = (
        eqsat.optimize(mapped(gathered), budget=150_000)
        if outside
        else mapped(eqsat.optimize(gathered, budget=150_000))
    )
    run = jax.jit(small, compiler_options=eqsat.compiler_options())
    agree(run(x, y, v), jax.jit(mapped(gathered))(x, y, v))
    used = run.lower(x, y, v).compile().memory_analysis()
    assert used is not None
    assert used.temp_size_in_bytes < 150_000
    if outside:
        plan = small.plan(x, y, v)
        assert plan.changed
        assert plan.peak_bytes <= 150_000 < plan.original_peak_bytes
        assert "lax.all_gather(" in plan.source


@several
def test_what_is_donated_to_a_mapped_function_is_overwritten() -> None:
    mesh = make_mesh(data=COUNT)
    rows = PartitionSpec("data")
    mapped = jax.shard_map(
        lambda x: x * lax.psum(jnp.sum(x), "data"), mesh=mesh, in_specs=rows, out_specs=rows
    )
    x = jax.device_put(normal(800, 100), NamedSharding(mesh, rows))
    wanted = mapped(x)
    found = eqsat.optimize(mapped, budget=60_000, donate_argnums=0)(x)
    agree(found, wanted)
    assert x.is_deleted()


@several
def test_what_is_too_large_inside_says_so() -> None:
    mesh = make_mesh(data=COUNT)
    mapped = jax.shard_map(
        lambda x: lax.psum(jnp.linalg.inv(x.T @ x + jnp.eye(100)), "data"),
        mesh=mesh,
        in_specs=PartitionSpec("data"),
        out_specs=PartitionSpec(),
    )
    with pytest.raises(eqsat.BudgetError, match="what each device does"):
        eqsat.optimize(mapped, budget=60_000)(normal(80, 100))


def test_meshes_by_their_axes() -> None:
    assert parse_mesh("data=4, model=2") == {"data": 4, "model": 2}
    assert dict(mesh_of({"data": 1}, default_target()).shape) == {"data": 1}
    for text in ("data8", "data=0", "=3", "a=2,a=3", "a b=2"):
        with pytest.raises(ValueError, match="lengths of its axes"):
            parse_mesh(text)
    with pytest.raises(ValueError, match="lengths of its axes by name, not 8"):
        eqsat.optimize(kernel, mesh=8)  # type: ignore[call-overload]
    with pytest.raises(eqsat.EqsatError, match="1000 devices"):
        eqsat.optimize(kernel, mesh={"data": 1000})


def test_a_mesh_of_one_device_changes_nothing() -> None:
    x, y, v = normal(80, 3), normal(100, 3), normal(100)
    plan = eqsat.optimize(kernel, budget=20_000, mesh={"data": 1}).plan(x, y, v)
    assert plan.source == eqsat.optimize(kernel, budget=20_000).plan(x, y, v).source


def test_gpus_that_are_not_there() -> None:
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((800_000, 3), (800_000, 3), (800_000,))]
    plan = eqsat.optimize(kernel, budget="500MB", target="h100", mesh={"data": COUNT}).plan(*shapes)
    assert plan.peak_bytes <= 500_000_000
    assert plan.devices == "data = 8: x.0 (800,000)"
    ring = eqsat.optimize(kernel, budget="9MB", target="h100", mesh={"data": COUNT}).plan(*shapes)
    assert ring.peak_bytes <= 9_000_000
    assert "x.0 (800,000) and y.0 (800,000); passed round in a ring: 1.6 MB of y.0" in ring.devices


def test_results_are_placed_on_gpus_that_are_not_there(tmp_path: Path) -> None:
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((8_000, 3), (8_000, 3), (8_000,))]
    whole = {"mesh": {"data": COUNT}, "out_shardings": PartitionSpec()}
    plan = eqsat.optimize(kernel, budget="5MB", target="h100", **whole).plan(*shapes)
    assert "data = 8: " in plan.devices
    assert plan.sharing.collectives[-1].bytes == 8_000 * 4
    plan.save(tmp_path / "kernel.plan")


@pytest.mark.skipif(DEVICES > 1, reason="this is what it runs")
def test_all_of_this_on_eight_devices() -> None:
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={COUNT}"}
    here = Path(__file__)
    files = [here, here.with_name("test_mesh_shardings.py"), here.with_name("test_random_meshes.py")]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", *files]
    root = Path(__file__).parents[1]
    run = subprocess.run(command, env=os.environ | flags, cwd=root, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-3000:]


@pytest.mark.nightly
@pytest.mark.skipif(DEVICES > 1, reason="each process has devices of its own")
@pytest.mark.parametrize("count", [2, 4])
def test_several_processes_share_it_out(count: int) -> None:
    check_processes("tests.several_processes", count)
