"""From a program that was compiled to the plan that says what it is and how it came about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from eqsat.backend.certificate import Certified
from eqsat.compiler.candidate_compiler import CompiledCandidate, Stopwatch, input_names
from eqsat.compiler.lowered import Lowered
from eqsat.compiler.planned import Derivation, Planned
from eqsat.frontend.trace import Traced
from eqsat.planning.candidates import Candidate
from eqsat.planning.recording import recorded
from eqsat.reports.plan import Plan
from eqsat.support.records import SearchStep
from eqsat.targets.compiler_profile import OWN
from eqsat.targets.target import Target


@dataclass
class PlanAssembly:
    """Makes plans of one function within one budget.

    **Attributes:**

    - `names`: of its arguments.
    - `donated`: the numbers of the arguments whose place results may take.
    - `budget`: bytes.
    - `log`: the decisions of the searches so far.
    - `stop_reason`, `banned`: why the last search ended, and the rules that it stopped.
    """

    traced: Traced
    names: Sequence[str]
    donated: Sequence[int]
    budget: int
    target: Target
    stopwatch: Stopwatch
    log: list[SearchStep] = field(default_factory=list)
    stop_reason: str = ""
    banned: tuple[str, ...] = ()

    def as_written(
        self, certified: Certified, lowered: Lowered | None, written: Candidate | None, reason: str = ""
    ) -> Planned:
        """The function as it is.

        **Arguments:**

        - `lowered`, `written`: the function as a program, and as a candidate; None if nothing is told of it.
        - `reason`: why it is left as it is, if not because the search has ended so.
        """
        reason = reason or self.stop_reason
        if lowered is None or written is None:
            plan = self._plan(certified, certified, reason)
            return Planned(plan, self.traced, None, certified, donated=self.donated)
        source = lowered.compiler.emitted(written, OWN).source
        plan = self._plan(certified, certified, reason, source, lowered)
        plan = recorded(plan, written, None, self._inputs(lowered), self.target.machine)
        plan = _estimated(plan, certified, certified)
        derivation = Derivation(lowered.function, lowered.compiler.emission(written, OWN))
        return Planned(plan, self.traced, None, certified, lowered.hoisted, self.donated, derivation)

    def rewritten(
        self, compiled: CompiledCandidate, original: Certified, lowered: Lowered, written: Candidate
    ) -> Planned:
        """A program in place of the function, which is `written` and, compiled, `original`."""
        source, candidate = compiled.module.source, compiled.candidate
        plan = self._plan(compiled.certified, original, self.stop_reason, source, lowered, changed=True)
        plan = recorded(plan, written, candidate, self._inputs(lowered), self.target.machine)
        plan = _estimated(plan, original, compiled.certified)
        emission = lowered.compiler.emission(candidate, compiled.certified.options, compiled.panel)
        return Planned(
            plan,
            self.traced,
            compiled.module,
            compiled.certified,
            lowered.hoisted,
            self.donated,
            Derivation(lowered.function, emission),
        )

    def _inputs(self, lowered: Lowered) -> list[str]:
        return input_names(lowered.program, self.names)

    def _plan(
        self,
        certified: Certified,
        original: Certified,
        reason: str,
        source: str = "",
        lowered: Lowered | None = None,
        changed: bool = False,
    ) -> Plan:
        return Plan(
            self.budget,
            certified.peak,
            original.peak,
            changed=changed,
            source=source,
            stop_reason=reason,
            planning_seconds=self.stopwatch.seconds,
            constants=tuple(lowered.constants) if lowered else (),
            banned=self.banned,
            argument_bytes=certified.arguments,
            result_bytes=certified.outputs - certified.aliased,
            scratch_bytes=certified.scratch,
            options=certified.options,
            search=tuple(self.log),
        )


def _estimated(plan: Plan, original: Certified, certified: Certified) -> Plan:
    """The plan with the times that the texts of the compiled programs say, if both do."""
    if original.seconds is None or certified.seconds is None:
        return plan
    before, after = original.seconds, certified.seconds
    return replace(plan, original_seconds=before, predicted_seconds=after, estimated=True)
