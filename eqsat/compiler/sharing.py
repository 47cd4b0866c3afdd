"""A program that the devices of a mesh share out: which mesh, and where its arguments and results are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import jax
from jax.extend.core import ClosedJaxpr
from jax.sharding import Mesh, NamedSharding

from eqsat.compiler.shardings import Ends
from eqsat.errors import EqsatError
from eqsat.frontend.placements import (
    named_shardings,
    result_shardings,
    typed_sharding,
    types_mesh,
    unplaced,
)
from eqsat.targets.meshes import automatic, named_sharding, of_type
from eqsat.targets.target import Target

if TYPE_CHECKING:
    from eqsat.compiler.mesh_programs import MeshPrograms
    from eqsat.compiler.settings import Settings


class Sharing:
    """A program and the mesh that is to share it out.

    **Attributes:**

    - `program`: it says nothing of a mesh but by constraints.
    """

    def __init__(self, closed: ClosedJaxpr, mesh: Mesh) -> None:
        self.closed = closed
        self.mesh = automatic(mesh)
        placed = types_mesh(closed) is not None or is_placed(closed)
        self.program = unplaced(closed, self.mesh) if placed else closed

    @classmethod
    def of(cls, closed: ClosedJaxpr, mesh: Mesh) -> Sharing | None:
        """The same; None if what the program says of a mesh can't be told apart from what it computes.

        **Raises:** `EqsatError` if it names another mesh.
        """
        try:
            return cls(closed, mesh)
        except EqsatError:
            raise
        except Exception:
            return None  # It is left as it is: with a parameter that is not known, or a `shard_map` inside.

    def ways(
        self,
        placement: Sequence[NamedSharding | None],
        names: Sequence[str],
        target: Target,
        settings: Settings,
    ) -> MeshPrograms:
        """The ways to share it out.

        **Arguments:**

        - `placement`: where arguments are; None for those that may be moved, and empty if all may.
        """
        # Imported late, as planners are.
        from eqsat.compiler.mesh_programs import MeshPrograms
        from eqsat.compiler.planners import rules_of

        outputs = [
            typed_sharding(aval, self.mesh) or sharding
            for aval, sharding in zip(self.closed.out_avals, result_shardings(self.program), strict=True)
        ]
        inputs = placement or [typed_sharding(aval, self.mesh) for aval in self.closed.in_avals]
        ends = Ends(tuple(inputs), tuple(outputs))
        rules = partial(rules_of, settings, target)
        exact = settings.accuracy == "exact"
        return MeshPrograms(self.program, self.mesh, names, target, ends, rules, exact)

    def arrivals(self, arguments: Sequence[Any]) -> tuple[NamedSharding | None, ...]:
        """Where arguments are on the mesh, None for those that are elsewhere; empty if none is there."""
        devices = list(self.mesh.devices.flat)
        found = [
            NamedSharding(automatic(mesh), sharding.spec)
            if sharding is not None and list((mesh := device_mesh(sharding)).devices.flat) == devices
            else None
            for sharding in map(named_sharding, arguments)
        ]
        return tuple(found) if any(found) else ()

    def typed(self, run: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        """What runs it, with results of the types that the program's have."""
        if not self._explicit:
            return run
        types = self.closed.out_avals

        def typed(*leaves: Any) -> list[Any]:
            results = run(*leaves)
            return [of_type(result, aval, self.mesh) for result, aval in zip(results, types, strict=True)]

        return typed

    @cached_property
    def _explicit(self) -> bool:
        return types_mesh(self.closed) is not None


def is_placed(closed: ClosedJaxpr) -> bool:
    """Whether a program says where values lie, but for their types."""
    return any(True for _ in named_shardings(closed.jaxpr))


def constraints_mesh(closed: ClosedJaxpr) -> Mesh | None:
    """The mesh of devices on which a program constrains values."""
    meshes = (sharding.mesh for sharding in named_shardings(closed.jaxpr))
    return next((mesh for mesh in meshes if isinstance(mesh, Mesh)), None)


def arguments_mesh(arguments: Sequence[Any]) -> Mesh | None:
    """The mesh of several devices that arguments are on."""
    meshes = (device_mesh(one) for one in map(named_sharding, arguments) if one is not None)
    return next((mesh for mesh in meshes if mesh.size > 1), None)


def device_mesh(sharding: NamedSharding) -> Mesh:
    """The mesh of a sharding over devices."""
    assert isinstance(sharding.mesh, jax.sharding.Mesh)
    return sharding.mesh
