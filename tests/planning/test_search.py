"""The search: what may be stored, and which programs are tried first."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Chunk, Dot
from eqsat.ir.program import Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term
from eqsat.planning.candidate_builder import CandidateBuilder
from eqsat.planning.candidates import Candidate, as_written, rechunk, useful_axes
from eqsat.planning.capped_extraction import CappedExtraction, attempts, every_attempt
from eqsat.planning.extractors import cheapest
from eqsat.planning.liveness import simulate
from eqsat.planning.loop_axes import SPLIT_AXES, large_axes
from eqsat.planning.programs_under_cap import built_under
from eqsat.planning.recording import Recorder, rules_fired
from eqsat.planning.search_space import Saturations, SearchSpace, free_bytes, prepare, stored_results
from eqsat.rulesets.selection import rules_for
from eqsat.support.deadline import NO_DEADLINE
from eqsat.targets.cpu import CPU
from tests.stages import lowered, normal

X, Y, V = normal(211, 3), normal(307, 3), normal(307)
BUDGET = 60_000


def kernel(x: Any, y: Any, v: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1) / 2) @ v


def attention(x: Any, y: Any, v: Any) -> Any:
    return jax.nn.softmax(x @ y.T, axis=-1) @ v


def neighbours(x: Any, y: Any, v: Any) -> Any:
    return jax.lax.top_k(-jnp.sum((x[:, None] - y) ** 2, -1), 4)


def moments(x: Any, y: Any, v: Any) -> Any:
    pairs = jnp.sin(x @ y.T)
    return pairs.sum(0), pairs.max(1), jnp.argmax(pairs, 0)


PROGRAMS: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (kernel, attention, neighbours, moments)
}


@cache
def searched(name: str, budget: int | None = BUDGET) -> SearchSpace:
    program, _ = lowered(PROGRAMS[name], X, Y, V)
    return prepare(program, rules_for((), "cancels"), budget, CPU)


@cache
def groups(name: str) -> list[list[Candidate]]:
    return list(islice(attempts(searched(name), BUDGET), 3))


def check_candidate(candidate: Candidate, name: str) -> None:
    program = candidate.schedule.program
    check_program(program)
    lengths = {loop.axis: candidate.schedule.chunks[loop.id] for loop in candidate.schedule.block.loops}
    results = interpret(program, [X, Y, V], lengths)
    for result, value in zip(results, jax.tree.leaves(PROGRAMS[name](X, Y, V)), strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-3, atol=1e-4)


# What the search starts from.


def test_free_bytes_are_what_arguments_and_results_leave() -> None:
    program, _ = lowered(kernel, X, Y, V)
    assert free_bytes(program, BUDGET) == BUDGET - 4 * (211 * 3 + 307 * 3 + 307) - 4 * 211


def test_stored_results_are_outputs_and_what_is_kept_in_memory() -> None:
    program, _ = lowered(kernel, X, Y, V)
    large = large_axes(program, 200_000)
    names = {getattr(term.op, "name", type(term.op).__name__) for term in stored_results(program, large, CPU)}
    assert names == {"Dot", "exp", "Reduce"}
    assert stored_results(program, (), CPU) == []


def test_what_is_cut_out_of_a_result_is_collected_in_its_place() -> None:
    program, _ = lowered(lambda x, i: (x[i], jnp.sort(x, 1)[:, 1:5]), normal(300, 4000), np.arange(9))
    large = large_axes(program, 200_000)
    stored = [term for term in stored_results(program, large, CPU) if term.args]
    assert sorted(math.prod(axis.size for axis in term.axes) for term in stored) == [
        300 * 4,
        9 * 4000,
        300 * 4000,
    ]


# Candidates.


@pytest.mark.parametrize("name", PROGRAMS)
def test_candidates_are_well_formed_and_mean_the_same(name: str) -> None:
    found = [candidate for group in groups(name) for candidate in group]
    assert found
    for candidate in found:
        check_candidate(candidate, name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_candidate_should_fit(name: str) -> None:
    first = groups(name)[0][0]
    assert first.predicted_peak <= BUDGET
    assert first.predicted_peak == simulate(first.schedule, CPU)[0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_candidates_come_fastest_first_among_those_that_fit(name: str) -> None:
    for group in groups(name):
        ranks = [(c.predicted_peak > BUDGET, c.predicted_seconds) for c in group]
        assert ranks == sorted(ranks)


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_loop_turns_only_once_unless_there_is_no_other_way(name: str) -> None:
    first = groups(name)[0][0]
    assert useful_axes(first.schedule) == {loop.axis for loop in first.schedule.block.loops}


def test_what_a_loop_slices_is_computed_in_it_where_it_takes_the_memory_of_longer_chunks() -> None:
    x, y, v = normal(2_000, 100), normal(2_000, 100), normal(2_000)
    program, _ = lowered(kernel, x, y, v)

    def sliced(candidate: Candidate) -> list[Term]:
        """What is as large as the points, and computed for all of them before the loop that slices it."""
        chunks = [term for term in candidate.schedule.program.reachable() if isinstance(term.op, Chunk)]
        return [term for term in chunks if term.args[0].args and len(term.axes) == 2]

    def fastest(room: int) -> Candidate:
        budget = program.fixed_bytes + room
        search = prepare(program, rules_for((), "cancels"), budget, CPU)
        fitting = [c for c in next(attempts(search, budget)) if c.predicted_peak <= budget]
        return min(fitting, key=lambda candidate: candidate.predicted_seconds)

    # The points less their centre take 800 kB, a row of the matrix 8 kB.
    enough, short = fastest(6_000_000), fastest(2_100_000)
    assert sliced(enough)
    assert not sliced(short)
    assert min(short.schedule.chunks.values()) > 100


def test_every_new_term_names_the_rule_that_made_it() -> None:
    first = groups("kernel")[0][0]
    original, _ = lowered(kernel, X, Y, V)
    made = {t.number for t in first.schedule.program.reachable()} - {t.number for t in original.reachable()}
    assert made == set(first.makers)
    shipped = {compiled.name for compiled in rules_for((), "cancels")}
    assert set(rules_fired(first)) <= shipped


def test_loops_are_reported() -> None:
    first = groups("kernel")[0][0]
    (report,) = Recorder(first.schedule, ["x", "y", "v"], CPU).loops()
    assert report.count * report.chunk >= report.size > (report.count - 1) * report.chunk
    assert f"{report.size} in {report.count} chunks of {report.chunk}" in str(report)


def test_rechunking_keeps_the_program() -> None:
    first = groups("kernel")[0][0]
    smaller = rechunk(first, first.predicted_peak * 0.7, CPU)
    assert smaller.schedule.program is first.schedule.program
    assert smaller.predicted_peak < first.predicted_peak
    assert smaller.makers == first.makers
    check_candidate(smaller, "kernel")


def test_without_a_budget_there_are_no_loops() -> None:
    search = searched("kernel", None)
    assert search.large == ()
    best = cheapest(search, 10**12)
    assert best is not None
    assert not best.schedule.block.loops
    check_candidate(best, "kernel")


def chain_program() -> Program:
    return lowered(lambda a, b, v: a @ b @ v, normal(200, 210), normal(210, 220), normal(220))[0]


def test_the_cheapest_order_of_a_chain_is_from_the_vector() -> None:
    program = chain_program()
    search = prepare(program, rules_for((), "rescales"), None, CPU)
    best = cheapest(search, 10**12)
    assert best is not None
    assert all(len(t.axes) == 1 for t in best.schedule.program.reachable() if isinstance(t.op, Dot))
    assert best.predicted_seconds < as_written(program, CPU).predicted_seconds


def test_an_accuracy_of_exact_leaves_the_chain_alone() -> None:
    search = prepare(chain_program(), rules_for((), "exact"), None, CPU)
    best = cheapest(search, 10**12)
    assert best is not None
    assert best.makers == {}


def test_as_written_is_as_written() -> None:
    program, _ = lowered(kernel, X, Y, V)
    written = as_written(program, CPU)
    assert written.schedule.program is program
    assert written.makers == {}
    assert written.predicted_peak == simulate(written.schedule, CPU)[0]


def test_lower_caps_give_smaller_peaks() -> None:
    search = searched("kernel")
    peaks = [min(c.predicted_peak for c in group) for group in attempts(search, 12_000)]
    assert min(peaks) < 12_000


def test_an_axis_along_which_the_largest_values_are_added_up_may_be_split_as_a_third() -> None:
    """A sum over at most 32 entries computes them as it goes; a longer one stores them, whatever is split."""

    def distances(x: Any, y: Any) -> Any:
        return jnp.sum(jnp.abs(x[:, None] - y), -1).min(1)

    for length, wanted in ((40, {40, 150, 211}), (30, {150, 211})):
        program, _ = lowered(distances, normal(150, length), normal(211, length))
        assert {axis.size for axis in prepare(program, (), BUDGET, CPU).large} == wanted
    products, _ = lowered(lambda x, y: (x @ y.T).min(1), normal(150, 40), normal(211, 40))
    assert {axis.size for axis in prepare(products, (), BUDGET, CPU).large} == {150, 211}


def test_a_program_is_not_saturated_again_for_another_budget_with_the_same_axes() -> None:
    program = chain_program()
    known: Saturations = {}
    first, other, anew = (prepare(program, (), budget, CPU, known=known) for budget in (10**9, 10**8, None))
    assert other.saturation is first.saturation
    assert anew.saturation is not first.saturation, "without a budget there are no axes to loop over"


def gradient_of_maxima() -> Program:
    """Of a maximum of products, which needs no more than a mask of them."""

    def maxima(x: Any, b: Any) -> Any:
        return jnp.sum(jnp.max(x.T @ (x * b[:, None]), 1))

    return lowered(jax.grad(maxima), normal(300, 280), normal(300))[0]


def test_tiles_are_looked_for_in_wider_searches_only() -> None:
    program, rules = gradient_of_maxima(), rules_for((), "reassociates")
    few, many = (prepare(program, rules, 882_000, CPU, axes).saturation for axes in SPLIT_AXES)
    assert not few.matches.get("split-chunk")
    assert many.matches["split-chunk"] > 0


def test_what_is_far_too_big_is_compared_by_what_it_would_take_with_room() -> None:
    """With the product in the place of the result, nothing is computed twice."""
    program = gradient_of_maxima()
    search = prepare(program, rules_for((), "reassociates"), 882_000, CPU, SPLIT_AXES[-1])
    fitting = [c for found in attempts(search, 882_000) for c in found if c.predicted_peak <= 882_000]
    written = as_written(program, CPU, library=True).predicted_seconds
    assert min(candidate.predicted_seconds for candidate in fitting) < 4 * written


@cache
def many_inverses() -> SearchSpace:
    """A space with some hundred values of the same size, of which six are spilled at most."""

    def inverses(x: Any) -> Any:
        pairs = [jnp.sin(x + number) @ x.T for number in range(40)]
        return sum(jnp.linalg.inv(pair) for pair in pairs), [pair.T @ pair for pair in pairs][-1]

    program, _ = lowered(inverses, normal(64, 64))
    return prepare(program, rules_for((), "reassociates"), program.fixed_bytes + 20_000, CPU, 2)


@pytest.fixture
def spilled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The budgets for which a value is to be spilled."""
    budgets: list[int] = []

    def without(builder: CandidateBuilder, *_: Any, **__: Any) -> None:
        budgets.append(builder.budget)

    monkeypatch.setattr(CandidateBuilder, "_without", without)
    return budgets


def test_nothing_is_spilled_from_a_program_that_is_too_big_without_its_largest_values(
    spilled: list[int],
) -> None:
    space = many_inverses()
    list(attempts(space, space.program.fixed_bytes + 20_000))
    assert not spilled


def test_values_are_spilled_however_large_the_rest_is_if_there_is_no_memory_for_temporaries(
    spilled: list[int],
) -> None:
    space = many_inverses()
    list(every_attempt(space))
    assert set(spilled) == {space.program.fixed_bytes}


def test_programs_like_another_one_loop_over_its_axes_only() -> None:
    space = searched("kernel")
    one = next(
        c for group in attempts(space, BUDGET) for c in group if c.predicted_peak <= BUDGET and c.loops
    )
    like = CappedExtraction.like(one, space, BUDGET)
    alike = [candidate for _ in iter(like.next_step, None) for candidate in like.take()]
    axes = useful_axes(one.schedule)
    assert all(useful_axes(other.schedule) <= axes for other in alike)
    assert min(other.predicted_seconds for other in alike) <= one.predicted_seconds


def test_the_search_for_a_lower_peak_never_goes_up_and_ends_with_what_fits() -> None:
    space = searched("moments")
    written = as_written(space.program, CPU).predicted_peak
    ends = []
    for budget in (space.program.fixed_bytes, space.program.fixed_bytes + 40_000):
        extraction = CappedExtraction.within(space, budget)
        builder = built_under(extraction.states[0], written, budget, NO_DEADLINE)
        assert builder is not None
        for start, built in builder.built:
            lower = [candidate.predicted_peak for candidate in builder.spilling(start, built)]
            assert all(peak <= built.candidate.predicted_peak for peak in lower)
            assert all(peak > budget for peak in lower[:-1])
            ends += lower[-1:]
    assert min(ends) < written / 2


@pytest.mark.parametrize("name", ["kernel", "neighbours"])
def test_variants_of_a_program_that_came_out_too_big_store_less_than_it(name: str) -> None:
    space = searched(name)
    extraction = CappedExtraction.within(space, BUDGET)
    first = next(found for _ in iter(extraction.next_step, None) if (found := extraction.take()))[0]
    fixed = space.program.fixed_bytes
    bound = fixed + 2 * (first.predicted_peak - fixed) // 3
    other = CappedExtraction.within(space, BUDGET)
    assert not other.came_out(first, bound, math.inf), "it is none of those that were extracted"
    assert extraction.came_out(first, bound, math.inf)
    variants = extraction.take()
    assert min(variant.predicted_peak for variant in variants) <= bound < first.predicted_peak


def test_caps_between_two_are_tried_if_the_lower_one_is_too_low() -> None:
    """The inverse, of 1.08 MB, has to be stored; the 2.16 MB that are computed from it have not."""

    def function(a: Any, w: Any, v: Any) -> Any:
        return jnp.einsum("ijk,jl->ikl", jnp.tanh(jnp.linalg.inv(a)[:, :, None] * w), v)

    n = 520
    arrays = [3 * np.eye(n, dtype=np.float32) + normal(n, n) / 100, normal(2), normal(n, 3)]
    optimized = eqsat.optimize(function, budget=int(3.6 * 4 * n * n))
    plan = optimized.plan(*arrays)
    assert plan.peak_bytes <= 3.6 * 4 * n * n < plan.original_peak_bytes
    assert not any("store less" in str(step) for step in plan.search)
    np.testing.assert_allclose(optimized(*arrays), function(*arrays), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stores_less", [True, False])
def test_caps_between_two_are_tried_if_the_lower_one_makes_it_much_slower(
    stores_less: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spectra are smaller than their products, but no cap of the usual ones is in between. If none of their
    products is kept, the spectra need not be computed anew for each."""

    def coherence(x: Any) -> Any:
        spectra = jnp.fft.rfft2(x, axes=(2, 1))
        products = jnp.einsum("sfi,sfj->fij", jnp.conj(spectra), spectra)
        return (jnp.abs(products) ** 2).sum(0)

    if not stores_less:
        monkeypatch.setattr(CandidateBuilder, "spilling", lambda *_: [])
    program, _ = lowered(coherence, normal(14, 256, 30))
    budget = program.fixed_bytes + 920_000
    space = prepare(program, rules_for((), "reassociates"), budget, CPU, SPLIT_AXES[-1])
    extraction = CappedExtraction.within(space, budget)
    found: dict[str, list[float]] = {}
    while (step := extraction.next_step()) is not None:
        fitting = [one.predicted_seconds for one in extraction.take() if one.predicted_peak <= budget]
        found[str(step)] = fitting
    tried = [fitting for step, fitting in found.items() if "768 kB" in step]
    assert len(tried) == (not stores_less)
    slow = min(fitting[0] for step, fitting in found.items() if "324 kB" in step)
    assert min(fitting[0] for step, fitting in found.items() if fitting) < 0.8 * slow
