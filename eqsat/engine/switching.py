"""Local search on a choice of nodes: switching one class at a time, or several that gain only together.

Choosing class by class misses what pays only if others choose alike: two sums that each have a way that is
cheaper by itself than going through a third, which both could share. Here the objective is the true one,
every class that is needed counted once. What a switch changes is found by counting uses, so that looking at
it takes no more than the classes that come and go.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from eqsat.engine.snapshot import ENode

EFFORT = 40_000
"""How many classes may be looked at: all that matter in small graphs, some in large ones."""

ROUNDS = 4

MOST_TOGETHER = 16
"""How many switches are tried as a group."""

GAIN = 1e-9
"""What part of the time a switch has to save at least."""


class Choice(Protocol):
    """A node that its class may be computed by, and its predicted time."""

    @property
    def number(self) -> int: ...

    @property
    def node(self) -> ENode: ...

    @property
    def cost(self) -> float: ...


C = TypeVar("C", bound=Choice)


class Switcher(Generic[C]):
    """Improves one choice.

    **Arguments:**

    - `options`: by class, the nodes that are allowed.
    - `trees`: for each class that there is a program for, one node, all of them without cycles. What is not
      needed yet would be computed so.
    - `selected`: for each class that the roots need, a node, operands first.
    """

    def __init__(
        self,
        options: Mapping[int, Sequence[C]],
        trees: Mapping[int, C],
        selected: Mapping[int, C],
        roots: Iterable[int],
    ) -> None:
        self.options = options
        self.roots = tuple(roots)
        self.trees = trees
        self.chosen: dict[int, C] = dict(selected)
        self.uses: dict[int, int] = dict.fromkeys(selected, 0)
        self.rank = {number: float(place) for place, number in enumerate(selected)}
        self.total = sum(choice.cost for choice in selected.values())
        self.left = EFFORT
        self._log: list[tuple[int, C | None, int]] = []
        for number in (
            *self.roots,
            *(child for choice in selected.values() for child in choice.node.children),
        ):
            self.uses[number] += 1

    def improved(self) -> dict[int, C]:
        """The cheapest choice found, of what the roots need; in no particular order."""
        for _ in range(ROUNDS):
            before = self.total
            brought = self._singly()
            self._together(brought)
            if self.total >= before or self.left < 0:
                break
        return self.chosen

    def _singly(self) -> dict[int, list[C]]:
        """Make every switch that gains by itself; of the others, tell which classes they would bring in."""
        brought: dict[int, list[C]] = {}
        for number in list(self.chosen):
            for option in self.options.get(number, ()):
                if self.left < 0:
                    return brought
                if self.chosen.get(number) in (None, option):
                    continue
                before = self.total
                new = self._switch(option)
                if new is None:
                    continue
                if self.total < before * (1 - GAIN):
                    self._keep()
                    continue
                self._undo(before)
                for other in new:
                    brought.setdefault(other, []).append(option)
        return brought

    def _together(self, brought: Mapping[int, Sequence[C]]) -> None:
        """Bring in a class for all that could use it: the first pays for it, the others gain."""
        tried: set[tuple[int, ...]] = set()
        for options in brought.values():
            key = tuple(id(option) for option in options)
            if len({option.number for option in options}) < 2 or key in tried:
                continue
            tried.add(key)
            before = self.total
            first = True
            for option in options[:MOST_TOGETHER]:
                if self.left < 0:
                    break
                if self.chosen.get(option.number) in (None, option):
                    continue
                mark, so_far = len(self._log), self.total
                if self._switch(option) is None:
                    continue
                if not first and self.total >= so_far:
                    self._undo(so_far, mark)
                first = False
            if self.total < before * (1 - GAIN):
                self._keep()
            else:
                self._undo(before)

    def _switch(self, option: C) -> list[int] | None:
        """Compute a class in another way, and tell which classes that brings in; None if it needs itself."""
        number = option.number
        if self._needs(option.node.children, number):
            return None
        old = self.chosen[number]
        self._set(number, option, self.uses[number])
        self.total += option.cost - old.cost
        new: list[int] = []
        stack = list(option.node.children)
        while stack:
            child = stack.pop()
            self.left -= 1
            if child in self.chosen:
                self._set(child, self.chosen[child], self.uses[child] + 1)
                continue
            tree = self.trees[child]
            self._set(child, tree, 1)
            self.total += tree.cost
            new.append(child)
            stack.extend(tree.node.children)
        stack = list(old.node.children)
        while stack:
            child = stack.pop()
            self.left -= 1
            choice, uses = self.chosen[child], self.uses[child] - 1
            self._set(child, choice if uses else None, uses)
            if not uses:
                self.total -= choice.cost
                stack.extend(choice.node.children)
        return new

    def _needs(self, numbers: Iterable[int], target: int) -> bool:
        """Whether the classes, as they would be computed, need another one.

        Classes that are ranked lower than it, do not.
        """
        limit = self.rank.get(target, -1.0)
        seen: set[int] = set()
        stack = list(numbers)
        while stack:
            number = stack.pop()
            if number == target:
                return True
            if number in seen or (number in self.chosen and self.rank.get(number, limit) < limit):
                continue
            self.left -= 1
            seen.add(number)
            choice = self.chosen.get(number) or self.trees.get(number)
            if choice is None:
                return True  # There is no program for it at all.
            stack.extend(choice.node.children)
        return False

    def _set(self, number: int, choice: C | None, uses: int) -> None:
        self._log.append((number, self.chosen.get(number), self.uses.get(number, 0)))
        if choice is None:
            del self.chosen[number]
            self.uses.pop(number)
        else:
            self.chosen[number] = choice
            self.uses[number] = uses

    def _undo(self, total: float, mark: int = 0) -> None:
        """Take back what was done since."""
        while len(self._log) > mark:
            number, choice, uses = self._log.pop()
            if choice is None:
                self.chosen.pop(number, None)
                self.uses.pop(number, None)
            else:
                self.chosen[number] = choice
                self.uses[number] = uses
        self.total = total

    def _keep(self) -> None:
        """Make what was done final, and rank what it is about."""
        touched = {number for number, _, _ in self._log}
        self._log.clear()
        for number in touched - self.chosen.keys():
            self.rank.pop(number, None)
        new = [number for number in touched & self.chosen.keys() if number not in self.rank]
        limit = min((self.rank[number] for number in touched if number in self.rank), default=0.0)
        for number in self._operands_first(new):
            below = max((self.rank.get(n, math.inf) for n in self.chosen[number].node.children), default=-1.0)
            self.rank[number] = (below + limit) / 2 if below < limit else math.inf
        if not all(self._is_in_place(number) for number in touched & self.chosen.keys()):
            self.left -= len(self.chosen)
            everything = self._operands_first(self.roots, anew=True)
            self.rank = {number: float(place) for place, number in enumerate(everything)}

    def _is_in_place(self, number: int) -> bool:
        """Whether a class is ranked over its operands."""
        rank = self.rank[number]
        return all(self.rank[child] < rank for child in self.chosen[number].node.children)

    def _operands_first(self, numbers: Iterable[int], anew: bool = False) -> list[int]:
        """The classes and what they need, as far as it has no rank yet; all of it if ranked anew."""
        done: set[int] = set()
        found: list[int] = []
        stack = [(number, False) for number in numbers]
        while stack:
            number, leaving = stack.pop()
            if number in done or (number in self.rank and not anew):
                continue
            if leaving:
                done.add(number)
                found.append(number)
                continue
            stack.append((number, True))
            stack.extend((child, False) for child in self.chosen[number].node.children)
        return found
