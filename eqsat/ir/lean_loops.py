"""Loops that carry, stack and take no more than what is read of them: what every program is planned with."""

from __future__ import annotations

from eqsat.ir.broadcast_operands import with_broadcast_inside
from eqsat.ir.carried_histories import with_histories_carried
from eqsat.ir.constant_carries import with_constant_carries
from eqsat.ir.fused_scans import with_fused_scans
from eqsat.ir.loop_fission import with_loop_fission
from eqsat.ir.loop_invariants import with_loop_invariants
from eqsat.ir.outer_operands import with_outer_operands
from eqsat.ir.program import Program
from eqsat.ir.reversed_loops import with_reversed_loops
from eqsat.ir.scalar_expansion import with_scalar_expansion
from eqsat.ir.sliced_histories import with_sliced_histories
from eqsat.ir.unread_results import with_unread_results


def with_lean_loops(program: Program, exact: bool = False) -> Program:
    """The program with lean loops: by each of the modules that this one imports.

    **Arguments:**

    - `exact`: whether results must stay the same to the last bit.
    """
    program = with_fused_scans(with_broadcast_inside(with_reversed_loops(program)), exact)
    program = _with_carried_slices(with_histories_carried(program, exact), exact)
    program = with_constant_carries(program)
    if not exact:
        program = with_loop_invariants(program)
    program = with_loop_fission(with_scalar_expansion(program))
    return with_unread_results(with_outer_operands(program))


def _with_carried_slices(program: Program, exact: bool) -> Program:
    """The program with carries for histories of whose functions slices are read, if there are any."""
    sliced, _ = with_sliced_histories(program, exact)
    carried = with_histories_carried(sliced, exact)
    return program if carried is sliced else carried
