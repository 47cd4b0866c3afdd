"""Greedy DAG extraction: rounds of choosing, class by class, the node whose whole DAG is cheapest.

A round visits the classes in an order in which every class comes after what it may need. The first order is
that of the cheapest trees. The next is that of the costs of the DAGs that the last round found: a node with
an operand whose DAG costs more than that of its class cannot be the cheapest. Therefore a choice never has a
cycle.

The cost of a class is that of all iterations of the loops that are open in it. What nested loops compute
again is added where the inner loop is closed (`eqsat.engine.nests`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from eqsat.engine.local_search import PricedNode
from eqsat.engine.nests import NOTHING_REPEATED, Nests, Repeated, merged
from eqsat.engine.weights import Weights

ROUNDS = 4


class LoopingNode(PricedNode, Protocol):
    """A node that its class may be computed by, and the axis that it loops over, as a bit; 0 if none."""

    @property
    def loop(self) -> int: ...


C = TypeVar("C", bound=LoopingNode)


def greedy_choices(
    options: Mapping[int, Sequence[C]],
    trees: Mapping[int, C],
    opened: Sequence[int],
    trips: Mapping[int, float],
    one_pass: bool = False,
) -> Iterator[dict[int, C]]:
    """For each round, one node for every class that has a program, without cycles.

    The classes that the program of a class is made of are the bits of an integer. Operands that two nodes
    share are counted once.

    **Arguments:**

    - `options`: by class, the nodes that it may be computed by, of classes that have a tree.
    - `trees`: the nodes of the cheapest trees, operands first.
    - `opened`: by class, the loops that are open in it, as bits; `trips`: by bit, how often that loop runs.
    - `one_pass`: whether no loop may need the result of another one over the same axis.
    """
    position = {number: index for index, number in enumerate(trees)}
    ways = [
        [(choice, [position[child] for child in choice.node.children]) for choice in options[number]]
        for number in trees
    ]
    nests = Nests([opened[number] for number in trees], trips)
    weights = Weights([choice.cost for choice in trees.values()])
    sequence = list(range(len(trees)))
    numbers = list(trees)
    for _ in range(ROUNDS):
        best, totals = _round(ways, sequence, weights, nests, one_pass)
        yield {numbers[index]: choice for index, choice in best.items()}
        place = {index: place for place, index in enumerate(best)}
        sequence = sorted(best, key=lambda index: (totals[index], place[index]))


def seconds_of(
    chosen: Mapping[int, LoopingNode],
    roots: Iterable[int],
    opened: Sequence[int],
    trips: Mapping[int, float],
) -> float:
    """The time of a choice, operands first, what nested loops repeat included."""
    position = {number: index for index, number in enumerate(chosen)}
    nests = Nests([opened[number] for number in chosen], trips)
    total = sum(choice.cost for choice in chosen.values())
    if not nests.nested(choice.loop for choice in chosen.values()):
        return total
    weights = Weights([choice.cost for choice in chosen.values()])
    masks: list[int] = []
    repeated: list[Repeated] = []
    for index, choice in enumerate(chosen.values()):
        mask, again = 1 << index, NOTHING_REPEATED
        for child in choice.node.children:
            mask |= masks[position[child]]
            again = merged(again, repeated[position[child]])
        masks.append(mask)
        repeated.append(nests.closed(index, choice.loop, mask, again))
    again = NOTHING_REPEATED
    for root in roots:
        again = merged(again, repeated[position[root]])
    return total + nests.seconds(again, weights)


def _round(
    ways: Sequence[Sequence[tuple[C, list[int]]]],
    sequence: Iterable[int],
    weights: Weights,
    nests: Nests,
    one_pass: bool,
) -> tuple[dict[int, C], list[float]]:
    """By class, in this order, the node whose DAG is cheapest; and the time of that DAG in seconds."""
    masks = [0] * len(ways)
    totals = [0.0] * len(ways)
    closed = [0] * len(ways)
    repeated: list[Repeated] = [NOTHING_REPEATED] * len(ways)
    best: dict[int, C] = {}
    for index in sequence:
        least, found, found_mask, found_loops = math.inf, None, 0, 0
        found_again = NOTHING_REPEATED
        for choice, children in ways[index]:
            lead, most = -1, -1.0
            for child in children:
                if not masks[child]:
                    break
                if totals[child] > most:
                    lead, most = child, totals[child]
            else:
                total = choice.cost if lead < 0 else most + choice.cost
                if total >= least:
                    continue
                mask, again = (masks[lead], repeated[lead]) if lead >= 0 else (0, NOTHING_REPEATED)
                for child in children:
                    if child != lead:
                        beside = masks[child] & ~mask
                        if beside:
                            total += weights.sum(beside)
                            mask |= beside
                        if (both := merged(again, repeated[child])) is not again:
                            total += nests.seconds(both, weights) - nests.seconds(again, weights)
                            again = both
                if total >= least:
                    continue
                loops = 0
                if one_pass:
                    for child in children:
                        loops |= closed[child]
                    if loops & nests.opened[index]:
                        continue
                if choice.loop and nests.opened[index]:
                    now = nests.closed(index, choice.loop, mask, again)
                    if now is not again:
                        total += nests.seconds(now, weights) - nests.seconds(again, weights)
                        again = now
                        if total >= least:
                            continue
                least, found, found_mask, found_loops = total, choice, mask, loops | choice.loop
                found_again = again
        if found is not None:
            best[index] = found
            masks[index] = found_mask | 1 << index
            totals[index] = least
            closed[index] = found_loops
            repeated[index] = found_again
            weights.set(index, found.cost)
    return best, totals
