"""Extraction against an oracle, a mixed-integer linear program, on the e-graphs of programs."""

from __future__ import annotations

import pytest

from benchmarks.extraction import PROGRAMS, Oracle, cheapest, extracted, extractors, random_cases
from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from eqsat.ir.program import Program
from tests.engine.test_extract import Graph, choices, cost, random_graph

PROVEN = 1e-5
"""How exact the oracle is."""


def oracle(graph: Graph, cap: float) -> Oracle | None:
    extractor = graph.extractor()
    return cheapest(extractor.choices(cap), extractor.roots)


@pytest.mark.parametrize("cyclic", [False, True])
def test_the_oracle_finds_what_trying_out_everything_finds(cyclic: bool) -> None:
    for seed in range(40):
        graph = random_graph(seed, cyclic)
        best = min((cost(program) for program in choices(graph, 10)), default=None)
        found = oracle(graph, 10)
        assert (found is None) == (best is None), f"seed {seed}"
        if found is not None and best is not None:
            assert found.proven
            # The cost model is the one that breaks ties by who made a node.
            assert found.seconds == pytest.approx(best, rel=1e-3, abs=1e-6), f"seed {seed}"


def check_against_oracle(program: Program) -> int:
    """Extraction finds nothing cheaper than the oracle, under every cap, and as cheap. Returns for how many.

    The oracle counts each value once. With what nested loops repeat, its program may not be the cheapest one.
    """
    checked = 0
    for extractor, cap, _ in extractors(program):
        selection = extracted(extractor, cap)
        best = cheapest(extractor.choices(cap), extractor.roots, seconds=10)
        assert (selection is None) == (best is None)
        if selection is not None and best is not None and best.proven:
            assert selection.seconds >= best.seconds * (1 - PROVEN)
            assert selection.seconds <= extractor.seconds(best.chosen) * (1 + PROVEN)
            checked += 1
    return checked


@pytest.mark.parametrize("name", ["kernel matvec", "nearest neighbours", "attention"])
def test_of_the_papers_programs_the_cheapest_is_extracted(name: str) -> None:
    function, arguments = PROGRAMS[name]
    assert check_against_oracle(lower(trace(function, arguments, {}).closed)[0]) == 3


def test_of_random_programs_the_cheapest_is_extracted() -> None:
    assert sum(check_against_oracle(program) for program in random_cases(10)) > 15
