"""The rates of the machine at hand: measured when asked for, and kept for later processes.

    python -m eqsat.targets.calibration

measures for a few seconds. Without it, plans are made by what holds for machines of the same kind, which is
good enough as a rule: only ratios matter. Nothing is measured unasked.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from eqsat.support.cache_folder import cache_folder, write_atomically
from eqsat.targets.catalogue import target_of
from eqsat.targets.machine import Machine
from eqsat.targets.target import Target

MEASURED = ("flops", "reduced_flops", "elements", "bytes", "cached_bytes", "fresh", "call", "iteration")
"""The measured attributes of a machine, if it has them. The others are sizes, or belong to the compiler, as
`iteration` does of a CPU."""

LEAST = 1e-9
"""Seconds. No figure is less, however noisy the measurement."""

RUNS = 5
"""The number of runs, of which the fastest counts, since others are disturbed."""


def default_target() -> Target:
    """The target of plans if none is named: JAX's default device, with its rates as calibrated."""
    return calibrated(target_of(jax.devices()[0]), jax.devices()[0])


def calibrated(target: Target, device: jax.Device) -> Target:
    """The target that a device is, with the device's rates as calibrated, if they were."""
    return replace(target, machine=_kept(device) or target.machine)


def calibrate() -> Machine:
    """Measure the default device's rates, and keep them for this machine's later processes.

    That takes a few seconds, on a device that has nothing else to do. Plans that are made from then on
    are made for it.
    """
    device = jax.devices()[0]
    machine = _measured(target_of(device).machine, device.platform)
    path = _path(device)
    if path is not None:
        with suppress(OSError):  # a read-only disk: it is measured all the same
            write_atomically(path, json.dumps(_figures(machine), indent=2).encode() + b"\n")
    return machine


def _kept(device: jax.Device) -> Machine | None:
    """The machine as it was calibrated; None if it was not, or if the file makes no sense."""
    path = _path(device)
    if path is None:
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        machine = target_of(device).machine
        known = _figures(machine)
        right = (0 < found[name] < float("inf") or found[name] == value for name, value in known.items())
        if found.keys() == known.keys() and all(right):
            figures: dict[str, Any] = {name: type(value)(found[name]) for name, value in known.items()}
            return replace(machine, **figures)
    except (OSError, ValueError, TypeError, AttributeError):
        pass
    return None


def _figures(machine: Machine) -> dict[str, Any]:
    """All that is a number; what else there is of a machine, its description says."""
    return {name: value for name, value in asdict(machine).items() if isinstance(value, (int, float))}


def _path(device: jax.Device) -> Path | None:
    """Where the figures of a device are kept; None if nothing is."""
    folder = cache_folder()
    if folder is None:
        return None
    known = (device.platform, device.device_kind, str(jax.device_count()), _processor(), jax.__version__)
    digest = hashlib.blake2b("\n".join(known).encode(), digest_size=8).hexdigest()
    return folder / "machines" / f"{device.platform}-{digest}.json"


def _processor() -> str:
    """The model of the CPU."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line
    return platform.processor() or platform.machine()


def _measured(known: Machine, platform: str) -> Machine:
    """Rates by the fastest of a few runs each."""
    on_cpu = platform == "cpu"
    side = 1024 if on_cpu else 8192
    large = (1 << 26) if on_cpu else (1 << 28)
    few = known.cache // 16
    iterations = 200

    square = jnp.ones((side, side), jnp.float32)
    product = _seconds(lambda x: jnp.matmul(x, x, precision="highest"), square)
    reduced = _seconds(lambda x: x @ x, square) if known.reduced_flops else math.inf

    def steps(x: jax.Array) -> jax.Array:
        for number in range(32):
            x = jnp.maximum(x + number, x * 0.5)
        return x

    small = jnp.ones(few, jnp.float32)
    elementwise = _per_iteration(steps, small, iterations)
    again = _per_iteration(lambda x: x + 1, jnp.ones(known.cache // 4, jnp.float32), iterations)
    through = _per_iteration(lambda x: x + 1, jnp.ones(large, jnp.float32), 5)
    call, iteration = (_product_start(), known.iteration) if on_cpu else _kernel_starts()
    return replace(
        known,
        flops=2 * side**3 / product,
        reduced_flops=2 * side**3 / reduced,
        elements=3 * 32 * few / elementwise,
        bytes=2 * 4 * large / through,
        cached_bytes=2 * known.cache / again,
        call=call,
        iteration=iteration,
        fresh=_fresh_rate(2 * known.kept) if on_cpu else known.fresh,
    )


def _product_start() -> float:
    """Seconds to start an operation on a CPU, of which a small product is the slowest."""
    return _per_iteration(lambda x: x @ x / 8, jnp.ones((8, 8), jnp.float32), 1000)


def _kernel_starts() -> tuple[float, float]:
    """Seconds to start a kernel, and to start an iteration beside the kernels in it."""
    # A sum of all entries is a kernel of its own, beside the one that they are computed in.
    one = _per_iteration(lambda x: x * 0.5 + 1, jnp.ones(1024, jnp.float32), 1000)
    two = _per_iteration(lambda x: x * 0.5 + jnp.sum(x) / 2048, jnp.ones(1024, jnp.float32), 1000)
    call = max(two - one, LEAST)
    return call, max(one - call, LEAST)


def _fresh_rate(size: int) -> float:
    """Bytes per second of memory that has not been this process's before."""
    found = []
    for _ in range(RUNS):
        began = time.perf_counter()
        with mmap.mmap(-1, size) as pages:
            for start in range(0, size, mmap.PAGESIZE):
                pages[start] = 1
        found.append(time.perf_counter() - began)
    return size / min(found)


def _per_iteration(
    iteration: Callable[[jax.Array], jax.Array], argument: jax.Array, iterations: int
) -> float:
    """Seconds of one iteration of a loop on one array, without what starting it and its result take."""

    def several(count: int) -> float:
        return _seconds(lambda x: lax.fori_loop(0, count, lambda _, x: iteration(x), x), argument)

    return max(several(iterations + 2) - several(2), 1e-12) / iterations


def _seconds(function: Callable[[jax.Array], jax.Array], argument: jax.Array) -> float:
    """Seconds of a run of a compiled function."""
    compiled = jax.jit(function)
    jax.block_until_ready(compiled(argument))
    found = []
    for _ in range(RUNS):
        began = time.perf_counter()
        jax.block_until_ready(compiled(argument))
        found.append(time.perf_counter() - began)
    return min(found)


def main() -> None:
    known, machine = target_of(jax.devices()[0]).machine, calibrate()
    print(f"{jax.devices()[0].device_kind}{'':>12}measured     otherwise taken")
    for name in filter(lambda name: getattr(known, name), MEASURED):
        print(f"  {name:<14}{getattr(machine, name):>12.3g}{getattr(known, name):>18.3g}")
    path = _path(jax.devices()[0])
    print(f"kept in {path}" if path and path.exists() else "kept nowhere")


if __name__ == "__main__":
    main()
