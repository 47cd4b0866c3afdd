"""The ways to split a program over one axis of a mesh: which axes devices share out, alone or in rings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eqsat.compiler.candidate_compiler import input_names
from eqsat.compiler.mesh_program import MeshProgram
from eqsat.engine.compiled import CompiledRule
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import is_inexact
from eqsat.ir.labels import axis_labels
from eqsat.ir.ops import Opaque, Rename
from eqsat.ir.partitioning import partitioned
from eqsat.ir.program import Program
from eqsat.ir.ring import AxesMeetError
from eqsat.planning.ring_loops import axes_that_meet, in_rings
from eqsat.support.units import format_bytes
from eqsat.targets.machine import Machine

MOST_AXES = 12
"""How many of a program's axes are tried for an axis of the mesh: those of its largest values."""


def splits(one: MeshProgram, name: str, count: int, names: Sequence[str]) -> Iterator[MeshProgram]:
    """The ways to split one axis over `count` devices along the mesh's axis `name`."""
    labels = axis_labels(one.program, input_names(one.program, names))
    for axis in _candidates(one, count):
        yield one.assigned(partitioned(one.program, [axis], name, count), name, _said(axis, labels))


def rings(
    one: MeshProgram,
    name: str,
    count: int,
    names: Sequence[str],
    rules: Sequence[CompiledRule],
    machine: Machine,
) -> Iterator[MeshProgram]:
    """The ways to split several axes over the same devices, with rings where they meet."""
    labels = axis_labels(one.program, input_names(one.program, names))
    for axes in axes_that_meet(one.program, count):
        for looped in in_rings(one.program, axes, count, rules, machine):
            try:
                part = partitioned(looped, axes, name, count)
            except AxesMeetError:
                continue
            given = [axis for axis in axes if any(axis in leaf.axes for leaf in one.program.inputs)]
            said = " and ".join(_said(axis, labels) for axis in given)
            passed = ", ".join(
                f"{format_bytes(size)} of {_said(_named(one.program, axis, given), labels)}"
                for axis, size in dict(part.passed).items()
            )
            yield one.assigned(part, name, f"{said}; passed round in a ring: {passed}")


def _named(program: Program, axis: Axis, given: Sequence[Axis]) -> Axis:
    """The axis of an input that an axis is another name of, if it is."""
    for term in program.reachable():
        if isinstance(term.op, Rename) and term.op.new == axis and term.op.old in given:
            return term.op.old
    return axis


def _said(axis: Axis, labels: Mapping[Axis, object]) -> str:
    label = f"{labels[axis]}" if axis in labels else f"axis {axis.name}"
    return f"{label} ({axis.size:,})"


def _candidates(one: MeshProgram, count: int) -> list[Axis]:
    """The axes that devices can share out: those that constraints name, and then those of large values."""
    sizes: dict[Axis, int] = {}
    for inner in one.program.inside():
        for term in inner.reachable():
            for axis in term.axes:
                sizes[axis] = max(sizes.get(axis, 0), term.bytes)
    fitting = [axis for axis in sizes if axis.size > count]
    named = {axis for wish in one.wishes for axis in wish.axes}
    return sorted(fitting, key=lambda axis: (axis not in named, -sizes[axis], axis.id))[:MOST_AXES]


def sums_over_devices(program: Program) -> bool:
    """Whether devices add up numbers whose sum depends on the order."""
    return any(
        isinstance(term.op, Opaque) and term.op.call.primitive.name == "psum" and is_inexact(term.dtype)
        for inner in program.inside()
        for term in inner.reachable()
    )
