"""Draws a mesh of up to eight devices, and where the arguments and the results of a program are on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from eqsat.targets.calibration import default_target

SHAPES = [(n,) for n in (2, 3, 4, 5, 7, 8)] + [(2, 2), (2, 3), (3, 2), (2, 4), (4, 2)]
NAMES = ("data", "model")

PLACED = 0.6
"""The share of arguments, and of results, that are put somewhere on the mesh."""


@dataclass(frozen=True)
class Meshed:
    """A mesh, and where things are on it; None for an argument that is on the host.

    **Attributes:**

    - `options`: for `eqsat.optimize`.
    """

    mesh: Mesh
    arguments: tuple[NamedSharding | None, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def placed(self, args: Sequence[Any]) -> list[Any]:
        """The arguments there."""
        return [
            arg if there is None else jax.device_put(arg, there)
            for arg, there in zip(args, self.arguments, strict=True)
        ]

    def __str__(self) -> str:
        specs = [None if there is None else there.spec for there in self.arguments]
        wanted = self.options.get("out_shardings", ())
        results = f", results {[there and there.spec for there in wanted]}" if wanted else ""
        named = "" if "mesh" in self.options else ", named by arguments"
        return f"mesh {dict(self.mesh.shape)}{named}, arguments {specs}{results}"


def drawn(rng: np.random.Generator, args: Sequence[Any], results: Sequence[Any]) -> Meshed:
    """A mesh for a program with these arguments and types of results."""
    shape = SHAPES[int(rng.integers(len(SHAPES)))]
    devices = np.array(jax.devices()[: math.prod(shape)]).reshape(shape)
    mesh = Mesh(devices, NAMES[: len(shape)], axis_types=(AxisType.Auto,) * len(shape))
    where = tuple(_sharding(rng, mesh, arg.shape) if rng.random() < PLACED else None for arg in args)
    # Programs are small: where messages take time, one device would do everything.
    machine = replace(default_target().machine, message=0.0, link=math.inf)
    options: dict[str, Any] = {"machine": machine}
    if not any(where) or rng.random() < 0.7:
        options["mesh"] = mesh
        if rng.random() < 0.5:
            wanted = [_sharding(rng, mesh, one.shape) if rng.random() < PLACED else None for one in results]
            options["out_shardings"] = tuple(wanted)
    return Meshed(mesh, where, options)


def _sharding(rng: np.random.Generator, mesh: Mesh, shape: tuple[int, ...]) -> NamedSharding:
    """Some way to split an array evenly; perhaps not at all."""
    dims: list[list[str]] = [[] for _ in shape]
    for name, count in mesh.shape.items():
        number = int(rng.integers(len(shape) + 1))
        taken = math.prod(mesh.shape[other] for other in dims[number]) if number < len(shape) else 1
        if number < len(shape) and shape[number] % (taken * count) == 0:
            dims[number].append(name)
    return NamedSharding(mesh, PartitionSpec(*(tuple(names) or None for names in dims)))
