"""Finds rules that never terminate, because they match their own results and add terms in every round.

A rule runs on its own example alone and, if it does not terminate, again with the rules that remove
renamings. It also runs with the other default rules of its file. Most rules saturate after a round or two,
and associativity after a few. The engine stops a rule that does not at a limit. Until then, the rule fills
the graph and holds up the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice

from eqsat.checking.examples import Loaded, drawn_program
from eqsat.checking.firing import programs
from eqsat.checking.operations import operations_of
from eqsat.checking.statement import directions, statements
from eqsat.engine.compile import compile_rule
from eqsat.engine.compiled import CompiledRule
from eqsat.engine.saturate import Limits, Saturation, saturate
from eqsat.ir.operations import OperationSpec
from eqsat.language.accuracies import ACCURACIES, Accuracy
from eqsat.language.syntax import Fact, Rule, RuleFile

LIMITS = Limits(seconds=5.0, algebra_rounds=12, loop_rounds=12)
"""Rules that terminate on an example do so well within these limits."""

MOST_PROGRAMS = 2
"""An example may stand for several programs. At most this many are run."""

DEFAULT: Accuracy = "reassociates"
"""Rules up to this accuracy class are used by default."""

RENAMING = "rename.rules"


def endless(rule: Rule, known: Sequence[RuleFile]) -> str:
    """Returns how many terms a rule adds that never terminates, as text; empty if it terminates.

    **Arguments:**

    - `known`: files of rules, of which `rename.rules` is used if it is among them.
    """
    alone = [compiled(rule, 0)]
    for loaded in _examples(rule):
        found = _run(loaded, alone)
        if not ended(found):
            found = _run(loaded, [*alone, *_renaming(known, {rule.name})])
        if not ended(found):
            made = dict(found.growth).get(rule.name, 0)
            banned = rule.name in found.banned
            end = "until the engine bans it" if banned else f"in {LIMITS.algebra_rounds} rounds"
            return f"{made:,} terms {end}"
    return ""


class Together:
    """The default rules and the facts of a file, which run together on the example of each rule.

    **Attributes:**

    - `named`: the rules that have been reported as endless. A group with one of them is not reported again.
    """

    def __init__(self, file: RuleFile, known: Sequence[RuleFile]) -> None:
        usable = [rule for rule in file.rules if _by_default(rule)]
        self.names = {rule.name for rule in usable}
        statements: list[Rule | Fact] = [*usable, *file.facts]
        mine = [compiled(one, number) for number, one in enumerate(statements)]
        self.rules = [*mine, *_renaming(known, self.names, len(mine))]
        self.named: set[str] = set()

    def endless(self, rule: Rule) -> tuple[str, ...]:
        """Returns the rules that never terminate on a rule's example, those that add most terms first."""
        if rule.name not in self.names or len(self.names) < 2:
            return ()
        for loaded in islice(_examples(rule), 1):
            found = _run(loaded, self.rules)
            grown = tuple(name for name, _ in found.growth)
            if not ended(found) and not self.named.intersection(grown):
                self.named.update(grown)
                return grown
        return ()


def _renaming(known: Sequence[RuleFile], names: Collection[str], first: int = 1) -> list[CompiledRule]:
    """Returns the rules that remove renamings, without those of the given names."""
    rules = [rule for file in known if file.file.endswith(RENAMING) for rule in file.rules]
    return [compiled(rule, number) for number, rule in enumerate(rules, first) if rule.name not in names]


def ended(found: Saturation) -> bool:
    """Returns whether the rules terminated by themselves."""
    return found.stop_reason == "saturated" and not found.banned


def compiled(rule: Rule | Fact, number: int) -> CompiledRule:
    """Returns a rule compiled for the engine, without its data guard so that it applies to all matches."""
    return _compiled(rule, number, operations_of(rule))


@cache
def _compiled(rule: Rule | Fact, number: int, operations: tuple[OperationSpec, ...]) -> CompiledRule:
    """Returns the same. What it compiles to depends on the `operations` that the rule names."""
    free = replace(rule, data_guard=None) if isinstance(rule, Rule) else rule
    return compile_rule(free, number)


def _by_default(rule: Rule) -> bool:
    accuracy = rule.data_guard.accuracy if rule.data_guard is not None else rule.accuracy
    return ACCURACIES.index(accuracy) <= ACCURACIES.index(DEFAULT)


def _examples(rule: Rule) -> Iterator[Loaded]:
    """Yields programs on which a rule should fire.

    They are its examples, or if it has none, its left side on axes that are drawn.
    """
    fitting = [example for example in rule.examples if example.fires]
    for example in fitting:
        yield from islice(programs(rule, example), MOST_PROGRAMS)
    if not fitting:
        drawn = map(drawn_program, islice(statements(directions(rule)[0]), 1))
        yield from (loaded for loaded in drawn if loaded is not None)


def _run(loaded: Loaded, rules: Sequence[CompiledRule]) -> Saturation:
    program = loaded.program
    return saturate(program, rules, loaded.large, list(program.reachable()), LIMITS)
