"""Greedy DAG extraction: programs without cycles, in which shared parts are counted once."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.engine import greedy_dag
from eqsat.engine.nests import Nests
from eqsat.engine.snapshot import ENode
from eqsat.engine.weights import Weights
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
    choices: Iterable[Choice],
    trees: Mapping[int, Choice],
    opened: Sequence[int] | None = None,
    trips: Mapping[int, float] | None = None,
    one_pass: bool = False,
) -> Iterator[dict[int, Choice]]:
    options: dict[int, list[Choice]] = {number: [] for number in trees}
    for one in choices:
        if one.number in trees and all(child in trees for child in one.node.children):
            options[one.number].append(one)
    most = max((one.number for one in choices), default=0) + 1
    return greedy_dag.greedy_choices(options, trees, opened or [0] * most, trips or {}, one_pass)


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
    bound, *_ = greedy_choices(choices, trees, opened=[0, 0, 1], one_pass=True)
    assert bound[2] is choices[2]


INNER, OUTER, OUTERMOST = 1, 2, 4

TRIPS = {INNER: 10.0, OUTER: 20.0, OUTERMOST: 3.0}


def seconds(opened: Sequence[int], *choices: Choice) -> float:
    return greedy_dag.seconds_of({one.number: one for one in choices}, [len(choices) - 1], opened, TRIPS)


def test_what_an_outer_loop_does_not_change_is_computed_in_each_of_its_iterations() -> None:
    opened = [INNER, INNER | OUTER, OUTER, 0]
    body = choice(0, 7.0), choice(1, 1.0, 0), choice(2, 0.5, 1, loop=INNER), choice(3, 0.25, 2, loop=OUTER)
    assert seconds(opened, *body) == 7.0 * 20 + 1.75


def test_what_no_loop_inside_changes_is_computed_before_it() -> None:
    opened = [0, OUTER, INNER | OUTER, OUTER, 0]
    body = (
        choice(0, 7.0),
        choice(1, 5.0),
        choice(2, 1.0, 0, 1),
        choice(3, 0.0, 2, loop=INNER),
        choice(4, 0.0, 3, loop=OUTER),
    )
    assert seconds(opened, *body) == 13.0


def test_loops_in_loops_in_loops_repeat_as_often_as_all_those_around() -> None:
    opened = [INNER, INNER | OUTER, OUTER, OUTER | OUTERMOST, OUTERMOST, 0]
    body = (
        choice(0, 7.0),
        choice(1, 1.0, 0),
        choice(2, 0.0, 1, loop=INNER),
        choice(3, 0.0, 2),
        choice(4, 0.0, 3, loop=OUTER),
        choice(5, 0.0, 4, loop=OUTERMOST),
    )
    assert seconds(opened, *body) == 7.0 * 20 * 3 + 1.0 * 3


def test_two_loops_over_one_axis_compute_what_they_share_once() -> None:
    opened = [INNER, INNER | OUTER, OUTER, OUTER, OUTER, 0]
    body = (
        choice(0, 7.0),
        choice(1, 1.0, 0),
        choice(2, 0.0, 1, loop=INNER),
        choice(3, 0.0, 1, loop=INNER),
        choice(4, 0.0, 2, 3),
        choice(5, 0.0, 4, loop=OUTER),
    )
    assert seconds(opened, *body) == 7.0 * 20 + 1.0


def test_a_loop_inside_of_another_is_chosen_by_all_that_it_computes() -> None:
    """By itself, each value costs less in the nest; there, the first one is computed in 20 iterations."""
    choices = [
        choice(0, 7.0),
        choice(1, 0.0, 0),
        choice(2, 0.0, 1, loop=INNER),
        choice(2, 30.0),
        choice(3, 0.0, 2, loop=OUTER),
    ]
    trees = cheapest_trees(choices)
    opened = [INNER, INNER | OUTER, OUTER, 0]
    for chosen in greedy_choices(choices, trees, opened, TRIPS):
        assert chosen[2].cost == 30.0
    for chosen in greedy_choices(choices, trees, opened, {INNER: 10.0, OUTER: 2.0}):
        assert chosen[2].cost == 0.0


@given(st.data())
def test_a_round_counts_what_nests_repeat_as_the_program_does(data: st.DataObject) -> None:
    """One node for each class: a round's total is that of the program."""
    count = data.draw(st.integers(1, 12))
    loops = [0, 0, 0, INNER, OUTER, OUTERMOST]
    choices, opened = [], []
    for number in range(count):
        children = data.draw(st.lists(st.integers(0, number - 1), max_size=3)) if number else []
        loop = data.draw(st.sampled_from(loops))
        opened.append(data.draw(st.integers(0, 7)) & ~loop)
        cost = data.draw(st.sampled_from([0.0, 1.0, 2.5, 7.0]))
        choices.append(choice(number, cost, *children, loop=loop))
    trees = {one.number: one for one in choices}
    nests = Nests(opened, TRIPS)
    ways = [[(one, list(one.node.children))] for one in choices]
    weights = Weights([one.cost for one in choices])
    _, totals = greedy_dag._round(ways, range(count), weights, nests, False)
    for root in range(count):
        program = {number: trees[number] for number in sorted(needed(trees, root))}
        assert totals[root] == pytest.approx(greedy_dag.seconds_of(program, [root], opened, TRIPS))
        assert totals[root] >= max((totals[child] for child in trees[root].node.children), default=0.0)


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
