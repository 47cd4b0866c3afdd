"""One way to share a function out among the devices of a mesh, and the function as a `shard_map`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax import lax
from jax.extend.core import ClosedJaxpr
from jax.sharding import Mesh, NamedSharding

from eqsat.compiler.candidate_compiler import input_names
from eqsat.compiler.program_function import program_function
from eqsat.compiler.shardings import Dims, Ends, Wish, spec_of
from eqsat.frontend.trace import Traced
from eqsat.ir.partitioning import Partition
from eqsat.ir.program import Program
from eqsat.targets.target import Target


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
        local = program_function(self.program, input_names(self.program, names), target.machine)
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

    def assigned(self, part: Partition, name: str, said: str) -> MeshProgram:
        """The way in which another axis of the mesh is assigned, too.

        **Arguments:**

        - `part`: what one device of that axis does.
        - `said`: what is split over it, for users.
        """
        wishes = self.wishes
        for axis, own in part.parts:
            wishes = tuple(wish.split(axis, own, name) for wish in wishes)
        return replace(
            self,
            program=part.program,
            inputs=tuple(map(_with, self.inputs, part.inputs, (name,) * len(self.inputs))),
            outputs=tuple(map(_with, self.outputs, part.outputs, (name,) * len(self.outputs))),
            assignment=(*self.assignment, (name, said)),
            wishes=wishes,
        )


def _with(dims: Dims, place: int | None, name: str) -> Dims:
    return tuple((*names, name) if number == place else names for number, names in enumerate(dims))
