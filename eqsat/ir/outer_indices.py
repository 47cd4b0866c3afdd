"""Indices that bodies of control flow count for themselves, as operands: so an axis passes through.

A body that reads `iota` along the axis of a batch gives no slice of its results for a slice of its operands:
each slice has other indices. With the indices as one more operand, it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from eqsat.ir.axis import Axis
from eqsat.ir.control import Body
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.ops import Call, Iota, Leaf, Opaque
from eqsat.ir.program import Program
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term


def with_outer_indices(program: Program) -> Program:
    """Returns the program with indices as operands of control flow where an axis then passes through."""
    return _Counting(program).result()


class _Counting:
    """The pass over a program and the bodies inside.

    **Attributes:**

    - `leaf`: a number that no input of a body has; the next ones below are free, too.
    - `call`: a number that no call has; the next ones are free, too.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        numbers = [
            leaf.op.index
            for inside in program.inside()
            for leaf in inside.inputs
            if isinstance(leaf.op, Leaf)
        ]
        self.leaf = min([0, *numbers]) - 1
        self.call = program.next_call()

    def result(self) -> Program:
        return self._counted(self.program)

    def _counted(self, program: Program) -> Program:
        done: set[tuple[Call, tuple[Term, ...]]] = set()
        while True:
            found = next(_calls(program, done), None)
            if found is None:
                return program
            call, args = found
            done.add(found)
            inner = [Body(self._counted(body.program), body.sources) for body in call.bodies]
            changed = any(new.program is not old.program for new, old in zip(inner, call.bodies, strict=True))
            made = with_bodies(call, inner, args) if changed else call
            made, operands = self._with_operands(made, args)
            if made is call:
                continue
            made = replace(made, id=self.call)
            self.call += 1
            done.add((made, operands))
            terms = program.terms
            known = {
                term.number: terms.make(Opaque(made, term.op.result), operands)
                for term in program.known()
                if isinstance(term.op, Opaque) and term.op.call == call and term.args == args
            }
            program = with_inputs(program, program.inputs, known)

    def _with_operands(self, call: Call, args: tuple[Term, ...]) -> tuple[Call, tuple[Term, ...]]:
        """Returns the call with indices as further operands, as far as an axis then passes through it."""
        for axis in sorted(_axes(call) - call.passing):
            indices = _indices(call, axis)
            if not indices:
                continue
            made, operands = self._with_indices(call, args, indices, axis)
            if axis in made.passing:
                call, args = made, operands
        return call, args

    def _with_indices(
        self, call: Call, args: tuple[Term, ...], indices: list[Term], axis: Axis
    ) -> tuple[Call, tuple[Term, ...]]:
        layouts = (*call.arg_layouts, *((axis,) for _ in indices))
        sources = range(len(args), len(args) + len(indices))
        bodies = []
        for body in call.bodies:
            terms = body.program.terms
            fed = []
            for index in indices:
                fed.append(terms.make(Leaf(self.leaf, (axis,), index.dtype)))
                self.leaf -= 1
            known = {index.number: leaf for index, leaf in zip(indices, fed, strict=True)}
            inputs = (*body.program.inputs, *fed)
            bodies.append(Body(with_inputs(body.program, inputs, known), (*body.sources, *sources)))
        operands = (*args, *indices)
        return with_bodies(replace(call, arg_layouts=layouts), bodies, operands), operands


def _calls(
    program: Program, done: set[tuple[Call, tuple[Term, ...]]]
) -> Iterator[tuple[Call, tuple[Term, ...]]]:
    """Yields calls of control flow that are not done, with their operands."""
    for term in program.known():
        if isinstance(term.op, Opaque) and term.op.call.bodies and (term.op.call, term.args) not in done:
            yield term.op.call, term.args


def _axes(call: Call) -> frozenset[Axis]:
    """Returns the axes along which the bodies count."""
    return frozenset(
        term.op.axis for body in call.bodies for term in body.program.known() if isinstance(term.op, Iota)
    )


def _indices(call: Call, axis: Axis) -> list[Term]:
    """Returns the indices along the axis that the bodies count, one for each dtype."""
    found = {
        term.number: term
        for body in call.bodies
        for term in body.program.known()
        if isinstance(term.op, Iota) and term.op.axis == axis
    }
    return list(found.values())
