"""The plan: what users see of an optimised function."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from eqsat.amounts import format_bytes
from eqsat.ir.formula import Monoid
from eqsat.ir.ops import Concat, Fold, Opaque, Select
from eqsat.planning.blocks import Loop
from eqsat.planning.candidates import Candidate


@dataclass(frozen=True, slots=True)
class LoopReport:
    """One loop of a plan.

    **Attributes:**

    - `axis`, `size`: the axis that is looped over and its length.
    - `chunk`, `count`: the chunks' length (the last may be shorter) and their number.
    - `combines`: how the loop's results come together: "sum", "concatenation", "top_k"...
    """

    axis: str
    size: int
    chunk: int
    count: int
    combines: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.axis}: {self.size} in {self.count} chunks of {self.chunk} ({', '.join(self.combines)})"


@dataclass(frozen=True)
class Plan:
    """How a function is computed within a budget.

    **Attributes:**

    - `budget_bytes`: the budget.
    - `peak_bytes`: arguments + outputs + temporaries - aliased of the compiled program.
    - `original_peak_bytes`: the same figure for the function as written, under the same options.
    - `changed`: whether the function was rewritten at all.
    - `source`: the program as JAX source text; its function is `optimized(*leaves, *constants)`, on
      flat arguments, and returns a tuple of flat results.
    - `constants`: the arrays that the function closed over, in the order in which the source takes them.
    - `rules_fired`: by name, how many ops of the program a rule made.
    - `loops`: the loops over chunks, outer before inner.
    - `stop_reason`: why the search for rewrites ended.
    - `banned`: the rules that were stopped because they exploded: they may have missed something.
    - `predicted_peak_bytes`, `predicted_seconds`: by simulation and by the machine model.
    - `planning_seconds`: by stage.
    """

    budget_bytes: int
    peak_bytes: int
    original_peak_bytes: int
    changed: bool
    source: str
    rules_fired: dict[str, int]
    loops: tuple[LoopReport, ...]
    stop_reason: str
    predicted_peak_bytes: int
    predicted_seconds: float
    original_seconds: float
    planning_seconds: dict[str, float] = field(default_factory=dict)
    constants: tuple[Any, ...] = field(default=(), repr=False)
    banned: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"eqsat plan: {'rewritten' if self.changed else 'left as it was'}",
            f"  budget          {format_bytes(self.budget_bytes)}",
            f"  peak            {format_bytes(self.peak_bytes)} certified"
            f" (as written: {format_bytes(self.original_peak_bytes)})",
        ]
        if self.changed:
            lines.append(f"  predicted peak  {format_bytes(self.predicted_peak_bytes)}")
            ratio = self.predicted_seconds / max(self.original_seconds, 1e-12)
            lines.append(f"  predicted time  {ratio:.2f} of the time as written")
        if self.loops:
            lines.append("  loops")
            lines += [f"    {loop}" for loop in self.loops]
        if self.rules_fired:
            lines.append("  rules")
            width = max(map(len, self.rules_fired))
            fired = sorted(self.rules_fired.items(), key=lambda item: (-item[1], item[0]))
            lines += [f"    {name:<{width}}  {count}" for name, count in fired]
        lines.append(f"  rewriting       {self.stop_reason}")
        if self.banned:
            lines.append(f"  stopped         {', '.join(self.banned)} (made too many terms)")
        if self.planning_seconds:
            stages = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in self.planning_seconds.items())
            lines.append(f"  planning        {stages}")
        return "\n".join(lines)


def loop_reports(candidate: Candidate) -> tuple[LoopReport, ...]:
    """The loops of a candidate."""
    chunks = candidate.schedule.chunks
    return tuple(_report(loop, chunks[loop.id]) for loop in candidate.schedule.block.loops())


def _report(loop: Loop, chunk: int) -> LoopReport:
    kinds: list[str] = []
    for result in loop.results:
        match result.op:
            case Concat():
                kinds.append("concatenation")
            case Fold(monoid=Select(kind=kind) | Monoid(name=kind)):
                kinds.append(kind)
            case Fold(monoid=Opaque(call=call)):
                kinds.append(str(call.primitive.name))
            case Fold(monoid=str(kind)):
                kinds.append(kind)
    count = -(-loop.axis.size // chunk)
    return LoopReport(loop.axis.name, loop.axis.size, chunk, count, tuple(dict.fromkeys(kinds)))


def rules_fired(candidate: Candidate) -> dict[str, int]:
    """How many ops of a candidate each rule made."""
    return dict(Counter(candidate.makers.values()))
