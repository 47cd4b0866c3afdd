"""Loop fission: results of a `scan` that lack an axis of the others are computed in a loop of their own.

    scan(x, w) -> x's rows, w's order   =>   scan(x, w) -> x's rows;  scan(w) -> w's order

A loop over chunks of the rows gives no result without rows. So these results would need the loop as a whole,
with all that it stores, though they need little of it. What they need more of, both loops would compute:
the gradients of all weights of a recurrent network come from one backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from eqsat.ir.axis import layout_axes
from eqsat.ir.changed_calls import Operands, with_changed_bodies
from eqsat.ir.control import Body, Scan, iterations
from eqsat.ir.loop_dependence import dependent_on_axis, results_among
from eqsat.ir.ops import Call, Const, Dot, Leaf, Opaque
from eqsat.ir.program import Program
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term
from eqsat.ir.unused_results import trimmed

DOUBLED = 1 / 8
"""At most this part of a loop's work may be done by both loops."""


def with_loop_fission(program: Program) -> Program:
    """Returns the program with its loops taken apart, also inside of bodies."""

    def changed(call: Call, _: Operands) -> list[Body]:
        inside = ((body, with_loop_fission(body.program)) for body in call.bodies)
        return [body if new is body.program else Body(new, body.sources) for body, new in inside]

    program = with_changed_bodies(program, changed)
    while known := _taken_apart(program):
        program = with_inputs(program, program.inputs, known)
    return program


def _taken_apart(program: Program) -> dict[int, Term]:
    """Returns the results of one loop as those of two, by the numbers of the terms that they replace."""
    number = program.next_call()
    for call, args in dict.fromkeys(program.controls()):
        results = {
            term.op.result: term
            for term in program.known()
            if isinstance(term.op, Opaque) and term.op.call == call and term.args == args
        }
        for parts in _parts(call, results):
            loops = [trimmed(call, args, part) for part in parts]
            work = sum(_work(call if loop is None else loop[0]) for loop in loops)
            if work > (1 + DOUBLED) * _work(call):
                continue
            known: dict[int, Term] = {}
            for place, (part, loop) in enumerate(zip(parts, loops, strict=True)):
                if loop is None:
                    continue
                made, renumbered, operands = loop
                made = replace(made, id=number + place)
                given = tuple(args[operand] for operand in operands)
                known |= {
                    results[result].number: program.terms.make(Opaque(made, renumbered[result]), given)
                    for result in part
                }
            if known:
                return known
    return {}


def _parts(call: Call, results: Iterable[int]) -> Iterator[tuple[set[int], set[int]]]:
    """Yields the results that need an axis, and those that do not, for each axis of which there are both."""
    if not isinstance(call.control, Scan):
        return
    axes = sorted(call.passing | call.sums, key=lambda axis: axis.size, reverse=True)
    for axis in axes:
        free = {
            result
            for result in set(results) - results_among(call, dependent_on_axis(call, axis))
            if axis not in layout_axes(call.out_layouts[result])
        }
        if free and free != set(results):
            yield set(results) - free, free


def _work(call: Call) -> int:
    """The entries that all iterations of a loop compute, or that its contractions multiply."""
    assert call.control is not None
    count, loops = 0, set[Call]()
    for term in (term for body in call.bodies for term in body.program.reachable()):
        if isinstance(term.op, Opaque) and term.op.call.bodies:
            loops.add(term.op.call)
        elif not isinstance(term.op, Leaf | Const):
            axes = term.axes | term.op.axes if isinstance(term.op, Dot) else term.axes
            count += math.prod(axis.size for axis in axes)
    return iterations(call.control) * (count + sum(map(_work, loops)))
