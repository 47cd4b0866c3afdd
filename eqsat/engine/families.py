"""Families: the classes of a value, of its chunks, and of both under other names.

A value that is compared with what was selected from it is computed by one expression (`comparing`). Chunks of
other axes, or of other lengths, are other expressions: products of other shapes are rounded otherwise. So of
each such value one member of its family is computed, and all others are slices of it, or collect its chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from eqsat.engine.snapshot import ENode, Snapshot
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Chunk, Concat, Leaf, Rename


@dataclass(frozen=True, slots=True)
class Families:
    """The families of some values in one snapshot.

    **Attributes:**

    - `members`: of each family, the value's own class first.
    - `of`: which family a class belongs to.
    - `loops`: the axes that a member is a chunk of.
    """

    members: tuple[tuple[int, ...], ...]
    of: Mapping[int, int]
    loops: Mapping[int, frozenset[Axis]]

    @classmethod
    def in_graph(cls, graph: Snapshot, values: Iterable[int]) -> Families:
        """The families of the classes `values`; an input needs none, it is there as it is."""
        values = list(values)
        near: dict[int, list[int]] = {}
        for number, eclass in enumerate(graph.classes if values else ()):
            for node in eclass.nodes:
                if isinstance(node.op, (Rename, Chunk)):
                    near.setdefault(number, []).append(node.children[0])
                    near.setdefault(node.children[0], []).append(number)
        members: list[tuple[int, ...]] = []
        of: dict[int, int] = {}
        loops: dict[int, frozenset[Axis]] = {}
        for value in values:
            if value in of:
                continue
            family = {value: None}
            waiting = [value]
            while waiting:
                for other in near.get(waiting.pop(), ()):
                    if other not in family:
                        family[other] = None
                        waiting.append(other)
            if not any(isinstance(node.op, Leaf) for one in family for node in graph.classes[one].nodes):
                of.update(dict.fromkeys(family, len(members)))
                loops.update((one, graph.classes[one].open) for one in family)
                members.append(tuple(family))
        return cls(tuple(members), of, loops)

    def computes(self, number: int, node: ENode) -> bool:
        """Whether a node computes a member of a family, and is no view of another one."""
        family = self.of.get(number)
        if family is None:
            return False
        views = isinstance(node.op, (Rename, Chunk, Concat))
        return not (views and self.of.get(node.children[0]) == family)

    def computed(self, nodes: Mapping[int, ENode]) -> Iterator[int]:
        """The members of families that are computed by such a choice."""
        return (number for number, node in nodes.items() if self.computes(number, node))

    def disputes(self, nodes: Mapping[int, ENode]) -> dict[int, list[int]]:
        """The families of which more than one member is computed, each with these members."""
        found: dict[int, list[int]] = {}
        for number in self.computed(nodes):
            found.setdefault(self.of[number], []).append(number)
        return {family: some for family, some in found.items() if len(some) > 1}

    def alike(self, disputes: Mapping[int, Sequence[int]]) -> Iterator[list[int]]:
        """The disputed families in groups: those whose computed members are chunks of the same axes."""
        groups: dict[frozenset[frozenset[Axis]], list[int]] = {}
        for family, some in disputes.items():
            groups.setdefault(frozenset(self.loops[one] for one in some), []).append(family)
        yield from groups.values()


NO_FAMILIES = Families((), {}, {})


class ChosenNode(Protocol):
    """A node that its class may be computed by."""

    @property
    def number(self) -> int: ...

    @property
    def node(self) -> ENode: ...


class ChosenProgram(Protocol):
    """A node for each class that is needed, and the predicted time of all of them."""

    @property
    def nodes(self) -> Mapping[int, ENode]: ...

    @property
    def seconds(self) -> float: ...


NEARLY = 1.05
"""A way to compute a family is tried if it looks at most this many times as long as the best one."""

MANY = 4
"""From so many disputed families, those that are alike are decided together: one by one, every layer of a
network would take some extractions of the whole."""

C = TypeVar("C", bound=ChosenNode)
S = TypeVar("S", bound=ChosenProgram)


def agreed(
    families: Families,
    choices: list[C],
    cheapest: Callable[[list[C]], S | None],
    estimate: Callable[[list[C]], float],
) -> S | None:
    """The cheapest program that computes at most one member of each family; None if none is found.

    If a program computes several members, each of them and the whole value is tried as the only one; if that
    fails, the other members are. The choice for one family is kept for the next. Of many families, those that
    are alike, as those of a network's layers are, are decided together: the same chunks of all are computed.

    **Arguments:**

    - `cheapest`: the cheapest program of some nodes; None if there is none.
    - `estimate`: about the time of that program; infinite if there is none. It is quick to find: only members
      that look nearly as good as the best are tried.
    """
    found = cheapest(choices)
    while found is not None and (disputes := families.disputes(found.nodes)):
        best = _best_for_many(families, disputes, choices, cheapest, estimate)
        family, computed = next(iter(disputes.items()))
        whole, *others = families.members[family]
        for members in ({*computed, whole}, {*others} - {*computed}):
            if best is None:
                ways = [_by_these(families, {family: one}, choices) for one in sorted(members)]
                best = _best(ways, cheapest, estimate)
        if best is None:
            return None
        choices, found = best
    return found


def _best_for_many(
    families: Families,
    disputes: Mapping[int, Sequence[int]],
    choices: list[C],
    cheapest: Callable[[list[C]], S | None],
    estimate: Callable[[list[C]], float],
) -> tuple[list[C], S] | None:
    """The nodes that are left when many families are decided, and their cheapest program; None if few are.

    If they are not all alike, each group is decided by the estimate, one after the other.
    """
    if len(disputes) < MANY:
        return None
    groups = list(families.alike(disputes))
    decided = choices
    for group in groups:
        ways = _together(families, {one: disputes[one] for one in group}, decided)
        if len(groups) == 1:
            return _best(ways, cheapest, estimate)
        times = [estimate(way) for way in ways]
        least = min(times, default=math.inf)
        if least < math.inf:
            decided = ways[times.index(least)]
    found = None if decided is choices else cheapest(decided)
    return None if found is None else (decided, found)


def _best(
    ways: Sequence[list[C]], cheapest: Callable[[list[C]], S | None], estimate: Callable[[list[C]], float]
) -> tuple[list[C], S] | None:
    """The nodes, of several ways to restrict them, that give the cheapest program, and this program."""
    best: tuple[list[C], S] | None = None
    times = [estimate(way) for way in ways]
    most = NEARLY * min(times, default=math.inf)
    for way, time in zip(ways, times, strict=True):
        other = cheapest(way) if time <= most and time < math.inf else None
        if other is not None and (best is None or other.seconds < best[1].seconds):
            best = way, other
    return best


def _together(families: Families, disputes: Mapping[int, Sequence[int]], choices: list[C]) -> list[list[C]]:
    """The ways to compute one member of each of several families: of all, the chunks of the same axes."""
    ways = []
    some = next(iter(disputes.values()))
    whole = frozenset[Axis]()
    for loops in dict.fromkeys([whole, *(families.loops[one] for one in some)]):
        made: dict[int, int] = {}
        for family, computed in disputes.items():
            members = sorted({*computed, families.members[family][0]})
            alike = [one for one in members if families.loops[one] == loops]
            if alike:
                made[family] = alike[0]
        if made:
            ways.append(_by_these(families, made, choices))
    return ways


def _by_these(families: Families, made: Mapping[int, int], choices: Iterable[C]) -> list[C]:
    """The nodes without those that compute other members of some families than these."""
    return [
        choice
        for choice in choices
        if (family := families.of.get(choice.number)) is None
        or made.get(family, choice.number) == choice.number
        or not families.computes(choice.number, choice.node)
    ]
