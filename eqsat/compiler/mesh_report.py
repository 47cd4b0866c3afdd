"""The record of how devices share a program out: what each has, and each call by which they talk."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jax.extend.core import ClosedJaxpr

from eqsat.compiler.shardings import Dims, Ends
from eqsat.ir.axis import layout_shape
from eqsat.ir.control import iterations
from eqsat.ir.device_terms import COLLECTIVES
from eqsat.ir.dtypes import itemsize
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.program import Program
from eqsat.reports.records import CollectiveRecord, MeshAxisRecord, SharedArray, SharingRecord
from eqsat.support.records import Place
from eqsat.targets.machine import Machine

if TYPE_CHECKING:
    from eqsat.compiler.mesh_program import MeshProgram


def sharing_record(
    one: MeshProgram, ends: Ends, closed: ClosedJaxpr, names: Sequence[str], machine: Machine
) -> SharingRecord:
    """The record of one way to share a function out.

    **Arguments:**

    - `closed`: the function.
    - `names`: of its arguments.
    """
    split = dict(one.assignment)
    axes = tuple(MeshAxisRecord(str(n), size, split.get(str(n), "")) for n, size in one.mesh.shape.items())
    arrays = [
        _array(name, "argument", aval, dims, one.mesh.shape)
        for name, aval, dims in zip(names, closed.in_avals, one.inputs, strict=False)
    ]
    arrays += [
        _array(f"result {number}" if len(one.outputs) > 1 else "result", "result", aval, dims, one.mesh.shape)
        for number, (aval, dims) in enumerate(zip(closed.out_avals, one.outputs, strict=True))
    ]
    found = [_record(*call, machine) for call in _collectives(one.program)]
    moved = ends.moved(one.mesh, closed.in_avals, one.inputs[: len(closed.in_avals)])
    returned = ends.returned(one.mesh, closed.out_avals, one.outputs)
    for what, size in (("moves arguments", moved), ("moves results", returned)):
        if size:
            found.append(CollectiveRecord(what, "", "", 1, size, machine.message + size / machine.link))
    return SharingRecord(axes, tuple(arrays), tuple(found))


def _array(name: str, kind: str, aval: Any, dims: Dims, sizes: Any) -> SharedArray:
    whole = math.prod(aval.shape) * aval.dtype.itemsize
    parts = math.prod(sizes[axis] for axes in dims for axis in axes)
    return SharedArray(name, kind, aval.str_short(), dims, whole, whole // parts)


def _collectives(program: Program, times: int = 1) -> Iterator[tuple[Call, str, int, Place | None]]:
    """The calls by which devices talk, the dtype of what they get, how often, and where they are written."""
    calls: dict[Call, tuple[str, Place | None]] = {}
    for term in program.reachable():
        if isinstance(term.op, Opaque):
            calls[term.op.call] = term.dtype, program.terms.origins.get(term.number)
    for call, (dtype, place) in calls.items():
        if call.bodies and call.control is not None:
            for body in call.bodies:
                yield from _collectives(body.program, times * iterations(call.control))
        elif call.primitive.name in COLLECTIVES:
            yield call, dtype, times, place


def _record(call: Call, dtype: str, times: int, place: Place | None, machine: Machine) -> CollectiveRecord:
    shape = layout_shape(call.out_layouts[0])
    size = times * math.prod(shape) * itemsize(dtype)
    named = call.params.get("axes", call.params.get("axis_name"))
    over = ", ".join(map(str, named)) if isinstance(named, tuple) else str(named)
    seconds = times * machine.message + size / machine.link
    typed = f"{dtype}[{','.join(map(str, shape))}]"
    return CollectiveRecord(call.primitive.name, over, typed, times, size, seconds, place)
