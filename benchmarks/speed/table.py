"""Shows rows as tables of ratios, with their geometric means, and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean
from typing import TYPE_CHECKING

from benchmarks.records import markdown
from benchmarks.speed.case import HAND, PLAIN, Row
from eqsat.support.units import format_bytes
from examples.measure import seconds_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TARGETS = {PLAIN: 0.95, HAND: 1.0, "scikit-learn": 1.0, "faiss": 1.0, "kernels, KeOps": 4.0}
"""The least ratios of others' time to eqsat's that are acceptable, for a way, or for a way in a group."""

COLOURS = ("#b5482a", "#2a6f97", "#6a994e", "#bc6c25", "#7b2cbf", "#495057")


def by_group(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return {name: [row for row in rows if row.group == name] for name in dict.fromkeys(r.group for r in rows)}


def text(rows: Sequence[Row]) -> str:
    """Returns the summary and a table for each group, in Markdown."""
    groups = by_group(rows)
    tables = [f"## {name}\n\n{table(some)}" for name, some in groups.items()]
    days = ", ".join(sorted({row.day for row in rows if row.day}))
    return "\n".join([f"## Summary\n\nMeasured: {days or 'unknown'}.\n\n{summary(rows)}", *tables])


def summary(rows: Sequence[Row]) -> str:
    """Returns a table with the mean ratio, the least, and the number of low ones, by group and other way.

    The means are geometric.
    """
    lines = []
    for name, some in by_group(rows).items():
        for way in dict.fromkeys(row.way for row in some):
            of = [row for row in some if row.way == way]
            ratios = {row.case: row.ratio for row in of if row.ratio is not None}
            if not ratios:
                continue
            work = [row.processor_ratio for row in of if row.processor_ratio]
            mean_work = f"{geometric_mean(work):.2f}" if work else "–"
            target = TARGETS.get(f"{name}, {way}", TARGETS.get(way))
            missed = "–" if target is None else f"{sum(r < target for r in ratios.values())} below {target}"
            worst = min(ratios, key=ratios.__getitem__)
            lines.append(
                [name, way, str(len(ratios)), f"{geometric_mean(ratios.values()):.2f}", mean_work,
                 f"{ratios[worst]:.2f}", worst, missed]
            )  # fmt: skip
    return markdown(
        ["group", "other way", "rows", "geometric mean", "of processor time", "least", "of", "target"], lines
    )


def table(rows: Sequence[Row]) -> str:
    """Returns a table with the times and peaks of each case.

    In brackets after a time, there is its ratio to eqsat's.
    """
    ways = list(dict.fromkeys(row.way for row in rows))
    times, peaks = [], []
    for case in dict.fromkeys(row.case for row in rows):
        of = {row.way: row for row in rows if row.case == case}
        times.append([case, *(_time(of.get(way)) for way in ways)])
        peaks.append([case, *(_peak(of.get(way)) for way in ways)])
    found = markdown(["time", *ways], times)
    if any(row.peak is not None for row in rows):
        found += "\n" + markdown(["peak", *ways], peaks)
    return found


def _time(row: Row | None) -> str:
    if row is None or row.seconds is None:
        return row.note if row is not None and row.note else "–"
    once = " once" if row.calls == 1 else ""
    ratio = "" if row.ratio is None else f" ({row.ratio:.2g}×)"
    return f"{_seconds(row.seconds)}{once}{ratio}"


def _seconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 0.01 else seconds_text(seconds)


def _peak(row: Row | None) -> str:
    return "–" if row is None or row.peak is None else format_bytes(row.peak)


def figure(rows: Sequence[Row]) -> Figure:
    """Draws a line for each case, with a dot at the ratio of each other way: right of 1, eqsat is faster."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    groups = {name: [row for row in some if row.ratio is not None] for name, some in by_group(rows).items()}
    groups = {name: some for name, some in groups.items() if some}
    counts = [len({row.case for row in some}) for some in groups.values()]
    drawn = Figure(figsize=(10, 0.19 * sum(counts) + 0.7 * len(counts)), layout="constrained")
    panels = drawn.subplots(len(groups), 1, squeeze=False, height_ratios=counts)[:, 0]
    for axes, (name, some) in zip(panels, groups.items(), strict=True):
        cases = list(dict.fromkeys(row.case for row in some))
        for way, colour in zip(dict.fromkeys(row.way for row in some), COLOURS, strict=False):
            of = [row for row in some if row.way == way]
            places = [cases.index(row.case) for row in of]
            axes.plot([row.ratio for row in of], places, "o", color=colour, label=way, markersize=5)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set(xscale="log", ylim=(len(cases) - 0.4, -0.6))
        axes.set_title(f"{name}: time of others, relative to eqsat's", fontsize=9, loc="left")
        axes.set_yticks(range(len(cases)), cases, fontsize=7)
        axes.grid(color="0.9")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(axis="x", which="both", labelsize=6)
        axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1))
    return drawn
