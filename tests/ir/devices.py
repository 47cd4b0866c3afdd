"""Programs of one device, run as a batch of devices: collectives are over the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from eqsat.compiler.program_function import program_function
from eqsat.frontend.lower import lower
from eqsat.ir.device_terms import COLLECTIVES
from eqsat.ir.ops import Opaque
from eqsat.ir.partitioning import Partition
from eqsat.ir.program import Program
from eqsat.targets.calibration import default_target

DEVICES = 4


def program_of(fn: Callable[..., Any], args: Any) -> Program:
    closed = jax.make_jaxpr(lambda *leaves: jax.tree.leaves(fn(*leaves)))(*args)
    program, hoisted = lower(closed)
    assert not hoisted
    return program


def on_devices(part: Partition, args: Any) -> list[np.ndarray[Any, Any]]:
    """The results of the devices, put together."""
    local = program_function(part.program, [f"x{n}" for n in range(len(args))], default_target().machine)
    pieces = [
        x if place is None else jnp.stack(jnp.split(x, DEVICES, place))
        for x, place in zip(args, part.inputs, strict=True)
    ]
    dims = tuple(None if place is None else 0 for place in part.inputs)
    run = jax.vmap(lambda *xs: tuple(local(*xs)), dims, axis_name="data", axis_size=DEVICES)
    joined = []
    for result, place in zip(jax.jit(run)(*pieces), part.outputs, strict=True):
        entries = np.asarray(result)
        if place is None:
            assert all(
                np.array_equal(one, entries[0], equal_nan=entries.dtype.kind in "fc") for one in entries
            )
            joined.append(entries[0])
        else:
            joined.append(np.concatenate(list(entries), place))
    return joined


def collectives(program: Program) -> list[str]:
    return [
        term.op.call.primitive.name
        for inner in program.inside()
        for term in inner.reachable()
        if isinstance(term.op, Opaque) and term.op.call.primitive.name in COLLECTIVES
    ]
