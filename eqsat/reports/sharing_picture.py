"""Draws how devices share a function out: a lane for each array, and a list of what they tell each other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from eqsat.reports.graph_picture import GREY, INK, shortened
from eqsat.support.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from eqsat.reports.records import SharedArray, SharingRecord

WHOLE, PART = "#bbbbbb", "#0072B2"
"""The colours of what all devices have, and of parts."""

LANE, HEADING = 0.24, 0.65
"""The heights of a lane and of the headings, in inches."""

MOST = 8
"""The most arrays, and the most calls, that are shown: the largest."""

SEGMENTS = 16
"""With more parts than this, only the first and the last are drawn one by one."""

NAMES, BARS, SIZES, CALLS = 0.0, 2.1, 4.4, 5.6
"""Horizontal positions, in units of which the drawing is 10 wide: the names of arrays, the lanes, what a
device has, and the calls."""

LONGEST = 72
"""The most characters of a call."""


def sharing_height(sharing: SharingRecord) -> float:
    """The height of the picture in inches; 0 if there is nothing to show."""
    rows = max(len(_largest(sharing)), min(len(sharing.collectives), MOST))
    return LANE * rows + HEADING + 0.2 if sharing.axes else 0.0


def draw_sharing(axes: Axes, sharing: SharingRecord) -> None:
    """Draw a lane for each argument and result, cut into the parts of devices, and list collectives."""
    arrays, sizes = _largest(sharing), {axis.name: axis.size for axis in sharing.axes}
    count = math.prod(sizes.values())
    rows = max(len(arrays), min(len(sharing.collectives), MOST))
    axes.set_axis_off()
    axes.set_xlim(0, 10)
    axes.set_ylim(LANE * rows + HEADING, 0)
    mesh = ", ".join(f"{axis.name} = {axis.size}: {axis.split or 'repeats'}" for axis in sharing.axes)
    axes.text(0, 0.1, f"{count} devices, {shortened(mesh, 90)}", fontsize=9, color=INK, va="center")
    heading = HEADING - 0.18
    for x, text in (
        (NAMES, "array"),
        (BARS, "parts"),
        (SIZES, "a device has"),
        (CALLS, "a device gets, predicted"),
    ):
        axes.text(x, heading, text, fontsize=7, color=GREY, va="center")
    for row, array in enumerate(arrays):
        middle = HEADING + (row + 0.5) * LANE
        label = shortened(f"{array.name}: {array.type}", 30)
        axes.text(NAMES, middle, label, fontsize=7, color=INK, va="center")
        _lane(axes, middle, math.prod(sizes[name] for name in array.over))
        over = f"1/{array.bytes // array.local_bytes}" if array.over and array.local_bytes else "all"
        axes.text(
            SIZES, middle, f"{over}, {format_bytes(array.local_bytes)}", fontsize=7, color=INK, va="center"
        )
    calls = sorted(sharing.collectives, key=lambda one: -one.bytes)
    texts = [shortened(str(call), LONGEST) for call in calls[:MOST]] or ["nothing"]
    if len(calls) > MOST:
        texts[-1] = f"... and {len(calls) - MOST + 1} others"
    for row, text in enumerate(texts):
        axes.text(CALLS, HEADING + (row + 0.5) * LANE, text, fontsize=7, color=INK, va="center")


def _lane(axes: Axes, middle: float, parts: int) -> None:
    """Draw an array as a bar of as many segments as it has parts."""
    from matplotlib.patches import Rectangle

    width, gap = SIZES - BARS - 0.2, 0.02
    shown = min(parts, SEGMENTS)
    each = width / shown
    for number in range(shown):
        left = BARS + number * each
        if parts > SEGMENTS and number == SEGMENTS - 2:
            axes.text(left + each / 2, middle, "…", fontsize=7, color=INK, ha="center", va="center")
            continue
        colour = PART if parts > 1 else WHOLE
        box = Rectangle((left, middle - 0.3 * LANE), each - gap, 0.6 * LANE, facecolor=colour, linewidth=0)
        axes.add_patch(box)
        last = parts > SEGMENTS and number == SEGMENTS - 1
        text = "on every device" if parts == 1 else str(parts - 1 if last else number)
        ink = INK if parts == 1 else "white"
        axes.text(left + each / 2, middle, text, fontsize=5.5, color=ink, ha="center", va="center")


def _largest(sharing: SharingRecord) -> list[SharedArray]:
    """The largest arrays, arguments before results."""
    kept = sorted(sharing.arrays, key=lambda array: -array.bytes)[:MOST]
    return [array for array in sharing.arrays if array in kept][:MOST]
