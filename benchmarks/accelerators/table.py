"""The figures of programs on an accelerator, and their table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.records import markdown


@dataclass
class Row:
    """The figures of a program in one form, within one budget. Bytes and seconds.

    **Attributes:**

    - `form`: "as written", "plan", "plan, XLA's options", "by hand".
    - `share`: of the temporaries, which the budget leaves.
    - `peak`: by the compiler of this device; `stated`: where it was planned, if elsewhere.
    - `used`: the allocator's peak in a process that runs nothing else.
    - `seconds`: the median; `fastest`: the least; `estimate`: from the compiled program.
    - `error`: relative to the largest entry of the reference.
    - `loops`: the number of loops over chunks; for a loop by hand, the length of a chunk.
    """

    program: str
    form: str
    share: float | None = None
    budget: int | None = None
    peak: int | None = None
    stated: int | None = None
    used: int | None = None
    seconds: float | None = None
    fastest: float | None = None
    estimate: float | None = None
    error: float | None = None
    loops: int = 0
    planning: float | None = None
    note: str = ""


def table(rows: Sequence[Row]) -> str:
    """The figures as Markdown; sizes in MB, times in ms, speeds as ratios of times."""

    def size(value: int | None) -> str:
        return "–" if value is None else f"{value / 1e6:,.1f}"

    def milliseconds(value: float | None) -> str:
        return "–" if value is None else f"{value * 1e3:,.2f}"

    def ratio(base: float | None, seconds: float | None) -> str:
        return "–" if base is None or seconds is None else f"{base / seconds:.2f}"

    plain = {row.program: row.seconds for row in rows if row.form == "as written"}
    by_hand = {(row.program, row.share): row.seconds for row in rows if row.form == "by hand"}
    heading = [
        "program",
        "form",
        "budget",
        "certified",
        "used",
        "ms",
        "speed, as written = 1",
        "by hand = 1",
        "estimated, ms",
        "error",
        "loops",
        "",
    ]
    lines = [
        [
            row.program,
            row.form,
            size(row.budget),
            size(row.peak),
            size(row.used),
            milliseconds(row.seconds),
            ratio(plain.get(row.program), row.seconds),
            ratio(by_hand.get((row.program, row.share)), row.seconds),
            milliseconds(row.estimate),
            "–" if row.error is None else f"{row.error:.0e}",
            str(row.loops),
            row.note,
        ]
        for row in rows
    ]
    return markdown(heading, lines) + "\n" + summary(rows, plain, by_hand)


def summary(rows: Sequence[Row], plain: Mapping[Any, float | None], by_hand: Mapping[Any, Any]) -> str:
    """How many plans fit, and the geometric means of their speeds."""
    planned = [row for row in rows if row.form == "plan"]
    fitting = [row for row in planned if row.peak and row.budget and row.peak <= row.budget]
    said = [f"{len(fitting)} of {len(planned)} plans fit"]
    for rivals, what in ((plain, "plain JAX"), (by_hand, "loops by hand")):
        pairs = [
            (rivals.get(row.program) or rivals.get((row.program, row.share)), row.seconds) for row in fitting
        ]
        ratios = [rival / seconds for rival, seconds in pairs if rival and seconds]
        if ratios:
            mean = statistics.geometric_mean(ratios)
            said.append(f"the geometric mean of their speeds beside {what} is {mean:.2f}")
    return "; ".join(said) + ".\n"
