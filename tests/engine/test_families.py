"""Of a value, its chunks and their other names, one is computed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from eqsat.engine.encode import LOADED
from eqsat.engine.families import Families, agreed
from eqsat.engine.snapshot import EClass, ENode, Snapshot
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Chunk, Concat, Leaf, Map, Op, Rename

N, M = Axis(0, 10), Axis(1, 10)
VALUE, CHUNK, NAMED = range(3)


@dataclass(frozen=True)
class Option:
    number: int
    node: ENode


@dataclass(frozen=True)
class Chosen:
    nodes: dict[int, ENode]
    seconds: float


def node(op: Op, *children: int) -> ENode:
    return ENode(op, children, LOADED)


COMPUTED = node(Map("exp", "float32"))
CLASSES = [
    [COMPUTED, node(Concat(N), CHUNK)],
    [COMPUTED, node(Chunk(N), VALUE)],
    [COMPUTED, node(Rename(N, M), VALUE)],
]
PRICES = {VALUE: 1.0, CHUNK: 3.0, NAMED: 2.0}
"""Of computing each; to slice costs 10."""


def graph(classes: list[list[ENode]]) -> Snapshot:
    return Snapshot([EClass(frozenset(), frozenset(), "float32", nodes) for nodes in classes], {})


def cheapest(options: list[Option], layers: int = 1) -> Chosen | None:
    """The cheapest node of each class; None if one has none."""
    nodes: dict[int, ENode] = {}
    seconds = 0.0
    for number in range(3 * layers):
        prices = {
            option.node: PRICES[number % 3] if not option.node.children else 10.0
            for option in options
            if option.number == number
        }
        if not prices:
            return None
        nodes[number] = min(prices, key=lambda node: prices[node])
        seconds += prices[nodes[number]]
    return Chosen(nodes, seconds)


def seconds(options: list[Option], layers: int = 1) -> float:
    """The time of the cheapest program; infinite if there is none."""
    found = cheapest(options, layers)
    return math.inf if found is None else found.seconds


OPTIONS = [Option(number, node) for number, nodes in enumerate(CLASSES) for node in nodes]


def test_chunks_and_names_are_of_the_family_and_inputs_have_none() -> None:
    families = Families.in_graph(graph(CLASSES), [VALUE])
    assert [set(members) for members in families.members] == [{VALUE, CHUNK, NAMED}]
    given = [[node(Leaf(0, (N,), "float32"))], *CLASSES[1:]]
    assert Families.in_graph(graph(given), [VALUE]).members == ()


def test_one_member_is_computed_that_with_which_all_is_cheapest() -> None:
    families = Families.in_graph(graph(CLASSES), [VALUE])
    free = cheapest(OPTIONS)
    assert free is not None
    assert families.disputes(free.nodes) == {0: [VALUE, CHUNK, NAMED]}
    found = agreed(families, OPTIONS, cheapest, seconds)
    assert found is not None
    # To compute the value itself spares most.
    assert list(families.computed(found.nodes)) == [VALUE]


def test_there_is_no_program_if_no_member_will_do() -> None:
    families = Families.in_graph(graph(CLASSES), [VALUE])
    only_computed = [option for option in OPTIONS if option.node is COMPUTED]
    assert agreed(families, only_computed, cheapest, seconds) is None


def test_families_that_are_alike_are_decided_together() -> None:
    """So the number of extractions does not grow with the number of layers of a network."""
    assert extractions([N] * 10) == extractions([N] * 5) <= 4


def test_many_families_that_differ_take_one_extraction() -> None:
    assert extractions([N, M] * 5) == extractions([N, M] * 2) == 2


def extractions(layers: list[Axis]) -> int:
    """How often programs are extracted to agree on a family for each layer, whose chunks are of some axis."""
    classes = [
        EClass(frozenset(), frozenset({axis} if place == CHUNK else ()), "float32", moved(nodes, 3 * layer))
        for layer, axis in enumerate(layers)
        for place, nodes in enumerate(CLASSES)
    ]
    families = Families.in_graph(Snapshot(classes, {}), range(0, 3 * len(layers), 3))
    options = [Option(number, node) for number, one in enumerate(classes) for node in one.nodes]
    calls = []

    def counted(options: list[Option]) -> Chosen | None:
        calls.append(options)
        return cheapest(options, len(layers))

    found = agreed(families, options, counted, lambda options: seconds(options, len(layers)))
    assert found is not None
    assert list(families.computed(found.nodes)) == [3 * layer + VALUE for layer in range(len(layers))]
    return len(calls)


def moved(nodes: list[ENode], by: int) -> list[ENode]:
    return [node(one.op, *(child + by for child in one.children)) for one in nodes]
