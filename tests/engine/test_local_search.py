"""Switches of one choice after another: what is needed is never computed from itself."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

from eqsat.engine.local_search import Switcher


@dataclass(frozen=True)
class Node:
    children: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Way:
    """A node of a class and its time."""

    number: int
    node: Any
    cost: float
    shared: int = 1


def cheapest(options: Sequence[Way]) -> dict[int, Way]:
    """By class, the node of its cheapest tree."""
    totals: dict[int, float] = {}
    trees: dict[int, Way] = {}
    while True:
        possible = [
            (way.cost + sum(totals[child] for child in way.node.children), place, way)
            for place, way in enumerate(options)
            if way.number not in trees and all(child in totals for child in way.node.children)
        ]
        if not possible:
            return trees
        total, _, way = min(possible)
        totals[way.number], trees[way.number] = total, way


def ways(count: int, drawn: random.Random) -> dict[int, list[Way]]:
    """Ways to compute classes from lower ones, and some from any, which may go in circles."""
    found: dict[int, list[Way]] = {}
    for number in range(count):
        below = [
            tuple(drawn.randrange(number) for _ in range(drawn.randint(0, 3))) if number else ()
            for _ in range(drawn.randint(1, 4))
        ]
        shared = drawn.randint(1, 3)
        found[number] = [Way(number, Node(children), drawn.random(), shared) for children in below]
        if drawn.random() < 0.5:
            anywhere = tuple(drawn.randrange(count) for _ in range(drawn.randint(1, 2)))
            found[number].append(Way(number, Node(anywhere), 0.3 * drawn.random()))
    return found


def needed(chosen: dict[int, Way], root: int) -> dict[int, Way]:
    """What a class needs, operands first; fails if that is a circle."""
    found: dict[int, Way] = {}
    open_now: set[int] = set()

    def visit(number: int) -> None:
        if number not in found:
            assert number not in open_now
            open_now.add(number)
            for child in chosen[number].node.children:
                visit(child)
            found[number] = chosen[number]

    visit(root)
    return found


class Checked(Switcher[Way]):
    """Checks after each switch that operands are ranked below what needs them."""

    ranked_anew = 0

    def _keep(self) -> None:
        super()._keep()
        for number, way in self.chosen.items():
            assert all(self.rank[child] < self.rank[number] for child in way.node.children)

    def _operands_first(self, numbers: Any, anew: bool = False) -> list[int]:
        self.ranked_anew += anew
        return super()._operands_first(numbers, anew)


@pytest.mark.parametrize("seed", range(40))
def test_switches_make_a_choice_cheaper_and_no_circle(seed: int) -> None:
    drawn = random.Random(seed)
    root = drawn.randint(5, 40)
    options = ways(root + 1, drawn)
    trees = {number: some[0] for number, some in options.items()}
    selected = needed(trees, root)
    switcher = Checked(options, trees, selected, [root], cheapest)
    found = switcher.improved()
    total = sum(way.cost for way in needed(found, root).values())
    assert total == pytest.approx(switcher.total)
    assert total <= sum(way.cost for way in selected.values()) + 1e-9


def test_most_switches_rank_only_what_they_are_about() -> None:
    """Ranking all classes after each took a tenth of the planning of a network."""
    anew = 0
    astray = 0
    for seed in range(100):
        drawn = random.Random(seed)
        options = ways(60, drawn)
        trees = {number: some[0] for number, some in options.items()}
        switcher = Checked(options, trees, needed(trees, 59), [59], cheapest)
        lower = switcher._lower_operands

        def counted(number: int, lower: Any = lower) -> bool:
            nonlocal astray
            astray += 1
            return cast(bool, lower(number))

        switcher._lower_operands = counted  # type: ignore[method-assign]
        switcher.improved()
        anew += switcher.ranked_anew
    assert astray > 20
    assert 5 * anew < astray


def test_what_several_need_is_let_go_of_if_all_can_do_without() -> None:
    """One loop has the results of another one as well: to take only some from there saves nothing."""
    loop, other, results, root = 0, 1, range(2, 8), 8
    options = {
        loop: [Way(loop, Node(()), 10.0)],
        other: [Way(other, Node(()), 11.0)],
        root: [Way(root, Node((other, *results)), 1.0)],
    }
    for number in results:
        options[number] = [Way(number, Node((loop,)), 0.0), Way(number, Node((other,)), 0.001)]
    trees = {number: some[0] for number, some in options.items()}
    switcher = Checked(options, trees, needed(trees, root), [root], cheapest)
    assert loop not in needed(switcher.improved(), root)
    assert switcher.total == pytest.approx(12.006)


def test_what_one_needs_in_any_case_is_kept() -> None:
    loop, other, results, root = 0, 1, range(2, 5), 5
    options = {
        loop: [Way(loop, Node(()), 10.0)],
        other: [Way(other, Node(()), 11.0)],
        root: [Way(root, Node((other, *results)), 1.0)],
    }
    for number in results:
        options[number] = [Way(number, Node((loop,)), 0.0)]
        if number > 2:
            options[number].append(Way(number, Node((other,)), 0.001))
    trees = {number: some[0] for number, some in options.items()}
    found = Checked(options, trees, needed(trees, root), [root], cheapest).improved()
    assert all(found[number].node.children == (loop,) for number in results)


def test_results_come_from_a_loop_that_runs_anyway_though_others_are_cheaper_by_themselves() -> None:
    """Slices of another loop's results are cheapest, and those of this one come from what it computes."""
    loop, other, root = 0, 1, 8
    results, slices = range(2, 5), range(5, 8)
    options = {
        loop: [Way(loop, Node(()), 10.0, shared=3)],
        other: [Way(other, Node(()), 11.0)],
        root: [Way(root, Node((other, *results)), 1.0)],
    }
    for whole, part in zip(results, slices, strict=True):
        options[whole] = [Way(whole, Node((loop,)), 0.0), Way(whole, Node((part,)), 0.001)]
        options[part] = [Way(part, Node((whole,)), 0.001), Way(part, Node((other,)), 0.001)]
    ways = [way for some in options.values() for way in some]
    trees = cheapest(ways)
    assert all(trees[part].node.children != (other,) for part in slices)
    switcher = Checked(options, trees, needed(trees, root), [root], cheapest)
    assert loop not in needed(switcher.improved(), root)
    assert switcher.total == pytest.approx(12.006)
