"""Draws the graph of a plan's arrays: a row for each array, in the order in which they are made.

Arcs lead from every array to those made from it; loops and control flow are frames around rows. Rows never
overlap, whatever their number and their labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from eqsat.support.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from eqsat.reports.records import GraphRecord, NodeRecord

INK, GREY = "#222222", "#777777"
COLOURS = {"argument": "#999999", "value": "#0072B2", "result": "#009E73"}

ROW, HEADING = 0.25, 0.4
"""The heights of a row and of the heading, in inches."""

ARCS, INDENT, LABELS, PLACES, BARS = 1.7, 0.28, 0.15, 6.7, 8.4
"""Horizontal measures, in units of which the drawing is 10 wide: the width of the arcs, the inset of a frame,
the distance from a dot to its label, and the positions of the source lines and of the bars."""


def graph_height(graph: GraphRecord) -> float:
    """The height of the picture in inches; 0 if there is nothing to show."""
    return ROW * (len(list(rows(graph))) + 1) + HEADING if graph.nodes else 0.0


def rows(graph: GraphRecord) -> Iterator[tuple[int, int]]:
    """The rows: (box, -1) for the heading of a frame, (box, node) for an array."""
    opened: set[int] = set()
    arguments = [n for n, node in enumerate(graph.nodes) if node.kind == "argument"]
    others = [n for n, node in enumerate(graph.nodes) if node.kind != "argument"]
    for number in [*arguments, *others]:
        for box in reversed(boxes_around(graph, graph.nodes[number].box)):
            if box not in opened:
                opened.add(box)
                yield box, -1
        yield graph.nodes[number].box, number


def boxes_around(graph: GraphRecord, box: int) -> list[int]:
    """A box and the boxes around it, innermost first."""
    found = []
    while box >= 0:
        found.append(box)
        box = graph.boxes[box].parent
    return found


def draw_graph(axes: Axes, graph: GraphRecord) -> None:
    """Draw the graph."""
    from matplotlib.patches import Rectangle

    every = list(rows(graph))
    height = len(every) + HEADING / ROW
    axes.set_axis_off()
    axes.set_xlim(0, 10)
    axes.set_ylim(-len(every), HEADING / ROW)
    heading = "arrays in the order in which they are made, and what each is made of"
    if graph.left_out:
        heading += f" ({graph.left_out} smaller ones left out)"
    axes.text(0.5, HEADING / ROW - 0.6, heading, fontsize=9, color=INK)
    x = {number: ARCS + INDENT * len(boxes_around(graph, box)) for box, number in every if number >= 0}
    y = {number: -row - 0.5 for row, (_, number) in enumerate(every) if number >= 0}
    largest = max(node.tensor.bytes for node in graph.nodes)
    for box in range(len(graph.boxes)):
        inside = [row for row, (b, _) in enumerate(every) if box in boxes_around(graph, b)]
        depth = len(boxes_around(graph, box))
        left = ARCS + INDENT * (depth - 1) + 0.12
        right = 9.98 - 0.06 * (depth - 1)
        top, bottom = -inside[0] - 0.06 * depth, -inside[-1] - 1 + 0.06 * depth
        axes.add_patch(
            Rectangle(
                (left, bottom), right - left, top - bottom, facecolor="#0072B2", alpha=0.05, linewidth=0
            )
        )
        axes.add_patch(
            Rectangle((left, bottom), right - left, top - bottom, facecolor="none", edgecolor="#0072B2",
                      linewidth=0.8)
        )  # fmt: skip
        axes.text(left + 0.08, -inside[0] - 0.55, graph.boxes[box].label, fontsize=7.5, weight="bold",
                  color="#00507f", va="center")  # fmt: skip
    _arcs(axes, graph, x, y, height)
    for number, node in enumerate(graph.nodes):
        _row(axes, node, x[number], y[number], largest)


def _arcs(axes: Axes, graph: GraphRecord, x: dict[int, float], y: dict[int, float], height: float) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    for start, end in graph.edges:
        span = abs(y[start] - y[end])
        # Longer arcs are wider; the longest takes all the room available.
        reach = min(x[start], x[end]) - 0.1 - (ARCS - 0.4) * (span / height) ** 0.5
        path = Path(
            [(x[start], y[start]), (reach, y[start]), (reach, y[end]), (x[end] - 0.07, y[end])],
            [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4],
        )
        axes.add_patch(
            FancyArrowPatch(
                path=path, arrowstyle="-|>", mutation_scale=5, linewidth=0.6, color=GREY, alpha=0.8
            )
        )


def _row(axes: Axes, node: NodeRecord, x: float, y: float, largest: int) -> None:
    tensor = node.tensor
    axes.plot([x], [y], "o", markersize=4, color=COLOURS[node.kind])
    room = int((PLACES - x) * 15)
    label = fitting(f"{node_title(node)}: {tensor}", f"{node_title(node)}: {tensor.sizes}", room)
    axes.text(x + LABELS, y, label, fontsize=7, color=INK, va="center")
    place = tensor.place.short if tensor.place else ""
    place = place if len(place) <= 30 else f"…{place[-29:]}"
    axes.text(PLACES, y, place, fontsize=6, color=GREY, va="center")
    width = 0.9 * tensor.bytes / largest
    axes.barh([y], [width], height=0.5, left=BARS, color=COLOURS[node.kind], alpha=0.6)
    axes.text(BARS + width + 0.05, y, format_bytes(tensor.bytes), fontsize=7, color=INK, va="center")


def node_title(node: NodeRecord) -> str:
    """The op that makes an array, and the ops fused into it, as in "exp of neg, sub"."""
    made = f" of {', '.join(reversed(node.fused))}" if node.fused else ""
    return f"{'result: ' if node.kind == 'result' else ''}{node.tensor.op}{made}"


def fitting(text: str, otherwise: str, length: int) -> str:
    """A text if it has at most `length` characters, or else another text, shortened if necessary."""
    return text if len(text) <= length else shortened(otherwise, length)


def shortened(text: str, length: int) -> str:
    """A text cut to at most `length` characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"
