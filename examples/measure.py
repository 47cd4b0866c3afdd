"""Peaks, times and differences, for the demo, the benchmarks and the tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from eqsat.backend.certificate import certify


def plain_peak(function: Callable[..., Any], arguments: Sequence[Any]) -> int:
    """What `jax.jit(function)` needs at once, in bytes, under options that count every buffer."""
    leaves, structure = jax.tree.flatten(tuple(arguments))
    shapes = [jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype) for leaf in leaves]
    return certify(lambda *flat: jax.tree.leaves(function(*structure.unflatten(flat))), shapes).peak


def seconds_of(function: Callable[..., Any], arguments: Sequence[Any]) -> float:
    started = time.perf_counter()
    jax.block_until_ready(function(*arguments))
    return time.perf_counter() - started


def interleaved(
    functions: Mapping[str, Callable[..., Any]], arguments: Sequence[Any], runs: int
) -> dict[str, list[float]]:
    """Seconds of `runs` calls of each function, in turns, so that a busy machine is busy for all."""
    for function in functions.values():
        jax.block_until_ready(function(*arguments))
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(runs):
        for name, function in functions.items():
            seconds[name].append(seconds_of(function, arguments))
    return seconds


def difference(result: Any, reference: Any) -> float:
    """The largest difference of any entry, relative to the largest entry of its array."""
    pairs = zip(jax.tree.leaves(result), jax.tree.leaves(reference), strict=True)
    return max(float(np.max(np.abs(np.asarray(a) - b)) / np.max(np.abs(b))) for a, b in pairs)


def seconds_text(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
