"""What blocks use: terms, axes, passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.ops import Chunk, Fold, Opaque
from eqsat.ir.picked_entries import is_pick
from eqsat.ir.program import Program
from eqsat.ir.running_calls import Running, running
from eqsat.ir.streams import UnsupportedError
from eqsat.ir.term import Term
from eqsat.planning.blocks import Block, Compute, Loop, bodies_of


def runs_in_python(body: Block) -> bool:
    """Whether control flow with such a body runs in Python: one that makes passes, or picks entries."""
    return any(
        isinstance(step, Loop) or is_pick(step.term) for block in body.blocks() for step in block.steps
    )


@dataclass(frozen=True)
class RunningStep:
    """A running call that goes through the axis of a loop in its chunks.

    **Attributes:**

    - `turn`: the number of the pass that takes it along. Passes of even numbers begin at the start of the
      axis, and the others at its end.
    """

    term: Term
    how: Running
    turn: int


def running_in(loop: Loop) -> tuple[list[RunningStep], int]:
    """The running calls of a loop, one term for each, and the number of the pass in which all is computed.

    **Raises:** `UnsupportedError` if chunks that are taken in order can't carry their states.
    """
    found: dict[tuple[int, tuple[int, ...]], tuple[Term, Running]] = {}
    for block in loop.body.blocks():
        for step in block.steps:
            how = running(step.term) if isinstance(step, Compute) else None
            if how is None or how.axis != loop.axis or loop.axis not in step.results[0].open:
                continue
            if block is not loop.body:
                raise UnsupportedError("a cumulative sum, or a scan, inside of another loop over its chunks")
            (term,) = step.results
            found.setdefault(_identity(term), (term, how))
    turns: dict[tuple[int, tuple[int, ...]], int] = {}
    reached: dict[int, int] = {}
    # Steps come after those that they read.
    for key, (term, how) in found.items():
        turn = max((_turn(arg, turns, reached) for arg in term.args), default=0)
        turns[key] = turn if turn % 2 == how.reverse else turn + 1
        reached.clear()
    ordered = any(
        isinstance(result.op, Fold) and not isinstance(result.op.monoid, str) for result in loop.results
    )
    last = max(turns.values(), default=0)
    steps = [RunningStep(term, how, turns[key]) for key, (term, how) in found.items()]
    return steps, last + 1 if ordered and last % 2 else last


def _identity(term: Term) -> tuple[int, tuple[int, ...]]:
    """What the results of one call have in common."""
    assert isinstance(term.op, Opaque)
    return term.op.call.id, tuple(arg.number for arg in term.args)


def _turn(root: Term, turns: Mapping[tuple[int, tuple[int, ...]], int], reached: dict[int, int]) -> int:
    """The last turn of the running calls that a term is computed of."""
    stack, last = [root], 0
    while stack:
        term = stack.pop()
        if term.number in reached:
            continue
        own = turns.get(_identity(term), 0) if isinstance(term.op, Opaque) else 0
        reached[term.number] = own
        last = max(last, own)
        stack.extend(term.args)
    return last


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
