"""Draws explanations: predicted time against budget, and memory over time as written."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from eqsat.reports.graph_picture import INK, shortened
from eqsat.reports.pictures import (
    AFTER,
    BEFORE,
    CHARACTERS,
    MARGIN,
    PANEL,
    WIDTH,
    draw_memory,
    draw_peak,
    new_figure,
)
from eqsat.support.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from eqsat.reports.records import ExplanationRecord
    from eqsat.reports.stream_explanation import StreamExplanation

CURVE = 3.2
"""The height of the curve's panel, in inches."""

APART = 0.08
"""Of points closer than this part of the curve's width, only one has a label."""

STEEP = 20.0
"""The time axis is logarithmic if the slowest plan takes more than this many times as long as the fastest."""

MANY_TICKS = 1e3
"""Only powers of ten are ticks if the largest budget is at least this many times the smallest."""


def explanation_figure(explanation: ExplanationRecord) -> Figure:
    """The curve, and below it memory over time as written, with the arrays at its peak."""
    height = 0.4 + CURVE + PANEL + 2 * MARGIN
    figure = new_figure(WIDTH, height)
    figure.text(
        0.07, 1 - 0.16 / height, explanation.heading, fontsize=10, weight="bold", color=INK, va="center"
    )
    curve = figure.add_axes((0.09, (height - 0.3 - CURVE) / height, 0.89, (CURVE - 0.35) / height))
    draw_curve(curve, explanation)
    bottom = (height - 0.3 - CURVE - MARGIN - PANEL) / height
    timeline = figure.add_axes((0.07, bottom, 0.50, (PANEL - 0.3) / height))
    certified, minimum = explanation.original_peak_bytes, explanation.minimum_bytes
    draw_memory(timeline, explanation.before, minimum, certified, BEFORE, "smallest budget")
    timeline.set_title(
        f"as written: {format_bytes(certified)} certified", fontsize=9, loc="left", color=INK, pad=6
    )
    stack = figure.add_axes((0.60, bottom, 0.39, (PANEL - 0.3) / height))
    draw_peak(stack, explanation.before)
    return figure


def draw_curve(axes: Axes, explanation: ExplanationRecord) -> None:
    """Draw the predicted time of a call by budget, in steps, as a plan serves all budgets up to the next."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    x = [price.budget_bytes for price in explanation.prices]
    y = [price.seconds for price in explanation.prices]
    written = explanation.original_peak_bytes, explanation.original_seconds
    # An end point extends the last step, since the last plan serves all larger budgets too.
    axes.step([*x, max(written[0], x[-1])], [*y, y[-1]], where="post", color=AFTER, linewidth=1.2)
    axes.plot(x, y, "o", color=AFTER, markersize=4)
    axes.plot(*written, "o", color=BEFORE, markersize=5)
    span = max(written[0] / x[0], 2.0)
    axes.set_xscale("log")
    axes.set_xlim(x[0] / span**0.03, written[0] * span**0.17)
    lowest, highest = min(*y, written[1]), max(*y, written[1])
    if highest > STEEP * lowest:
        axes.set_yscale("log")
        axes.set_ylim(lowest / 2, highest * 3)
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(0, 1.25 * highest)
    points = [(written, f"as written: {format_seconds(written[1])}")]
    points += [(point, format_seconds(point[1])) for point in zip(x, y, strict=True)]
    labelled: list[float] = []
    for (budget, seconds), text in points:
        place = math.log(budget) / math.log(span)
        if all(abs(place - other) > APART for other in labelled):
            labelled.append(place)
            axes.annotate(
                text,
                (budget, seconds),
                xytext=(2, 6),
                textcoords="offset points",
                fontsize=7,
                color=INK,
            )
    axes.set_title(
        f"what a budget costs: from the smallest, {format_bytes(explanation.minimum_bytes, enough=True)},"
        " to what it takes as written",
        fontsize=9, loc="left", color=INK, pad=6,
    )  # fmt: skip
    axes.set_xlabel("budget", fontsize=8, color=INK)
    axes.set_ylabel("predicted time of a call", fontsize=8, color=INK)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if span < MANY_TICKS else (1.0,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_seconds(value) if value else "0"))
    axes.tick_params(labelsize=7, colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def stream_curve(explanation: StreamExplanation) -> Figure:
    """The predicted time of a call by budget, in steps, as a plan serves all budgets up to the next."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    x = [plan.budget_bytes for plan in explanation.plans]
    y = [plan.predicted_seconds for plan in explanation.plans]
    whole = explanation.argument_bytes + explanation.result_bytes
    figure = new_figure(WIDTH, 3.2)
    axes = figure.subplots()
    axes.step([*x, max(whole, x[-1])], [*y, y[-1]], where="post", color=AFTER, linewidth=1.2)
    axes.plot(x, y, "o", color=AFTER, markersize=4)
    axes.set_xscale("log")
    if y[0] > STEEP * y[-1]:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(0, 1.25 * y[0])
    axes.set_xlabel("budget of the device's memory", fontsize=8, color=INK)
    axes.set_ylabel("predicted time of a call", fontsize=8, color=INK)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_seconds(value) if value else "0"))
    axes.tick_params(labelsize=7, colors=INK)
    axes.set_title(shortened(explanation.heading, CHARACTERS), fontsize=10, loc="left", color=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    return figure
