"""The ways to share a function out among the devices of a mesh, and the choice of one."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from jax.extend.core import ClosedJaxpr
from jax.sharding import Mesh

from eqsat.compiler.mesh_program import MeshProgram
from eqsat.compiler.mesh_report import sharing_record
from eqsat.compiler.mesh_splits import rings, splits, sums_over_devices
from eqsat.compiler.planned import Planned
from eqsat.compiler.shardings import Ends, Wish
from eqsat.engine.compiled import CompiledRule
from eqsat.errors import BudgetError
from eqsat.frontend.lower import lower_placed
from eqsat.ir.axis import layout_axes
from eqsat.ir.control import iterations
from eqsat.ir.device_terms import COLLECTIVES
from eqsat.ir.dtypes import itemsize
from eqsat.ir.ops import Leaf, Opaque
from eqsat.ir.program import Program
from eqsat.planning.candidates import as_written
from eqsat.targets.target import Target

KEPT = 4
"""How many ways are kept for the next axis of the mesh, and planned if the first does not fit."""


class MeshPrograms:
    """The ways to share a function out among the devices of a mesh, from the one that should be fastest.

    Axes of the mesh are assigned one after another, each to the axis with which the rest is fastest.

    **Attributes:**

    - `ends`: where arguments come from, and where results have to be.
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
        ends: Ends,
        rules: Callable[[], Sequence[CompiledRule]],
        exact: bool = False,
    ) -> None:
        self.closed = closed
        self.names = names
        self.target = target
        self.ends = ends
        self.rules = rules
        self.exact = exact
        program, self.hoisted, constraints = lower_placed(closed, platforms=target.platforms)
        results = [(o.layout, there) for o, there in zip(program.outputs, ends.outputs, strict=True)]
        wishes = tuple(Wish.of(constraint, mesh, results) for constraint in constraints)
        none = tuple(((),) * len(_leaf(term).layout) for term in program.inputs)
        outs = tuple(((),) * len(output.layout) for output in program.outputs)
        self.found = [self._scored(MeshProgram(mesh, program, none, outs, (), wishes))]
        self._axes = [(str(name), count) for name, count in mesh.shape.items() if count > 1]
        self._before: list[list[MeshProgram]] = []
        for name, count in self._axes:
            self._before.append(self.found)
            # What is split over some axes of the mesh alone repeats its work along the others.
            self.found = _first([*self._wider(self.found, name, count), *self.found])

    def _wider(self, found: Sequence[MeshProgram], name: str, count: int) -> Iterator[MeshProgram]:
        """The ways in which a further axis of the mesh is assigned to an axis."""
        for one in found:
            for split in splits(one, name, count, self.names):
                if not (self.exact and sums_over_devices(split.program)):
                    yield self._scored(split)

    @cached_property
    def rings(self) -> list[MeshProgram]:
        """The ways in which what is split over one of the axes of the mesh is passed round in rings."""
        found: list[MeshProgram] = []
        if self.exact:
            return found
        rules, machine = self.rules(), self.target.machine
        for (name, count), before in zip(self._axes, self._before, strict=True):
            wider = [
                self._scored(ring)
                for one in [*before, *found]
                for ring in rings(one, name, count, self.names, rules, machine)
            ]
            ways = [*wider, *self._wider(found, name, count), *found]
            found = _first(ways) if ways else []
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
        for one in self._within(budget):
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
