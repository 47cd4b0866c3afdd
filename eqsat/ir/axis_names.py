"""Axes under other names, in all of a program: so that a loop is over one axis of all that it goes through.

A scan over two arrays that stacks results has an axis for each. They are the same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from eqsat.ir.axis import Axis, Layout, as_dimension, layout_axes, parts
from eqsat.ir.control import Body, Scan
from eqsat.ir.ops import Call, Delta, Dot, Iota, Leaf, Op, Opaque, Operation, Reduce, Rename, Select
from eqsat.ir.program import KnownFact, Output, Program
from eqsat.ir.term import Term, reachable


def with_joint_axes(program: Program, axes: Collection[Axis]) -> Program:
    """The program with one axis for all that a scan goes through, if it goes through one of `axes`."""
    seen: set[tuple[Axis, Axis]] = set()
    while True:
        found = next((pair for pair in _pairs(program, axes) if pair not in seen), None)
        if found is None:
            return program
        seen.add(found)
        if not any(_tells_apart(inner, *found) for inner in program.inside(known=True)):
            program = with_axes_named(program, {found[0]: found[1]})


def _pairs(program: Program, axes: Collection[Axis]) -> Iterator[tuple[Axis, Axis]]:
    """Axes of scans, each with one of `axes` that the same scan goes through."""
    for call, _ in program.controls():
        along = sorted(_along(call))
        joint = next((axis for axis in along if axis in axes), None)
        if joint is not None:
            yield from ((axis, joint) for axis in along if axis != joint)


def _along(call: Call) -> set[Axis]:
    """The axes that a scan goes through."""
    if not isinstance(call.control, Scan):
        return set()
    layouts = [call.arg_layouts[position] for position in call.control.sliced]
    layouts += call.out_layouts[len(call.control.carried) :]
    return {layout[0] for layout in layouts if isinstance(layout[0], Axis)}


def _tells_apart(program: Program, one: Axis, other: Axis) -> bool:
    """Whether some term has to do with both axes, but for scans that go through both."""
    both = {one, other}
    for term in program.known():
        axes = term.axes.union(*(arg.axes for arg in term.args))
        if isinstance(term.op, Opaque):
            axes = axes.union(*map(layout_axes, (*term.op.call.arg_layouts, *term.op.call.out_layouts)))
            if both <= _along(term.op.call):
                continue
        if both <= axes:
            return True
    return any(both <= set(layout_axes(output.layout)) for output in program.outputs)


def with_axes_named(program: Program, names: Mapping[Axis, Axis]) -> Program:
    """The program with axes under other names. No term may have an axis and its new name."""
    found: dict[int, Term] = {}
    calls: dict[tuple[Call, tuple[int, ...]], Call] = {}
    roots = [output.term for output in program.outputs]
    roots += [term for pair in program.equalities for term in pair]
    roots += [*(fact.term for fact in program.facts), *program.alike, *program.inputs]
    for term in reachable(roots):
        args = [found[arg.number] for arg in term.args]
        op = term.op
        if isinstance(op, Rename) and names.get(op.old, op.old) == names.get(op.new, op.new):
            found[term.number] = args[0]
            continue
        if isinstance(op, Opaque) and op.call.bodies:
            key = op.call, tuple(arg.number for arg in args)
            if key not in calls:
                bodies = (Body(with_axes_named(b.program, names), b.sources) for b in op.call.bodies)
                calls[key] = replace(op.call.renamed(names), bodies=tuple(bodies))
            op = Opaque(calls[key], op.result)
        else:
            op = with_names(op, names)
        found[term.number] = program.terms.make(op, args)
    return replace(
        program,
        inputs=tuple(found[leaf.number] for leaf in program.inputs),
        outputs=tuple(
            Output(found[output.term.number], _layout(output.layout, names)) for output in program.outputs
        ),
        equalities=tuple((found[one.number], found[other.number]) for one, other in program.equalities),
        facts=tuple(
            KnownFact(fact.property, found[fact.term.number], tuple(names.get(a, a) for a in fact.axes))
            for fact in program.facts
        ),
        alike=tuple(found[term.number] for term in program.alike),
    )


def with_names(op: Op, names: Mapping[Axis, Axis]) -> Op:
    """An op with its axes under other names. Bodies of control flow keep theirs."""

    def new(axis: Axis) -> Axis:
        return names.get(axis, axis)

    if not names:
        return op
    match op:
        case Leaf(layout=layout):
            return replace(op, layout=_layout(layout, names))
        case Iota(axis=axis):
            return replace(op, axis=new(axis))
        case Delta(first=first, second=second):
            return Delta(new(first), new(second))
        case Reduce(axes=axes) | Dot(axes=axes):
            return replace(op, axes=frozenset(map(new, axes)))
        case Select(axis=axis, out_axis=out):
            return replace(op, axis=new(axis), out_axis=None if out is None else new(out))
        case Operation(axes=ordered):
            return replace(op, axes=tuple(map(new, ordered)))
        case Rename(old=old, new=other):
            return Rename(new(old), new(other))
        case Opaque(call=call):
            return replace(op, call=call.renamed(names))
    return op


def _layout(layout: Layout, names: Mapping[Axis, Axis]) -> Layout:
    return tuple(as_dimension(names.get(axis, axis) for axis in parts(dimension)) for dimension in layout)
