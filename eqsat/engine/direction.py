"""One direction of a rule as one egglog rule, with all choices made: see `matching` and `building`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from eqsat.engine.building import Building
from eqsat.language.syntax import (
    Expression,
    Fact,
)

MAX_NESTING = 2
"""Most loops that one value may be computed inside of."""


class Direction(Building):
    """Compiles one direction of one rule, with all choices made."""

    def bodies(self) -> Iterator[str]:
        """The rule's body; and, where sizes of sets of axes are compared, one that asks for them."""
        if self.needed_sizes:
            demands = [f"(need-size S_{name})" for name in self.needed_sizes]
            yield _body(self.facts, demands)
        sizes = [f"(= z_{name} (size-of S_{name}))" for name in self.needed_sizes]
        yield _body([*self.facts, *sizes, *self.comparisons], self.actions)

    def compile(self, absent: frozenset[Expression], present: frozenset[Expression]) -> Iterator[str]:
        """The bodies of the egglog rules of a rewrite."""
        self.collect(absent, present)
        self.build(self.right, absent, root=True)
        return self.bodies()

    def compile_fact(self) -> Iterator[str]:
        """The bodies of the egglog rules that derive a fact."""
        assert isinstance(self.rule, Fact)
        axes = "".join(f" {self.axis(axis)}" for axis in self.rule.axes)
        self.collect(frozenset(), frozenset())
        self.actions.append(f"(is-{self.rule.property} e{axes})")
        return self.bodies()


_ANALYSIS = re.compile(r"\(= ([AOD]_\S+) \((?:axes|open|dtype) \S+\)\)")


def _body(facts: Iterable[str], actions: Iterable[str]) -> str:
    """A rule's body, without the analyses that nothing asks for: each would be a join."""
    wanted = list(dict.fromkeys(facts))
    done = " ".join(actions)
    words = Counter(re.findall(r"[AOD]_[^\s()]+", " ".join([*wanted, done])))
    kept = []
    for fact in wanted:
        analysis = _ANALYSIS.fullmatch(fact)
        if analysis is None or words[analysis[1]] > 1:
            kept.append(fact)
    return f"({' '.join(kept)}) ({done})"
