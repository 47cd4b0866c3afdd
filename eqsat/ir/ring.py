"""Folds over an axis of which each device has a part, as a ring in which the parts are passed round.

A fold over the chunks of an axis needs one chunk at a time. If each device has one of them, it gets the next
one from its neighbour: in D steps, each of D devices has seen all of them, and never had more than one beside
its own. This is a scan over D steps that carries the chunk that is visiting and the partial results:

    repeat D times:
        state, visiting = merge(state, body(visiting)), ppermute(visiting)

Device d begins with its own chunk; then come d + 1, …, D - 1, 0, …, d - 1. Where the order counts, as for the
first of equal entries, the chunks from d on are folded by themselves, and come last in the end
(`eqsat/ir/ring_states.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from jax import lax

from eqsat.ir.axis import Axis
from eqsat.ir.control import Body, Scan
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.device_terms import DeviceTerms, Numbers
from eqsat.ir.formula import Monoid
from eqsat.ir.ops import (
    Call,
    Chunk,
    Const,
    Delta,
    Dot,
    Fold,
    Iota,
    Leaf,
    Map,
    Op,
    Opaque,
    Operation,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.program import Output, Program
from eqsat.ir.ring_states import RingState, RingStates
from eqsat.ir.term import Term, Terms, reachable
from eqsat.support.records import Place


class AxesMeetError(Exception):
    """A value has two of the axes that are split over the same devices, and no ring computes it."""


def in_rounds(terms: Sequence[Term]) -> Iterator[list[Term]]:
    """The terms of a program, operands first; folds over one axis that do not depend on each other, together.

    **Arguments:**

    - `terms`: operands first.
    """
    rounds: dict[int, int] = {}
    groups: dict[tuple[int, Axis | None], list[Term]] = {}
    for term in terms:
        number = max((rounds[arg.number] for arg in term.args), default=0)
        axis = None
        if isinstance(term.op, Fold):
            number, axis = number + 1, term.op.axis
        rounds[term.number] = number
        groups.setdefault((number, axis), []).append(term)
    for number, axis in sorted(groups, key=lambda key: (key[0], key[1] is None, key[1] or Axis(0, 0))):
        group = groups[number, axis]
        yield from [group] if axis is not None else ([term] for term in group)


class Loop:
    """A scan that is being built: its operands, what its body sees of each, and what carries become.

    **Attributes:**

    - `after`: by position of the operand, what a carry becomes.
    """

    def __init__(self, terms: Terms, numbers: Numbers) -> None:
        self.terms = terms
        self.numbers = numbers
        self.operands: list[Term] = []
        self.leaves: list[Term] = []
        self.after: dict[int, Term] = {}

    def input(self, value: Term, axes: frozenset[Axis] | None = None) -> Term:
        """What the iterations see of an operand, which is broadcast along axes that it lacks."""
        layout = tuple(sorted(value.axes if axes is None else axes))
        leaf = self.terms.make(Leaf(self.numbers.input(), layout, value.dtype))
        self.operands.append(value)
        self.leaves.append(leaf)
        return leaf

    def carry(self, leaf: Term, after: Term) -> None:
        """Say what an operand becomes in an iteration."""
        self.after[self.leaves.index(leaf)] = after

    def results(self, length: int) -> dict[int, Term]:
        """What is carried in the end, by number of the leaf that stands for it."""
        layouts = [leaf.op.layout for leaf in self.leaves if isinstance(leaf.op, Leaf)]
        carried = tuple(self.after)
        outputs = tuple(Output(term, layouts[place]) for place, term in self.after.items())
        body = Body(Program(tuple(self.leaves), outputs, self.terms), tuple(range(len(self.leaves))))
        call = Call(
            self.numbers.call(),
            lax.scan_p,
            {},
            tuple(layouts),
            tuple(layouts[place] for place in carried),
            tuple(self.leaves[place].dtype for place in carried),
            frozenset(),
            control=Scan(carried, (), length, False, 1),
        )
        call = with_bodies(call, [body], self.operands)
        return {
            self.leaves[place].number: self.terms.make(Opaque(call, result), self.operands)
            for result, place in enumerate(carried)
        }


class Ring:
    """Folds over one axis, for one device.

    **Attributes:**

    - `devices`: what builds the terms in which devices differ along the axis of the folds.
    - `along`: the same for all axes that are split.
    - `local`: by the number of a term outside of loops, what the device has of it.
    - `origins`: the places in the user's source that terms come from, by number.
    - `passed`: the bytes that a device has of what is passed round.
    """

    def __init__(
        self,
        devices: DeviceTerms,
        along: Mapping[Axis, DeviceTerms],
        local: Mapping[int, Term],
        origins: Mapping[int, Place],
    ) -> None:
        self.terms = terms = devices.terms
        self.origins = origins
        self.devices = devices
        self.along = along
        self.local = local
        self.axis = devices.split.axis
        self.parts = {axis: other.split.part for axis, other in along.items()}
        self.loop = Loop(terms, devices.split.numbers)
        self.passed = 0
        self._inside: dict[int, Term] = {}
        self._visiting: dict[int, Term] = {}
        self._owner: Term | None = None

    @property
    def owner(self) -> Term:
        """The device that the visiting part belongs to."""
        if self._owner is None:
            self._owner = self.loop.input(self.devices.device())
        return self._owner

    def folded(self, folds: Sequence[Term]) -> list[Term]:
        """What a device has of the results.

        **Raises:** `AxesMeetError` if the loop can't be a ring.
        """
        opened = [
            term for term in reachable(arg for fold in folds for arg in fold.args) if self.axis in term.open
        ]
        visitors = passed_round(opened, self.axis, self.along)
        carried = [self.loop.input(self.local[term.number]) for term in visitors]
        self._visiting.update(zip((term.number for term in visitors), carried, strict=True))
        self.passed = sum(leaf.bytes for leaf in carried)
        for term in opened:
            self._inside[term.number] = made = self._opened(term)
            if not made.axes.isdisjoint(self.along):
                raise AxesMeetError
        states = RingStates(self.terms, self.devices, self.loop.input, lambda: self.owner)
        found = [self._state(states, fold) for fold in folds]
        for state in states.made:
            for leaf, after in state.carries():
                self.loop.carry(leaf, after)
        for leaf in carried:
            self.loop.carry(leaf, self._from_neighbour(leaf))
        if self._owner is not None:
            self.loop.carry(self._owner, self._next(self._owner))
        results = self.loop.results(self.devices.split.count)
        return [self._finished(state, fold, results) for state, fold in zip(found, folds, strict=True)]

    def _state(self, states: RingStates, fold: Term) -> RingState:
        assert isinstance(fold.op, Fold)
        bodies = [self._inside.get(arg.number) or self._outside(arg) for arg in fold.args]
        match fold.op.monoid:
            case str(kind):
                return states.reduced(kind, bodies[0])
            case Select(k=k) as selection:
                if k > self.devices.split.part.size:
                    raise AxesMeetError
                return states.selected(replace(selection, axis=self.parts[self.axis]), bodies[0])
            case Monoid() as monoid:
                return states.declared(monoid, bodies)
        raise AxesMeetError

    def _finished(self, state: RingState, fold: Term, results: Mapping[int, Term]) -> Term:
        made = state.finished(results)
        return made if made.dtype == fold.dtype else self.terms.make(Map("convert", fold.dtype), [made])

    # Terms in the loop

    def _opened(self, term: Term) -> Term:
        """A term that varies with the part that is visiting."""
        if isinstance(term.op, Chunk):
            return self._visitor(term.args[0])
        return self._made(term, [self._inside.get(arg.number) or self._outside(arg) for arg in term.args])

    def _made(self, term: Term, args: Sequence[Term]) -> Term:
        made = self.terms.make(self._op(term.op), args)
        if term.number in self.origins:
            self.terms.origins.setdefault(made.number, self.origins[term.number])
        return made

    def _op(self, op: Op) -> Op:
        """An op with parts in place of axes."""

        def named(axes: frozenset[Axis]) -> frozenset[Axis]:
            return frozenset(self.parts.get(axis, axis) for axis in axes)

        match op:
            case Reduce(axes=axes) | Dot(axes=axes):
                return replace(op, axes=named(axes))
            case Select(axis=axis):
                return replace(op, axis=self.parts.get(axis, axis))
            case Operation(axes=axes):
                return replace(op, axes=tuple(self.parts.get(axis, axis) for axis in axes))
            case Opaque(call=call):
                if call.bodies or not self.parts.keys().isdisjoint(call.whole | call.accumulates | call.sums):
                    raise AxesMeetError
                return replace(op, call=call.renamed(self.parts))
            case Map() | Const() | Rename():
                return op
        raise AxesMeetError

    def _outside(self, term: Term) -> Term:
        """A term from outside of the loop."""
        if isinstance(term.op, Const):
            return self.terms.make(term.op)
        if term.number not in self._inside:
            self._inside[term.number] = self.loop.input(self.local[term.number])
        return self._inside[term.number]

    def _visitor(self, term: Term) -> Term:
        """The part of a term that is visiting."""
        if self.axis not in term.axes:
            return self._outside(term)
        if term.number not in self._visiting:
            self._visiting[term.number] = self._recomputed(term)
        return self._visiting[term.number]

    def _recomputed(self, term: Term) -> Term:
        """The part that is visiting of a term that is computed from others."""
        match term.op:
            case Iota(dtype=dtype):
                return self.devices.counted(dtype, self.devices.begins(self.owner))
            case Delta(first=first, second=second):
                return self.terms.make(Map("eq", "bool"), [self._counted(one) for one in (first, second)])
        return self._made(term, [self._visitor(arg) for arg in term.args])

    def _counted(self, axis: Axis) -> Term:
        if axis == self.axis:
            return self.devices.counted("int32", self.devices.begins(self.owner))
        return (
            self.along[axis].counted("int32") if axis in self.along else self.terms.make(Iota(axis, "int32"))
        )

    # From one step to the next

    def _from_neighbour(self, leaf: Term) -> Term:
        split = self.devices.split
        assert isinstance(leaf.op, Leaf)
        perm = tuple(((device + 1) % split.count, device) for device in range(split.count))
        params = {"axis_name": split.name, "perm": perm}
        return self.devices.collective(lax.ppermute_p, params, leaf, leaf.op.layout, leaf.op.layout)

    def _next(self, owner: Term) -> Term:
        one = self.terms.make(Const("1", "int32"))
        count = self.terms.make(Const(str(self.devices.split.count), "int32"))
        after = self.terms.make(Map("add", "int32"), [owner, one])
        return self.terms.make(Map("rem", "int32"), [after, count])


def passed_round(opened: Sequence[Term], axis: Axis, along: Mapping[Axis, object]) -> list[Term]:
    """The terms whose parts a ring over an axis passes round.

    Elementwise functions and short sums of others that are passed anyway are computed where these visit.

    **Arguments:**

    - `opened`: the terms that vary with the part that is visiting.
    """
    read = [term.args[0] for term in opened if isinstance(term.op, Chunk) and axis in term.args[0].axes]
    found = {term.number: term for term in read}
    for number in sorted(found, reverse=True):
        sources = _sources(found[number], axis, along)
        if not any(one.number == number for one in sources) and all(one.number in found for one in sources):
            del found[number]
    return [found[number] for number in sorted(found)]


def _sources(term: Term, axis: Axis, along: Mapping[Axis, object]) -> list[Term]:
    """The terms with the axis from which a term can be computed cheaply, part by part."""
    match term.op:
        case Iota() | Delta():
            return []
        case Map():
            cheap = True
        case Reduce(axes=axes):
            cheap = axes.isdisjoint(along.keys())
        case _:
            cheap = False
    if not cheap:
        return [term]
    found = {one.number: one for arg in term.args if axis in arg.axes for one in _sources(arg, axis, along)}
    return list(found.values())
