"""Programs that test their data when they run, with a branch for data that passes: found and certified."""

from __future__ import annotations

from eqsat.compiler.candidate_compiler import CandidateCompiler, CompiledCandidate
from eqsat.compiler.goals import Goal
from eqsat.compiler.search import Search
from eqsat.ir.program import Program
from eqsat.planning.candidates import Candidate
from eqsat.planning.capped_extraction import CappedExtraction, first_fitting
from eqsat.planning.extractors import cheapest
from eqsat.planning.guarding import Granting, grantings, guarded, with_cheap_tests
from eqsat.planning.search_space import Saturations, SearchSpace, is_long, prepare, tested_orders
from eqsat.support.deadline import Deadline
from eqsat.support.records import SearchStep
from eqsat.targets.machine import Machine

MOST_COMPILED = 3
"""The number of candidates that are compiled. The plain program is the same in all of them, so if some need
more than was predicted, others do, too; and each may be compiled twice."""

HARDLY_FASTER = 0.95
"""Programs are looked for only if guarded rules make the fastest program of all, which may store any array,
take less than this part of its time without them. It took 0.85 to 1.08 in 12 programs of other libraries, of
which none gained within a budget, and 0.02 in tests that gained. To gain is to take 0.7, tests included."""

FAR_TOO_BIG = 0.5
"""A program that needs so much more than the memory for temporaries is not compiled again with less for tests
and for the plain program."""


class GuardedPrograms:
    """Looks for a program that is faster than another one on data for which guards of rules hold.

    **Attributes:**

    - `space`: in which that other one was found, without rules whose guards must hold.
    - `plain`: that program, which is right on any data.
    - `goal`: what is looked for; it names no spaces.
    - `log`: the decisions of the search, to which others are added.
    """

    def __init__(
        self,
        program: Program,
        space: SearchSpace,
        compiler: CandidateCompiler,
        plain: Candidate,
        goal: Goal,
        deadline: Deadline,
        log: list[SearchStep],
    ) -> None:
        self.program = program
        self.space = space
        self.compiler = compiler
        self.plain = plain
        self.goal = goal
        self.deadline = deadline
        self.log = log

    def found(self, known: Saturations) -> CompiledCandidate | None:
        """The first program that is certified to fit with both of its branches, if there is one.

        **Arguments:**

        - `known`: e-graphs that there are already; others are added.
        """
        orders = tested_orders(self.program, self.space.rules, self.goal.budget)
        granting = grantings(self.space, orders)
        gaining = self._gaining(granting, known)
        if gaining is None:
            return None
        # To plan tests takes long, and few programs gain even if all of them hold.
        affordable = with_cheap_tests(
            granting, self.space, self.plain.predicted_seconds, self.goal.budget, self.deadline
        )
        if len(affordable.grants) < len(granting.grants):
            gaining = self._gaining(affordable, known)
        if gaining is None:
            return None
        granting, (space, best) = affordable, gaining
        used = set(best.makers.values())
        if not granting.makers <= used:
            # What is used has fewer tests: they take less time, and hold of more data.
            fewer = granting.of_makers(used)
            smaller = self._saturated(fewer, known)
            if smaller is not None:
                return self._searched(smaller, fewer)
        return self._searched(space, granting)

    def _gaining(self, granting: Granting, known: Saturations) -> tuple[SearchSpace, Candidate] | None:
        """The e-graph by what is granted, and the program that should be fastest, if that is fast enough."""
        space = self._saturated(granting, known)
        if space is None or not self._gains(space, granting):
            return None
        best = self._predicted(space)
        return None if best is None or best.predicted_seconds >= self.goal.longest else (space, best)

    @property
    def _axes(self) -> int | None:
        """How many axes may be looped over; None: no loops."""
        return len(self.space.large) or None

    def _saturated(self, granting: Granting, known: Saturations) -> SearchSpace | None:
        """The program's e-graph by what is granted, and by all other rules."""
        if not granting.grants:
            return None
        return self.compiler.stopwatch.timed(
            "saturate",
            lambda: prepare(
                self.program,
                self.space.rules,
                None if self._axes is None else self.goal.budget,
                self.space.machine,
                self._axes or 1,
                deadline=self.deadline,
                known=known,
                granted=granting.granted,
                orders=granting.orders,
            ),
        )

    def _gains(self, space: SearchSpace, granting: Granting) -> bool:
        """Whether the fastest program of all uses what is granted, and is faster than without.

        If not, memory is all that it may save.
        """
        fastest = self._fastest(space)
        if fastest is None:
            return True
        if granting.makers.isdisjoint(fastest.makers.values()):
            return False
        plain = self._fastest(self.space)
        return plain is None or fastest.predicted_seconds < HARDLY_FASTER * plain.predicted_seconds

    def _fastest(self, space: SearchSpace) -> Candidate | None:
        """The fastest program without loops, whatever it stores."""
        return self.compiler.stopwatch.timed("search", lambda: cheapest(space, self.goal.budget))

    def _predicted(self, space: SearchSpace) -> Candidate | None:
        """The program that should be the fastest."""
        budget = self.goal.budget
        if self._axes is None:
            return self.compiler.stopwatch.timed("search", lambda: cheapest(space, budget))
        spills = not is_long(self.program)
        extraction = self._extraction(space)
        return self.compiler.stopwatch.timed("search", lambda: first_fitting(extraction, spills))

    def _extraction(self, space: SearchSpace) -> CappedExtraction:
        """Extracts programs whose loops are those of the plain one."""
        return CappedExtraction.like(self.plain, space, self.goal.budget, self.deadline)

    def _searched(self, space: SearchSpace, granting: Granting) -> CompiledCandidate | None:
        """The first program that fits."""
        machine = self.space.machine
        goal = Goal(self.goal.budget, self.goal.fixed, (self._axes,), self.goal.longest, most=MOST_COMPILED)
        compiler = GuardedCompiler(self.compiler, self.plain, granting, machine)
        search = Search(
            goal,
            lambda _: space,
            compiler,
            machine,
            self.deadline,
            self.log,
            within=lambda space, _: self._extraction(space),
        )
        found = search.run()
        return found if found is not None and found.seconds(machine) < goal.longest else None


class GuardedCompiler:
    """Compiles candidates as one of two branches: the one for data that passes tests.

    **Attributes:**

    - `plain`: the other branch.
    - `smallest`: the program with the smallest peak so far.
    """

    def __init__(
        self, compiler: CandidateCompiler, plain: Candidate, granting: Granting, machine: Machine
    ) -> None:
        self.plain = plain
        self.stopwatch = compiler.stopwatch
        self.smallest: CompiledCandidate | None = None
        self._compiler = compiler
        self._granting = granting
        self._machine = machine

    def compile(self, candidate: Candidate, budget: float) -> CompiledCandidate:
        """Emit and compile a candidate together with the plain program.

        Where that needs more than was predicted, again with so much less for tests and the plain program.
        """
        compiled = self._together(candidate, budget, budget)
        aim = 2 * budget - compiled.peak
        room, excess = budget - compiled.certified.fixed, compiled.peak - budget
        if 0 < excess < FAR_TOO_BIG * room and compiled.candidate.tests:
            smaller = self._together(candidate, aim, budget)
            compiled = min(compiled, smaller, key=lambda one: one.peak)
        if self.smallest is None or compiled.peak < self.smallest.peak:
            self.smallest = compiled
        return compiled

    def _together(self, candidate: Candidate, aim: float, budget: float) -> CompiledCandidate:
        """Both programs with lengths of chunks for so many bytes, compiled."""
        both = guarded(self.plain, candidate, self._granting, self._machine, aim)
        return self._compiler.compile(both, budget)
