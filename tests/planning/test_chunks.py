"""Chunk lengths: even, as fast as the machine allows, and as short as the budget wants them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.engine.cost import CostModel
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Chunk, Concat, Dot, Fold, Leaf, Map, Reduce, Select
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Term, Terms
from eqsat.planning.blocks import Block
from eqsat.planning.chunks import (
    DIVISOR_SLACK,
    alignment,
    choose_lengths,
    divisors,
    even_length,
    lengths_for,
)
from eqsat.planning.liveness import predicted_seconds, simulate
from eqsat.planning.loops import build
from eqsat.targets.catalogue import find_target
from eqsat.targets.cpu import CPU

N, M, K = Axis(0, 10_000), Axis(1, 8_000), Axis(2, 3)
F32 = "float32"


@given(st.integers(1, 100_000), st.integers(-3, 200_000))
def test_even_lengths(size: int, longest: int) -> None:
    length = even_length(size, longest)
    assert 1 <= length <= max(1, min(size, longest))
    parts, whole = -(-size // length), -(-size // max(1, min(size, longest)))
    assert parts <= whole / DIVISOR_SLACK + 2, "not many more chunks than there must be"
    assert length * parts - size < parts or size % length == 0, "chunks of nearly one length"


@given(st.integers(1, 3_000), st.integers(1, 3_000), st.integers(0, 3_000))
def test_divisors_are_found_by_length_as_by_number(size: int, longest: int, more: int) -> None:
    longest = min(size, longest)
    parts = -(-size // longest)
    most = min(parts + more, size)
    assert divisors(size, longest, most) == [
        size // count for count in range(parts, most + 1) if size % count == 0
    ]


@given(st.integers(1, 100_000), st.integers(1, 200_000), st.integers(2, 64))
def test_aligned_lengths_are_multiples_unless_they_are_the_axis_or_too_short(
    size: int, longest: int, aligned: int
) -> None:
    length = even_length(size, longest, aligned)
    assert 1 <= length <= min(size, longest)
    if length < size and longest >= aligned:
        assert length % aligned == 0
    if longest < aligned:
        assert length == even_length(size, longest)
    assert length >= min(size, longest) * DIVISOR_SLACK / 2 or longest < 2 * aligned


@pytest.mark.parametrize(
    ("size", "longest", "length"),
    [(100, 100, 100), (100, 1000, 100), (100, 30, 25), (7919, 100, 99), (7919, 1, 1), (1, 5, 1), (12, 5, 4)],
)
def test_even_lengths_by_example(size: int, longest: int, length: int) -> None:
    assert even_length(size, longest) == length


class Kernel:
    """Sums over m of exp(x{n k} y{m k}), by a loop over n, over m, or over both."""

    def __init__(self, depth: Axis = K) -> None:
        self.terms = Terms()
        self.x = self.terms.make(Leaf(0, (N, depth), F32))
        self.y = self.terms.make(Leaf(1, (M, depth), F32))
        self.depth = depth

    def product(self, *axes: Axis) -> Term:
        x, y = (
            self.terms.make(Chunk(axis), (term,)) if axis in axes else term
            for axis, term in ((N, self.x), (M, self.y))
        )
        product = self.terms.make(Dot(frozenset({self.depth}), F32), (x, y))
        return self.terms.make(Map("exp", F32), (product,))

    def total(self, term: Term) -> Term:
        return self.terms.make(Reduce("sum", frozenset({M}), F32), (term,))

    def over_n(self) -> tuple[Program, Block]:
        return self.program(self.terms.make(Concat(N), (self.total(self.product(N)),)))

    def over_m(self) -> tuple[Program, Block]:
        return self.program(self.terms.make(Fold(M, "sum"), (self.total(self.product(M)),)))

    def tiled(self) -> tuple[Program, Block]:
        inner = self.terms.make(Fold(M, "sum"), (self.total(self.product(N, M)),))
        return self.program(self.terms.make(Concat(N), (inner,)))

    def program(self, result: Term) -> tuple[Program, Block]:
        program = Program((self.x, self.y), (Output(result, (N,)),), self.terms)
        return program, build(program)


def test_a_loops_block_is_as_large_as_wanted() -> None:
    _, block = Kernel().over_n()
    (length,) = lengths_for(block, 3.2e6, CPU).values()
    assert length == 100, "100 rows of 8,000 floats"
    _, block = Kernel().over_m()
    (length,) = lengths_for(block, 4e6, CPU).values()
    assert length == 100, "100 columns of 10,000 floats"


def test_what_is_computed_again_is_in_loops_of_more_than_one_chunk() -> None:
    """The compiler takes a loop of one chunk for straight-line code, and keeps what it computes."""
    kernel = Kernel()
    terms, product = kernel.terms, kernel.product(N)
    sums = terms.make(Concat(N), (kernel.total(product),))
    total = terms.make(Reduce("sum", frozenset({N}), F32), (sums,))
    shares = terms.make(Map("div", F32), (product, total))
    _, again = kernel.program(terms.make(Concat(N), (kernel.total(shares),)))
    assert list(lengths_for(again, 1e10, CPU).values()) == [N.size // 2, N.size // 2]
    _, once = kernel.program(sums)
    assert list(lengths_for(once, 1e10, CPU).values()) == [N.size]


def test_tiles_share_the_block() -> None:
    _, block = Kernel().tiled()
    outer, inner = lengths_for(block, 4e6, CPU).values()
    assert 1 < outer < N.size
    assert 1 < inner < M.size
    assert 4 * outer * inner <= 4e6


@pytest.mark.parametrize("which", ["over_n", "over_m", "tiled"])
def test_chunks_that_a_product_reads_are_aligned_on_a_gpu(which: str) -> None:
    _, block = getattr(Kernel(Axis(2, 64)), which)()
    machine = find_target("h100").machine
    for target in (1e6, 3e6, 2e7):
        lengths = lengths_for(block, target, machine)
        for loop in block.loops:
            assert alignment(loop, machine) == 8
            assert alignment(loop, CPU) == 1
            assert lengths[loop.id] % 8 == 0, "10,000 and 8,000 are multiples of 8 themselves"


def test_lengths_end_at_one() -> None:
    for _, block in (Kernel().over_n(), Kernel().tiled()):
        assert set(lengths_for(block, 1, CPU).values()) == {1}


def test_products_along_long_axes_get_enough_rows() -> None:
    deep, flat = Kernel(Axis(3, 64)), Kernel()
    machine = replace(CPU, cache=1 << 20)
    (rows,) = lengths_for(deep.over_n()[1], machine.cache, machine).values()
    (few,) = lengths_for(flat.over_n()[1], machine.cache, machine).values()
    assert rows >= 0.75 * machine.rows > few


def test_a_top_ks_first_chunk_holds_k_entries() -> None:
    kernel, ten = Kernel(), Axis(3, 10)
    select = Select("top_k", M, 10, ten, "values", F32)
    best = kernel.terms.make(Fold(M, select), (kernel.product(M),))
    program = Program((kernel.x, kernel.y), (Output(best, (N, ten)),), kernel.terms)
    block = build(program)
    (loop,) = block.loops
    assert loop.shortest == 10
    assert list(lengths_for(block, 1, CPU).values()) == [10]


@pytest.mark.parametrize("shape", ["over_n", "over_m", "tiled"])
@pytest.mark.parametrize("budget", [1e6, 3e6, 1e7, 1e8])
def test_the_simulated_peak_is_within_the_budget(shape: str, budget: float) -> None:
    program, block = getattr(Kernel(), shape)()
    schedule, peak = choose_lengths(program, block, budget, CPU)
    assert peak == simulate(schedule, CPU)[0]
    assert peak <= budget


def test_more_budget_never_means_shorter_chunks() -> None:
    program, block = Kernel().over_n()
    lengths = [
        choose_lengths(program, block, budget, CPU)[0].chunks[1] for budget in (4e5, 1e6, 3e6, 1e7, 1e9)
    ]
    assert lengths == sorted(lengths)
    assert lengths[-1] == lengths_for(block, CPU.cache, CPU)[1], (
        "no larger than the cache, whatever the budget"
    )


@pytest.mark.parametrize("budget", [5e6, 5.6e6, 6.3e6, 7.3e6, 8.7e6])
def test_chunks_take_the_memory_that_makes_them_faster(budget: float) -> None:
    program, block = Kernel(Axis(3, 64)).over_n()
    schedule, _ = choose_lengths(program, block, budget, CPU)
    (length,) = schedule.chunks.values()
    longer = replace(schedule, chunks=dict.fromkeys(schedule.chunks, int(length / DIVISOR_SLACK * 1.06) + 1))
    assert simulate(longer, CPU)[0] > budget


def test_outer_chunks_are_long_where_inner_loops_compute_anew_for_each() -> None:
    # Every row of y is exponentiated again for every chunk of x.
    depth = Axis(3, 100)
    kernel = Kernel(depth)
    x, y = (kernel.terms.make(Chunk(axis), (term,)) for axis, term in ((N, kernel.x), (M, kernel.y)))
    grown = kernel.terms.make(Map("exp", F32), (y,))
    product = kernel.terms.make(Dot(frozenset({depth}), F32), (x, grown))
    folded = kernel.terms.make(Fold(M, "sum"), (kernel.total(product),))
    program, block = kernel.program(kernel.terms.make(Concat(N), (folded,)))
    chosen = choose_lengths(program, block, 9e6, CPU)[0].chunks
    outer, inner = chosen.values()
    assert outer > inner
    model = CostModel(CPU, {})
    even = lengths_for(block, 4 * outer * inner, CPU)
    assert predicted_seconds(block, model, chosen) < 0.9 * predicted_seconds(block, model, even)


def test_an_impossible_budget_gives_the_leanest() -> None:
    program, block = Kernel().over_n()
    schedule, peak = choose_lengths(program, block, 1, CPU)
    assert set(schedule.chunks.values()) == {1}
    assert peak > 1


def test_a_program_without_loops_has_no_chunks() -> None:
    kernel = Kernel()
    program, block = kernel.program(kernel.total(kernel.product()))
    schedule, peak = choose_lengths(program, block, 1, CPU)
    assert schedule.chunks == {}
    assert peak >= 4 * N.size * M.size
