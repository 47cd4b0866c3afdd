"""Sums that each segment of a scan's iterations adds up by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from eqsat.ir.control import Scan
from eqsat.ir.control_sums import is_zero
from eqsat.ir.ops import Call, Map
from eqsat.ir.term import Term
from eqsat.planning.saved_carries import result_bytes

SUMS = 8
"""Sums that are larger than what so many iterations read are added up in the order of the iterations."""


def small_sums(call: Call, args: Sequence[Term]) -> set[int]:
    """The carries, by place, that each segment adds up by itself.

        s = 0;  every iteration:  s = s + e,  where e does not depend on s

    So an axis that e is summed over can be summed over by chunks, where a sum has to start with zero. A
    segment's sums take memory of their own, so they have to be small. Without such an axis, the order stays.
    """
    if not call.sums:
        return set()
    control, (body,) = call.control, call.bodies
    assert isinstance(control, Scan)
    feeds = Counter(body.sources)
    leaves = {source: leaf for leaf, source in zip(body.program.inputs, body.sources, strict=True)}
    reads = Counter(arg.number for term in body.program.reachable() for arg in term.args)
    reads.update(output.term.number for output in body.program.outputs)
    found = {}
    for number, place in enumerate(control.carried):
        output, leaf = body.program.outputs[number].term, leaves.get(place)
        if leaf is None or feeds[place] > 1 or reads[leaf.number] > 1 or not is_zero(args[place]):
            continue
        if isinstance(output.op, Map) and output.op.name == "add" and leaf in output.args:
            found[place] = result_bytes(call, number)
    read = sum(args[place].bytes for place in control.sliced)
    return set(found) if sum(found.values()) * control.length <= SUMS * read else set()
