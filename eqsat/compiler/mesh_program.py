"""A function for a mesh of devices: which axes its devices share out, and the function as a `shard_map`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from eqsat.backend.codegen_options import CodegenOptions
from eqsat.backend.emission import Emission
from eqsat.compiler.candidate_compiler import input_names
from eqsat.compiler.planned import Planned
from eqsat.engine.compiled import CompiledRule
from eqsat.errors import BudgetError
from eqsat.frontend.lower import lower
from eqsat.frontend.trace import Traced
from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.control import iterations
from eqsat.ir.device_terms import COLLECTIVES
from eqsat.ir.dtypes import is_inexact, itemsize
from eqsat.ir.labels import axis_labels
from eqsat.ir.ops import Leaf, Opaque, Rename
from eqsat.ir.partitioning import Partition, partitioned
from eqsat.ir.program import Program
from eqsat.ir.ring import AxesMeetError
from eqsat.planning.candidates import as_written
from eqsat.planning.ring_loops import axes_that_meet, in_rings
from eqsat.support.units import format_bytes
from eqsat.targets.machine import Machine
from eqsat.targets.target import Target

MOST_AXES = 12
"""How many of a program's axes are tried for an axis of the mesh: those of its largest values."""

KEPT = 4
"""How many ways are kept for the next axis of the mesh, and planned if the first does not fit."""

Dims = tuple[tuple[str, ...], ...]
"""For each dimension of an array, the axes of the mesh that it is split over."""


@dataclass(frozen=True)
class MeshProgram:
    """One way to split a program over a mesh.

    **Attributes:**

    - `program`: what one device does.
    - `inputs`, `outputs`: how each input and output is split.
    - `assignment`: by axis of the mesh, the name of the axis that is split over it, for users.
    - `communicated`: the bytes that a device gets from others.
    - `seconds`: the predicted time of the function as written on one device, communication included.
    """

    mesh: Mesh
    program: Program
    inputs: tuple[Dims, ...]
    outputs: tuple[Dims, ...]
    assignment: tuple[tuple[str, str], ...]
    communicated: int
    seconds: float

    @property
    def said(self) -> str:
        """Which axes are split, for users."""
        split = dict(self.assignment)
        said = [
            f"{name} = {count}: {split.get(str(name), 'repeats what the others do')}"
            for name, count in self.mesh.shape.items()
        ]
        return "; ".join(said)

    def placement(self, dims: Dims) -> NamedSharding:
        return NamedSharding(self.mesh, _spec(dims))

    def traced(
        self, closed: ClosedJaxpr, hoisted: Sequence[Any], names: Sequence[str], target: Target
    ) -> Traced:
        """The function on whole arguments, as a map over the devices.

        **Arguments:**

        - `closed`: the function's jaxpr.
        - `hoisted`: the arrays that it captures.
        - `names`: of its arguments.
        """
        local = local_function(self.program, names, target.machine)
        mapped: Callable[..., Sequence[Any]] = jax.shard_map(
            lambda *entries: tuple(local(*entries)),
            mesh=self.mesh,
            in_specs=tuple(map(_spec, self.inputs)),
            out_specs=tuple(map(_spec, self.outputs)),
            check_vma=False,
        )
        avals = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in closed.in_avals]
        original = Traced(closed)

        def whole(*leaves: Any) -> list[Any]:
            results: Sequence[Any] = mapped(*leaves, *hoisted)
            return original.typed(results)

        return Traced(jax.make_jaxpr(whole)(*avals))


def local_function(program: Program, names: Sequence[str], machine: Machine) -> Callable[..., Sequence[Any]]:
    """What one device does, as a function that is called inside of a `shard_map`."""
    written = as_written(program, machine, library=True)
    emission = Emission(written.schedule, {}, 0, CodegenOptions(), {}, {})
    function: Callable[..., Sequence[Any]] = emission.module(input_names(program, names), {}).function()
    return function


def _spec(dims: Dims) -> PartitionSpec:
    entries = [names if len(names) > 1 else names[0] if names else None for names in dims]
    while entries and entries[-1] is None:
        entries.pop()
    return PartitionSpec(*entries)


class MeshPrograms:
    """The ways to share a function out among the devices of a mesh, from the one that should be fastest.

    Axes of the mesh are assigned one after another, each to the axis with which the rest is fastest.

    **Attributes:**

    - `rules`: reads the rules by which rings are found.
    - `exact`: whether results must equal those of the function bit for bit. Then no sum is over devices.
    - `found`: the ways without rings.
    """

    def __init__(
        self,
        closed: ClosedJaxpr,
        mesh: Mesh,
        names: Sequence[str],
        target: Target,
        rules: Callable[[], Sequence[CompiledRule]],
        exact: bool = False,
    ) -> None:
        self.closed = closed
        self.names = names
        self.target = target
        self.rules = rules
        self.exact = exact
        program, self.hoisted = lower(closed, platforms=target.platforms)
        none = tuple(((),) * len(_leaf(term).layout) for term in program.inputs)
        ends = tuple(((),) * len(output.layout) for output in program.outputs)
        self.found = [_scored(MeshProgram(mesh, program, none, ends, (), 0, 0.0), target.machine)]
        self._axes = [(str(name), count) for name, count in mesh.shape.items() if count > 1]
        self._before: list[list[MeshProgram]] = []
        for name, count in self._axes:
            self._before.append(self.found)
            # What is split over some axes of the mesh alone repeats its work along the others.
            self.found = _fastest([*self._wider(self.found, name, count), *self.found])

    def _wider(self, found: Sequence[MeshProgram], name: str, count: int) -> Iterator[MeshProgram]:
        """The ways in which a further axis of the mesh is assigned to an axis."""
        for one in found:
            for split in _splits(one, name, count, self.names):
                if not (self.exact and _sums_over_devices(split.program)):
                    yield _scored(split, self.target.machine)

    @cached_property
    def rings(self) -> list[MeshProgram]:
        """The ways in which what is split over one of the axes of the mesh is passed round in rings."""
        found: list[MeshProgram] = []
        if self.exact:
            return found
        rules, machine = self.rules(), self.target.machine
        for (name, count), before in zip(self._axes, self._before, strict=True):
            wider = [
                _scored(ring, machine)
                for one in [*before, *found]
                for ring in _rings(one, name, count, self.names, rules, machine)
            ]
            found = _fastest([*wider, *self._wider(found, name, count), *found])
        return found

    def _ways(self) -> Iterator[MeshProgram]:
        """All of them. Rings need less memory, and are looked for only if nothing else fits."""
        yield from self.found
        yield from self.rings

    def _within(self, budget: int) -> Iterator[MeshProgram]:
        """Those whose arguments and results fit a budget; the one where these are smallest if none do."""
        fit = False
        for one in self._ways():
            if one.program.fixed_bytes <= budget:
                fit = True
                yield one
        if not fit:
            yield min(self._ways(), key=lambda one: one.program.fixed_bytes)

    def planned(self, budget: int, mapped: Callable[[ClosedJaxpr, int, tuple[Any, ...]], Planned]) -> Planned:
        """The first of them for which there is a plan within a budget of each device.

        **Arguments:**

        - `mapped`: plans a map over devices, whose arguments are placed so.

        **Raises:** `BudgetError` of the one that needs least if there is no plan for any.
        """
        refused: BudgetError | None = None
        for one in self._within(budget):
            placement = tuple(map(one.placement, one.inputs[: len(self.closed.in_avals)]))
            traced = one.traced(self.closed, self.hoisted, self.names, self.target)
            try:
                found = mapped(traced.closed, budget, placement)
            except BudgetError as error:
                if refused is None or (error.smallest_peak or 0) < (refused.smallest_peak or 0):
                    refused = error
                continue
            plan = replace(found.plan, devices=one.said, communicated_bytes=one.communicated)
            return replace(found, plan=plan, placement=placement)
        assert refused is not None
        raise refused


def _fastest(found: Sequence[MeshProgram]) -> list[MeshProgram]:
    return sorted(found, key=lambda one: one.seconds)[:KEPT]


def _leaf(term: Any) -> Leaf:
    assert isinstance(term.op, Leaf)
    return term.op


def _splits(one: MeshProgram, name: str, count: int, names: Sequence[str]) -> Iterator[MeshProgram]:
    labels = axis_labels(one.program, input_names(one.program, names))
    for axis in _candidates(one.program, count):
        part = partitioned(one.program, [axis], name, count)
        yield _assigned(one, part, name, _said(axis, labels))


def _rings(
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
            yield _assigned(one, part, name, f"{said}; passed round in a ring: {passed}")


def _named(program: Program, axis: Axis, given: Sequence[Axis]) -> Axis:
    """The axis of an input that an axis is another name of, if it is."""
    for term in program.reachable():
        if isinstance(term.op, Rename) and term.op.new == axis and term.op.old in given:
            return term.op.old
    return axis


def _said(axis: Axis, labels: Mapping[Axis, object]) -> str:
    label = f"{labels[axis]}" if axis in labels else f"axis {axis.name}"
    return f"{label} ({axis.size:,})"


def _assigned(one: MeshProgram, part: Partition, name: str, said: str) -> MeshProgram:
    return replace(
        one,
        program=part.program,
        inputs=tuple(map(_with, one.inputs, part.inputs, (name,) * len(one.inputs))),
        outputs=tuple(map(_with, one.outputs, part.outputs, (name,) * len(one.outputs))),
        assignment=(*one.assignment, (name, said)),
    )


def _sums_over_devices(program: Program) -> bool:
    """Whether devices add up numbers whose sum depends on the order."""
    return any(
        isinstance(term.op, Opaque) and term.op.call.primitive.name == "psum" and is_inexact(term.dtype)
        for inner in program.inside()
        for term in inner.reachable()
    )


def _with(dims: Dims, place: int | None, name: str) -> Dims:
    return tuple((*names, name) if number == place else names for number, names in enumerate(dims))


def _candidates(program: Program, count: int) -> list[Axis]:
    """The axes that devices can share out, those of large values first."""
    sizes: dict[Axis, int] = {}
    for inner in program.inside():
        for term in inner.reachable():
            for axis in term.axes:
                sizes[axis] = max(sizes.get(axis, 0), term.bytes)
    fitting = [axis for axis in sizes if axis.size > count]
    return sorted(fitting, key=lambda axis: (-sizes[axis], axis.id))[:MOST_AXES]


def _scored(one: MeshProgram, machine: Machine) -> MeshProgram:
    written = as_written(one.program, machine, library=True)
    messages, communicated = _communicated(one.program)
    seconds = written.predicted_seconds + machine.message * messages + communicated / machine.link
    return replace(one, communicated=communicated, seconds=seconds)


def _communicated(program: Program, times: int = 1) -> tuple[int, int]:
    """How many collectives run, and the bytes that a device gets from them."""
    messages = received = 0
    calls = {}
    for term in program.reachable():
        if isinstance(term.op, Opaque):
            calls[term.op.call] = term
    for call, term in calls.items():
        if call.bodies and call.control is not None:
            for body in call.bodies:
                inner = _communicated(body.program, times * iterations(call.control))
                messages, received = messages + inner[0], received + inner[1]
        elif call.primitive.name in COLLECTIVES:
            size = math.prod(axis.size for axis in layout_axes(call.out_layouts[0]))
            messages += times
            received += times * size * itemsize(term.dtype)
    return messages, received
