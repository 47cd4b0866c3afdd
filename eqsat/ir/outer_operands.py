"""What bodies of control flow count or rename for themselves, as operands: so an axis passes through.

A body that reads `iota` along the axis of a batch gives no slice of its results for a slice of its operands:
each slice has other indices. With the indices as one more operand, it does. Neither does a body that reads an
array both along the axis of one batch and, renamed, along that of another, as all pairs from one batch do:
the renamed array is an operand, too.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from eqsat.ir.axis import Axis, Layout, as_dimension, parts
from eqsat.ir.changed_calls import with_changed_calls
from eqsat.ir.control import Body, Scan, carried, sliced
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.ops import Call, Dot, Iota, Leaf, Map, Reduce, Rename
from eqsat.ir.program import Program
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term, Terms, reachable


def with_outer_operands(program: Program) -> Program:
    """Returns the program with indices and renamed arrays as operands of control flow.

    They are operands where more axes then pass through.
    """
    return _Moving(program).result()


@dataclass(frozen=True)
class _Operand:
    """A value that bodies make for themselves, as an operand.

    **Attributes:**

    - `term`: the operand.
    - `layout`: its layout, and `inside` that of the input that it feeds.
    - `source`: the position of the operand that it is a renaming of, or None for indices.
    - `made`: what the bodies make, by the number of the body.
    """

    term: Term
    layout: Layout
    inside: Layout
    source: int | None
    made: dict[int, Term]


class _Moving:
    """The pass over a program and the bodies inside.

    **Attributes:**

    - `leaf`: a number that no input of a body has; the next ones below are free, too.
    - `calls`: numbers that no call has.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.leaf = program.next_input()
        self.calls = itertools.count(program.next_call())

    def result(self) -> Program:
        return self._moved(self.program)

    def _moved(self, program: Program) -> Program:
        def changed(call: Call, args: tuple[Term, ...]) -> tuple[Call, tuple[Term, ...]]:
            inner = [Body(self._moved(body.program), body.sources) for body in call.bodies]
            same = all(new.program is old.program for new, old in zip(inner, call.bodies, strict=True))
            return self._with_operands(call if same else with_bodies(call, inner, args), args)

        return with_changed_calls(program, changed, self.calls)

    def _with_operands(self, call: Call, args: tuple[Term, ...]) -> tuple[Call, tuple[Term, ...]]:
        """Returns the call with further operands, as far as an axis then passes through it."""
        for axis in sorted(_axes(call) - call.passing):
            sunk = replace(call, bodies=tuple(_sunk(body, call, axis) for body in call.bodies))
            found = [*_indices(sunk, axis), *_renamed(sunk, args, axis)]
            if not found:
                continue
            made, operands = self._with(sunk, args, found)
            if axis in made.passing and made.passing > call.passing:
                call, args = made, operands
        return call, args

    def _with(
        self, call: Call, args: tuple[Term, ...], found: list[_Operand]
    ) -> tuple[Call, tuple[Term, ...]]:
        """Returns the call with these operands, and its operands."""
        bodies = list(call.bodies)
        for place, operand in enumerate(found, len(args)):
            for number in range(len(bodies)):
                body = bodies[number]
                known = {}
                fed = body.program.terms.make(Leaf(self.leaf, operand.inside, operand.term.dtype))
                self.leaf -= 1
                if number in operand.made:
                    known[operand.made[number].number] = fed
                inputs = (*body.program.inputs, fed)
                bodies[number] = Body(with_inputs(body.program, inputs, known), (*body.sources, place))
        control = call.control
        moving = [
            place
            for place, operand in enumerate(found, len(args))
            if control is not None and operand.source in sliced(control)
        ]
        if isinstance(control, Scan):
            control = replace(control, sliced=(*control.sliced, *moving))
        operands = (*args, *(operand.term for operand in found))
        layouts = (*call.arg_layouts, *(operand.layout for operand in found))
        return with_bodies(replace(call, arg_layouts=layouts, control=control), bodies, operands), operands


def _axes(call: Call) -> frozenset[Axis]:
    """Returns the axes along which the bodies count, and those that they rename others to."""
    found = set()
    for body in call.bodies:
        for term in body.program.known():
            match term.op:
                case Iota(axis=axis) | Rename(new=axis):
                    found.add(axis)
    return frozenset(found)


def _indices(call: Call, axis: Axis) -> list[_Operand]:
    """Returns the indices along the axis that the bodies count, one for each dtype."""
    found: dict[str, _Operand] = {}
    for number, body in enumerate(call.bodies):
        for term in body.program.known():
            if isinstance(term.op, Iota) and term.op.axis == axis:
                operand = found.setdefault(term.dtype, _Operand(term, (axis,), (axis,), None, {}))
                operand.made[number] = term
    return list(found.values())


def _sunk(body: Body, call: Call, axis: Axis) -> Body:
    """Returns the body with renamings to `axis` of what it computes as renamings of its inputs.

    Those of carries, and of results of other ops than elementwise ones and sums, stay where they are.
    """
    assert call.control is not None
    program = body.program
    kept = {
        leaf.number
        for leaf, source in zip(program.inputs, body.sources, strict=True)
        if source in carried(call.control)
    }
    known = {}
    for term in program.known():
        if isinstance(term.op, Rename) and term.op.new == axis and term.args[0] not in program.inputs:
            found = _computed_from_renamed(program.terms, term, kept)
            if found is not None:
                known[term.number] = found
    return Body(with_inputs(program, program.inputs, known), body.sources) if known else body


def _computed_from_renamed(terms: Terms, term: Term, kept: set[int]) -> Term | None:
    """Returns the operand of a `Rename`, computed from renamed inputs, or None if it can't be."""
    assert isinstance(term.op, Rename)
    old, new = term.op.old, term.op.new
    made: dict[int, Term] = {}
    for inner in reachable(term.args):
        if new in inner.axes:
            return None
        if old not in inner.axes:
            made[inner.number] = inner
            continue
        match inner.op:
            case Leaf() if inner.number not in kept:
                made[inner.number] = terms.make(term.op, [inner])
            case Iota():
                made[inner.number] = terms.make(Iota(new, inner.dtype), [])
            case Map() | Reduce() | Dot():
                made[inner.number] = terms.make(inner.op, [made[arg.number] for arg in inner.args])
            case _:
                return None
    return made[term.args[0].number]


def _renamed(call: Call, args: tuple[Term, ...], axis: Axis) -> list[_Operand]:
    """Returns the operands, other than carries, of which bodies rename an axis to `axis`, as renamed."""
    control = call.control
    assert control is not None
    found: dict[tuple[int, Axis], _Operand] = {}
    for number, body in enumerate(call.bodies):
        sources = dict(zip(body.program.inputs, body.sources, strict=True))
        for term in body.program.known():
            source = sources.get(term.args[0]) if isinstance(term.op, Rename) else None
            if source is None or source in carried(control):
                continue
            assert isinstance(term.op, Rename)
            old, new = term.op.old, term.op.new
            arg = args[source]
            if new != axis or old not in arg.axes or new in arg.axes:
                continue
            if (source, old) not in found:
                renamed = body.program.terms.make(Rename(old, new), [arg])
                layout = _with_axis(call.arg_layouts[source], old, new)
                inside = layout[1:] if source in sliced(control) else layout
                found[source, old] = _Operand(renamed, layout, inside, source, {})
            found[source, old].made[number] = term
    return list(found.values())


def _with_axis(layout: Layout, old: Axis, new: Axis) -> Layout:
    """Returns the layout with `new` in place of `old`."""
    return tuple(
        as_dimension(new if axis == old else axis for axis in parts(dimension)) for dimension in layout
    )
