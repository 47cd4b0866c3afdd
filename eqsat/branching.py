"""Programs that test their data when they run, with a branch for data that passes: found and certified."""

from __future__ import annotations

from eqsat.deadline import Deadline
from eqsat.fitting import Fitting
from eqsat.ir.program import Program
from eqsat.machine import Machine
from eqsat.planning.candidates import Candidate
from eqsat.planning.exploring import Saturations, Search, prepare
from eqsat.planning.guarding import Granting, grantings, guarded
from eqsat.planning.search import cheapest
from eqsat.trials import Trial, Trials


class Branching:
    """Looks for a program that is faster than another one on data for which guards of rules hold.

    **Attributes:**

    - `search`: in which that other one was found, without rules whose guards must hold.
    - `plain`: that program, which is right on any data.
    - `budget`: bytes.
    - `longest`: seconds; what is predicted to take as much where guards hold is not compiled.
    """

    def __init__(
        self,
        program: Program,
        search: Search,
        trials: Trials,
        plain: Candidate,
        budget: int,
        deadline: Deadline,
        longest: float,
    ) -> None:
        self.program = program
        self.search = search
        self.trials = trials
        self.plain = plain
        self.budget = budget
        self.deadline = deadline
        self.longest = longest

    def found(self, fixed: int, known: Saturations) -> Trial | None:
        """The first program that is certified to fit with both of its branches, if there is one.

        **Arguments:**

        - `fixed`: bytes of arguments and results.
        - `known`: e-graphs that there are already; others are added.
        """
        granting = grantings(self.search, self.plain.predicted_seconds, self.budget)
        trial = self._granted(granting, fixed, known)
        if trial is None:
            return None
        fast = trial.candidate.branches[-1] if trial.candidate.branches else trial.candidate
        makers = set(fast.makers.values())
        used = frozenset(rule.number for rule in self.search.rules if rule.name in makers)
        if not granting.rules <= used:
            # Fewer rules have fewer guards, so that these hold of more data.
            fewer = self._granted(granting.of_rules(used), fixed, known)
            if fewer is not None and fewer.candidate.seconds <= trial.candidate.seconds:
                return fewer
        return trial

    def _granted(self, granting: Granting, fixed: int, known: Saturations) -> Trial | None:
        """The first program that fits by the rules that are granted something, and all others."""
        if not granting.granted:
            return None
        machine, stopwatch = self.search.machine, self.trials.stopwatch
        budget = self.budget if self.search.large else None
        axes = max(len(self.search.large), 1)
        granted = stopwatch.timed(
            "saturate",
            lambda: prepare(
                self.program,
                self.search.rules,
                budget,
                machine,
                axes,
                deadline=self.deadline,
                known=known,
                granted=granting.granted,
            ),
        )
        trials = GuardedTrials(self.trials, self.plain, granting, machine)
        if self.search.large:
            return next(
                Fitting(granted, trials, self.budget, fixed, machine, self.deadline, self.longest), None
            )
        best = stopwatch.timed("search", lambda: cheapest(granted, self.budget))
        if best is None or best.predicted_seconds >= self.longest:
            return None
        trial = trials.compile(best, self.budget)
        fits = trial.peak <= self.budget and trial.seconds(machine) < self.longest
        return trial if fits else None


class GuardedTrials:
    """Compiles candidates as one of two branches: the one for data that passes tests.

    **Attributes:**

    - `plain`: the other branch.
    - `smallest`: the trial with the smallest peak so far.
    """

    def __init__(self, trials: Trials, plain: Candidate, granting: Granting, machine: Machine) -> None:
        self.plain = plain
        self.stopwatch = trials.stopwatch
        self.smallest: Trial | None = None
        self._trials = trials
        self._granting = granting
        self._machine = machine

    def compile(self, candidate: Candidate, budget: float) -> Trial:
        """Emit and compile a candidate together with the plain program."""
        both = guarded(self.plain, candidate, self._granting, self._machine, budget)
        trial = self._trials.compile(both, budget)
        if self.smallest is None or trial.peak < self.smallest.peak:
            self.smallest = trial
        return trial
