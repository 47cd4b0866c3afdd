"""What needs files whole, in words, for functions that can't read them by chunks."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from eqsat.ir.axis import Axis
from eqsat.ir.program import Program
from eqsat.ir.streams import is_read
from eqsat.planning.barriers import Barriers
from eqsat.planning.describing import Describer

MOST_NAMED = 3
"""How many operations are named."""


def needing_whole(program: Program, axes: Collection[Axis], names: Sequence[str]) -> str:
    """The operations that need about the longest of some axes whole, with their lines; "" if none does.

    **Arguments:**

    - `axes`: those of what is read.
    - `names`: the names of the program's inputs.
    """
    longest = max((axis.size for axis in axes), default=0)
    barriers = Barriers(program, Describer(program, names))
    found: dict[str, None] = {}
    for term in program.reachable():
        for record in () if is_read(term) else barriers.of_call(term):
            # A slice is a little shorter than what it is of.
            if record.op and 2 * record.axis.size > longest:
                found[f"{record.op} ({record.place.short})" if record.place else record.op] = None
    return ", ".join(list(found)[:MOST_NAMED])
