"""Paths: as cheap as any, by brute force; as cheap as opt_einsum's, where that finds the best one."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opt_einsum.paths import DynamicProgramming, linear_to_ssa, optimal

from eqsat.engine.contraction_paths import (
    MAX_OUTER,
    MOST_PAIRS,
    Effort,
    Expense,
    Network,
    Path,
    Solver,
    best_paths,
    bits,
)

PLENTY = 10**9


@st.composite
def networks(draw: st.DrawFn, most_factors: int, most_holders: int = 4) -> Network:
    """Factors over a few indices; an index may be in several factors, and in the result."""
    count = draw(st.integers(2, most_factors))
    lengths = draw(st.lists(st.sampled_from([1, 2, 3, 5, 10, 50]), min_size=1, max_size=count + 2))
    factors, result = [0] * count, 0
    for index in range(len(lengths)):
        holders = draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=most_holders))
        for holder in holders:
            factors[holder] |= 1 << index
        if len(holders) == 1 or draw(st.booleans()):
            result |= 1 << index
    return Network(tuple(factors), result, tuple(lengths))


def chain(lengths: list[int]) -> Network:
    factors = tuple(0b11 << number for number in range(len(lengths) - 1))
    return Network(factors, 1 | 1 << (len(lengths) - 1), tuple(lengths))


def every_path(count: int) -> list[Path]:
    def paths(live: tuple[int, ...], path: Path) -> list[Path]:
        if len(live) == 1:
            return [path]
        new = count + len(path)
        steps = combinations(live, 2)
        return [p for s in steps for p in paths((*(v for v in live if v not in s), new), (*path, s))]

    return paths(tuple(range(count)), ())


def by_opt_einsum(network: Network, optimizer: object) -> Path:
    assert callable(optimizer)
    path = optimizer(
        [frozenset(bits(factor)) for factor in network.factors],
        frozenset(bits(network.result)),
        {1 << index: length for index, length in enumerate(network.lengths)},
    )
    return tuple((one, other) for one, other in linear_to_ssa(path))


def test_a_network_by_hand() -> None:
    # A chain of matrices 2x3, 3x5, 5x7.
    solver = Solver(chain([2, 3, 5, 7]), Effort(PLENTY))
    assert solver.network.values(((0, 1), (2, 3))) == [0b0011, 0b0110, 0b1100, 0b0101, 0b1001]
    assert solver.expense(((0, 1), (2, 3))) == Expense(2 * (2 * 3 * 5 + 2 * 5 * 7), 14)
    assert solver.fastest() == ((0, 1), (2, 3))


def test_an_index_of_three_is_summed_over_at_last() -> None:
    network = Network((0b1, 0b1, 0b1), 0, (9,))
    assert network.values(((0, 1), (2, 3))) == [1, 1, 1, 1, 0]
    assert Solver(network, Effort(PLENTY)).expense(((0, 1), (2, 3))) == Expense(9 + 18, 9)


@given(networks(most_factors=5))
@settings(max_examples=150)
def test_no_path_is_better(network: Network) -> None:
    solver = Solver(network, Effort(PLENTY))
    every = [solver.expense(path) for path in every_path(len(network.factors))]
    fewest, smallest = min(e.flops for e in every), min(e.peak for e in every)
    found = [solver.expense(path) for path in best_paths(network, None, Effort(PLENTY))]
    assert found[0].flops == fewest
    assert found[-1].peak == smallest
    assert found[-1].flops == min(e.flops for e in every if e.peak == smallest)


@given(networks(most_factors=5), st.sampled_from([2, 10, 50, 250]))
@settings(max_examples=100)
def test_no_path_within_the_cap_is_better(network: Network, cap: int) -> None:
    solver = Solver(network, Effort(PLENTY))
    within = [e.flops for path in every_path(len(network.factors)) if (e := solver.expense(path)).peak <= cap]
    found = [solver.expense(path) for path in best_paths(network, cap, Effort(PLENTY))]
    assert len(found) <= 3
    if within:
        assert min(e.flops for e in found if e.peak <= cap) == min(within)


@given(networks(most_factors=MAX_OUTER, most_holders=2))
@settings(max_examples=60)
def test_as_good_as_opt_einsum(network: Network) -> None:
    # Where an index is in three factors, opt_einsum's optimum isn't one: it remembers a step's cost
    # whatever else is left.
    solver = Solver(network, Effort(PLENTY))
    wanted = solver.expense(by_opt_einsum(network, optimal))
    assert solver.expense(solver.fastest()).flops == wanted.flops


@given(st.lists(st.integers(1, 100), min_size=3, max_size=25))
@settings(max_examples=40)
def test_chains_as_good_as_opt_einsum(lengths: list[int]) -> None:
    network = chain(lengths)
    solver = Solver(network, Effort(PLENTY))
    fewest = solver.expense(by_opt_einsum(network, DynamicProgramming())).flops
    assert solver.expense(solver.fastest()).flops == fewest
    smallest = solver.expense(by_opt_einsum(network, DynamicProgramming(minimize="size"))).peak
    found = [solver.expense(path) for path in best_paths(network, None, Effort(PLENTY))]
    assert found[-1].peak == max(smallest, lengths[0] * lengths[-1])


@given(networks(most_factors=9))
@settings(max_examples=60)
def test_larger_networks_are_at_least_as_good_as_greedy(network: Network) -> None:
    solver = Solver(network, Effort(PLENTY))
    assert solver.expense(solver.fastest()).flops <= solver.expense(solver.greedy()).flops


@pytest.mark.parametrize("count", [14, 40])
def test_a_search_that_takes_too_long_is_given_up(count: int) -> None:
    # A batch of matrix products: one index in all factors.
    batch = 1 << (count + 1)
    network = chain([2 + 7 * n % 11 for n in range(count + 1)])
    network = Network(
        tuple(f | batch for f in network.factors), network.result | batch, (*network.lengths, 3)
    )
    effort = Effort(PLENTY)
    solver = Solver(network, effort)
    # Connected by the batch it is too much, by the other indices it is a chain.
    best = Solver(chain([2 + 7 * n % 11 for n in range(count + 1)]), Effort(PLENTY))
    assert solver.expense(solver.fastest()).flops == 3 * best.expense(best.fastest()).flops
    assert PLENTY - effort.pairs < 3 * MOST_PAIRS


def test_without_effort_the_path_is_greedy() -> None:
    network = chain([2 + 7 * n % 11 for n in range(30)])
    solver = Solver(network, Effort(0))
    assert best_paths(network, None, Effort(0)) == [solver.greedy()]
    # But few factors are always worth it.
    few = chain([2, 9, 3, 8, 4])
    assert best_paths(few, None, Effort(0)) == best_paths(few, None, Effort(PLENTY))


def test_a_vector_does_not_wait() -> None:
    # Greedy, too, takes the vector through a chain of matrices.
    count = 200
    factors = (*(0b11 << number for number in range(count)), 1 << count)
    solver = Solver(Network(factors, 1, (100,) * (count + 1)), Effort(0))
    assert solver.expense(solver.fastest()) == Expense(2 * 100**2 * count, 100)
