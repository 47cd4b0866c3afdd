"""One direction of a rule as one egglog rule, with all choices made: see `matching` and `building`."""

from __future__ import annotations

from collections.abc import Iterator

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
        facts = " ".join(dict.fromkeys(self.facts))
        if self.needed_sizes:
            demands = " ".join(f"(need-size S_{name})" for name in self.needed_sizes)
            yield f"({facts}) ({demands})"
        sizes = [f"(= z_{name} (size-of S_{name}))" for name in self.needed_sizes]
        every = [*dict.fromkeys(self.facts), *sizes, *self.comparisons]
        yield f"({' '.join(every)}) ({' '.join(self.actions)})"

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
