"""Loops that write their results over an input, chunk by chunk."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.ir.axis import is_flat, layout_axes
from eqsat.ir.ops import Chunk, Concat, Leaf
from eqsat.ir.program import Output
from eqsat.ir.term import Term
from eqsat.planning.blocks import Loop, Schedule, dependencies


def overwritten(schedule: Schedule, pairs: Mapping[int, int]) -> dict[int, Term]:
    """The inputs that loops may write their results over; by number of the result.

    A loop may do so if each chunk of the result needs no more of the input than the chunk in its place.

    **Arguments:**

    - `pairs`: by output the input whose place it may take, of the same shape and dtype; by number.
    """
    program = schedule.program
    loops = {
        result.number: step
        for step in schedule.block.steps
        if isinstance(step, Loop)
        for result in step.results
    }
    found: dict[int, Term] = {}
    for number, source in pairs.items():
        output, leaf = program.outputs[number], program.inputs[source]
        loop = loops.get(output.term.number)
        if loop is None or output.term.number in found:
            continue
        if _lines_up(output, leaf, loop) and _reads_in_place(loop, leaf):
            found[output.term.number] = leaf
    return found


def _lines_up(output: Output, leaf: Term, loop: Loop) -> bool:
    """Whether the loop's axis is the same dimension of the input and of the output, and no other differs."""
    assert isinstance(leaf.op, Leaf)
    given, wanted = leaf.op.layout, output.layout
    if not (isinstance(output.term.op, Concat) and is_flat(given) and is_flat(wanted)):
        return False
    whole = output.term.axes == set(layout_axes(wanted))  # not broadcast
    places = [[axis == loop.axis for axis in layout_axes(layout)] for layout in (given, wanted)]
    return whole and places[0] == places[1] and any(places[0])


def _reads_in_place(loop: Loop, leaf: Term) -> bool:
    """Whether all that a loop reads of an input is the current chunk."""
    for block in loop.body.blocks():
        for step in block.steps:
            if leaf not in dependencies(step):
                continue
            if block is not loop.body or isinstance(step, Loop) or not isinstance(step.term.op, Chunk):
                return False
            if step.term.op.axis != loop.axis:
                return False
    return leaf in loop.imports
