"""Control flow in the reference interpreter, which runs the bodies one after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.ir.axis import Axis
from eqsat.ir.control import Body, Scan, Switch, While
from eqsat.ir.numpy_arrays import Array, array_shape
from eqsat.ir.ops import Call
from eqsat.ir.program import Program

Run = Callable[[Program, Sequence[Any]], list[Array]]
"""Returns the outputs of a program for the given inputs."""


def controlled(call: Call, operands: Sequence[Any], run: Run, lengths: Mapping[Axis, int]) -> list[Array]:
    """Returns the results of a call of control flow.

    **Arguments:**

    - `operands`: arrays of the call's argument layouts.
    - `run`: evaluates a body.
    - `lengths`: the lengths of axes of which the operands are chunks.
    """

    def iteration(body: Body, given: Sequence[Any]) -> list[Array]:
        return run(body.program, [given[source] for source in body.sources])

    given = list(operands)
    match call.control:
        case Switch():
            last = len(call.bodies) - 1
            return iteration(call.bodies[min(max(int(given[0]), 0), last)], given)
        case While(carried=carried):
            condition, body = call.bodies
            while bool(iteration(condition, given)[0]):
                for place, value in zip(carried, iteration(body, given), strict=True):
                    given[place] = value
            return [np.asarray(given[place]) for place in carried]
        case Scan() as scan:
            return _scanned(call, scan, given, iteration, lengths)
    raise AssertionError(f"{call.primitive} is no control flow")


def _scanned(
    call: Call,
    scan: Scan,
    given: list[Any],
    iteration: Callable[[Body, Sequence[Any]], list[Array]],
    lengths: Mapping[Axis, int],
) -> list[Array]:
    (body,) = call.bodies
    sequences = {place: given[place] for place in scan.sliced}
    count = len(scan.carried)
    entries: dict[int, list[Array]] = {}
    for index in reversed(range(scan.length)) if scan.reverse else range(scan.length):
        given = [
            sequences[place][index] if place in sequences else value for place, value in enumerate(given)
        ]
        results = iteration(body, given)
        for place, value in zip(scan.carried, results[:count], strict=True):
            given[place] = value
        entries[index] = results[count:]
    stacked = []
    for number, layout in enumerate(call.out_layouts[count:]):
        rest = array_shape(layout[1:], lengths)
        pieces = [entries[index][number] for index in range(scan.length)]
        stacked.append(np.stack(pieces) if pieces else np.zeros((0, *rest)))
    return [*(np.asarray(given[place]) for place in scan.carried), *stacked]
