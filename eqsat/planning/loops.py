"""Builds blocks from terms: places terms in loops, fuses loops, and hoists invariant terms.

A term that varies with the chunk of n is computed inside a loop over n, every other term outside. Loops over
one axis that share work and do not depend on one another become one loop with several results. A term that
two loops need, and that varies with both, is computed in both.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from eqsat.ir.axis import Axis
from eqsat.ir.control import Control, Scan, While
from eqsat.ir.ops import (
    Call,
    Chunk,
    Concat,
    Const,
    Delta,
    Dot,
    Fold,
    Iota,
    Leaf,
    Opaque,
    Reduce,
    Rename,
)
from eqsat.ir.program import Program
from eqsat.ir.term import Term, reachable
from eqsat.planning.blocks import Block, Compute, Loop, bodies_of, work_of


@dataclass(frozen=True, slots=True)
class Context:
    """The loops around a block.

    **Attributes:**

    - `axes`: the axes of the loops, outermost first.
    - `outermost`: the number of them around the body of control flow that the block belongs to. Terms that
      vary with none of the others are computed directly in that body.
    - `iterates`: whether any loop is around it, be it over chunks or one of control flow.
    """

    axes: tuple[Axis, ...] = ()
    outermost: int = 0
    iterates: bool = False

    def within(self, axis: Axis) -> Context:
        """The context of the body of a loop over `axis` inside this context."""
        return Context((*self.axes, axis), self.outermost, True)

    def of_bodies(self, control: Control | None) -> Context:
        """The context of the bodies of control flow inside this context."""
        return Context(self.axes, len(self.axes), self.iterates or isinstance(control, (Scan, While)))


def placed_in(term: Term, context: Context) -> int:
    """The number of the context's loops that must be around a term; one more than all if it needs others.

    If two loops are over one axis, a term varies with the inner one's chunk.
    """
    axes = context.axes
    needed = context.outermost
    for axis in term.open:
        if axis not in axes:
            return len(axes) + 1
        needed = max(needed, len(axes) - axes[::-1].index(axis))
    return needed


OUTSIDE = Context()


def is_free(term: Term) -> bool:
    """Whether computing the term twice is free: an input, constant or index, or a slice or rename of one."""
    while isinstance(term.op, (Rename, Chunk)):
        term = term.args[0]
    return isinstance(term.op, (Leaf, Const, Iota, Delta))


@dataclass
class _Unit:
    """A step in the making: a term, or closers (Folds and Concats) that will share one loop."""

    results: list[Term]
    needs: set[int]
    axis: Axis | None = None
    shared: int = 0


class TooManyStepsError(Exception):
    """The blocks of a program have more steps than the limit."""


class LoopBuilder:
    """Builds the blocks of one program."""

    def __init__(self, most: float = math.inf, apart: frozenset[int] = frozenset()) -> None:
        self._loops = 0
        self._apart = apart
        self._steps = 0
        self._most = most
        self._bodies: dict[tuple[Call, Context], tuple[Block, ...]] = {}
        self._insides: dict[tuple[Context, Axis], _Insides] = {}

    def block(self, needs: Sequence[Term], context: Context = OUTSIDE) -> Block:
        """The block that computes `needs`, all of which belong inside the loops of `context`."""
        units = self._units(needs, context)
        self._steps += len(units)
        if self._steps > self._most:
            raise TooManyStepsError
        steps: list[Compute | Loop] = []
        for unit in _in_order(units, needs):
            if unit.axis is None:
                steps.append(Compute(unit.results[0], self.bodies(unit.results[0], context)))
                continue
            self._loops += 1
            identity = self._loops
            inner = context.within(unit.axis)
            bodies = list(dict.fromkeys(body for result in unit.results for body in bodies_of(result)))
            body = self.block(bodies, inner)
            imports = self._imports(unit.results, context)
            steps.append(Loop(identity, unit.axis, tuple(unit.results), body, imports))
        return Block(tuple(steps), tuple(dict.fromkeys(needs)), self._apart, context.iterates)

    def bodies(self, term: Term, context: Context) -> tuple[Block, ...]:
        """The blocks of the bodies of a term's call: the same ones for all results of the call."""
        if not isinstance(term.op, Opaque) or not term.op.call.bodies:
            return ()
        key = (term.op.call, context)
        if key not in self._bodies:
            before, self._most = (self._steps, self._most), math.inf
            inner = context.of_bodies(term.op.call.control)
            self._bodies[key] = tuple(
                self.block([output.term for output in body.program.outputs], inner)
                for body in term.op.call.bodies
            )
            self._steps, self._most = before
        return self._bodies[key]

    def _units(self, needs: Sequence[Term], context: Context) -> list[_Unit]:
        """The units of a block: closers over one axis are merged where that shares work."""
        units: list[_Unit] = []
        unit_of: dict[int, _Unit] = {}
        loops: dict[Axis, list[_Unit]] = {}
        here = self._terms_here(needs, context)
        depth: dict[int, dict[Axis, int]] = {}
        for term in here:
            closer = isinstance(term.op, (Fold, Concat))
            wanted = self._imports([term], context) if closer else term.args
            wanted_here = [arg for arg in wanted if arg.number in unit_of]
            below: dict[Axis, int] = {}
            for arg in wanted_here:
                for axis, level in depth[arg.number].items():
                    below[axis] = max(below.get(axis, 0), level)
            numbers = {arg.number for arg in wanted_here}
            if not closer:
                unit = _Unit([term], numbers)
                units.append(unit)
            else:
                assert isinstance(term.op, (Fold, Concat))
                axis = term.op.axis
                level = below.get(axis, 0) + 1
                below[axis] = level
                work = self._inside(term, context).work([term])
                found = None
                for other in loops.setdefault(axis, []):
                    if (
                        other.shared & work
                        and all(depth[result.number][axis] == level for result in other.results)
                        and not _reaches(numbers, other, unit_of)
                    ):
                        found = other
                        break
                if found is None:
                    unit = _Unit([term], numbers, axis, work)
                    units.append(unit)
                    loops[axis].append(unit)
                else:
                    unit = found
                    unit.results.append(term)
                    unit.needs |= numbers
                    unit.shared |= work
            unit_of[term.number] = unit
            depth[term.number] = below
        return units

    def _terms_here(self, needs: Iterable[Term], context: Context) -> list[Term]:
        """The terms that are computed directly in this block, operands first."""
        depth = len(context.axes)
        done: dict[int, Term] = {}
        stack = [(term, False) for term in reversed(list(needs))]
        while stack:
            term, leaving = stack.pop()
            if leaving:
                done.setdefault(term.number, term)
                continue
            if term.number in done or placed_in(term, context) != depth:
                continue
            stack.append((term, True))
            closer = isinstance(term.op, (Fold, Concat))
            wanted = self._imports([term], context) if closer else term.args
            stack.extend((arg, False) for arg in reversed(wanted))
        return list(done.values())

    def _inside(self, closer: Term, context: Context) -> _Insides:
        """The contents of loops over the closer's axis in a context."""
        assert isinstance(closer.op, (Fold, Concat))
        key = (context, closer.op.axis)
        if key not in self._insides:
            self._insides[key] = _Insides(*key)
        return self._insides[key]

    def _imports(self, closers: Sequence[Term], context: Context) -> tuple[Term, ...]:
        """The terms computed outside a loop that its body uses."""
        return self._inside(closers[0], context).imports(closers)


class _Insides:
    """The work and the imports of loops over one axis in one context, inner loops included.

    For every term inside the loops, two sets are kept as the bits of integers: the work of computing it, and
    the terms that it uses from outside.
    """

    def __init__(self, context: Context, axis: Axis) -> None:
        self._around = len(context.axes)
        self._context = context.within(axis)
        self._index: dict[int, int] = {}
        self._works: dict[Hashable, int] = {}
        self._terms: list[Term] = []
        self._work: list[int] = []
        self._imported: list[int] = []

    def work(self, closers: Iterable[Term]) -> int:
        """The work of the closers' loops, as a set of `work_of` keys, without terms that cost nothing."""
        return self._union(self._work, [body for closer in closers for body in bodies_of(closer)])

    def imports(self, closers: Iterable[Term]) -> tuple[Term, ...]:
        """The terms computed outside that the closers' loops use."""
        found = self._union(self._imported, [body for closer in closers for body in bodies_of(closer)])
        terms = []
        while found:
            lowest = found & -found
            terms.append(self._terms[lowest.bit_length() - 1])
            found ^= lowest
        return tuple(sorted(terms, key=lambda term: term.number))

    def _union(self, sets: list[int], terms: Iterable[Term]) -> int:
        union = 0
        for term in terms:
            self._visit(term)
            union |= sets[self._index[term.number]]
        return union

    def _visit(self, root: Term) -> None:
        """Compute the sets of a term and of its operands inside the loop."""
        stack = [(root, False)]
        while stack:
            term, leaving = stack.pop()
            if term.number in self._index:
                continue
            if placed_in(term, self._context) <= self._around:
                self._enter(term, 0, 1 << len(self._terms))
            elif leaving:
                args = [self._index[arg.number] for arg in term.args]
                work = 0 if is_free(term) else 1 << self._works.setdefault(work_of(term), len(self._works))
                imported = 0
                for arg in args:
                    work |= self._work[arg]
                    imported |= self._imported[arg]
                self._enter(term, work, imported)
            else:
                stack.append((term, True))
                stack.extend((arg, False) for arg in term.args)

    def _enter(self, term: Term, work: int, imported: int) -> None:
        self._index[term.number] = len(self._terms)
        self._terms.append(term)
        self._work.append(work)
        self._imported.append(imported)


def _reaches(start: set[int], target: _Unit, unit_of: dict[int, _Unit]) -> bool:
    """Whether computing the terms `start` requires `target` to run first."""
    seen: set[int] = set()
    stack = list(start)
    while stack:
        number = stack.pop()
        if number in seen:
            continue
        seen.add(number)
        unit = unit_of[number]
        if unit is target:
            return True
        stack.extend(unit.needs)
    return False


def _in_order(units: Sequence[_Unit], needs: Sequence[Term]) -> list[_Unit]:
    """The units in an order in which each comes after the units it needs: depth first from the results."""
    unit_of = {result.number: unit for unit in units for result in unit.results}
    order: list[_Unit] = []
    state: dict[int, int] = {}
    roots = [unit_of[term.number] for term in needs if term.number in unit_of]
    stack = [(unit, False) for unit in reversed(roots)]
    while stack:
        unit, leaving = stack.pop()
        if leaving:
            if state.get(id(unit)) != 2:
                state[id(unit)] = 2
                order.append(unit)
            continue
        if state.get(id(unit)):
            continue
        state[id(unit)] = 1
        stack.append((unit, True))
        wanted = [unit_of[number] for number in unit.needs]
        # The largest result is computed last, when only the small results of the others are alive.
        wanted.sort(
            key=lambda other: (sum(result.bytes for result in other.results), other.results[0].number),
            reverse=True,
        )
        stack.extend((other, False) for other in wanted)
    return order


def build(program: Program, most: float = math.inf) -> Block:
    """The outermost block of a program.

    **Raises:** `TooManyStepsError` if the blocks have more than `most` steps, those in calls not counted.

    Example: a term without loops becomes one step.

    >>> from eqsat.ir.term import Terms
    >>> from eqsat.ir.program import Output
    >>> terms = Terms()
    >>> two = terms.make(Const("2.0", "float32"))
    >>> [step.term.op for step in build(Program((), (Output(two, ()),), terms)).steps]
    [Const(text='2.0', dtype='float32')]
    """
    return LoopBuilder(most, _apart(program)).block(
        list(dict.fromkeys(output.term for output in program.outputs))
    )


def _apart(program: Program) -> frozenset[int]:
    """The numbers of products and sums in loops that must have the same bits wherever they are computed."""
    values = [term for inner in program.inside() for term in inner.alike if term.open]
    return frozenset(term.number for term in reachable(values) if isinstance(term.op, (Dot, Reduce)))
