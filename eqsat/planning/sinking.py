"""Sinking: a large value that a loop only reads is computed inside of it, where it can be done by chunks.

A solver's loop multiplies by one Gram matrix in every turn. Where that does not fit, its elements are
computed as they are used, again in every turn: more time, but no matrix. Both forms are entered as equal;
which one is taken is for extraction to say. It can't be a rule: it looks into the programs of a call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from eqsat.ir.axis import Layout
from eqsat.ir.control import Body, Choice, Scan, While, carried, sliced, steady
from eqsat.ir.control_axes import with_bodies
from eqsat.ir.ops import Call, Const, Delta, Dot, Iota, Leaf, Map, Opaque, Reduce, Rename, Select
from eqsat.ir.program import Program
from eqsat.ir.substitution import substituted, with_inputs
from eqsat.ir.term import Term, reachable


def with_sunk(program: Program, threshold: float) -> Program:
    """The same program, which also knows its loops with large unchanging operands computed inside.

    **Arguments:**

    - `threshold`: bytes over which a value is large.
    """
    known = list(program.known())
    sinker = _Sinker(program, known, threshold)
    pairs: list[tuple[Term, Term]] = []
    for term in known:
        if isinstance(term.op, Opaque) and term.op.call.bodies and not term.open:
            sunk = sinker.sunk(term.op.call, term.args)
            if sunk is not None:
                call, args = sunk
                pairs.append((term, program.terms.make(Opaque(call, term.op.result), args)))
    return replace(program, equalities=(*program.equalities, *pairs)) if pairs else program


@dataclass
class _Descent:
    """A value with what has to be known outside to compute it: inputs, small values, what can't be cut."""

    term: Term
    frontier: list[Term]


class _Sinker:
    """Makes variants of calls.

    **Attributes:**

    - `calls`: the number of the next new call.
    - `leaves`: the number of the next new input of a body, downwards.
    """

    def __init__(self, program: Program, known: list[Term], threshold: float) -> None:
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
            for place in steady(call.control, len(args)):
                descent = self.descent(args[place]) if args[place].bytes > self.threshold else None
                if descent is not None:
                    descents[place] = descent
            self._made[key] = self.variant(call, args, descents) if descents else None
        return self._made[key]

    def descent(self, term: Term) -> _Descent | None:
        """How to compute a large value from less; None if that can't be."""
        frontier: dict[int, Term] = {}
        stack, seen = [term], {term.number}
        while stack:
            at = stack.pop()
            if not self.can_be_cut(at):
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
        return _Descent(term, list(frontier.values()))

    @staticmethod
    def can_be_cut(term: Term) -> bool:
        """Whether a piece of the term may be had without all of it."""
        if isinstance(term.op, Opaque):
            return bool(term.op.call.passing)
        return isinstance(term.op, (Map, Reduce, Dot, Select, Rename, Iota, Delta, Const))

    def variant(
        self, call: Call, args: tuple[Term, ...], descents: dict[int, _Descent]
    ) -> tuple[Call, tuple[Term, ...]]:
        """The call with the operands `descents` computed in its bodies."""
        kept = [place for place in range(len(args)) if place not in descents]
        outside = dict.fromkeys(at for descent in descents.values() for at in descent.frontier)
        places = {place: number for number, place in enumerate(kept)}
        frontier = {at.number: len(kept) + number for number, at in enumerate(outside)}
        bodies = [self.body(body, places, frontier, descents) for body in call.bodies]
        layouts = [call.arg_layouts[place] for place in kept]
        layouts += [_layout(at) for at in outside]
        operands = (*(args[place] for place in kept), *outside)
        made = replace(
            call, id=self.calls, arg_layouts=tuple(layouts), control=_moved(call, places), bodies=()
        )
        self.calls += 1
        return with_bodies(made, bodies, operands), operands

    def body(
        self, body: Body, places: dict[int, int], frontier: dict[int, int], descents: dict[int, _Descent]
    ) -> Body:
        inputs, sources = [], []
        inside: dict[int, Term] = {}
        replaced: dict[int, Term] = {}
        for leaf, source in zip(body.program.inputs, body.sources, strict=True):
            if source not in descents:
                inputs.append(leaf)
                sources.append(places[source])
                continue
            for at in descents[source].frontier:
                if at.number not in inside:
                    op = Leaf(self.leaves, _layout(at), at.dtype)
                    self.leaves -= 1
                    inside[at.number] = self.terms.make(op)
                    inputs.append(inside[at.number])
                    sources.append(frontier[at.number])
            replaced[leaf.number] = substituted(self.terms, [descents[source].term], inside)[0]
        return Body(with_inputs(body.program, tuple(inputs), replaced), tuple(sources))


def _layout(term: Term) -> Layout:
    """The order in which a loop is given a value: an input's own one."""
    given = term.op.layout if isinstance(term.op, Leaf) else tuple(sorted(term.axes))
    return tuple(axis for axis in given if axis is not None)


def _moved(call: Call, places: dict[int, int]) -> Scan | While | Choice:
    """The call's kind, its operands at other places."""
    control = call.control
    assert control is not None
    first = tuple(places[place] for place in carried(control))
    match control:
        case Scan():
            return replace(control, carried=first, sliced=tuple(places[place] for place in sliced(control)))
        case While():
            return While(first)
        case Choice():
            return control


def is_index(term: Term) -> bool:
    """Whether the term is made of nothing but indices and constants: it costs nothing to make again."""
    return all(not isinstance(at.op, (Leaf, Opaque)) for at in reachable([term]))
