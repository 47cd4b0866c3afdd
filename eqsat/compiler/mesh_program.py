"""A function for a mesh of devices: which axes its devices share out, and the function as a `shard_map`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax import lax
from jax.extend.core import ClosedJaxpr
from jax.sharding import Mesh, NamedSharding

from eqsat.backend.codegen_options import CodegenOptions
from eqsat.backend.emission import Emission
from eqsat.compiler.candidate_compiler import input_names
from eqsat.compiler.mesh_report import sharing_record
from eqsat.compiler.planned import Planned
from eqsat.compiler.shardings import Dims, Ends, Wish, spec_of
from eqsat.errors import BudgetError
from eqsat.frontend.lower import lower_placed
from eqsat.frontend.trace import Traced
from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.control import iterations
from eqsat.ir.device_terms import COLLECTIVES
from eqsat.ir.dtypes import is_inexact, itemsize
from eqsat.ir.labels import axis_labels
from eqsat.ir.ops import Leaf, Opaque
from eqsat.ir.partitioning import partitioned
from eqsat.ir.program import Program
from eqsat.planning.candidates import as_written
from eqsat.targets.machine import Machine
from eqsat.targets.target import Target

MOST_AXES = 12
"""How many of a program's axes are tried for an axis of the mesh: those of its largest values."""

KEPT = 4
"""How many ways are kept for the next axis of the mesh, and planned if the first does not fit."""


@dataclass(frozen=True)
class MeshProgram:
    """One way to split a program over a mesh.

    **Attributes:**

    - `program`: what one device does.
    - `inputs`, `outputs`: how each input and output is split.
    - `assignment`: by axis of the mesh, the name of the axis that is split over it, for users.
    - `wishes`: the constraints of the function.
    - `moved`: the bytes of arguments that a device gets since they come elsewhere.
    - `communicated`: the bytes that a device gets from others in all.
    - `seconds`: the predicted time of the function as written on one device, communication included.
    """

    mesh: Mesh
    program: Program
    inputs: tuple[Dims, ...]
    outputs: tuple[Dims, ...]
    assignment: tuple[tuple[str, str], ...]
    wishes: tuple[Wish, ...] = ()
    moved: int = 0
    communicated: int = 0
    seconds: float = 0.0

    @property
    def rank(self) -> tuple[int, int, float]:
        """What is smaller is better: first the constraints are kept, then arguments stay where they are."""
        return sum(wish.broken for wish in self.wishes), self.moved, self.seconds

    @property
    def said(self) -> str:
        """Which axes are split, for users."""
        split = dict(self.assignment)
        said = [
            f"{name} = {count}: {split.get(str(name), 'repeats what the others do')}"
            for name, count in self.mesh.shape.items()
        ]
        return "; ".join(said)

    @property
    def ignored(self) -> list[str]:
        """The constraints that it does not keep, for users."""
        return sorted({str(wish) for wish in self.wishes if wish.ignored})

    def placement(self, dims: Dims) -> NamedSharding:
        return NamedSharding(self.mesh, spec_of(dims))

    def traced(
        self, closed: ClosedJaxpr, hoisted: Sequence[Any], names: Sequence[str], target: Target, ends: Ends
    ) -> Traced:
        """The function on whole arguments, as a map over the devices.

        **Arguments:**

        - `closed`: the function's jaxpr.
        - `hoisted`: the arrays that it captures.
        - `names`: of its arguments.
        - `ends`: where results have to be.
        """
        local = local_function(self.program, names, target.machine)
        mapped: Callable[..., Sequence[Any]] = jax.shard_map(
            lambda *entries: tuple(local(*entries)),
            mesh=self.mesh,
            in_specs=tuple(map(spec_of, self.inputs)),
            out_specs=tuple(map(spec_of, self.outputs)),
            check_vma=False,
        )
        avals = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in closed.in_avals]
        original = Traced(closed)

        def whole(*leaves: Any) -> list[Any]:
            results = original.typed(mapped(*leaves, *hoisted))
            return [
                result if there is None else lax.with_sharding_constraint(result, there)
                for result, there in zip(results, ends.outputs, strict=True)
            ]

        return Traced(jax.make_jaxpr(whole)(*avals))


def local_function(program: Program, names: Sequence[str], machine: Machine) -> Callable[..., Sequence[Any]]:
    """What one device does, as a function that is called inside of a `shard_map`."""
    written = as_written(program, machine, library=True)
    emission = Emission(written.schedule, {}, 0, CodegenOptions(), {}, {})
    function: Callable[..., Sequence[Any]] = emission.module(input_names(program, names), {}).function()
    return function


class MeshPrograms:
    """The ways to share a function out among the devices of a mesh, from the one that should be fastest.

    Axes of the mesh are assigned one after another, each to the axis with which the rest is fastest.

    **Attributes:**

    - `ends`: where arguments come from, and where results have to be.
    - `exact`: whether results must equal those of the function bit for bit. Then no sum is over devices.
    """

    def __init__(
        self,
        closed: ClosedJaxpr,
        mesh: Mesh,
        names: Sequence[str],
        target: Target,
        ends: Ends,
        exact: bool = False,
    ) -> None:
        self.closed = closed
        self.names = names
        self.target = target
        self.ends = ends
        program, self.hoisted, constraints = lower_placed(closed, platforms=target.platforms)
        results = [(o.layout, there) for o, there in zip(program.outputs, ends.outputs, strict=True)]
        wishes = tuple(Wish.of(constraint, mesh, results) for constraint in constraints)
        none = tuple(((),) * len(_leaf(term).layout) for term in program.inputs)
        outs = tuple(((),) * len(output.layout) for output in program.outputs)
        self.found = [self._scored(MeshProgram(mesh, program, none, outs, (), wishes))]
        for name, count in mesh.shape.items():
            if count == 1:
                continue
            wider = [
                self._scored(split)
                for one in self.found
                for split in _splits(one, str(name), count, names)
                if not (exact and _sums_over_devices(split.program))
            ]
            # What is split over some axes of the mesh alone repeats its work along the others.
            self.found = _first([*wider, *self.found])

    def _scored(self, one: MeshProgram) -> MeshProgram:
        machine, closed = self.target.machine, self.closed
        written = as_written(one.program, machine, library=True)
        messages, communicated = _communicated(one.program)
        moved = self.ends.moved(one.mesh, closed.in_avals, one.inputs[: len(closed.in_avals)])
        returned = self.ends.returned(one.mesh, closed.out_avals, one.outputs)
        messages += bool(moved) + bool(returned)
        communicated += moved + returned
        seconds = written.predicted_seconds + machine.message * messages + communicated / machine.link
        return replace(one, moved=moved, communicated=communicated, seconds=seconds)

    def planned(self, budget: int, mapped: Callable[[ClosedJaxpr, int, tuple[Any, ...]], Planned]) -> Planned:
        """The first of them for which there is a plan within a budget of each device.

        **Arguments:**

        - `mapped`: plans a map over devices, whose arguments are placed so.

        **Raises:** `BudgetError` of the one that needs least if there is no plan for any.
        """
        refused: BudgetError | None = None
        for one in self.found:
            placement = tuple(
                here or one.placement(dims) for here, dims in zip(self.ends.inputs, one.inputs, strict=False)
            )
            traced = one.traced(self.closed, self.hoisted, self.names, self.target, self.ends)
            try:
                found = mapped(traced.closed, budget, placement)
            except BudgetError as error:
                if refused is None or (error.smallest_peak or 0) < (refused.smallest_peak or 0):
                    refused = error
                continue
            _warn(one)
            said = [one.said, *(f"not {wish}, as a constraint asks" for wish in one.ignored)]
            plan = replace(
                found.plan,
                devices="; ".join(said),
                communicated_bytes=one.communicated,
                sharing=sharing_record(one, self.ends, self.closed, self.names, self.target.machine),
            )
            return replace(found, plan=plan, placement=placement)
        assert refused is not None
        raise refused


def _first(ways: Sequence[MeshProgram]) -> list[MeshProgram]:
    """Those that keep most of what is asked for, and the fastest."""
    preferred = sorted(ways, key=lambda one: one.rank)
    fastest = min(ways, key=lambda one: one.seconds)
    kept = preferred[:KEPT]
    return kept if fastest in kept else [*kept[:-1], fastest]


def _warn(one: MeshProgram) -> None:
    if one.ignored:
        warnings.warn(
            f"eqsat does not split values as these constraints ask: {', '.join(one.ignored)}. What it splits:"
            f" {one.said}",
            stacklevel=2,
        )


def _leaf(term: Any) -> Leaf:
    assert isinstance(term.op, Leaf)
    return term.op


def _splits(one: MeshProgram, name: str, count: int, names: Sequence[str]) -> Iterator[MeshProgram]:
    labels = axis_labels(one.program, input_names(one.program, names))
    for axis in _candidates(one, count):
        part = partitioned(one.program, axis, name, count)
        label = f"{labels[axis]}" if axis in labels else f"axis {axis.name}"
        yield replace(
            one,
            program=part.program,
            inputs=tuple(map(_with, one.inputs, part.inputs, (name,) * len(one.inputs))),
            outputs=tuple(map(_with, one.outputs, part.outputs, (name,) * len(one.outputs))),
            assignment=(*one.assignment, (name, f"{label} ({axis.size:,})")),
            wishes=tuple(wish.split(axis, part.part, name) for wish in one.wishes),
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
