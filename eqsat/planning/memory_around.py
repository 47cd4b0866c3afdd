"""What is in memory while a loop runs, beside what its body computes: the body may take the rest."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.ir.control import Scan, carried
from eqsat.ir.memory_order import array_of
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.program import Program
from eqsat.ir.term import Term
from eqsat.planning.rematerialised_values import is_index
from eqsat.planning.saved_carries import result_bytes
from eqsat.planning.storage import is_given


def memory_around(program: Program) -> Mapping[Call, int]:
    """By call of control flow, the bytes of what is computed for it, or by it, and there all the time.

    Those are operands that are computed, if no carry starts as them, and stacked results that are not those
    of the program. Of a call with several lists of operands, that with fewest bytes counts.
    """
    results = {array_of(output.term) for output in program.outputs}
    sizes: dict[tuple[Call, tuple[Term, ...]], int] = {}
    for term in program.known():
        if not isinstance(term.op, Opaque) or not term.op.call.bodies:
            continue
        call, control = term.op.call, term.op.call.control
        assert control is not None
        first = carried(control)
        key = call, term.args
        if key not in sizes:
            held = {array_of(arg) for place, arg in enumerate(term.args) if place not in first}
            sizes[key] = sum(arg.bytes for arg in held if not (is_given(arg) or is_index(arg)))
        if isinstance(control, Scan) and term.op.result >= len(first) and term not in results:
            sizes[key] += result_bytes(call, term.op.result)
    least: dict[Call, int] = {}
    for (call, _), size in sizes.items():
        least[call] = min(size, least.get(call, size))
    return least
