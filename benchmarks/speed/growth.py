"""The growth of time and memory with the points at a fixed budget, and of planning with the equations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import eqsat
from benchmarks import scaling
from benchmarks.big_programs import PROGRAMS
from benchmarks.loops import Function
from benchmarks.speed.case import PATIENCE, Row
from eqsat.support.units import parse_budget
from examples.measure import interleaved
from examples.programs import attention, attention_data, kernel_data, kernel_matvec

GROUP = "growth"
OURS = "eqsat"


def beside_a_law(rows: Sequence[Row], sizes: Sequence[int], law: str, power: int) -> Iterator[Row]:
    """Yields the rows, each followed by one with the time that the law predicts from the first row."""
    first = rows[0].seconds
    assert first is not None
    for row, size in zip(rows, sizes, strict=True):
        assert row.seconds is not None
        expected = first * (size / sizes[0]) ** power
        yield row
        yield Row(GROUP, row.case, law, expected, base=OURS, ratio=expected / row.seconds)


@dataclass(frozen=True)
class Points:
    """A program over all pairs of points, at growing numbers of points within one budget."""

    title: str
    function: Function
    data: Callable[[int], tuple[Any, ...]]
    sizes: Sequence[int]
    budget: str
    group: str = GROUP

    def measure(self, runs: int) -> list[Row]:
        """Measures each number of points. Time should grow with its square, and the peak not at all."""
        rows = []
        for n in self.sizes:
            optimized = eqsat.optimize(self.function, budget=self.budget)
            arguments = self.data(n)
            plan = optimized.plan(*arguments)
            timing = interleaved({OURS: optimized}, arguments, runs, PATIENCE)[OURS]
            rows.append(
                Row(
                    GROUP,
                    f"{self.title} in {self.budget}: {n:,} points",
                    OURS,
                    timing.seconds,
                    timing.processor_seconds,
                    len(timing.wall),
                    parse_budget(self.budget),
                    plan.peak_bytes,
                    note="; ".join(map(str, plan.loops)) or "no loops",
                )
            )
        return list(beside_a_law(rows, self.sizes, "as n²", 2))


@dataclass(frozen=True)
class Equations:
    """Planning of programs of one kind with growing numbers of equations, without XLA."""

    title: str
    sizes: Sequence[int]
    group: str = GROUP

    def measure(self, runs: int) -> list[Row]:
        """Plans each program once, and measures processor seconds."""
        rows = []
        scaling.measure(self.title, self.sizes[0])  # reads the rules, which is not to be measured
        for equations in self.sizes:
            found = scaling.measure(self.title, equations)
            rows.append(
                Row(
                    GROUP,
                    f"planning, {self.title}: {equations:,} equations",
                    OURS,
                    found["planning_seconds"],
                    found["planning_seconds"],
                    1,
                    note=f"{found['nodes']:,} e-nodes, {found['stop_reason']}",
                )
            )
        return list(beside_a_law(rows, self.sizes, "as the equations", 1))


def cases(quick: bool) -> Iterator[Points | Equations]:
    sizes = (5_000, 10_000, 20_000) if quick else (10_000, 20_000, 40_000, 80_000)
    yield Points("kernel matrix times vector", kernel_matvec, kernel_data, sizes, "20MB")
    if quick:
        yield Equations("network", (100, 1_000))
        return
    yield Points("attention", attention, attention_data, (2_048, 4_096, 8_192, 16_384), "30MB")
    yield from (Equations(name, (100, 1_000, 10_000)) for name in PROGRAMS)
