"""Peaks, times and differences, for the demo, the benchmarks and the tests."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from eqsat.backend.certificate import certify
from eqsat.targets.compiler_profile import HONEST
from eqsat.targets.device_memory import free_host_bytes

PLAIN_SHARE = 0.5
"""What is not ours is run where it needs at most this share of the memory that is free."""

REST = 0.03
"""Seconds before a timed call: so long after a product, threads of OpenBLAS go on, waiting for another."""


def plain_peak(function: Callable[..., Any], arguments: Sequence[Any], options: str = HONEST) -> int:
    """What `jax.jit(function)` needs at once, in bytes, under options that count every buffer.

    **Arguments:**

    - `options`: `OWN`: under XLA's own, with what these may hide.
    """
    leaves, structure = jax.tree.flatten(tuple(arguments))
    shapes = [jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype) for leaf in leaves]

    def flat(*values: Any) -> list[Any]:
        return jax.tree.leaves(function(*structure.unflatten(values)))

    return certify(flat, shapes, options).peak


def has_room_for(peak: int) -> bool:
    """Whether a program that is under no budget, and needs so many bytes, is run at all."""
    return peak < PLAIN_SHARE * free_host_bytes()


def seconds_of(function: Callable[..., Any], arguments: Sequence[Any]) -> float:
    started = time.perf_counter()
    jax.block_until_ready(function(*arguments))
    return time.perf_counter() - started


@dataclass
class Timing:
    """Calls of a function, timed in turns with those of others.

    **Attributes:**

    - `result`: of the first call, which compiles and is not timed.
    - `wall`, `processor`: seconds of every other call, by the clock, and of all threads of the process;
      the latter are less disturbed by a busy machine.
    """

    result: Any
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(self.wall)

    @property
    def processor_seconds(self) -> float:
        return statistics.median(self.processor)

    def relative_to(self, base: Timing) -> float:
        """By the clock: the median over the turns in which both were called."""
        return statistics.median(ours / theirs for ours, theirs in zip(self.wall, base.wall, strict=False))

    def processor_relative_to(self, base: Timing) -> float:
        pairs = zip(self.processor, base.processor, strict=False)
        return statistics.median(ours / theirs for ours, theirs in pairs)


def interleaved(
    functions: Mapping[str, Callable[..., Any]],
    arguments: Sequence[Any],
    runs: int,
    patience: float = math.inf,
) -> dict[str, Timing]:
    """`runs` calls of each function, in turns, so that a busy machine is busy for all.

    Every turn is in another order: what a call leaves in the cache, and in the allocator, is the next one's.

    **Arguments:**

    - `patience`: in seconds; a function that takes longer is timed once.
    """
    timings = {
        name: Timing(jax.block_until_ready(function(*arguments))) for name, function in functions.items()
    }
    names, order = list(functions), random.Random(0)
    for _ in range(runs):
        order.shuffle(names)
        for name in names:
            function = functions[name]
            timing = timings[name]
            if timing.wall and timing.wall[0] > patience:
                continue
            time.sleep(REST)
            wall, processor = time.perf_counter(), time.process_time()
            jax.block_until_ready(function(*arguments))
            timing.wall.append(time.perf_counter() - wall)
            timing.processor.append(time.process_time() - processor)
    return timings


def difference(result: Any, reference: Any) -> float:
    """The largest difference of any entry, relative to the largest entry of its array."""
    pairs = zip(jax.tree.leaves(result), jax.tree.leaves(reference), strict=True)
    return max(float(np.max(np.abs(np.asarray(a) - b)) / np.max(np.abs(b))) for a, b in pairs)


def seconds_text(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
