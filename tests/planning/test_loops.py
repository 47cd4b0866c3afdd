"""Which loop computes what: fused over one axis, kept apart where dependent, hoisted where invariant."""

from __future__ import annotations

from eqsat.ir.axis import Axis
from eqsat.ir.formula import Monoid
from eqsat.ir.ops import Chunk, Concat, Const, Delta, Dot, Fold, Leaf, Map, Reduce, Rename, Select
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term, Terms
from eqsat.planning.blocks import Block, Compute, Loop, dependencies
from eqsat.planning.loops import build
from tests.ir.monoids import LOGSUMEXP, MEAN, RESCALED

N, M, K = Axis(0, 100), Axis(1, 60), Axis(2, 3)
F32 = "float32"


class Builder:
    """Terms over x{n k}, y{m k} and v{n}."""

    def __init__(self) -> None:
        self.terms = Terms()
        self.x = self.terms.make(Leaf(0, (N, K), F32))
        self.y = self.terms.make(Leaf(1, (M, K), F32))
        self.v = self.terms.make(Leaf(2, (N,), F32))

    def map(self, name: str, *args: Term) -> Term:
        return self.terms.make(Map(name, F32), args)

    def chunk(self, term: Term, axis: Axis = N) -> Term:
        return self.terms.make(Chunk(axis), (term,))

    def reduce(self, kind: str, axis: Axis, term: Term) -> Term:
        return self.terms.make(Reduce(kind, frozenset({axis}), F32), (term,))

    def dot(self, axis: Axis, *args: Term) -> Term:
        return self.terms.make(Dot(frozenset({axis}), F32), args)

    def fold(self, kind: str | Select, term: Term, axis: Axis = N) -> Term:
        return self.terms.make(Fold(axis, kind), (term,))

    def declared(self, monoid: Monoid, *parts: Term) -> Term:
        return self.terms.make(Fold(N, monoid), parts)

    def concat(self, term: Term, axis: Axis = N) -> Term:
        return self.terms.make(Concat(axis), (term,))

    def build(self, *results: Term) -> Block:
        outputs = tuple(Output(term, tuple(sorted(term.axes))) for term in results)
        program = Program((self.x, self.y, self.v), outputs, self.terms)
        check_program(program)
        block = build(program)
        check_block(block, list(results))
        return block


def check_block(block: Block, needs: list[Term], made: frozenset[int] = frozenset()) -> None:
    """Every step's operands are there when it runs, and in the end what is needed."""
    for step in block.steps:
        assert {term.number for term in dependencies(step)} <= made
        if isinstance(step, Loop):
            check_block(step.body, [body for result in step.results for body in result.args], made)
        assert not any(result.number in made for result in step.results), "computed twice"
        made |= {result.number for result in step.results}
    assert {term.number for term in needs} <= made


def loops(block: Block) -> list[tuple[Axis, list[Term]]]:
    return [(loop.axis, list(loop.results)) for loop in block.loops]


def computed(block: Block) -> list[Term]:
    """What the block computes itself, its loops' bodies not included."""
    return [step.term for step in block.steps if isinstance(step, Compute)]


def test_without_loops_there_are_steps_only() -> None:
    b = Builder()
    block = b.build(b.map("exp", b.x))
    assert loops(block) == []
    assert computed(block) == [b.x, b.map("exp", b.x)]


def test_results_that_share_work_are_one_loop() -> None:
    b = Builder()
    shared = b.map("exp", b.chunk(b.x))
    total, best = b.fold("sum", b.reduce("sum", N, shared)), b.fold("max", b.reduce("max", N, shared))
    block = b.build(total, best)
    assert loops(block) == [(N, [total, best])]
    (loop,) = block.loops
    assert computed(loop.body).count(shared) == 1


def test_a_fold_and_a_concatenation_share_a_loop() -> None:
    b = Builder()
    shared = b.map("exp", b.chunk(b.v))
    total, whole = b.fold("sum", b.reduce("sum", N, shared)), b.concat(shared)
    assert loops(b.build(total, whole)) == [(N, [total, whole])]


def test_results_that_share_nothing_are_two_loops() -> None:
    b = Builder()
    one = b.fold("sum", b.reduce("sum", N, b.map("exp", b.chunk(b.x))))
    other = b.fold("sum", b.reduce("sum", N, b.map("sin", b.chunk(b.v))))
    assert sorted(len(results) for _, results in loops(b.build(one, other))) == [1, 1]


def test_sharing_an_inputs_slice_is_no_reason_to_share_a_loop() -> None:
    b = Builder()
    chunk = b.chunk(b.v)
    one, other = (b.fold("sum", b.reduce("sum", N, b.map(name, chunk))) for name in ("exp", "sin"))
    assert len(loops(b.build(one, other))) == 2


def test_a_loop_that_needs_another_ones_result_comes_after_it() -> None:
    b = Builder()
    shared = b.map("exp", b.chunk(b.v))
    largest = b.fold("max", b.reduce("max", N, shared))
    total = b.fold("sum", b.reduce("sum", N, b.map("sub", shared, largest)))
    block = b.build(total)
    assert loops(block) == [(N, [largest]), (N, [total])]
    for loop in block.loops:
        assert shared in computed(loop.body), "computed in both rather than stored"


def test_dependence_through_other_steps_keeps_loops_apart() -> None:
    b = Builder()
    shared = b.map("exp", b.chunk(b.v))
    largest = b.fold("max", b.reduce("max", N, shared))
    shifted = b.map("log", b.map("neg", largest))
    total = b.fold("sum", b.reduce("sum", N, b.map("sub", shared, shifted)))
    both = b.map("add", total, largest)
    assert [results for _, results in loops(b.build(both))] == [[largest], [total]]


def test_a_chain_of_dependent_loops_fuses_level_by_level() -> None:
    b = Builder()
    shared = b.map("exp", b.chunk(b.v))

    def total(term: Term) -> Term:
        return b.fold("sum", b.reduce("sum", N, term))

    first, second = total(shared), total(b.map("sin", shared))
    third = total(b.map("sub", shared, first))
    fourth = total(b.map("mul", shared, second))
    block = b.build(third, fourth)
    assert [set(results) for _, results in loops(block)] == [{first, second}, {third, fourth}]


def test_what_is_the_same_for_every_chunk_is_hoisted() -> None:
    b = Builder()
    invariant = b.map("exp", b.y)
    total = b.fold("sum", b.dot(N, b.chunk(b.v), b.chunk(b.dot(K, b.x, invariant))))
    moved = b.fold("sum", b.dot(N, b.chunk(b.v), b.dot(K, b.chunk(b.x), invariant)))
    for result in (total, moved):
        block = b.build(result)
        assert invariant in computed(block)
        (loop,) = block.loops
        assert invariant not in computed(loop.body)
    assert invariant in loop.imports


def test_chains_of_invariants_are_hoisted_whole() -> None:
    b = Builder()
    deep = b.map("log", b.map("add", b.reduce("sum", K, b.y), b.reduce("max", K, b.y)))
    total = b.fold("sum", b.reduce("sum", N, b.map("mul", b.chunk(b.v), deep)))
    (loop,) = b.build(total).loops
    assert loop.imports == (b.v, deep)


def nested(b: Builder) -> tuple[Term, Term, Term]:
    """A sum over n and m in tiles; what its inner loop needs of the outer one; an invariant."""
    invariant = b.map("sin", b.y)
    outer = b.map("exp", b.chunk(b.x))
    tile = b.dot(K, outer, b.chunk(invariant, M))
    inner = b.fold("sum", b.reduce("sum", M, tile), M)
    return b.fold("sum", b.reduce("sum", N, inner)), outer, invariant


def test_loops_inside_loops() -> None:
    b = Builder()
    total, outer, invariant = nested(b)
    block = b.build(total)
    assert [axis for axis, _ in loops(block)] == [N, M]
    outer_loop, inner_loop = block.loops
    assert outer in computed(outer_loop.body), "once per chunk of n, not once per tile"
    assert outer in inner_loop.imports
    assert invariant in computed(block), "once"


def test_a_loop_that_does_not_vary_with_the_one_around_it_is_hoisted() -> None:
    b = Builder()
    inner = b.fold("sum", b.reduce("sum", M, b.map("exp", b.chunk(b.y, M))), M)
    total = b.fold("sum", b.reduce("sum", N, b.map("mul", b.chunk(b.x), inner)))
    block = b.build(total)
    assert [step.axis for step in block.steps if isinstance(step, Loop)] == [M, N]


def test_a_slice_under_another_name_is_free_too() -> None:
    b = Builder()
    other = Axis(3, 60)
    y = b.terms.make(Rename(M, other), (b.y,))
    one, two = (
        b.fold("sum", b.reduce("sum", other, b.map(name, b.chunk(y, other))), other)
        for name in ("exp", "sin")
    )
    assert len(loops(b.build(one, two))) == 2


def test_values_and_indices_of_a_top_k_share_a_loop() -> None:
    b = Builder()
    three = Axis(3, 3)
    body = b.map("exp", b.chunk(b.v))
    results = [
        b.fold(Select("top_k", N, 3, three, kind, dtype), body)
        for kind, dtype in (("values", F32), ("indices", "int32"))
    ]
    assert loops(b.build(*results)) == [(N, results)]


def test_a_result_wanted_twice_is_computed_once() -> None:
    b = Builder()
    total = b.fold("sum", b.reduce("sum", N, b.map("exp", b.chunk(b.v))))
    block = b.build(total, b.map("neg", total), total)
    assert loops(block) == [(N, [total])]
    assert len(block.needs) == 2


def test_what_has_a_large_result_comes_last() -> None:
    b = Builder()
    small = b.reduce("sum", N, b.map("exp", b.x))
    large = b.dot(K, b.x, b.y)
    result = b.reduce("sum", M, b.reduce("sum", N, b.map("mul", large, b.reduce("sum", K, small))))
    order = [term.number for term in computed(b.build(result))]
    assert order.index(small.number) < order.index(large.number)


def test_a_state_of_several_parts_is_computed_in_one_body() -> None:
    b = Builder()
    scores = b.map("sin", b.chunk(b.x))
    largest = b.reduce("max", N, scores)
    weights = b.map("exp", b.map("sub", scores, largest))
    total = b.declared(LOGSUMEXP, largest, b.reduce("sum", N, weights))
    weighted = b.declared(RESCALED, largest, b.dot(N, weights, b.chunk(b.v)))
    block = b.build(b.map("div", weighted, total))
    assert [(axis, set(results)) for axis, results in loops(block)] == [(N, {total, weighted})]
    (loop,) = block.loops
    assert set(loop.body.needs) == {*total.args, *weighted.args}
    assert computed(loop.body).count(weights) == 1


def test_a_part_that_does_not_vary_is_imported() -> None:
    b = Builder()
    count = b.reduce("sum", K, b.map("exp", b.x))
    total = b.map("mul", b.reduce("sum", N, b.chunk(b.v)), b.reduce("sum", K, b.map("exp", b.y)))
    for part in (b.terms.make(Const("1.0", F32)), b.reduce("sum", N, count)):
        block = b.build(b.declared(MEAN, part, total))
        (loop,) = block.loops
        assert part in loop.imports
        assert part in computed(block)
        assert part not in computed(loop.body)


def test_sharing_a_delta_is_no_reason_to_share_a_loop() -> None:
    b = Builder()
    delta = b.chunk(b.terms.make(Delta(N, Axis(7, N.size))))
    one, other = (
        b.fold("sum", b.reduce("sum", N, b.map("select_n", delta, b.chunk(b.v), b.map(name, b.chunk(b.v)))))
        for name in ("exp", "sin")
    )
    assert len(loops(b.build(one, other))) == 2
