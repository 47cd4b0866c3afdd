"""Local search on a choice of nodes: it switches one class at a time, or several that gain only together.

A choice class by class misses gains that need several classes: two sums may each be cheaper by themselves
than through a third value, which both could share. The objective here is the true one, with every needed
class counted once. Uses are counted, so that the cost of evaluating a switch is the number of classes that it
adds and removes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from eqsat.engine.snapshot import ENode

EFFORT = 40_000
"""How many classes may be looked at: all that matter in small graphs, some in large ones."""

ROUNDS = 4

MOST_TOGETHER = 16
"""How many switches are tried as a group."""

MOST_USERS = 64
"""A class that more need is not let go of."""

COSTLY = 0.01
"""A class is only let go of if it takes this part of the time."""

GAIN = 1e-9
"""The smallest share of the time that a switch must save."""


class PricedNode(Protocol):
    """A node that its class may be computed by, its predicted time, and how many results it is shared by."""

    @property
    def number(self) -> int: ...

    @property
    def node(self) -> ENode: ...

    @property
    def cost(self) -> float: ...

    @property
    def shared(self) -> int: ...


C = TypeVar("C", bound=PricedNode)


@dataclass(frozen=True, slots=True)
class _Switch(Generic[C]):
    """A switch to another node.

    **Attributes:**

    - `total`: the time of everything after it.
    - `new`: the classes that it brings in.
    - `uses`: how often the classes that it is about are then needed.
    """

    option: C
    total: float
    new: list[int]
    uses: dict[int, int]


class Switcher(Generic[C]):
    """Improves one choice.

    **Arguments:**

    - `options`: by class, the allowed nodes whose operands have a program.
    - `trees`: for each class that has a program, one node, without cycles. A class that is not needed yet
      would be computed by it.
    - `selected`: for each class that the roots need, a node, operands first.
    - `cheapest`: the trees of some nodes.
    """

    def __init__(
        self,
        options: Mapping[int, Sequence[C]],
        trees: Mapping[int, C],
        selected: Mapping[int, C],
        roots: Iterable[int],
        cheapest: Callable[[list[C]], Mapping[int, C]],
    ) -> None:
        self.options = options
        self.cheapest = cheapest
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
            self._without()
            if self.total >= before or self.left < 0:
                break
        return self.chosen

    def _singly(self) -> dict[int, list[C]]:
        """Make every switch that gains by itself; return the classes that the other switches would add."""
        brought: dict[int, list[C]] = {}
        for number in list(self.chosen):
            for option in self.options.get(number, ()):
                if self.left < 0:
                    return brought
                if self.chosen.get(number) in (None, option):
                    continue
                switch = self._tried(option)
                gains = switch.total < self.total * (1 - GAIN)
                # Most switches neither gain nor bring in anything: whether they are possible does not matter.
                if not (gains or switch.new) or self._needs(option.node.children, number):
                    continue
                if gains:
                    self._make(switch)
                    self._keep()
                    continue
                for other in switch.new:
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
                switch = self._tried(option)
                if not first and switch.total >= self.total:
                    continue
                if self._needs(option.node.children, option.number):
                    continue
                self._make(switch)
                first = False
            if self.total < before * (1 - GAIN):
                self._keep()
            else:
                self._undo(before)

    def _without(self) -> None:
        """Let go of a class that several need: only if none of them does, its time is spared.

        A scan that another one does the work of has many results, each of which could come from there.
        """
        costly = [number for number, choice in self.chosen.items() if choice.cost > COSTLY * self.total]
        trees = self.trees
        for target in costly:
            users = [number for number, choice in self.chosen.items() if target in choice.node.children]
            if not 2 <= len(users) <= MOST_USERS or self.left < 0:
                continue
            if not self._let_go(target, users) and self.chosen[target].shared > 1:
                # By itself, a slice costs least of a whole result. But that could come from slices, too.
                self.trees = self._trees_without(target)
                self._let_go(target, users)
                self.trees = trees

    def _let_go(self, target: int, users: Iterable[int]) -> bool:
        """Compute all that need a class otherwise, and return whether that gains. If not, undo it."""
        before = self.total
        for number in users:
            if self.left < 0 or target not in self.chosen:
                break
            if number not in self.chosen:
                continue
            others = [
                option
                for option in self.options.get(number, ())
                if all(child in self.chosen or child in self.trees for child in option.node.children)
                and not self._needs(option.node.children, target, ranked=False)
                and not self._needs(option.node.children, number, ranked=False)
            ]
            switches = map(self._tried, others)
            switch = min(switches, key=lambda switch: switch.total, default=None)
            if switch is None:
                break
            self._make(switch)
        gains = self.total < before * (1 - GAIN)
        if gains:
            self._keep()
        else:
            self._undo(before)
        return gains

    def _trees_without(self, target: int) -> Mapping[int, C]:
        """The cheapest trees without a class."""
        options = [option for options in self.options.values() for option in options]
        self.left -= len(options)
        return self.cheapest([option for option in options if option.number != target])

    def _tried(self, option: C) -> _Switch[C]:
        """The gain of computing a class by another node. Nothing is changed yet."""
        chosen, known, trees = self.chosen, self.uses, self.trees
        old = chosen[option.number]
        uses: dict[int, int] = {}
        new: list[int] = []
        total = self.total + (option.cost - old.cost)
        looked = 0
        stack = list(option.node.children)
        while stack:
            child = stack.pop()
            looked += 1
            count = uses.get(child) or known.get(child, 0)
            uses[child] = count + 1
            if not count:
                tree = trees[child]
                total += tree.cost
                new.append(child)
                stack += tree.node.children
        stack = list(old.node.children)
        while stack:
            child = stack.pop()
            looked += 1
            count = (uses[child] if child in uses else known[child]) - 1
            uses[child] = count
            if not count:
                choice = chosen.get(child) or trees[child]
                total -= choice.cost
                stack += choice.node.children
        self.left -= looked
        return _Switch(option, total, new, uses)

    def _make(self, switch: _Switch[C]) -> None:
        """Compute a class in another way."""
        number = switch.option.number
        self._set(number, switch.option, self.uses[number])
        for child, uses in switch.uses.items():
            self._set(child, (self.chosen.get(child) or self.trees[child]) if uses else None, uses)
        self.total = switch.total

    def _needs(self, numbers: Iterable[int], target: int, ranked: bool = True) -> bool:
        """Whether the classes, as they would be computed, need another one.

        Classes that are ranked lower than it, do not, unless switches are tried that are not kept so far.

        **Arguments:**

        - `ranked`: whether there are no such switches.
        """
        limit = self.rank.get(target, -1.0) if ranked else -math.inf
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
            stack.extend((self.chosen.get(number) or self.trees[number]).node.children)
        return False

    def _set(self, number: int, choice: C | None, uses: int) -> None:
        self._log.append((number, self.chosen.get(number), self.uses.get(number, 0)))
        if choice is None:
            # What one switch both brings in and spares was not there before.
            self.chosen.pop(number, None)
            self.uses.pop(number, None)
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
        astray = [number for number in touched & self.chosen.keys() if not self._is_in_place(number)]
        if astray:
            self.left -= len(self.chosen)
            if not all(map(self._lower_operands, astray)):
                everything = self._operands_first(self.roots, anew=True)
                self.rank = {number: float(place) for place, number in enumerate(everything)}

    def _lower_operands(self, number: int) -> bool:
        """Rank what a class needs below it, where it isn't; False if there is no number in between.

        What needs these classes is ranked higher than they were, so it is in place afterwards, too.
        """
        limit, chosen, rank = self.rank[number], self.chosen, self.rank
        done: set[int] = set()
        stack = list(chosen[number].node.children)
        while stack:
            child = stack.pop()
            if child < 0:  # All below it is in place.
                child = ~child
                if child not in done:
                    done.add(child)
                    below = max((rank[other] for other in chosen[child].node.children), default=-1.0)
                    between = (below + limit) / 2
                    if not below < between < limit:
                        return False
                    rank[child] = between
            elif child not in done and rank[child] >= limit:
                stack.append(~child)
                stack += chosen[child].node.children
        return True

    def _is_in_place(self, number: int) -> bool:
        """Whether a class is ranked over its operands."""
        rank = self.rank[number]
        return all(self.rank[child] < rank for child in self.chosen[number].node.children)

    def _operands_first(self, numbers: Iterable[int], anew: bool = False) -> list[int]:
        """The classes and what they need, as far as it has no rank yet; all of it if ranked anew."""
        done: set[int] = set()
        found: list[int] = []
        known = {} if anew else self.rank
        chosen, stack = self.chosen, list(numbers)
        while stack:
            number = stack.pop()
            if number < 0:  # All below it is done.
                number = ~number
                if number not in done:
                    done.add(number)
                    found.append(number)
            elif number not in done and number not in known:
                stack.append(~number)
                stack += chosen[number].node.children
        return found
