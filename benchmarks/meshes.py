"""Functions that several devices share out: as planned, as XLA partitions them, and by hand.

    python -m benchmarks.meshes                 # on eight virtual CPU devices
    python -m benchmarks.meshes --paper         # for 8, 64 and 256 H100s that are not there

The first runs every program three ways on the same arguments: as planned with `mesh=`; by `jax.jit` with the
first arguments sharded; and, for some, as a `shard_map` that a person would write. Peaks are of one device.
Bytes are those of the results of all collectives in the compiled program, and operations are XLA's count.
Both count the body of a loop once, so operations of plans with loops are too few.

The second plans programs that grow with the number of devices. Writes `benchmarks/results/meshes-<cpu>.md` or
`meshes-paper-<cpu>.md`, and the rows as `.json`.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular
from jax.sharding import PartitionSpec as P

import eqsat
from benchmarks.records import markdown, write
from benchmarks.zoo import difference

DEVICES = 8
RUNS = 5
COLLECTIVE = re.compile(
    r"= \(?((?:\w+\[[\d,]*\](?:\{[\d,]*\})?(?:, )?)+)\)? (all-reduce|all-gather|collective-permute)\("
)
SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
COUNTS = (8, 64, 256)

Array = Any


def squares(x: Array, y: Array) -> Array:
    return jnp.sum((x[:, None] - y[None]) ** 2, -1)


def kernel(x: Array, y: Array, v: Array) -> Array:
    return jnp.exp(-0.5 * squares(x, y)) @ v


def kernel_loss(x: Array, y: Array, v: Array) -> Array:
    return jnp.sum(kernel(x, y, v) ** 2)


def neighbours(x: Array, y: Array) -> Array:
    return tuple(lax.top_k(-squares(x, y), 5))


def discrepancy(x: Array, y: Array) -> Array:
    def mean(a: Array, b: Array) -> Array:
        return jnp.mean(jnp.exp(-0.5 * squares(a, b)))

    return mean(x, x) + mean(y, y) - 2 * mean(x, y)


def sinkhorn(x: Array, y: Array) -> Array:
    cost = squares(x, y)

    def step(state: Any, _: Any) -> Any:
        f = -jax.nn.logsumexp(state[1][None] - cost, 1)
        return (f, -jax.nn.logsumexp(f[:, None] - cost, 0)), None

    return lax.scan(step, (jnp.zeros(len(x)), jnp.zeros(len(y))), None, length=10)[0]


def sinkhorn_by_hand(x: Array, y: Array) -> Array:
    cost = squares(x, y)

    def step(state: Any, _: Any) -> Any:
        f = -jax.nn.logsumexp(state[1][None] - cost, 1)
        terms = f[:, None] - cost
        top = lax.pmax(jnp.max(terms, 0), "data")
        g = -(top + jnp.log(lax.psum(jnp.sum(jnp.exp(terms - top), 0), "data")))
        return (f, g), None

    return lax.scan(step, (jnp.zeros(len(x)), jnp.zeros(len(y))), None, length=10)[0]


def attention(q: Array, k: Array, v: Array) -> Array:
    return jnp.einsum("hij,hjd->hid", jax.nn.softmax(jnp.einsum("hid,hjd->hij", q, k) / 8, -1), v)


def attention_in_a_ring(q: Array, k: Array, v: Array) -> Array:
    """Attention of which each device has some rows; keys and values are passed round (Liu et al., 2023)."""

    def step(state: Any, _: Any) -> Any:
        top, total, mean, k, v = state
        scores = jnp.einsum("hid,hjd->hij", q, k) / 8
        highest = jnp.maximum(top, jnp.max(scores, -1))
        weights = jnp.exp(scores - highest[..., None])
        kept = jnp.exp(top - highest)
        mean = mean * kept[..., None] + jnp.einsum("hij,hjd->hid", weights, v)
        return (highest, total * kept + jnp.sum(weights, -1), mean, passed_on(k), passed_on(v)), None

    start = jnp.full(q.shape[:2], -jnp.inf), jnp.zeros(q.shape[:2]), jnp.zeros_like(q)
    (_, total, mean, _, _), _ = lax.scan(step, (*start, k, v), None, length=DEVICES)
    return mean / total[..., None]


def passed_on(x: Array) -> Array:
    """What the next device had."""
    return lax.ppermute(x, "data", [((device + 1) % DEVICES, device) for device in range(DEVICES)])


def kernel_in_a_ring(x: Array, y: Array, v: Array) -> Array:
    def step(state: Any, _: Any) -> Any:
        total, y, v = state
        return (total + kernel(x, y, v), passed_on(y), passed_on(v)), None

    return lax.scan(step, (jnp.zeros(len(x)), y, v), None, length=DEVICES)[0][0]


def k_means(x: Array, centres: Array) -> Array:
    def step(_: Any, centres: Array) -> Array:
        labels = jnp.argmin(squares(x, centres), 1)
        sums = jax.ops.segment_sum(x, labels, len(centres))
        counts = jax.ops.segment_sum(jnp.ones(len(x)), labels, len(centres))
        return sums / jnp.maximum(counts, 1)[:, None]

    return lax.fori_loop(0, 10, step, centres)


def k_means_by_hand(x: Array, centres: Array) -> Array:
    def step(_: Any, centres: Array) -> Array:
        labels = jnp.argmin(squares(x, centres), 1)
        sums = lax.psum(jax.ops.segment_sum(x, labels, len(centres)), "data")
        counts = lax.psum(jax.ops.segment_sum(jnp.ones(len(x)), labels, len(centres)), "data")
        return sums / jnp.maximum(counts, 1)[:, None]

    return lax.fori_loop(0, 10, step, centres)


def sparse_gp(x: Array, y: Array, inducing: Array) -> Array:
    """The collapsed bound of sparse GP regression, up to a constant (Titsias, 2009, equation 9)."""
    kuu = jnp.exp(-0.5 * squares(inducing, inducing)) + 0.1 * jnp.eye(len(inducing))
    kuf = jnp.exp(-0.5 * squares(inducing, x))
    a = solve_triangular(jnp.linalg.cholesky(kuu), kuf, lower=True)
    inner = jnp.linalg.cholesky(jnp.eye(len(inducing)) + a @ a.T)
    c = solve_triangular(inner, a @ y, lower=True)
    return jnp.sum(jnp.log(jnp.diag(inner))) + 0.5 * (jnp.sum(y**2) - jnp.sum(c**2) + len(x) - jnp.sum(a**2))


def loss(weights: Sequence[Array], x: Array, target: Array) -> Array:
    for matrix in weights[:-1]:
        x = jax.nn.relu(x @ matrix)
    return jnp.mean((x @ weights[-1] - target) ** 2)


def training_by_hand(weights: Sequence[Array], x: Array, target: Array) -> Any:
    return jax.tree.map(lambda leaf: lax.pmean(leaf, "data"), jax.value_and_grad(loss)(weights, x, target))


ROWS, ALL = P("data"), P()


@dataclass(frozen=True)
class Case:
    """A program: its arguments' shapes, a budget in bytes, and what a person would write, with its specs."""

    name: str
    function: Callable[..., Any]
    shapes: Any
    budget: int
    by_hand: Callable[..., Any] | None = None
    ins: Any = None
    outs: Any = None


def cases() -> list[Case]:
    n, m = 16_000, 8_000
    three = ((n, 3), (m, 3), (m,))
    layers = [(64, 256), (256, 256), (256, 8)]
    return [
        Case("kernel matvec", kernel, three, 2_000_000, kernel, (ROWS, ALL, ALL), ROWS),
        Case("its gradient", jax.grad(kernel_loss, (0, 1)), three, 4_000_000),
        Case("5 nearest", neighbours, three[:2], 2_000_000, neighbours, (ROWS, ALL), (ROWS, ROWS)),
        Case("MMD", discrepancy, ((n, 8), (m, 8)), 4_000_000),
        Case("Sinkhorn", sinkhorn, three[:2], 2_000_000, sinkhorn_by_hand, (ROWS, ALL), (ROWS, ALL)),
        Case(
            "attention, 4 heads × 2,048",
            attention,
            ((4, 2_048, 64),) * 3,
            8_000_000,
            attention,
            (P(None, "data"), ALL, ALL),
            P(None, "data"),
        ),
        Case(
            "kernel matvec in a ring, 32 coordinates",
            kernel,
            ((m, 32), (m, 32), (m,)),
            600_000,
            kernel_in_a_ring,
            (ROWS, ROWS, ROWS),
            ROWS,
        ),
        Case(
            "attention in a ring",
            attention,
            ((4, 2_048, 64),) * 3,
            2_600_000,
            attention_in_a_ring,
            (P(None, "data"),) * 3,
            P(None, "data"),
        ),
        Case("k-means", k_means, ((128_000, 8), (128, 8)), 3_000_000, k_means_by_hand, (ROWS, ALL), ALL),
        Case("sparse GP and gradient", jax.value_and_grad(sparse_gp, 2), ((n, 3), (n,), (200, 3)), 6_000_000),
        Case(
            "training step",
            jax.value_and_grad(loss),
            (layers, (n, 64), (n, 8)),
            8_000_000,
            training_by_hand,
            (ALL, ROWS, ROWS),
            ALL,
        ),
    ]


def made(shapes: Any) -> Any:
    generator = np.random.default_rng(0)

    def array(shape: tuple[int, ...]) -> Array:
        return jnp.asarray(0.3 * generator.standard_normal(shape), jnp.float32)

    return jax.tree.map(
        array, tuple(shapes), is_leaf=lambda one: isinstance(one, tuple) and isinstance(one[0], int)
    )


@dataclass
class Row:
    """One program in one form; bytes and seconds of a device."""

    program: str
    form: str
    devices: int
    peak: int = 0
    budget: int | None = None
    flops: float | None = None
    communicated: int = 0
    seconds: float | None = None
    error: float | None = None
    split: str = ""


def communicated(text: str) -> int:
    """Bytes of the results of the collectives in a compiled program."""
    total = 0
    for found in COLLECTIVE.finditer(text):
        for dtype, sides in SHAPE.findall(found[1]):
            bits = int(re.sub(r"\D", "", dtype) or 8)
            total += math.prod(int(side) for side in sides.split(",") if side) * max(bits // 8, 1)
    return total


def measured(case: Case, form: str, compiled: Any, arguments: Sequence[Any], expected: Any) -> Row:
    memory = compiled.memory_analysis()
    peak = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    row = Row(case.name, form, DEVICES, int(peak), flops=float(compiled.cost_analysis()["flops"]))
    row.communicated = communicated(compiled.as_text())
    row.error = difference(expected, jax.device_get(compiled(*arguments)))
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        times.append(time.perf_counter() - began)
    row.seconds = statistics.median(times)
    return row


def run(case: Case) -> list[Row]:
    """The forms of a case, on devices that are there."""
    mesh = jax.make_mesh((DEVICES,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    arguments = made(case.shapes)
    expected = jax.device_get(jax.jit(case.function)(*arguments))
    options = eqsat.compiler_options()
    shared = eqsat.optimize(case.function, budget=case.budget, mesh=mesh)
    plan = shared.plan(*arguments)
    planned = jax.jit(shared, compiler_options=options).lower(*arguments).compile()
    rows = [measured(case, "planned", planned, arguments, expected)]
    rows[0].peak, rows[0].budget, rows[0].split = plan.peak_bytes, case.budget, plan.devices

    def placed(specs: Any) -> Any:
        def place(spec: P, argument: Any) -> Any:
            return jax.tree.map(
                lambda one: jax.device_put(one, jax.sharding.NamedSharding(mesh, spec)), argument
            )

        return [place(spec, argument) for spec, argument in zip(specs, arguments, strict=True)]

    specs = case.ins or (ROWS, *[ALL] * (len(arguments) - 1))
    there = placed(specs)
    plain = jax.jit(case.function, compiler_options=options).lower(*there).compile()
    rows.append(measured(case, "jit, arguments sharded", plain, there, expected))
    if case.by_hand is not None:
        mapped = jax.shard_map(
            case.by_hand, mesh=mesh, in_specs=case.ins, out_specs=case.outs, check_vma=False
        )
        hand = jax.jit(mapped, compiler_options=options).lower(*there).compile()
        rows.append(measured(case, "shard_map by hand", hand, there, expected))
    return rows


def on_paper() -> list[Row]:
    """Programs that grow with the number of H100s, planned where there are none."""

    def shape(*sides: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(sides, jnp.float32)

    rows = []
    for count in COUNTS:
        n, many, points, long = (one * count for one in (100_000, 2_000_000, 500_000, 65_536))
        grown: list[tuple[str, Callable[..., Any], tuple[Any, ...], str]] = [
            ("kernel matvec, 100,000 points a device", kernel, (shape(n, 3), shape(n, 3), shape(n)), "4GB"),
            (
                "kernel matvec in a ring, 2,000,000 points a device",
                kernel,
                (shape(many, 3), shape(many, 3), shape(many)),
                "200MB",
            ),
            (
                "attention in a ring, 8 heads × 65,536 rows a device",
                attention,
                (shape(8, long, 64),) * 3,
                "2GB",
            ),
            ("k-means, 500,000 points a device", k_means, (shape(points, 32), shape(512, 32)), "4GB"),
            (
                "sparse GP and gradient, 100,000 points a device, 2,000 inducing",
                jax.value_and_grad(sparse_gp, 2),
                (shape(n, 11), shape(n), shape(2_000, 11)),
                "4GB",
            ),
        ]
        for name, function, arguments, budget in grown:
            plan = eqsat.optimize(function, budget=budget, target="h100", mesh={"data": count}).plan(
                *arguments
            )
            row = Row(name, "planned", count, plan.peak_bytes, plan.budget_bytes)
            row.communicated, row.seconds, row.split = (
                plan.communicated_bytes,
                plan.predicted_seconds,
                plan.devices,
            )
            rows.append(row)
    return rows


def table(rows: Sequence[Row]) -> str:
    """The figures as Markdown, sizes in MB."""

    def number(value: float | None, scale: float, digits: int = 1) -> str:
        return "–" if value is None else f"{value / scale:,.{digits}f}"

    heading = [
        "program",
        "form",
        "devices",
        "peak",
        "budget",
        "Mflop",
        "communicated",
        "ms",
        "error",
        "split",
    ]
    lines = [
        [
            row.program,
            row.form,
            str(row.devices),
            number(row.peak, 1e6),
            number(row.budget, 1e6),
            number(row.flops, 1e6, 0),
            number(row.communicated, 1e6, 3),
            number(row.seconds, 1e-3),
            "–" if row.error is None else f"{row.error:.0e}",
            row.split,
        ]
        for row in rows
    ]
    return markdown(heading, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paper", action="store_true", help="for H100s that are not there")
    options = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", DEVICES)
    rows: list[Row] = []
    if options.paper:
        rows = on_paper()
    for case in [] if options.paper else cases():
        rows += run(case)
        print(rows[-1], flush=True)
    write("meshes-paper" if options.paper else "meshes", rows, table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
