"""A plan on its way to another machine: as `jax.export` bytes, and as a file for `eqsat.load`.

A file is data: the plan as JSON, and the planned program as portable StableHLO (`jax.export`), which is
compiled where the device is.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import export
from jax.sharding import NamedSharding, PartitionSpec

from eqsat.compiler.planned import Planned
from eqsat.compiler.settings import Settings
from eqsat.compiler.shardings import Dims, dims_of, spec_of
from eqsat.errors import EqsatError
from eqsat.reports.plan import Plan

FORMAT = "eqsat plan 1"

CALLBACK = re.compile(r"custom_call\s*@\S*callback")
"""A call of Python in a program. JAX exports none, so a file with one was not written by `plan.save`."""


@dataclass(frozen=True)
class Deployment:
    """What carries out a plan, with the tree of its arguments.

    **Attributes:**

    - `tree`: of the arguments: a pair of a tuple and a dict.
    - `unflatten`: from flat results to those of the function.
    - `platform`: that it is for: "cpu", "cuda", "rocm" or "tpu".
    - `settings`: the options that it was planned with.
    """

    planned: Planned
    tree: Any
    unflatten: Callable[[Sequence[Any]], Any]
    platform: str
    settings: Settings

    def export(self) -> bytes:
        """The planned program as the bytes of `jax.export.Exported.serialize`.

        **Raises:** `EqsatError` if the program calls what JAX can't export, such as callbacks.
        """
        planned = self.planned

        def function(*args: Any, **kwargs: Any) -> Any:
            return self.unflatten(planned.inline(*jax.tree.leaves((args, kwargs))))

        types = planned.traced.closed.in_avals
        avals = [
            jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=there)
            for aval, there in zip(types, planned.placement or [None] * len(types), strict=True)
        ]
        args, kwargs = jax.tree.unflatten(self.tree, avals)
        try:
            with self.settings.alone():
                return bytes(
                    export.export(jax.jit(function), platforms=[self.platform])(*args, **kwargs).serialize()
                )
        except (ValueError, NotImplementedError, TypeError) as error:
            raise EqsatError(f"{planned.plan.title} can't be exported: {error}") from error

    def _mesh(self) -> list[tuple[str, int]]:
        """The axes of the mesh that runs it, and their lengths; none on one device."""
        placement = self.planned.placement
        return [(str(name), size) for name, size in placement[0].mesh.shape.items()] if placement else []

    def text(self) -> str:
        """The content of a file for `eqsat.load`.

        **Raises:** as `export`.
        """
        content = {
            "format": FORMAT,
            "plan": json.loads(self.planned.plan.to_json()),
            "accuracy": self.settings.accuracy,
            "max_slowdown": self.settings.max_slowdown,
            "double": self.settings.double,
            "donated": list(self.planned.donated),
            "mesh": self._mesh(),
            "placement": [_dims(there) for there in self.planned.placement],
            "program": base64.b64encode(self.export()).decode(),
        }
        return json.dumps(content) + "\n"


@dataclass(frozen=True)
class PlanFile:
    """What a file for `eqsat.load` holds.

    **Attributes:**

    - `exported`: the planned program.
    - `accuracy`, `max_slowdown`: the options that it was planned with.
    - `double`: whether JAX had 64-bit numbers enabled.
    - `donated`: the numbers of the arguments whose place results take.
    - `mesh`: the lengths of the axes of the mesh that runs it; empty for one device.
    - `placement`: for each argument, how it is split over the mesh.
    """

    plan: Plan
    exported: export.Exported
    accuracy: str
    max_slowdown: float | None
    double: bool
    donated: tuple[int, ...]
    mesh: dict[str, int]
    placement: tuple[PartitionSpec, ...]

    @classmethod
    def read(cls, text: str, source: str) -> PlanFile:
        """The content of a file.

        **Arguments:**

        - `source`: the name of the file, for messages.

        **Raises:** `EqsatError` if it is none that `plan.save` wrote.
        """
        try:
            content = json.loads(text)
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']!r}, not {FORMAT!r}")
            slowdown = content["max_slowdown"]
            exported = export.deserialize(bytearray(base64.b64decode(content["program"], validate=True)))
            if CALLBACK.search(exported.mlir_module()):
                raise ValueError("its program calls back to Python, which no exported program does")
            return cls(
                Plan.from_json(json.dumps(content["plan"])),
                exported,
                str(content["accuracy"]),
                None if slowdown is None else float(slowdown),
                bool(content["double"]),
                tuple(map(int, content["donated"])),
                {str(name): int(size) for name, size in content["mesh"]},
                tuple(map(_spec, content["placement"])),
            )
        except Exception as error:
            reason = f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise EqsatError(f"{source} is no file that plan.save of this version wrote: {reason}") from error


def _dims(there: NamedSharding) -> Dims:
    return dims_of(there.spec, len(there.spec))


def _spec(dims: Sequence[Sequence[str]]) -> PartitionSpec:
    return spec_of(tuple(tuple(map(str, names)) for names in dims))
