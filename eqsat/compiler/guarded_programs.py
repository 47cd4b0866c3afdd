"""Programs that test their data when they run, with a branch for data that passes: found and certified."""

from __future__ import annotations

from eqsat.compiler.candidate_compiler import CandidateCompiler, CompiledCandidate
from eqsat.compiler.certified_candidates import CertifiedCandidates
from eqsat.ir.program import Program
from eqsat.planning.candidates import Candidate
from eqsat.planning.guarding import Granting, grantings, guarded
from eqsat.planning.search import cheapest, first_fitting
from eqsat.planning.search_space import Saturations, Search, prepare, tested_orders
from eqsat.support.deadline import Deadline
from eqsat.targets.machine import Machine


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
        trials: CandidateCompiler,
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

    def found(self, fixed: int, known: Saturations) -> CompiledCandidate | None:
        """The first program that is certified to fit with both of its branches, if there is one.

        **Arguments:**

        - `fixed`: bytes of arguments and results.
        - `known`: e-graphs that there are already; others are added.
        """
        orders = tested_orders(self.program, self.search.rules, self.budget)
        granting = grantings(self.search, orders, self.plain.predicted_seconds, self.budget, self.deadline)
        searched = self._searched(granting, known)
        if searched is None:
            return None
        best = self._predicted(searched)
        used = set() if best is None else set(best.makers.values())
        if not granting.makers <= used:
            # What is used has fewer tests: they take less time, and hold of more data.
            fewer = granting.of_makers(used)
            without = self._searched(fewer, known)
            if without is not None:
                trial = self._compiled(without, fewer, fixed)
                if trial is not None:
                    return trial
        return self._compiled(searched, granting, fixed)

    def _searched(self, granting: Granting, known: Saturations) -> Search | None:
        """The program's e-graph by what is granted, and by all other rules."""
        if not granting.grants:
            return None
        return self.trials.stopwatch.timed(
            "saturate",
            lambda: prepare(
                self.program,
                self.search.rules,
                self.budget if self.search.large else None,
                self.search.machine,
                max(len(self.search.large), 1),
                deadline=self.deadline,
                known=known,
                granted=granting.granted,
                orders=granting.orders,
            ),
        )

    def _predicted(self, searched: Search) -> Candidate | None:
        """The program that should be the fastest."""
        if not searched.large:
            return self.trials.stopwatch.timed("search", lambda: cheapest(searched, self.budget))
        return self.trials.stopwatch.timed(
            "search", lambda: first_fitting(searched, self.budget, self.deadline)
        )

    def _compiled(self, searched: Search, granting: Granting, fixed: int) -> CompiledCandidate | None:
        """The first program that fits."""
        machine = self.search.machine
        trials = GuardedCompiler(self.trials, self.plain, granting, machine)
        if self.search.large:
            fitting = CertifiedCandidates(
                searched, trials, self.budget, fixed, machine, self.deadline, self.longest
            )
            return next(fitting, None)
        best = self._predicted(searched)
        if best is None or best.predicted_seconds >= self.longest:
            return None
        trial = trials.compile(best, self.budget)
        fits = trial.peak <= self.budget and trial.seconds(machine) < self.longest
        return trial if fits else None


class GuardedCompiler:
    """Compiles candidates as one of two branches: the one for data that passes tests.

    **Attributes:**

    - `plain`: the other branch.
    - `smallest`: the trial with the smallest peak so far.
    """

    def __init__(
        self, trials: CandidateCompiler, plain: Candidate, granting: Granting, machine: Machine
    ) -> None:
        self.plain = plain
        self.stopwatch = trials.stopwatch
        self.smallest: CompiledCandidate | None = None
        self._trials = trials
        self._granting = granting
        self._machine = machine

    def compile(self, candidate: Candidate, budget: float) -> CompiledCandidate:
        """Emit and compile a candidate together with the plain program.

        Where that needs more than was predicted, again with so much less for tests and the plain program.
        """
        trial = self._together(candidate, budget, budget)
        if trial.peak > budget and trial.candidate.tests:
            smaller = self._together(candidate, 2 * budget - trial.peak, budget)
            trial = min(trial, smaller, key=lambda one: one.peak)
        if self.smallest is None or trial.peak < self.smallest.peak:
            self.smallest = trial
        return trial

    def _together(self, candidate: Candidate, aim: float, budget: float) -> CompiledCandidate:
        """Both programs with lengths of chunks for so many bytes, compiled."""
        both = guarded(self.plain, candidate, self._granting, self._machine, aim)
        return self._trials.compile(both, budget)
