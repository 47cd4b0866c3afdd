"""Greedy DAG extraction: programs without cycles, in which shared parts are counted once."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from eqsat.engine import greedy_dag
from eqsat.engine.snapshot import ENode
from eqsat.ir.ops import Map


@dataclass(frozen=True)
class Choice:
    number: int
    node: ENode
    cost: float
    loop: int = 0


def choice(number: int, cost: float, *children: int, loop: int = 0) -> Choice:
    return Choice(number, ENode(Map("add", "float32"), children, -1), cost, loop)


def cheapest_trees(choices: Iterable[Choice]) -> dict[int, Choice]:
    """Dijkstra's algorithm with a tree's cost as the sum over its nodes, each as often as it occurs."""
    choices = list(choices)
    total: dict[int, float] = {}
    trees: dict[int, Choice] = {}
    while True:
        ready = [
            (one.cost + sum(total[child] for child in one.node.children), place)
            for place, one in enumerate(choices)
            if one.number not in total and all(child in total for child in one.node.children)
        ]
        if not ready:
            return trees
        cost, place = heapq.nsmallest(1, ready)[0]
        total[choices[place].number] = cost
        trees[choices[place].number] = choices[place]


def greedy_choices(
    choices: Iterable[Choice], trees: Mapping[int, Choice], opened: Sequence[int] | None = None
) -> Iterator[dict[int, Choice]]:
    options: dict[int, list[Choice]] = {number: [] for number in trees}
    for one in choices:
        if one.number in trees and all(child in trees for child in one.node.children):
            options[one.number].append(one)
    return greedy_dag.greedy_choices(options, trees, opened)


def needed(chosen: Mapping[int, Choice], root: int) -> set[int]:
    """The classes that the root needs. Fails if they have a cycle."""
    done: set[int] = set()

    def visit(number: int, above: tuple[int, ...]) -> None:
        assert number not in above, "a cycle"
        if number not in done:
            for child in chosen[number].node.children:
                visit(child, (*above, number))
            done.add(number)

    visit(root, ())
    return done


def cost(chosen: Mapping[int, Choice], root: int) -> float:
    return sum(chosen[number].cost for number in needed(chosen, root))


def test_an_operand_that_two_users_share_is_counted_once() -> None:
    # As trees, two uses of class 0 cost 20, and two of class 1 cost 24. As DAGs, they cost 10 and 16.
    choices = [
        choice(0, 10.0),
        choice(1, 6.0),
        choice(2, 6.0),
        choice(3, 0.0, 0),
        choice(4, 0.0, 0),
        choice(5, 0.0, 3, 4),
        choice(5, 0.0, 1, 2),
    ]
    trees = cheapest_trees(choices)
    assert cost(trees, 5) == 12.0
    assert cost(next(greedy_choices(choices, trees)), 5) == 10.0


def test_a_later_round_uses_an_operand_whose_tree_is_costlier_than_its_dag() -> None:
    # The tree of class 4 counts class 0 four times, so that it comes after class 5 in the first round.
    choices = [
        choice(0, 8.0),
        choice(1, 0.0, 0, 0),
        choice(4, 0.0, 1, 1),
        choice(5, 20.0),
        choice(5, 1.0, 4),
    ]
    trees = cheapest_trees(choices)
    assert cost(trees, 5) == 20.0
    first, second, *_ = greedy_choices(choices, trees)
    assert (cost(first, 5), cost(second, 5)) == (20.0, 9.0)


def test_no_loop_needs_the_result_of_another_one_over_the_axis_that_is_open_in_it() -> None:
    choices = [choice(0, 1.0), choice(1, 1.0, 0, loop=1), choice(2, 5.0), choice(2, 1.0, 1)]
    trees = {0: choices[0], 1: choices[1], 2: choices[2]}
    free, *_ = greedy_choices(choices, trees)
    assert free[2] is choices[3]
    bound, *_ = greedy_choices(choices, trees, opened=[0, 0, 1])
    assert bound[2] is choices[2]


numbers = st.integers(0, 11)
graphs = st.lists(
    st.builds(
        lambda number, cost, children: choice(number, cost, *children),
        numbers,
        st.sampled_from([0.0, 0.0, 1.0, 2.5, 7.0]),
        st.lists(numbers, max_size=3),
    ),
    min_size=1,
    max_size=60,
)


@given(graphs)
def test_every_round_has_a_program_without_cycles_for_every_class(graph: list[Choice]) -> None:
    graph = [one for one in graph if one.number not in one.node.children]
    trees = cheapest_trees(graph)
    for chosen in greedy_choices(graph, trees):
        assert chosen.keys() == trees.keys()
        for root in chosen:
            needed(chosen, root)


@given(graphs)
def test_the_first_round_costs_no_more_than_a_tree_counts(graph: list[Choice]) -> None:
    graph = [one for one in graph if one.number not in one.node.children]
    trees = cheapest_trees(graph)
    counted: dict[int, float] = {}
    for number, one in trees.items():
        counted[number] = one.cost + sum(counted[child] for child in one.node.children)
    first = next(greedy_choices(graph, trees))
    for root in first:
        assert cost(first, root) <= counted[root] + 1e-9
