"""What blocks use: terms, axes, passes."""

from __future__ import annotations

from collections.abc import Iterable

from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.ops import Chunk
from eqsat.ir.picked_entries import is_pick
from eqsat.ir.program import Program
from eqsat.planning.blocks import Block, Loop, bodies_of


def runs_in_python(body: Block) -> bool:
    """Whether control flow with such a body runs in Python: one that makes passes, or picks entries."""
    return any(
        isinstance(step, Loop) or is_pick(step.term) for block in body.blocks() for step in block.steps
    )


def all_axes(program: Program) -> Iterable[Axis]:
    """The axes of a program's terms, inputs and outputs."""
    for term in program.reachable():
        yield from term.axes
    for output in program.outputs:
        yield from layout_axes(output.layout)
    for leaf in program.inputs:
        yield from leaf.axes


def used_whole(block: Block) -> Iterable[int]:
    """The numbers of the terms of which steps use more than the current chunk."""
    for step in block.steps:
        if isinstance(step, Loop):
            yield from (body.number for result in step.results for body in bodies_of(result))
            yield from used_whole(step.body)
        elif not isinstance(step.term.op, Chunk):
            yield from (arg.number for arg in step.term.args)


def used_inside(block: Block) -> set[int]:
    """The numbers of the terms that steps of a block use."""
    found = set()
    for step in block.steps:
        terms = step.imports if isinstance(step, Loop) else step.term.args
        found |= {term.number for term in terms}
        if isinstance(step, Loop):
            found |= {body.number for result in step.results for body in bodies_of(result)}
    return found
