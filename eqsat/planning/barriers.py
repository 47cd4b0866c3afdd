"""Barriers: the ops that prevent an axis of an array from being split into chunks."""

from __future__ import annotations

from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.control import carried
from eqsat.ir.ops import Call, Dot, Leaf, Map, Opaque, Operation, Reduce, Rename, Select
from eqsat.ir.program import Program
from eqsat.ir.term import Term
from eqsat.planning.describing import Describer
from eqsat.support.records import BarrierRecord

MOST_STEPS = 1000
"""The number of elementwise ops followed in search of an op that needs an axis whole."""

NOTHING = "nothing needs it whole, but no program that splits it was smaller"
"""The reason reported if there is no barrier."""


class Barriers:
    """Finds the ops that need axes whole in one program.

    **Attributes:**

    - `consumers`: by number of a term, the terms that read it.
    - `bodies`: by number of a term, the calls with a body that returns it, and its place among the results.
    - `inputs`: by number of a body's input, the call, and the operand that the input stands for.
    - `results`: the numbers of the program's outputs.
    """

    def __init__(self, program: Program, words: Describer) -> None:
        self.words = words
        self.consumers: dict[int, list[Term]] = {}
        self.bodies: dict[int, list[tuple[Term, int]]] = {}
        self.inputs: dict[int, tuple[Term, int]] = {}
        self.results = {output.term.number for output in program.outputs}
        for inner in program.inside():
            for term in inner.reachable():
                for arg in dict.fromkeys(term.args):
                    self.consumers.setdefault(arg.number, []).append(term)
                self._enter_bodies(term)

    def _enter_bodies(self, term: Term) -> None:
        if not isinstance(term.op, Opaque):
            return
        for body in term.op.call.bodies:
            for leaf, source in zip(body.program.inputs, body.sources, strict=True):
                self.inputs[leaf.number] = (term, source)
            for place, output in enumerate(body.program.outputs):
                self.bodies.setdefault(output.term.number, []).append((term, place))

    def of(self, term: Term, axis: Axis) -> BarrierRecord:
        """The barrier that stops an axis of a term from being split, or split into shorter chunks."""
        if axis in term.open:
            return BarrierRecord(self.words.axis(axis), "", "already split: shorter chunks did not do")
        return self._made_whole(term, axis) or self._read_whole(term, axis) or self._record(axis, NOTHING)

    def of_call(self, term: Term) -> tuple[BarrierRecord, ...]:
        """For a call or a named operation, the axes that it needs whole or makes whole."""
        axes = dict.fromkeys(axis for arg in (*term.args, term) for axis in sorted(arg.axes))
        match term.op:
            case Opaque(call=call):
                whole = [axis for axis in axes if not _passes(call, axis)]
                return tuple(self._barrier(axis, term, _need(call)) for axis in whole)
            case Operation(axes=core):
                return tuple(self._barrier(axis, term, "needs it whole") for axis in axes if axis in core)
            case _:
                return ()

    def _made_whole(self, term: Term, axis: Axis) -> BarrierRecord | None:
        """The reason why a term can't be computed chunk by chunk along an axis; None if it can."""
        match term.op:
            case Leaf() if term.number in self.inputs:
                call, source = self.inputs[term.number]
                assert isinstance(call.op, Opaque)
                control = call.op.call.control
                if control is not None and source in carried(control) and not _passes(call.op.call, axis):
                    return self._barrier(axis, call, "carries it whole from iteration to iteration")
            case Leaf():
                return self._record(axis, "it is an argument, and there as a whole")
            case Select(out_axis=entries) if entries == axis:
                return self._barrier(axis, term, "gives all of its entries at once")
            case Operation(axes=core) if axis in core:
                return self._barrier(axis, term, "makes it as a whole")
            case Opaque(call=call) if not _passes(call, axis):
                return self._barrier(axis, term, _make(call, axis))
            case _:
                pass
        return None

    def _read_whole(self, term: Term, axis: Axis) -> BarrierRecord | None:
        """The nearest consumer, through elementwise ops, that needs the term whole along an axis."""
        if term.number in self.results:
            return self._record(axis, "it is a result, and there as a whole in the end")
        waiting, seen = [(term, axis)], {term.number}
        for at, along in waiting:
            for owner, place in self.bodies.get(at.number, ()):
                assert isinstance(owner.op, Opaque)
                control = owner.op.call.control
                kept = control is not None and place < len(carried(control))
                if kept and not _passes(owner.op.call, along):
                    return self._barrier(axis, owner, "carries it whole from iteration to iteration")
            for reader in self.consumers.get(at.number, ()):
                match reader.op:
                    case Operation(axes=core) if along in core:
                        return self._barrier(axis, reader, "needs it whole")
                    case Opaque(call=call) if not _passes(call, along):
                        return self._barrier(axis, reader, _need(call))
                    case Rename(old=old, new=new):
                        following = new if old == along else along
                    case Map():
                        following = along
                    case Reduce() | Dot() | Select() | _:
                        continue  # a loop over the axis can continue through this op, or end at it
                if reader.number not in seen and len(waiting) < MOST_STEPS:
                    seen.add(reader.number)
                    waiting.append((reader, following))
        return None

    def _barrier(self, axis: Axis, term: Term, what: str) -> BarrierRecord:
        op = str(term.op.call.primitive.name) if isinstance(term.op, Opaque) else self.words.op(term)
        return BarrierRecord(self.words.axis(axis), op, f"{op} {what}", self.words.place(term))

    def _record(self, axis: Axis, reason: str) -> BarrierRecord:
        return BarrierRecord(self.words.axis(axis), "", reason)


def _passes(call: Call, axis: Axis) -> bool:
    """Whether a call may be given a chunk of an axis; one whose operands and results lack the axis may."""
    if call.control is not None and not call.bodies:
        return False
    layouts = (*call.arg_layouts, *call.out_layouts)
    if not any(axis in layout_axes(layout) for layout in layouts):
        return True
    return axis in call.cut | call.accumulates


def _need(call: Call) -> str:
    return "works on it iteration by iteration" if call.control is not None else "needs it whole"


def _make(call: Call, axis: Axis) -> str:
    """How a call makes an axis of its result, as words for a reason."""
    if call.control is None:
        return "makes it as a whole"
    stacked = any(layout[:1] == (axis,) for layout in call.out_layouts[len(carried(call.control)) :])
    return "stacks it iteration by iteration" if stacked else "carries it whole from iteration to iteration"
