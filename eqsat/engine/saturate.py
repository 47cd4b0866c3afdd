"""Running the rules: algebra first, then loops, within limits, and saying why it stopped."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eqsat.engine.compiled import CompiledRule, Found, Granted
from eqsat.engine.encode import Symbols, encode_program, granted_text
from eqsat.engine.library import Library, loaded_rules
from eqsat.engine.schema import BOOKKEEPING, CHUNKS, LOADING
from eqsat.engine.snapshot import Snapshot, matches_found, snapshot
from eqsat.engine.triggered_rules import can_match, makes, pairs_in, relevant, symbols_in
from eqsat.ir.axis import Axis
from eqsat.ir.comparing import compared_with_tiles
from eqsat.ir.program import Program
from eqsat.ir.term import Term
from eqsat.support.deadline import NO_DEADLINE, Deadline
from eqsat.support.gc_pause import uncollected

MOST_REST = 4
"""A rule that never matches runs once in this many rounds, since matching takes most of the time."""

LONG_RUN = 4_000
"""The effort limit grows by its own amount for every such number of e-nodes of the program."""

RUN_EFFORT, NODE_EFFORT, MATCH_EFFORT = 100, 0.5, 20
"""The effort of running a rule: once, for each e-node there is, for each match. A microsecond is about 1."""

LONG_GROWTH = 1_000
"""Beyond so many e-nodes of a program, a rule may add an eighth as many for each. What explodes in a network
of many layers, as a renaming does that is pushed from the last one to the first, finds little far away."""

MOST_NAMED = 3
"""How many rules are named when a limit is met."""

LONG_PROGRAM = 400
"""The number of e-nodes from which a program is too long to propagate chunks op by op."""

DEEP_PROGRAM = 150
"""The number of ops, each on the one before, from which a program is: they come one op further in a round."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of saturation.

    **Attributes:**

    - `algebra_growth`: e-nodes that algebra may add for each e-node of the program.
    - `loop_nodes`: e-nodes that rules on chunks may add, or `loop_growth` for each e-node of the program if
      that is more.
    - `effort`: the limit of each phase, and as much again for every `LONG_RUN` e-nodes of the program. Effort
      is counted, not timed, so that the result is always the same.
    - `seconds`: processor time for each phase, which grows in the same way. It only guards against surprises.
    - `algebra_rounds`, `loop_rounds`: the number of times that each rule of a phase runs.
    - `rule_matches`: a rule with more matches than this in one round is banned, unless there are fewer than
      `loop_growth` for each e-node of the program.
    - `rule_growth`: a rule of algebra is also banned when it has added this many e-nodes for each e-node of
      the program, an eighth of that for each beyond the first `LONG_GROWTH`, and more than a hundredth of
      `rule_matches`.
    """

    algebra_growth: int = 6
    loop_nodes: int = 12_000
    loop_growth: int = 5
    effort: float = 8e5
    seconds: float = 10.0
    algebra_rounds: int = 10
    loop_rounds: int = 200
    rule_matches: int = 20_000
    rule_growth: int = 2


@dataclass(frozen=True, slots=True)
class Saturation:
    """The graph that came out.

    **Attributes:**

    - `matches`: by rule name, how often it matched.
    - `stop_reason`: "saturated", or the limit that stopped it.
    - `banned`: rules that were stopped because they exploded.
    - `growth`: the rules that have added most e-nodes, with how many.
    - `restless`: the rules that still changed something when a limit was met.
    - `found`: where rules with guards match.
    """

    graph: Snapshot
    matches: dict[str, int]
    stop_reason: str
    banned: tuple[str, ...]
    seconds: float
    growth: tuple[tuple[str, int], ...] = ()
    restless: tuple[str, ...] = ()
    found: tuple[Found, ...] = ()

    @property
    def told(self) -> str:
        """Why it stopped, and which rules are to blame."""
        if self.stop_reason == "saturated":
            return self.stop_reason
        parts = [self.stop_reason]
        if self.growth:
            parts.append(
                "most terms are from " + ", ".join(f"{name} ({count:,})" for name, count in self.growth)
            )
        if self.restless:
            parts.append(f"still at work: {', '.join(self.restless)}")
        return "; ".join(parts)


@uncollected()
def saturate(
    program: Program,
    rules: Sequence[CompiledRule],
    large: Iterable[Axis],
    stored: Iterable[Term],
    limits: Limits | None = None,
    deadline: Deadline = NO_DEADLINE,
    granted: Sequence[Granted] = (),
    tiled: bool = True,
) -> Saturation:
    """Load a program, run the rules on it, and take a snapshot.

    **Arguments:**

    - `large`: axes that may be split into chunks.
    - `stored`: terms that may be computed piece by piece.
    - `deadline`: when to stop, whatever the limits.
    - `granted`: what rules with guards may be used on. If there is nothing, it is noted where they match.
    - `tiled`: whether chunks may be split into chunks along another axis.
    """
    limits = limits or Limits()
    began = time.perf_counter()
    with loaded_rules(rules) as library:
        run = _Run(program, library, limits, deadline, granted)
        symbols = run.load(large, stored, tiled)
        reason = run.phase(loops=False, rounds=limits.algebra_rounds)
        guarded = [] if granted else run.find()
        run.ask_for_chunks()
        loop_reason = run.phase(loops=True, rounds=limits.loop_rounds)
        if loop_reason != "saturated":
            reason = loop_reason
        dump = run.graph.dump()
        result, numbers = snapshot(dump, symbols, program)
        found = tuple(matches_found(dump, guarded, numbers, symbols.axes))
    names = tuple(rule.name for rule in run.banned)
    seconds = time.perf_counter() - began
    growth = tuple((name, count) for name, count in run.growth.most_common(MOST_NAMED) if count > 0)
    restless = tuple(dict.fromkeys(run.restless))[:MOST_NAMED]
    return Saturation(result, dict(run.matches), reason, names, seconds, growth, restless, found)


def _depth(program: Program) -> int:
    """The number of terms in the longest chain, each an operand of the next."""
    depths: dict[int, int] = {}
    for term in program.reachable():
        depths[term.number] = 1 + max((depths[arg.number] for arg in term.args), default=0)
    return max(depths.values(), default=0)


class _Run:
    """An e-graph and the rules that run on it.

    **Attributes:**

    - `present`: the symbols of the program and of the terms that rules have added.
    - `known`: the rules that could match, whatever they are granted.
    - `waiting`: the usable rules among them that need symbols that are not present yet.
    - `growth`: by rule name, the number of e-nodes that it has added.
    - `changing`: the names of the rules that have changed something in this round.
    - `restless`: the same for the rounds in which a limit was reached.
    - `idle`, `due`: by rule number, its latest runs without a match, and the round of its next run.
    - `size`, `latest`: the number of e-nodes of the program, and the present one.
    - `effort`: the effort of running rules so far.
    """

    def __init__(
        self,
        program: Program,
        library: Library,
        limits: Limits,
        deadline: Deadline,
        granted: Sequence[Granted] = (),
    ) -> None:
        self.program = program
        self.granted = granted
        self.limits = limits
        self.deadline = deadline
        self.library = library
        self.graph = library.graph
        self.matches: Counter[str] = Counter()
        self.growth: Counter[str] = Counter()
        self.changing: list[str] = []
        self.restless: list[str] = []
        self.idle: Counter[int] = Counter()
        self.due: Counter[int] = Counter()
        self.banned: list[CompiledRule] = []
        self.present = symbols_in(program)
        wanted = {one.rule for one in granted}
        self.known = relevant(library.rules, self.present)
        usable = [rule for rule in self.known if rule.guard is None or rule.number in wanted]
        self.waiting = relevant(usable, self.present)
        pairs = pairs_in(program)
        library.begin(rule for rule in self.waiting if can_match(rule, self.present, pairs.__contains__))
        self.active: list[CompiledRule] = []
        self.size = 0
        self.latest = 0
        self.effort = 0.0

    def load(self, large: Iterable[Axis], stored: Iterable[Term], tiled: bool) -> Symbols:
        """Load the program; what its symbols stand for."""
        numbers = sorted(frozenset[float]().union(*(rule.numbers for rule in self.known)))
        copies = sorted(frozenset[tuple[int, int]]().union(*(rule.copies for rule in self.known)))
        fenced = compared_with_tiles(self.program).between
        beside = [value for one in self.granted for value in one.values]
        loading = encode_program(self.program, large, stored, numbers, copies, fenced, beside, tiled)
        symbols = loading.symbols
        for rule in self.waiting:
            symbols.monoids.update(rule.monoids)
            if rule.guard is not None:
                self.library.need(rule)
                mine = [one for one in self.granted if one.rule == rule.number]
                loading.actions += [granted_text(one, rule.guard) for one in mine]
        for block in loading.blocks():
            self.graph.run_text(block)
        for table, rows in loading.tables():
            self.graph.fill(table, rows)
        self.graph.run_ruleset(LOADING)
        self.size = self.latest = self.graph.size()
        self.bookkeeping()
        return symbols

    def find(self) -> list[CompiledRule]:
        """Note where rules with guards match; those that were looked for."""
        guarded = [
            rule for rule in self.known if rule.guard is not None and can_match(rule, self.present, self.over)
        ]
        for rule in guarded:
            self.library.need(rule)
            # The first time, it may only ask for the sizes of axes.
            while self.graph.run_ruleset(rule.finding)[0] and self.bookkeeping():
                pass
        return guarded

    def ask_for_chunks(self) -> None:
        """In a long or deep program, enter the chunks of all terms, for rules to say what they are.

        Rules ask for the chunks of one op's operands after the other, each in a round of its own, and a round
        takes as long as the whole program is.
        """
        if self.size > LONG_PROGRAM or _depth(self.program) > DEEP_PROGRAM:
            self.graph.run_ruleset(CHUNKS)
            self.latest = self.graph.size()
            self.bookkeeping()

    def bookkeeping(self) -> bool:
        """Bring the analyses up to date; whether there was anything to do."""
        changed = False
        while self.graph.run_ruleset(BOOKKEEPING)[0]:
            changed = True
        if changed:
            self.latest = self.graph.size()
        return changed

    def wake(self) -> None:
        """Run from now on the rules whose symbols have come to be present."""
        ready = [rule for rule in self.waiting if can_match(rule, self.present, self.over)]
        for rule in ready:
            self.library.need(rule)
        if ready:
            woken = {rule.number for rule in ready}
            self.waiting = [rule for rule in self.waiting if rule.number not in woken]
            self.active = sorted([*self.active, *ready], key=lambda rule: rule.number)

    def over(self, pair: tuple[str, str]) -> bool:
        """Whether there is a node of one symbol right over one of another."""
        return self.graph.holds("over", pair)

    def phase(self, loops: bool, rounds: int) -> str:
        """Run each rule once a round until nothing changes or a limit is met; the reason."""
        limits = self.limits
        chunks = max(limits.loop_nodes, limits.loop_growth * self.size)
        growth = chunks if loops else 500 + limits.algebra_growth * self.size
        long = 1 + self.size / LONG_RUN
        near = min(self.size, LONG_GROWTH) + max(self.size - LONG_GROWTH, 0) // 8
        seconds, effort = limits.seconds * long, limits.effort * long
        bounds = _Bounds(
            self.latest + growth,
            math.inf if loops else limits.rule_growth * near + limits.rule_matches // 100,
            self.effort + effort,
            time.thread_time() + seconds,
        )
        stopped = {
            "deadline": f"planning time limit of {self.deadline.seconds:g} s",
            "effort": f"limit of {effort / 1e6:.1f} million units of effort",
            "time": f"time limit of {seconds:.0f} s",
            "size": f"limit of {growth} new e-nodes",
        }
        for number in range(rounds):
            self.wake()
            self.changing.clear()
            rules = [rule for rule in self.active if rule.splits == loops]
            resting = [rule for rule in rules if self.due[rule.number] > number and number < rounds - 1]
            rested = {rule.number for rule in resting}
            stop, changed = self.turn([rule for rule in rules if rule.number not in rested], bounds)
            if not changed and not stop:
                # Before this is the end, everybody has another turn.
                stop, changed = self.turn(resting, bounds)
            for rule in rules:
                if self.due[rule.number] <= number:
                    self.due[rule.number] = number + min(max(self.idle[rule.number], 1), MOST_REST)
            # A name moves inwards by one op at a time: all the way before the others have their next turn.
            moved = True
            while moved and not stop:
                changed = self.bookkeeping() or changed
                movers = [rule for rule in self.active if rule.splits == loops and rule.renames]
                stop, moved = self.turn(movers, bounds)
            if stop:
                self.restless += self.changing
                return stopped[stop]
            if not changed:
                return "saturated"
        self.restless += self.changing
        return f"limit of {rounds} rounds"

    def turn(self, rules: Sequence[CompiledRule], bounds: _Bounds) -> tuple[str, bool]:
        """Run rules once; which limit was met, if one was, and whether they changed anything."""
        changed = False
        for rule in rules:
            if self.deadline.passed():
                return "deadline", changed
            updated, count = self.graph.run_ruleset(rule.ruleset)
            self.matches[rule.name] += count
            self.effort += RUN_EFFORT + NODE_EFFORT * self.latest + MATCH_EFFORT * count
            self.idle[rule.number] = 0 if count else self.idle[rule.number] + 1
            if count:
                self.present |= makes(rule, self.present)
            if updated:
                changed = True
                self.changing.append(rule.name)
                before, self.latest = self.latest, self.graph.size()
                self.growth[rule.name] += self.latest - before
            most = max(self.limits.rule_matches, self.limits.loop_growth * self.size)
            if count > most or self.growth[rule.name] > bounds.growth:
                self.banned.append(rule)
                self.active.remove(rule)
            if self.effort > bounds.effort:
                return "effort", changed
            if time.thread_time() > bounds.deadline:
                return "time", changed
            if updated and self.latest > bounds.size:
                return "size", changed
        return "", changed


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The limits of a phase: e-nodes in all, e-nodes that a rule may add, the effort and the time."""

    size: int
    growth: float
    effort: float
    deadline: float
