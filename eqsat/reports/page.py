"""Formats a plan as a page of text that can be read without a manual."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eqsat.support.records import BarrierRecord, GuardRecord, PeakTensor, TensorRecord
from eqsat.support.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from eqsat.reports.records import LoopReport, PlanRecord, Tuning

WIDTH = 100
TIED = "\u00a0"
"""A space at which lines are not broken."""

MOST_TENSORS = 4
MOST_LOOPS = 5
MOST_BARRIERS = 4
MOST_RULES = 12
MOST_TESTS = 4
MOST_COLLECTIVES = 4


def plan_page(plan: PlanRecord) -> str:
    """The page of a plan, of at most 60 lines of at most 100 characters."""
    lines = [_headline(plan), "", *_figures(plan)]
    if plan.too_big:
        lines += ["", "Too big as written: the largest arrays, and the lines that make them"]
        lines += tensor_lines(plan.too_big, MOST_TENSORS)
    if plan.changed and plan.after.live:
        lines += ["", "In memory at the peak of the plan, by simulation"]
        lines += tensor_lines(plan.after.live, MOST_TENSORS)
    if plan.loops:
        lines += ["", "Loops over chunks"]
        for loop in plan.loops[:MOST_LOOPS]:
            lines += _loop_lines(loop)
        lines += _and_more(len(plan.loops) - MOST_LOOPS, "more loops")
    if plan.rules_fired:
        lines += ["", "Rewrite rules used, and how many operations each made or spared"]
        lines += wrapped(_rules_text(plan.rules_fired))
    if plan.guard is not None:
        lines += ["", *_guard_lines(plan.guard)]
    if plan.tuning is not None:
        lines += ["", *_timed(plan.tuning)]
    if plan.left_whole:
        lines += ["", "Left whole: calls that can't be given chunks of these axes"]
        texts = list(dict.fromkeys(map(_whole_text, plan.left_whole)))
        lines += [line for text in texts[:MOST_BARRIERS] for line in wrapped(text)]
        lines += _and_more(len(texts) - MOST_BARRIERS, "other calls")
    lines += ["", *_search(plan), *_legend(plan)]
    return "\n".join(lines)


def _headline(plan: PlanRecord) -> str:
    what = "rewritten" if plan.changed else "left as it was"
    if not plan.changed and plan.original_peak_bytes <= plan.budget_bytes:
        what += ": it fits"
    return f"eqsat plan{f' for {plan.title}' if plan.title else ''}: {what}"


def _figures(plan: PlanRecord) -> list[str]:
    """The lines with bytes and times, as written and as planned."""
    rows = [("", "as written", "as planned", "")]
    budget = f"budget {format_bytes(plan.budget_bytes)}"
    after = format_bytes(plan.peak_bytes) if plan.changed else "the same"
    rows.append(("peak memory", format_bytes(plan.original_peak_bytes), after, f"certified by XLA; {budget}"))
    if plan.device_bytes:
        rows.append((f"fits {plan.target}", *_fits(plan)))
    if plan.original_seconds:
        before = format_seconds(plan.original_seconds)
        how = "estimated from the compiled programs" if plan.estimated else "predicted"
        after, note = "the same", how
        if plan.changed:
            after = format_seconds(plan.predicted_seconds)
            ratio = f"{plan.predicted_seconds / plan.original_seconds:.2g}"
            note = f"{how}: " + ("about as long" if ratio == "1" else f"{ratio} times as long")
            note += ", if guards hold" if plan.guard is not None else ""
        rows.append(("time of a call", before, after, note))
    lines = [f"  {label:<16}{one:<14}{other:<14}{note}".rstrip() for label, one, other, note in rows]
    if plan.argument_bytes + plan.result_bytes:
        rest = plan.peak_bytes - plan.argument_bytes - plan.result_bytes - plan.scratch_bytes
        lines.append(
            f"  {'of the peak':<16}arguments {format_bytes(plan.argument_bytes)}, results"
            f" {format_bytes(plan.result_bytes)}, temporary arrays {format_bytes(max(rest, 0))}"
        )
        if plan.scratch_bytes:
            lines.append(f"  {'':<16}and {format_bytes(plan.scratch_bytes)} in libraries and fusions")
    if plan.devices:
        lines.append(f"  {'on each device':<16}{plan.devices}")
        largest = sorted(plan.sharing.collectives, key=lambda one: -one.bytes)
        seconds = format_seconds(sum(one.seconds for one in largest))
        waits = f", predicted to take {seconds}" if largest else ""
        gets = f"gets {format_bytes(plan.communicated_bytes)} from the others{waits}"
        lines.append(f"  {'':<16}{gets}")
        lines += [cut(f"  {'':<18}{one}") for one in largest[:MOST_COLLECTIVES]]
        lines += [f"{'':<16}{line}" for line in _and_more(len(largest) - MOST_COLLECTIVES, "others")]
    if plan.options:
        own = plan.options == "XLA's own"
        inside = "as any jit" if own else "another jit needs compiler_options=eqsat.compiler_options()"
        lines.append(f"  {'compiled with':<16}{plan.options} options; {inside}")
    return lines


def _fits(plan: PlanRecord) -> tuple[str, str, str]:
    """Whether the function fits the device as written and as planned, and what there is of its memory."""
    before = "yes" if plan.original_peak_bytes <= plan.device_bytes else "no"
    after = "yes" if plan.peak_bytes <= plan.device_bytes else "no"
    note = f"{format_bytes(plan.device_bytes)} for programs"
    return before, after if plan.changed else "the same", f"{note}; {plan.remedy}" if plan.remedy else note


def _guard_lines(guard: GuardRecord) -> list[str]:
    """The tests, and the time and rules of the program for data that fails one."""
    lines = ["Guards: tested when it runs; other rules are used on data that fails any"]
    for test in guard.tests[:MOST_TESTS]:
        lines += wrapped(test)
    lines += _and_more(len(guard.tests) - MOST_TESTS, "more guards")
    rules = f"by {_rules_text(guard.rules_fired)}" if guard.rules_fired else "as written"
    seconds = format_seconds(guard.seconds)
    return lines + wrapped(f"where one fails, a call takes {seconds} (predicted), {rules}")


def _rules_text(fired: Mapping[str, int]) -> str:
    """The rules, each with the number of operations that it made."""
    ranked = sorted(fired.items(), key=lambda item: (-item[1], item[0]))
    names = [f"{name}{TIED}{count}" for name, count in ranked[:MOST_RULES]]
    more = len(ranked) - MOST_RULES
    return ", ".join(names) + (f", and {more} more" if more > 0 else "")


def tensor_lines(tensors: Sequence[TensorRecord], most: int) -> list[str]:
    """Two lines for each array: a description, and the source line that it comes from."""
    lines = []
    for tensor in tensors[:most]:
        lines.append(cut(f"  {format_bytes(tensor.bytes):>9}  {tensor}  {tensor.op}"))
        if tensor.place:
            code = f"   {tensor.place.code}" if tensor.place.code else ""
            lines.append(cut(f"{'':13}{tensor.place}{code}"))
    return lines + _and_more(len(tensors) - most, "more arrays")


def barrier_lines(peak: PeakTensor) -> list[str]:
    """An array, its source line, and a line for each barrier with the axes that it stops from being split."""
    tensor = peak.tensor
    lines = [cut(f"  {format_bytes(tensor.bytes):>9}  {tensor}  {tensor.op}")]
    if tensor.place:
        lines.append(cut(f"{'':13}{tensor.place}   {tensor.place.code}".rstrip()))
    alike: dict[str, list[BarrierRecord]] = {}
    for barrier in peak.barriers:
        at = f" ({barrier.place.short})" if barrier.place else ""
        alike.setdefault(f"{barrier.reason}{at}", []).append(barrier)
    for reason, barriers in alike.items():
        axes = ", ".join(f"{barrier.axis.label} ({barrier.axis.size})" for barrier in barriers)
        lines.append(f"{'':13}{axes}: {reason}")
    return lines


def _loop_lines(loop: LoopReport) -> list[str]:
    indent = "  " * (2 if loop.parent >= 0 else 1)
    lines = [cut(f"{indent}{loop}  {_lines_of(loop)}".rstrip())]
    indent += "    "
    if loop.computes:
        made = ", ".join(f"{tensor.op} {format_bytes(tensor.bytes)}" for tensor in loop.computes[:3])
        lines.append(cut(f"{indent}every iteration stores {made}"))
    if loop.recomputes:
        what = ", ".join(list(dict.fromkeys(tensor.op for tensor in loop.recomputes))[-4:])
        cost = format_seconds(loop.recompute_seconds)
        lines.append(cut(f"{indent}computes again what does not fit: {what} ({cost} predicted)"))
    return lines


def _lines_of(loop: LoopReport) -> str:
    """The source lines that a loop computes, those in the first one's file: "(model.py:12, 14)"."""
    if not loop.places:
        return ""
    first = loop.places[0]
    others = sorted({place.line for place in loop.places if place.file == first.file} - {first.line})
    return f"({', '.join([first.short, *map(str, others)])})"


def _whole_text(peak: PeakTensor) -> str:
    """A call that needs axes whole, as in "cholesky (gp.py:12) needs all of x.0 (1500); its largest…"."""
    barrier = peak.barriers[0]
    at = f" ({barrier.place.short})" if barrier.place else ""
    axes = ", ".join(f"{each.axis.label} ({each.axis.size})" for each in peak.barriers)
    tensor = peak.tensor
    return f"{barrier.op}{at} needs all of {axes}; its largest array takes {format_bytes(tensor.bytes)}"


def _timed(tuning: Tuning) -> list[str]:
    """The programs that were timed before the plan was chosen."""
    if not tuning.programs:
        return wrapped(f"Nothing was timed: {tuning.note}.", "")
    lines = [
        "Timed on this device",
        f"    {'predicted':<11}{'measured':<11}{'peak':<11}program and compiler options",
    ]
    for program in tuning.programs:
        mark = "->" if program.chosen else ""
        predicted, seconds = format_seconds(program.predicted_seconds), format_seconds(program.seconds)
        peak = format_bytes(program.peak_bytes)
        what = f"{program.what}; {program.options}"
        lines.append(cut(f"  {mark:<2}{predicted:<11}{seconds:<11}{peak:<11}{what}"))
    return lines + ([f"    {tuning.note}"] if tuning.note else [])


def _search(plan: PlanRecord) -> list[str]:
    """A summary of the search and of planning time."""
    steps = f" Its {len(plan.search)} steps are in `plan.search`." if plan.search else ""
    lines = wrapped(f"Search: {plan.stop_reason}.{steps}", "")
    if plan.banned:
        lines += wrapped(f"Stopped, as they made too many terms: {', '.join(plan.banned)}.", "")
    if plan.planning_seconds:
        stages = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in plan.planning_seconds.items())
        lines += wrapped(f"Planning took {sum(plan.planning_seconds.values()):.2f} s: {stages}.", "")
    return lines


def _legend(plan: PlanRecord) -> list[str]:
    """An explanation of the names of axes, with an example from the page."""
    axes = [axis for tensor in (*plan.too_big, *plan.after.live) for axis in tensor.axes]
    named = next((axis for axis in axes if axis.label.count(".") == 1 and "…" not in axis.label), None)
    if named is None or not (plan.too_big or plan.changed):
        return []
    argument, dimension = named.label.rstrip("'").split(".")
    text = (
        f"{named.label}:{named.size} is dimension {dimension} of {argument}, which has {named.size} entries"
    )
    cut_axis = next((axis for axis in axes if axis.chunk is not None), None)
    if cut_axis is not None:
        text += f"; {cut_axis.label}:{cut_axis.length} is {cut_axis.chunk} of {cut_axis.size} at a time"
    return wrapped(f"{text}.", "")


def wrapped(text: str, indent: str = "  ") -> list[str]:
    """A text wrapped into lines, with the second and later lines indented further."""
    lines = textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False
    )
    return [line.replace(TIED, " ") for line in lines]


def cut(line: str) -> str:
    """The line, cut to the width of the page."""
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"


def _and_more(count: int, what: str) -> list[str]:
    return [f"  ... and {count} {what}"] if count > 0 else []
