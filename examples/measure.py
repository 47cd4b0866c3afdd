"""Measures peaks, times and differences, for the demo, the benchmarks and the tests."""

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
"""A program without a budget is run only if it needs less than this share of the free memory."""

REST = 0.03
"""The pause in seconds before a timed call: OpenBLAS threads keep spinning that long after a product."""


def plain_peak(function: Callable[..., Any], arguments: Sequence[Any], options: str = HONEST) -> int:
    """Returns the peak of `jax.jit(function)` in bytes, under options that count every buffer.

    **Arguments:**

    - `options`: the name of a set of XLA options. Under XLA's own, `OWN`, the peak may leave out some
      buffers.
    """
    leaves, structure = jax.tree.flatten(tuple(arguments))
    shapes = [jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype) for leaf in leaves]

    def flat(*values: Any) -> list[Any]:
        return jax.tree.leaves(function(*structure.unflatten(values)))

    return certify(flat, shapes, options).peak


def has_room_for(peak: int) -> bool:
    """Returns whether a program without a budget that needs so many bytes is run at all."""
    return peak < PLAIN_SHARE * free_host_bytes()


def seconds_of(function: Callable[..., Any], arguments: Sequence[Any]) -> float:
    started = time.perf_counter()
    jax.block_until_ready(function(*arguments))
    return time.perf_counter() - started


@dataclass
class Timing:
    """The times of a function's calls, in turns with those of others.

    **Attributes:**

    - `result`: the result of the first call, which compiles and is not timed.
    - `wall`: the wall-clock seconds of every other call.
    - `processor`: the processor seconds of every other call, over all threads of the process. A busy machine
      disturbs these less.
    """

    result: Any
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The median of the wall-clock times."""
        return statistics.median(self.wall)

    @property
    def processor_seconds(self) -> float:
        return statistics.median(self.processor)

    def relative_to(self, base: Timing) -> float:
        """Returns the median ratio of the wall-clock times, over the turns in which both were called."""
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
    """Times `runs` calls of each function, in turns, so that a busy machine disturbs all alike.

    Every turn is in a random order, since a call inherits the state of the caches and of the allocator from
    the one before it.

    **Arguments:**

    - `patience`: a function that takes longer than this, in seconds, is timed only once.
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
    """Returns the largest difference of any entry, relative to the largest entry of its array."""
    pairs = zip(jax.tree.leaves(result), jax.tree.leaves(reference), strict=True)
    return max(float(np.max(np.abs(np.asarray(a) - b)) / np.max(np.abs(b))) for a, b in pairs)


def seconds_text(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
