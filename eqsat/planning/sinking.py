"""Sinking: a large value that a loop only reads is computed inside of it, by chunks or slice by slice.

A solver's loop multiplies by one Gram matrix in every turn. Where that does not fit, its elements are
computed as they are used, again in every turn: more time, but no matrix. Both forms are entered as equal;
which one is taken is for extraction to say. It can't be a rule: it looks into the programs of a call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from eqsat.ir.axis import Axis, Layout, layout_axes
from eqsat.ir.control import Body, Choice, Scan, While, carried, sliced, steady
from eqsat.ir.control_axes import keeps
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.ops import Call, Const, Delta, Dot, Iota, Leaf, Map, Opaque, Reduce, Rename, Select
from eqsat.ir.program import Program
from eqsat.ir.substitution import substituted, with_inputs
from eqsat.ir.term import Term, reachable


def with_sunk(program: Program, threshold: float) -> Program:
    """The same program, which also knows its loops with large operands, whole or sliced, computed inside.

    **Arguments:**

    - `threshold`: bytes over which a value is large.
    """
    known = list(program.known())
    sinker = _Sinker(program, threshold)
    pairs: list[tuple[Term, Term]] = []
    for term in known:
        if isinstance(term.op, Opaque) and term.op.call.bodies and not term.open:
            sunk = sinker.sunk(term.op.call, term.args)
            if sunk is not None:
                call, args = sunk
                pairs.append((term, program.terms.make(Opaque(call, term.op.result), args)))
    return replace(program, equalities=(*program.equalities, *pairs)) if pairs else program


@dataclass(frozen=True, slots=True)
class _Descent:
    """A value with what has to be known outside to compute it: inputs, small values, what can't be cut.

    **Attributes:**

    - `along`: the axis of which each turn is given one slice; None for a value that stays the same.
    """

    term: Term
    frontier: tuple[Term, ...]
    along: Axis | None

    def operands(self) -> Iterator[_Operand]:
        """What the loop is given instead of the value."""
        for at in self.frontier:
            yield at, self.along if self.along in at.axes else None


_Operand = tuple[Term, Axis | None]
"""A value that a loop is given, and along which axis by slices."""


class _Sinker:
    """Makes variants of calls.

    **Attributes:**

    - `calls`: the number of the next new call.
    - `leaves`: the number of the next new input of a body, downwards.
    """

    def __init__(self, program: Program, threshold: float) -> None:
        self.terms = program.terms
        self.threshold = threshold
        self._made: dict[tuple[Call, tuple[int, ...]], tuple[Call, tuple[Term, ...]] | None] = {}
        self.calls = 1
        self.leaves = -1
        for inner in program.inside():
            for term in inner.known():
                match term.op:
                    case Opaque(call=call):
                        self.calls = max(self.calls, call.id + 1)
                    case Leaf(index=index):
                        self.leaves = min(self.leaves, index - 1)

    def sunk(self, call: Call, args: tuple[Term, ...]) -> tuple[Call, tuple[Term, ...]] | None:
        """The call with its large operands computed inside, and its operands then; None if it has none."""
        key = (call, tuple(arg.number for arg in args))
        if key not in self._made:
            assert call.control is not None
            descents = {}
            axes: dict[int, Axis | None] = dict.fromkeys(steady(call.control, len(args)))
            for place in sliced(call.control):
                along = call.arg_layouts[place][0]
                if not isinstance(along, tuple):
                    axes[place] = along
            for place, along in axes.items():
                large = args[place].bytes > self.threshold
                if large and (along is None or along in args[place].axes):
                    descent = self.descent(args[place], along)
                    if descent is not None:
                        descents[place] = descent
            self._made[key] = self.variant(call, args, descents) if descents else None
        return self._made[key]

    def descent(self, term: Term, along: Axis | None) -> _Descent | None:
        """How to compute a large value, or its slices, from less; None if that can't be."""
        frontier: dict[int, Term] = {}
        stack, seen = [term], {term.number}
        while stack:
            at = stack.pop()
            if not can_be_cut(at, along):
                frontier[at.number] = at
                continue
            for arg in at.args:
                if arg.number not in seen:
                    seen.add(arg.number)
                    small = arg.bytes <= self.threshold and not is_index(arg)
                    if small or isinstance(arg.op, Leaf):
                        frontier[arg.number] = arg
                    else:
                        stack.append(arg)
        if term.number in frontier or sum(at.bytes for at in frontier.values()) >= term.bytes:
            return None
        return _Descent(term, tuple(frontier.values()), along)

    def variant(
        self, call: Call, args: tuple[Term, ...], descents: dict[int, _Descent]
    ) -> tuple[Call, tuple[Term, ...]]:
        """The call with the operands `descents` computed in its bodies."""
        kept = [place for place in range(len(args)) if place not in descents]
        places = {place: number for number, place in enumerate(kept)}
        outside = list(dict.fromkeys(entry for descent in descents.values() for entry in descent.operands()))
        frontier = {entry: len(kept) + number for number, entry in enumerate(outside)}
        bodies = [self.body(body, places, frontier, descents) for body in call.bodies]
        layouts = [call.arg_layouts[place] for place in kept]
        layouts += [_layout(at) if along is None else (along, *_layout(at, along)) for at, along in outside]
        operands = (*(args[place] for place in kept), *(at for at, _ in outside))
        by_slices = [place for (_, along), place in frontier.items() if along is not None]
        control = _moved(call, places, by_slices)
        made = replace(call, id=self.calls, arg_layouts=tuple(layouts), control=control, bodies=())
        self.calls += 1
        return with_bodies(made, bodies, operands), operands

    def body(
        self,
        body: Body,
        places: dict[int, int],
        frontier: dict[_Operand, int],
        descents: dict[int, _Descent],
    ) -> Body:
        """The body that computes `descents` from inputs for the operands `frontier`."""
        inputs, sources = [], []
        inside: dict[_Operand, Term] = {}
        replaced: dict[int, Term] = {}
        for leaf, source in zip(body.program.inputs, body.sources, strict=True):
            if source not in descents:
                inputs.append(leaf)
                sources.append(places[source])
                continue
            descent = descents[source]
            for entry in descent.operands():
                if entry not in inside:
                    at, along = entry
                    inside[entry] = self.terms.make(Leaf(self.leaves, _layout(at, along), at.dtype))
                    self.leaves -= 1
                    inputs.append(inside[entry])
                    sources.append(frontier[entry])
            known = {entry[0].number: inside[entry] for entry in descent.operands()}
            replaced[leaf.number] = substituted(self.terms, [descent.term], known)[0]
        return Body(with_inputs(body.program, tuple(inputs), replaced), tuple(sources))


def can_be_cut(term: Term, along: Axis | None) -> bool:
    """Whether a piece of the term may be had without all of it: a slice along an axis, if one is given."""
    if isinstance(term.op, Opaque):
        return along is None and bool(term.op.call.passing)
    if along is not None and not keeps(term, along):
        return False
    return isinstance(term.op, (Map, Reduce, Dot, Select, Rename, Iota, Delta, Const))


def _layout(term: Term, along: Axis | None = None) -> Layout:
    """The order in which a loop is given a value, or its slices: an input's own one."""
    given = layout_axes(term.op.layout) if isinstance(term.op, Leaf) else tuple(sorted(term.axes))
    return tuple(axis for axis in given if axis != along)


def _moved(call: Call, places: dict[int, int], by_slices: list[int]) -> Scan | While | Choice:
    """The call's kind, its operands at other places, and more of them given slice by slice."""
    control = call.control
    assert control is not None
    first = tuple(places[place] for place in carried(control))
    match control:
        case Scan():
            kept = [places[place] for place in sliced(control) if place in places]
            return replace(control, carried=first, sliced=(*kept, *by_slices))
        case While():
            return While(first)
        case Choice():
            return control


def is_index(term: Term) -> bool:
    """Whether the term is made of nothing but indices and constants: it costs nothing to make again."""
    return all(not isinstance(at.op, (Leaf, Opaque)) for at in reachable([term]))
