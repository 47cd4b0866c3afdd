"""Loop-invariant code motion: small values that each iteration would compute again, computed before the loop.

    while …: x = f(x, sum(A * A))   =>   s = sum(A * A); while …: x = f(x, s)

XLA's compiler moves them, too, but it moves no loops: once `A` doesn't fit and its sum is a loop over chunks,
that loop would run in each iteration. Values that are not small stay: they would be in memory all along.

Allen and Cocke, "A Catalogue of Optimizing Transformations", 1971, call it code motion.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from eqsat.ir.axis import layout_axes
from eqsat.ir.changed_calls import Operands, with_changed_calls
from eqsat.ir.comparing import compared
from eqsat.ir.control import Body, Scan, Switch, steady
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.device_terms import Numbers
from eqsat.ir.dtypes import is_extended
from eqsat.ir.loop_dependence import operands_of
from eqsat.ir.ops import Call, Dot, Leaf, Opaque, Operation, Reduce, Select
from eqsat.ir.program import KnownFact, Program
from eqsat.ir.substitution import substituted, with_inputs
from eqsat.ir.term import Term, reachable
from eqsat.ir.unused_results import without_unread_operands

SMALL = 16
"""A small value takes at most this part of the largest one that it is computed from: a choice."""

MANY_OPERATIONS = 10_000
"""The operations of a value that is worth its place: some microseconds."""


def with_loop_invariants(program: Program) -> Program:
    """Returns the program with such values outside of its loops, also inside of bodies."""
    return _moved(program, Numbers.after(program))


def _moved(program: Program, numbers: Numbers) -> Program:
    """The program with what its loops need not compute, and with what is known of that."""
    motions: list[_Motion] = []

    def changed(call: Call, args: Operands) -> tuple[Call, Operands]:
        inside = [Body(_moved(body.program, numbers), body.sources) for body in call.bodies]
        if any(new.program is not old.program for new, old in zip(inside, call.bodies, strict=True)):
            call = with_bodies(call, inside, args)
        if isinstance(call.control, Switch) or (isinstance(call.control, Scan) and call.control.length < 2):
            return call, args
        motion = _Motion(call, args, numbers)
        bodies = [motion.without(body) for body in call.bodies]
        if not motion.operands:
            return call, args
        motions.append(motion)
        operands = (*args, *motion.operands)
        layouts = (*call.arg_layouts, *(tuple(sorted(term.axes)) for term in motion.operands))
        return without_unread_operands(
            with_bodies(replace(call, arg_layouts=layouts), bodies, operands), operands
        )

    program = with_changed_calls(program, changed, iter(numbers.call, None))
    if not motions:
        return program
    equalities = [pair for motion in motions for pair in motion.equalities]
    facts = [fact for motion in motions for fact in motion.facts]
    return _with_known(program, equalities, facts)


class _Motion:
    """What leaves the bodies of one loop.

    **Attributes:**

    - `operands`: the values, in terms of the loop's operands, that come after these as operands.
    - `equalities`, `facts`: what bodies know of them, in these terms.
    """

    def __init__(self, call: Call, args: Operands, numbers: Numbers) -> None:
        self.call = call
        self.args = args
        self.numbers = numbers
        self.operands: list[Term] = []
        self.equalities: list[tuple[Term, Term]] = []
        self.facts: list[KnownFact] = []

    def without(self, body: Body) -> Body:
        """A body of the loop that takes these values as inputs."""
        program, terms = body.program, body.program.terms
        given = self._given(body)
        unchanging = _computed_from(program, given)
        leaving = _worth_moving(program, unchanging)
        if not leaving:
            return body
        inputs, sources, known = list(program.inputs), list(body.sources), dict[int, Term]()
        for value, outside in zip(leaving, substituted(terms, leaving, given), strict=True):
            layout = tuple(sorted(value.axes))
            known[value.number] = terms.make(Leaf(self.numbers.input(), layout, value.dtype))
            inputs.append(known[value.number])
            if outside not in self.operands:
                self.operands.append(outside)
            sources.append(len(self.args) + self.operands.index(outside))
        for one, other in program.equalities:
            if {one.number, other.number} <= unchanging:
                first, second = substituted(terms, (one, other), given)
                self.equalities.append((first, second))
        for fact in program.facts:
            if fact.term.number in unchanging:
                (term,) = substituted(terms, [fact.term], given)
                self.facts.append(replace(fact, term=term))
        # What is known of these values is known outside: here, it would keep what they are computed from.
        equalities = tuple(
            pair for pair in program.equalities if known.keys().isdisjoint(one.number for one in pair)
        )
        inner = with_inputs(replace(program, equalities=equalities), tuple(inputs), known)
        return Body(_with_known(inner, (), ()), tuple(sources))

    def _given(self, body: Body) -> dict[int, Term]:
        """The operands that no iteration changes, by the numbers of the inputs that they feed."""
        assert self.call.control is not None
        unchanged = set(steady(self.call.control, len(self.args)))
        found = {}
        for leaf, source in operands_of(body):
            layout = self.call.arg_layouts[source]
            assert isinstance(leaf.op, Leaf)
            # An operand that is broadcast to its layout has fewer axes than the input.
            whole = self.args[source].axes == frozenset(layout_axes(layout))
            if source in unchanged and leaf.op.layout == layout and whole:
                found[leaf.number] = self.args[source]
        return found


def _computed_from(program: Program, given: Collection[int]) -> set[int]:
    """The numbers of the terms that are computed from some inputs only, with these inputs."""
    found = set(given)
    for term in program.known():
        if not isinstance(term.op, Leaf) and all(arg.number in found for arg in term.args):
            found.add(term.number)
    return found


def _worth_moving(program: Program, unchanging: Collection[int]) -> list[Term]:
    """The small values, among some of a body, that take many operations and that others read."""
    kept = compared(program)
    apart = {*(value.number for value in kept.values), *kept.between, *kept.once}
    largest: dict[int, int] = {}
    work: dict[int, int] = {}
    small: dict[int, Term] = {}
    for term in program.reachable():
        if term.number not in unchanging:
            continue
        is_key = is_extended(term.dtype)
        size = 0 if is_key else term.bytes
        largest[term.number] = max([size, *(largest[arg.number] for arg in term.args)])
        operations = _operations(term) + sum(work[arg.number] for arg in term.args)
        work[term.number] = min(operations, MANY_OPERATIONS)
        is_small = not is_key and SMALL * size <= largest[term.number]
        # A maximum that entries are compared with is computed with them.
        if operations >= MANY_OPERATIONS and is_small and term.number not in apart:
            small[term.number] = term
    read = {output.term.number for output in program.outputs}
    for term in program.reachable():
        if term.number not in small:
            read.update(arg.number for arg in term.args)
    return [term for number, term in small.items() if number in read]


def _operations(term: Term) -> int:
    """About how many operations a term takes that XLA doesn't fuse into what reads it."""
    match term.op:
        case Dot(axes=axes):
            return math.prod(axis.size for axis in axes | term.axes)
        case Opaque(call=call) if not call.bodies:
            return term.elements  # Slices and look-ups read no more than that.
        case Reduce() | Select() | Operation() | Opaque():
            return max((arg.elements for arg in term.args), default=0)
        case _:
            return 0


def _with_known(
    program: Program, equalities: Collection[tuple[Term, Term]], facts: Collection[KnownFact]
) -> Program:
    """Returns the program with more that is known, without what is known of terms that it doesn't need."""
    needed = {term.number for term in program.reachable()}
    kept: list[tuple[Term, Term]] = []
    waiting = dict.fromkeys((*program.equalities, *equalities))
    while found := [pair for pair in waiting if pair[0].number in needed]:
        for pair in found:
            del waiting[pair]
        kept += found
        needed.update(term.number for pair in found for term in reachable([pair[1]]))
    stated = dict.fromkeys(fact for fact in (*program.facts, *facts) if fact.term.number in needed)
    alike = tuple(term for term in program.alike if term.number in needed)
    return replace(program, equalities=tuple(kept), facts=tuple(stated), alike=alike)
