"""Draws memory over time, as written and as planned, with the arrays at each peak, by matplotlib.

The colours are those of Okabe and Ito, which colour-blind people can tell apart. Every colour also has a
label beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eqsat.errors import EqsatError
from eqsat.reports.graph_picture import INK, draw_graph, fitting, graph_height, shortened
from eqsat.reports.sharing_picture import draw_sharing, sharing_height
from eqsat.support.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from eqsat.reports.records import MemoryRecord, PlanRecord
    from eqsat.reports.stream_plan import StreamPlan
    from eqsat.support.records import TensorRecord

HELD = "#bbbbbb"
BEFORE, AFTER = "#D55E00", "#0072B2"
STACK = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
"""The colours of the arrays at a peak, largest first."""

BYTE_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))
TIME_UNITS = (("h", 3600.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))

WIDTH, PANEL, MARGIN = 10.0, 2.5, 0.4
"""The width of the picture, the height of a panel with its title, and the space between panels, in inches."""

LABEL_LENGTH, CODE_LENGTH = 62, 56
"""The most characters of a label beside a peak, and of the source line below it."""

LEAST = 0.02
"""Arrays of at most this part of a peak have no label of their own."""

LOW = 0.15
"""A step of at most this part of the panel's height has no room for a label."""

CHARACTERS = 70
"""The number of characters that fit into the width of a panel."""


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, with its width and height in inches.

    **Raises:** `EqsatError` without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise EqsatError(
            "pictures need matplotlib: pip install 'eqsat[pictures]'; print() and save('plan.txt') don't"
        ) from error
    return Figure(figsize=(width, height), dpi=150, facecolor="white")


def unit_for(largest: float, units: Sequence[tuple[str, float]]) -> tuple[str, float]:
    """The largest unit that is at most `largest`, or else the smallest unit.

    >>> unit_for(2.5e7, BYTE_UNITS)
    ('MB', 1000000.0)
    """
    return next((unit for unit in units if largest >= unit[1]), units[-1])


def plan_figure(plan: PlanRecord, graph: bool = True) -> Figure:
    """A plan's picture: memory over time as written and as planned, with the graph of its arrays below."""
    memories = [("as written", plan.before, plan.original_peak_bytes, BEFORE)]
    if plan.changed:
        memories.append(("as planned", plan.after, plan.peak_bytes, AFTER))
    rows = graph_height(plan.graph) if graph else 0.0
    shared = sharing_height(plan.sharing)
    height = 0.4 + shared + len(memories) * (PANEL + MARGIN) + (rows + 0.2 if rows else 0.0)
    figure = new_figure(WIDTH, height)
    top = height - 0.3
    figure.text(0.07, 1 - 0.16 / height, _title(plan), fontsize=10, weight="bold", color=INK, va="center")
    if shared:
        axes = figure.add_axes((0.07, (top - shared + 0.2) / height, 0.92, (shared - 0.25) / height))
        draw_sharing(axes, plan.sharing)
        top -= shared
    for name, memory, certified, colour in memories:
        bottom = (top - PANEL) / height
        timeline = figure.add_axes((0.07, bottom, 0.50, (PANEL - 0.3) / height))
        draw_memory(timeline, memory, plan.budget_bytes, certified, colour)
        timeline.set_title(
            f"{name}: {format_bytes(certified)} certified", fontsize=9, loc="left", color=INK, pad=6
        )
        stack = figure.add_axes((0.60, bottom, 0.39, (PANEL - 0.3) / height))
        draw_peak(stack, memory)
        top -= PANEL + MARGIN
    if rows:
        axes = figure.add_axes((0.02, 0.05 / height, 0.97, rows / height))
        draw_graph(axes, plan.graph)
    return figure


def _title(plan: PlanRecord) -> str:
    return f"{plan.title or 'program'} within {format_bytes(plan.budget_bytes)}"


def draw_memory(
    axes: Axes, memory: MemoryRecord, budget: int, certified: int, colour: str, name: str = "budget"
) -> None:
    """Draw memory over predicted time: what is held throughout below, temporaries above, loops hatched.

    **Arguments:**

    - `name`: the label of the budget.
    """
    seconds = max(memory.seconds, 1e-12)
    unit, second = unit_for(seconds, TIME_UNITS)
    highest = max(memory.peak_bytes, certified, 1)
    # A budget far above the curve would flatten it, so it is then given as text, not drawn.
    shown = budget <= 1.6 * highest
    top = 1.16 * max(highest, budget if shown else 0)
    byte_unit, size = unit_for(top, BYTE_UNITS)
    edges, heights, now = [0.0], [], 0.0
    for step in memory.steps:
        now += step.seconds
        edges.append(now / second)
        heights.append(step.bytes / size)
    if not heights:
        edges, heights = [0.0, seconds / second], [memory.held_bytes / size]
    axes.stairs(heights, edges, fill=True, color=colour, alpha=0.35, linewidth=0)
    axes.stairs(heights, edges, color=colour, linewidth=1.2)
    axes.axhspan(0, memory.held_bytes / size, color=HELD, linewidth=0)
    if memory.held_bytes > 0.07 * top:
        axes.annotate("arguments and results", (0, memory.held_bytes / size), xytext=(4, -3), fontsize=6.5,
                      textcoords="offset points", va="top", color=INK)  # fmt: skip
    for step, left, right, high in zip(memory.steps, edges, edges[1:], heights, strict=False):
        if step.loop >= 0:
            axes.add_patch(_hatched(left, right - left, high, colour))
        if high > LOW * top / size and len(step.label) < CHARACTERS * (right - left) / edges[-1]:
            _inside(axes, step.label, (left + right) / 2, high / 2)
    # The labels are at opposite ends, since the levels may be close.
    _level(axes, certified / size, f"certified {format_bytes(certified)}", ":", 0.0, "left")
    if shown:
        _level(axes, budget / size, f"{name} {format_bytes(budget)}", "--", edges[-1], "right")
    else:
        axes.text(0.99, 0.97, f"{name} {format_bytes(budget)}, far above", fontsize=7, ha="right", va="top",
                  transform=axes.transAxes, color=INK)  # fmt: skip
    axes.set_xlim(0, edges[-1])
    axes.set_ylim(0, top / size)
    axes.set_xlabel(f"predicted time [{unit}]", fontsize=8, color=INK)
    axes.set_ylabel(f"memory, simulated [{byte_unit}]", fontsize=8, color=INK)
    axes.tick_params(labelsize=7, colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _inside(axes: Axes, text: str, x: float, y: float) -> None:
    """Draw a label on the area under a curve."""
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5}
    axes.annotate(text, (x, y), fontsize=7, ha="center", va="center", color=INK, bbox=box, zorder=3)


def _level(axes: Axes, height: float, text: str, style: str, x: float, side: str) -> None:
    """Draw a horizontal line with a label at one end."""
    axes.axhline(height, color=INK, linestyle=style, linewidth=1.0)
    offset = (-2, 2) if side == "right" else (3, 2)
    axes.annotate(
        text,
        (x, height),
        xytext=offset,
        textcoords="offset points",
        fontsize=7,
        ha=side,
        va="bottom",
        color=INK,
    )


def draw_peak(axes: Axes, memory: MemoryRecord) -> None:
    """Draw the arrays alive at the peak: a column of the largest ones, each with a label."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.text(0.0, 1.03, f"at the simulated peak of {format_bytes(memory.peak_bytes)}", fontsize=8, color=INK)
    shown = [tensor for tensor in memory.live if tensor.bytes > LEAST * memory.peak_bytes]
    parts = [(tensor.bytes, *_label(tensor)) for tensor in shown[: len(STACK)]]
    rest = memory.peak_bytes - sum(part[0] for part in parts)
    if rest > 0:
        parts.append((rest, f"{format_bytes(rest)}  everything else", ""))
    total = max(sum(part[0] for part in parts), 1)
    step = 1.0 / max(len(parts), 1)
    done = 0.0
    colours = [*STACK[: len(parts) - (rest > 0)], HELD]
    for number, ((size, first, second), colour) in enumerate(zip(parts, colours, strict=False)):
        share = size / total
        axes.add_patch(_rectangle(0.0, 1 - done - share, 0.06, share, colour))
        middle, at = 1 - done - share / 2, 1 - (number + 0.5) * step
        axes.plot([0.065, 0.10], [middle, at], color=INK, linewidth=0.5)
        axes.text(0.11, at + 0.005, first, fontsize=7, va="bottom" if second else "center", color=INK)
        axes.text(0.11, at - 0.005, second, fontsize=6, va="top", color="#555555", family="monospace")
        done += share


def _label(tensor: TensorRecord) -> tuple[str, str]:
    size = format_bytes(tensor.bytes)
    first = fitting(f"{size}  {tensor.op}: {tensor}", f"{size}  {tensor.op}: {tensor.sizes}", LABEL_LENGTH)
    second = f"{tensor.place.short}  {tensor.place.code}" if tensor.place else ""
    return first, shortened(second, CODE_LENGTH)


def _hatched(left: float, width: float, height: float, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((left, 0), width, height, facecolor="none", edgecolor=colour, hatch="///", alpha=0.3,
                     linewidth=0)  # fmt: skip


def _rectangle(left: float, bottom: float, width: float, height: float, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((left, bottom), width, height, facecolor=colour, edgecolor="white", linewidth=0.6)


def stream_figure(plan: StreamPlan) -> Figure:
    """The picture of a plan with passes: the device's memory in each of them, beside the budget."""
    rows = [(f"over {one.axis}", one.chunk_bytes, one.peak_bytes) for one in plan.passes]
    rows = rows or [("all of it", 0, plan.peak_bytes)]
    figure = new_figure(WIDTH, 1.2 + 0.6 * len(rows))
    axes = figure.subplots()
    name, unit = unit_for(plan.budget_bytes, BYTE_UNITS)
    for row, (label, chunk, peak) in enumerate(rows):
        chunks = min(2 * chunk, peak)
        axes.barh(row, chunks / unit, height=0.4, color=STACK[1])
        axes.barh(row, (peak - chunks) / unit, left=chunks / unit, height=0.4, color=AFTER)
        read = f", {format_bytes(chunks)} of it the chunk that is read, and the next one" if chunks else ""
        axes.text(0, row - 0.36, f"{label}: {format_bytes(peak)}{read}", fontsize=8, va="center", color=INK)
    axes.axvline(plan.budget_bytes / unit, color=BEFORE, linewidth=1.2)
    axes.text(plan.budget_bytes / unit, -0.8, "budget ", color=BEFORE, fontsize=8, ha="right", va="center")
    axes.set_yticks([])
    axes.set_ylim(len(rows) - 0.5, -1.0)
    axes.set_xlabel(f"memory of the device, {name}", fontsize=8)
    axes.set_title(shortened(plan.heading, CHARACTERS), fontsize=10, loc="left", color=INK)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    return figure
