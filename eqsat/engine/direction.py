"""One direction of a rule as one egglog rule, with all choices made: see `matching` and `building`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Literal

from eqsat.engine.building import Building
from eqsat.language.syntax import (
    Expression,
    Fact,
    Rule,
)
from eqsat.language.traverse import is_set

Use = Literal["", "found", "granted"]
"""How a rule treats its guard: it has none, it only records its matches, or it rewrites only granted ones."""


class Direction(Building):
    """Compiles one direction of one rule, with all choices made."""

    def bodies(self) -> Iterator[str]:
        """The rule's body; and, where sizes of sets of axes are compared, one that asks for them."""
        if self.needed_sizes:
            demands = [f"(need-size S_{name})" for name in self.needed_sizes]
            yield _body(self.facts, demands)
        sizes = [f"(= z_{name} (size-of S_{name}))" for name in self.needed_sizes]
        yield _body([*self.facts, *sizes, *self.comparisons], self.actions)

    def compile(
        self, absent: Collection[Expression], present: Collection[Expression], use: Use = ""
    ) -> Iterator[str]:
        """The bodies of the egglog rules of a rewrite."""
        self.collect(absent, present)
        self.build(self.right, absent, root=True)
        if use == "granted":
            self.facts.append(self.guarded_by(use))
        elif use == "found":
            # What varies with the chunks of a loop can't be tested before.
            self.facts += [f"(= 0 (set-length O_{name}))" for name in self.guard_variables()]
            self.actions = [self.guarded_by(use)]
        return self.bodies()

    def guard_variables(self) -> tuple[str, ...]:
        """The variables that the rule's guard speaks of."""
        assert isinstance(self.rule, Rule)
        assert self.rule.data_guard is not None
        return self.rule.data_guard.guard.variables

    def guarded_by(self, table: str) -> str:
        """The row of a table that says on what the guard is."""
        assert isinstance(self.rule, Rule)
        assert self.rule.data_guard is not None
        terms = [f"t_{name}" for name in self.guard_variables()]
        axes = [f"S_{name}" if is_set(name) else self.axis(name) for name in self.rule.data_guard.guard.axes]
        return f"({table}-{self.number} {' '.join([*terms, *axes])})"

    def compile_fact(self) -> Iterator[str]:
        """The bodies of the egglog rules that derive a fact."""
        assert isinstance(self.rule, Fact)
        axes = "".join(f" {self.axis(axis)}" for axis in self.rule.axes)
        self.collect((), ())
        self.actions.append(f"(is-{self.rule.property} e{axes})")
        return self.bodies()


_PART = re.compile(r"\(= ([AOD]_\S+) \(pair-.*\)\)")
_TYPE = re.compile(r"\(= (Y_\S+) \(type \S+\)\)")
_DTYPE = re.compile(r"\(= (\S+) \(pair-second (Y_[^\s()]+)\)\)")
_WORD = re.compile(r"[^\s()]+")


def _body(facts: Iterable[str], actions: Iterable[str]) -> str:
    """A rule's body, without the types that nothing asks for: each would be a join."""
    wanted, done = _one_name(list(dict.fromkeys(facts)), " ".join(actions))
    for analysis in (_PART, _TYPE):
        words = Counter(_WORD.findall(" ".join([*wanted, done])))
        wanted = [fact for fact in wanted if not (known := analysis.fullmatch(fact)) or words[known[1]] > 1]
    return f"({' '.join(wanted)}) ({done})"


def _one_name(facts: list[str], actions: str) -> tuple[list[str], str]:
    """Facts and actions with one name for the dtype of one type, so that nothing asks if it is the same."""
    names: dict[str, str] = {}
    other: dict[str, str] = {}
    for fact in facts:
        if known := _DTYPE.fullmatch(fact):
            other[known[1]] = names.setdefault(known[2], known[1])

    def named(text: str) -> str:
        return _WORD.sub(lambda word: other.get(word[0], word[0]), text)

    trivial = {f"(= {name} {name})" for name in names.values()}
    return [fact for fact in dict.fromkeys(map(named, facts)) if fact not in trivial], named(actions)
