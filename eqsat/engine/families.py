"""Families: the classes of a value, of its chunks, and of both under other names.

A value that is compared with what was selected from it is computed by one expression (`comparing`). Chunks of
other axes, or of other lengths, are other expressions: products of other shapes are rounded otherwise. So of
each such value one member of its family is computed, and all others are slices of it, or collect its chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from eqsat.engine.snapshot import ENode, Snapshot
from eqsat.ir.ops import Chunk, Concat, Leaf, Rename


@dataclass(frozen=True, slots=True)
class Families:
    """The families of some values in one snapshot.

    **Attributes:**

    - `members`: of each family, the value's own class first.
    - `of`: which family a class belongs to.
    """

    members: tuple[tuple[int, ...], ...]
    of: Mapping[int, int]

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
                members.append(tuple(family))
        return cls(tuple(members), of)

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

    def dispute(self, nodes: Mapping[int, ENode]) -> tuple[int, list[int]] | None:
        """A family of which more than one member is computed, and these; None if there is none."""
        found: dict[int, list[int]] = {}
        for number in self.computed(nodes):
            found.setdefault(self.of[number], []).append(number)
        return next(((family, some) for family, some in found.items() if len(some) > 1), None)


NO_FAMILIES = Families((), {})


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
    fails, the other members are. The choice for one family is kept for the next.

    **Arguments:**

    - `cheapest`: the cheapest program of some nodes; None if there is none.
    - `estimate`: about the time of that program; infinite if there is none. It is quick to find: only members
      that look nearly as good as the best are tried.
    """
    found = cheapest(choices)
    while found is not None and (dispute := families.dispute(found.nodes)):
        family, computed = dispute
        whole, *others = families.members[family]
        best: tuple[list[C], S] | None = None
        for members in ({*computed, whole}, {*others} - {*computed}):
            ways = [_by_one(families, family, member, choices) for member in sorted(members)]
            times = [estimate(way) for way in ways]
            most = NEARLY * min(times, default=math.inf)
            for way, time in zip(ways, times, strict=True):
                other = cheapest(way) if time <= most and time < math.inf else None
                if other is not None and (best is None or other.seconds < best[1].seconds):
                    best = way, other
            if best is not None:
                break
        if best is None:
            return None
        choices, found = best
    return found


def _by_one(families: Families, family: int, member: int, choices: Iterable[C]) -> list[C]:
    """The nodes without those that compute other members of a family than this one."""
    return [
        choice
        for choice in choices
        if families.of.get(choice.number) != family
        or choice.number == member
        or not families.computes(choice.number, choice.node)
    ]
