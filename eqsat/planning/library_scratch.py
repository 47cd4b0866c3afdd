"""Memory that libraries take while they run, beside all buffers of a program.

A program's buffers are one allocation, which is there from start to end. So what a library allocates for
itself comes on top of the peak of the buffers, whichever step takes it.
"""

from __future__ import annotations

import math

from eqsat.engine.storage_model import SORTS
from eqsat.ir.axis import parts
from eqsat.ir.dtypes import is_inexact, itemsize
from eqsat.ir.ops import Opaque, Operation
from eqsat.ir.term import Term
from eqsat.planning.blocks import Block, Compute
from eqsat.support.weak_cache import weakly_cached
from eqsat.targets.machine import Machine


def library_scratch(block: Block, machine: Machine) -> int:
    """Bytes of what the libraries take at most in a block and in the blocks inside it, those of sorts."""
    if not machine.sorted_entry:
        return 0
    arrays, integers = _sorted(block)
    return max(arrays * machine.sorted_entry, integers)


@weakly_cached
def _sorted(block: Block) -> tuple[int, int]:
    """The most entries of all arrays of a row that is sorted; the most bytes of half a row of integers."""
    arrays, integers = 0, 0
    for inner in block.blocks():
        for step in inner.steps:
            if isinstance(step, Compute) and (found := _row(step.term)) is not None:
                entries, count = found
                if count == 1 and not is_inexact(step.term.dtype):
                    integers = max(integers, entries * itemsize(step.term.dtype) // 2)
                else:
                    arrays = max(arrays, entries * count)
    return arrays, integers


def _row(term: Term) -> tuple[int, int] | None:
    """The entries of a row that a term sorts, and of how many arrays; None if it sorts none."""
    match term.op:
        case Operation(spec=spec, axes=axes) if spec.name in SORTS:
            return math.prod(axis.size for axis in axes), SORTS[spec.name]
        case Opaque(call=call) if call.primitive.name == "sort":
            along = parts(call.arg_layouts[0][call.params["dimension"]])
            return math.prod(axis.size for axis in along), len(call.arg_layouts)
    return None
