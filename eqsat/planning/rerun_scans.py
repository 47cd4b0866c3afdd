"""Scans whose large results are computed again: which results, and from which operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat.ir.axis import Axis
from eqsat.ir.control import Scan
from eqsat.ir.ops import Call
from eqsat.ir.term import Term
from eqsat.planning.saved_carries import result_bytes

Application = tuple[Call, tuple[Term, ...]]
"""A call with its operands."""


@dataclass(frozen=True, slots=True, eq=False)
class Rerun:
    """The large results of a scan, which are computed again segment by segment.

    **Attributes:**

    - `whole`: the scan.
    - `call`, `args`: the scan without its other results.
    - `results`: the number that a result has in `call`, by its number in `whole`.
    - `places`: by operand of `call`, its place in `whole`.
    - `alike`: whether it has to end where it ended before, and so to be the same code
      (`artificial_dependences`).
    """

    whole: Application
    call: Call
    args: tuple[Term, ...]
    results: Mapping[int, int]
    places: Sequence[int]
    alike: bool = False

    @property
    def control(self) -> Scan:
        return scan_of(self.call)

    def carry_bytes(self) -> int:
        """The size of the carries, which are saved for each segment."""
        return sum(result_bytes(self.call, number) for number in range(len(self.control.carried)))

    def iteration_bytes(self) -> int:
        """The size of what one iteration adds to the results."""
        stacked = range(len(self.control.carried), len(self.call.out_layouts))
        return sum(result_bytes(self.call, number) for number in stacked) // self.control.length


def scan_of(call: Call) -> Scan:
    """The control of a scan."""
    assert isinstance(call.control, Scan)
    return call.control


def slices(call: Call) -> dict[int, Axis]:
    """The axis of iterations of each operand that a scan goes through, by place."""
    layouts = {place: call.arg_layouts[place] for place in scan_of(call).sliced}
    return {place: layout[0] for place, layout in layouts.items() if isinstance(layout[0], Axis)}
