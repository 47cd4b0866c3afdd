"""eqsat against the best loop over chunks that one writes by hand, of the same formula.

    python -m benchmarks.chunking [--quick] [--runs N]

For kernel matrix times vector, nearest neighbours and attention: `lax.map` and `lax.scan` over chunks
of the rows, and a `fori_loop` that slices and updates in place, each at several chunk lengths. The
fastest of them is timed against eqsat, in turns, in one process; figures are medians. Writes
`benchmarks/results/chunking-<cpu>.json`.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import eqsat
from eqsat.amounts import format_bytes
from eqsat.backend.certificate import compiler_options
from examples.data import images
from examples.measure import interleaved, plain_peak, seconds_of, seconds_text
from examples.programs import (
    attention,
    attention_data,
    kernel_data,
    kernel_matvec,
    nearest_neighbours,
)

Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A program whose result has a row per row of argument number `rows`."""

    name: str
    function: Function
    arguments: Callable[[], tuple[Any, ...]]
    rows: int
    budget: int
    chunks: tuple[int, ...]


CASES = (
    Case("kernel matvec 20,000², d = 3", kernel_matvec, lambda: kernel_data(20_000), 0, 100_000_000,
         (50, 200, 500, 1000)),
    Case("kernel matvec 20,000², d = 10", kernel_matvec, lambda: kernel_data(20_000, 10), 0, 100_000_000,
         (50, 200, 500, 1000)),
    Case("10 neighbours of 60,000 × 784, 1,000 queries", nearest_neighbours,
         lambda: images(None, 60_000, 1_000), 1, 300_000_000, (20, 50, 100)),
    Case("10 neighbours of 100,000 × 3, 1,000 queries", nearest_neighbours,
         lambda: images(None, 100_000, 1_000, 3), 1, 100_000_000, (10, 20, 50)),
    Case("attention over 8,192 positions, d = 64", attention, lambda: attention_data(8_192), 0, 50_000_000,
         (64, 128, 256, 512)),
)  # fmt: skip

QUICK = (
    Case("kernel matvec 4,000², d = 3", kernel_matvec, lambda: kernel_data(4_000), 0, 10_000_000, (100, 500)),
    Case("attention over 2,048 positions", attention, lambda: attention_data(2048), 0, 8_000_000, (128, 256)),
)  # fmt: skip


# Loops over chunks, as one writes them by hand.


def by_map(function: Function, rows: int, length: int, *arguments: Any) -> Any:
    """`lax.map` over the rows, cut into chunks that divide them."""
    x = jnp.asarray(arguments[rows])
    pieces = x.reshape(-1, length, *x.shape[1:])
    results = lax.map(lambda piece: function(*_with(arguments, rows, piece)), pieces)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), results)


def by_scan(function: Function, rows: int, length: int, *arguments: Any) -> Any:
    """`lax.scan` over the starts of chunks, sliced in the body."""
    x = jnp.asarray(arguments[rows])

    def body(carry: None, start: jax.Array) -> tuple[None, Any]:
        return carry, function(*_with(arguments, rows, lax.dynamic_slice_in_dim(x, start, length)))

    _, results = lax.scan(body, None, jnp.arange(0, len(x), length))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), results)


def in_place(function: Function, rows: int, length: int, *arguments: Any) -> Any:
    """`lax.fori_loop` that slices the rows and writes its results where they belong."""
    x = jnp.asarray(arguments[rows])
    shapes = jax.eval_shape(function, *arguments)
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def body(number: jax.Array, whole: Any) -> Any:
        start = number * length
        piece = function(*_with(arguments, rows, lax.dynamic_slice_in_dim(x, start, length)))
        return jax.tree.map(lambda w, p: lax.dynamic_update_slice_in_dim(w, p, start, 0), whole, piece)

    return lax.fori_loop(0, len(x) // length, body, empty)


def _with(arguments: tuple[Any, ...], position: int, value: Any) -> tuple[Any, ...]:
    return (*arguments[:position], value, *arguments[position + 1 :])


def best_by_hand(case: Case, arguments: tuple[Any, ...]) -> tuple[str, Function, int]:
    """Name, function and peak of the fastest hand-written loop.

    The best chunk length is found for one form, then the best form for that length. Lengths are
    tried under XLA's default options and under those that eqsat compiles with, so that a difference
    is one between programs and not between compilers.
    """
    rows = len(arguments[case.rows])
    seconds: dict[tuple[str, str, int], float] = {}
    functions: dict[tuple[str, str, int], Function] = {}

    def try_out(options: str, form: str, length: int) -> None:
        key = (options, form, length)
        body = partial(FORMS[form], case.function, case.rows, length)
        functions[key] = jax.jit(body, compiler_options=OPTIONS[options])
        jax.block_until_ready(functions[key](*arguments))
        seconds[key] = seconds_of(functions[key], arguments)

    for options in OPTIONS:
        for length in case.chunks:
            if rows % length == 0:
                try_out(options, "scan", length)
    options, _, length = min(seconds, key=seconds.__getitem__)
    for form in ("map", "in place"):
        try_out(options, form, length)
    best = min(seconds, key=seconds.__getitem__)
    options, form, length = best
    peak = plain_peak(partial(FORMS[form], case.function, case.rows, length), arguments)
    return f"{form} {length}, {options}", functions[best], peak


FORMS: dict[str, Function] = {"map": by_map, "scan": by_scan, "in place": in_place}
OPTIONS: dict[str, Any] = {"default": None, "honest": compiler_options()}


# Measurement.


@dataclass(frozen=True)
class Row:
    """Medians of one case, in seconds, and peaks in bytes."""

    case: str
    by_hand: str
    by_hand_seconds: float
    by_hand_peak: int
    eqsat_seconds: float
    eqsat_peak: int
    ratio: float
    loops: list[str]
    runs: int


def measure(case: Case, runs: int) -> Row:
    arguments = case.arguments()
    best, chunked, peak = best_by_hand(case, arguments)
    optimized = eqsat.optimize(case.function, budget=case.budget)
    plan = optimized.plan(*arguments)
    seconds = interleaved({best: chunked, "eqsat": optimized}, arguments, runs)
    hand, ours = (statistics.median(seconds[name]) for name in (best, "eqsat"))
    # Turn by turn, so that what slows the machine down slows both.
    ratio = statistics.median(b / a for a, b in zip(seconds[best], seconds["eqsat"], strict=True))
    loops = [str(loop) for loop in plan.loops]
    return Row(case.name, best, hand, peak, ours, plan.peak_bytes, ratio, loops, runs)


def cpu_name() -> str:
    """The processor's name as a file name: what /proc/cpuinfo says, else the architecture."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    name = found.group(1) if found else platform.machine()
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.chunking", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="two small cases; writes nothing")
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each (default 5)")
    options = parser.parse_args()
    print(f"{'':<46}{'by hand':>9}  {'form':<22}{'eqsat':>9}{'ratio':>7}{'peak by hand':>14}{'eqsat':>10}")
    rows = []
    for case in QUICK if options.quick else CASES:
        row = measure(case, options.runs)
        rows.append(row)
        print(
            f"{row.case:<46}{seconds_text(row.by_hand_seconds):>9}  {row.by_hand:<22}"
            f"{seconds_text(row.eqsat_seconds):>9}{row.ratio:>7.2f}"
            f"{format_bytes(row.by_hand_peak):>14}{format_bytes(row.eqsat_peak):>10}",
            flush=True,
        )
    if not options.quick:
        path = Path(__file__).parent / "results" / f"chunking-{cpu_name()}.json"
        path.parent.mkdir(exist_ok=True)
        record = {"jax": jax.__version__, "cpu": cpu_name(), "rows": [asdict(row) for row in rows]}
        path.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
        print(f"written to {path.relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
