"""The simulated peak is what an independent replay of the schedule finds; stored is what should be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from eqsat.engine.cost import CostModel
from eqsat.ir.axis import Axis
from eqsat.ir.formula import Monoid
from eqsat.ir.ops import Chunk, Concat, Dot, Fold, Iota, Leaf, Map, Reduce, Rename
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term, Terms
from eqsat.planning.blocks import Compute, Schedule
from eqsat.planning.liveness import predicted_seconds, simulate
from eqsat.planning.loops import build
from eqsat.planning.storage import stored_terms
from eqsat.targets.cpu import CPU
from tests.ir.monoids import ATTENTION, RESCALED
from tests.planning.replay import Buffer, Moment, guests

AXES = [Axis(0, 40), Axis(1, 64), Axis(2, 7), Axis(3, 90)]
A, B, C, D = AXES
F32 = "float32"
NO_LOOPS = CostModel(CPU, {})
NO_PANELS = replace(CPU, panel_columns=0, copies=False)


def program(terms: Terms, leaves: list[Term], *results: Term) -> Program:
    outputs = tuple(Output(term, tuple(sorted(term.axes))) for term in results)
    made = Program(tuple(leaves), outputs, terms)
    check_program(made)
    return made


def schedule(made: Program, chunks: dict[int, int] | None = None) -> Schedule:
    return Schedule(made, build(made), chunks or {})


def leaf(terms: Terms, index: int, *axes: Axis) -> Term:
    return terms.make(Leaf(index, axes, F32))


# Random straight-line programs.


@st.composite
def straight_lines(draw: Any) -> Program:
    """Leaves, then steps of elementwise functions, reductions and contractions, some of them returned."""
    terms = Terms()
    count = draw(st.integers(1, 3))
    subsets = st.sets(st.sampled_from(AXES), min_size=1, max_size=3)
    leaves = [leaf(terms, index, *sorted(draw(subsets))) for index in range(count)]
    made = list(leaves)
    for _ in range(draw(st.integers(1, 12))):
        x, y = draw(st.sampled_from(made)), draw(st.sampled_from(made))
        kind = draw(st.sampled_from(["exp", "neg", "add", "sum", "dot"]))
        if kind in ("exp", "neg"):
            made.append(terms.make(Map(kind, F32), (x,)))
        elif kind == "sum" and x.axes:
            made.append(terms.make(Reduce("sum", frozenset({min(x.axes)}), F32), (x,)))
        elif kind == "dot" and x.axes & y.axes:
            made.append(terms.make(Dot(frozenset({max(x.axes & y.axes)}), F32), (x, y)))
        else:
            made.append(terms.make(Map("add", F32), (x, y)))
    results = draw(st.lists(st.sampled_from(made[count:]), min_size=1, max_size=3, unique=True))
    return program(terms, leaves, *results)


def replayed_peak(plan: Schedule) -> int:
    """The peak, told step by step from the end: a buffer is live if something later still reads it."""
    order = [step.term for step in plan.block.steps if isinstance(step, Compute)]
    results = {output.term for output in plan.program.outputs}
    given = {term for term in order if isinstance(term.op, Leaf)}
    users: dict[Term, set[Term]] = {term: set() for term in order}
    for term in order:
        for arg in term.args:
            users[arg].add(term)

    def reads(term: Term) -> bool:
        """Whether the op reads memory: contractions, and sums too long to fuse their operand."""
        if isinstance(term.op, Reduce):
            (axis,) = term.op.axes
            return axis.size > CPU.fused_reduction
        return isinstance(term.op, Dot)

    def uses(term: Term) -> int:
        return sum(user.args.count(term) for user in users[term])

    stored = {
        term
        for term in order
        if term not in given
        and (
            isinstance(term.op, (Reduce, Dot))
            or term in results
            or any(reads(user) for user in users[term])
            or (isinstance(term.op, Map) and term.op.name == "exp" and uses(term) > 1)
        )
    }

    def wanted_by(term: Term) -> set[Term]:
        """The stored terms whose computing reads this one, through what is fused."""
        found: set[Term] = set()
        for user in users[term]:
            found |= {user} if user in stored else wanted_by(user)
        return found

    def entries_of(term: Term) -> set[Term]:
        """The stored terms of the same shape that an elementwise one reads, through what is fused."""
        found: set[Term] = set()
        for arg in term.args if isinstance(term.op, Map) else ():
            if arg.axes == term.axes:
                found |= {arg} if arg in stored else entries_of(arg)
        return found

    moments = []
    for now in range(len(order)):
        live = {
            term
            for term in order[: now + 1]
            if term in stored
            and term not in results
            and (term is order[now] or any(order.index(user) >= now for user in wanted_by(term)))
        }
        # What nothing else reads later is written over.
        over = {
            term
            for term in live & entries_of(order[now])
            if order[now] in live and all(order.index(user) <= now for user in wanted_by(term))
        }
        lost = max(over, key=lambda term: term.bytes, default=None)
        buffers: dict[Buffer, int] = {((), term): term.bytes for term in live if term != lost}
        moments.append(Moment((now,), buffers))
    written = {term: (term.bytes, (order.index(term),)) for term in results & stored}
    elsewhere = guests(moments, written)
    fixed = plan.program.argument_bytes + sum(out.bytes for out in plan.program.outputs)
    return fixed + max(moment.bytes(elsewhere) for moment in moments)


@settings(max_examples=400, derandomize=True)
@given(straight_lines())
def test_the_simulated_peak_is_that_of_a_replay(made: Program) -> None:
    plan = schedule(made)
    peak, usage = simulate(plan, NO_PANELS)
    assert usage.peak == max(usage.timeline)
    assert usage.timeline[usage.step] == usage.peak == sum(size for _, size in usage.live)
    replayed = replayed_peak(plan)
    # Results have their buffers from the start, which the simulator counts at its own peak only.
    results = sum(out.bytes for out in made.outputs)
    assert replayed - results <= peak <= replayed


@settings(max_examples=400, derandomize=True, phases=[Phase.generate])
@given(straight_lines())
def test_no_peak_is_missed_for_the_results_that_come_later(made: Program) -> None:
    plan = schedule(made)
    assert simulate(plan, NO_PANELS)[0] == replayed_peak(plan)


# What is stored.


def stored(*results: Term, terms: Terms, leaves: list[Term]) -> set[Term]:
    plan = schedule(program(terms, leaves, *results))
    numbers = stored_terms(plan.block, NO_LOOPS)
    return {term for term in plan.program.reachable() if term.number in numbers}


def test_a_chain_of_elementwise_ops_is_fused() -> None:
    terms = Terms()
    x = leaf(terms, 0, A, B)
    chain = terms.make(Map("exp", F32), (terms.make(Map("neg", F32), (x,)),))
    assert stored(chain, terms=terms, leaves=[x]) == {chain}


def test_the_operands_of_a_contraction_are_stored() -> None:
    terms = Terms()
    x, y = leaf(terms, 0, A, B), leaf(terms, 1, B, C)
    chain = terms.make(Map("exp", F32), (x,))
    dot = terms.make(Dot(frozenset({B}), F32), (chain, y))
    assert stored(dot, terms=terms, leaves=[x, y]) == {chain, dot}


def test_the_operand_of_a_short_sum_is_fused_that_of_a_long_one_is_not() -> None:
    terms = Terms()
    x = leaf(terms, 0, A, C, D)
    chain = terms.make(Map("exp", F32), (x,))
    short, long = (terms.make(Reduce("sum", frozenset({axis}), F32), (chain,)) for axis in (C, D))
    assert stored(short, terms=terms, leaves=[x]) == {short}
    assert stored(long, terms=terms, leaves=[x]) == {long, chain}


def test_what_is_expensive_and_wanted_twice_is_stored() -> None:
    terms = Terms()
    x = leaf(terms, 0, A, B)
    for name, kept in (("exp", True), ("neg", False)):
        once = terms.make(Map(name, F32), (x,))
        twice = terms.make(Map("add", F32), (once, terms.make(Map("sin", F32), (once,))))
        assert (once in stored(twice, terms=terms, leaves=[x])) == kept


def test_inputs_indices_and_their_other_names_are_there_already() -> None:
    terms = Terms()
    x = leaf(terms, 0, A, B)
    other = Axis(9, A.size)
    renamed = terms.make(Rename(A, other), (x,))
    dot = terms.make(Dot(frozenset({B}), F32), (renamed, terms.make(Iota(B, F32))))
    assert stored(dot, terms=terms, leaves=[x]) == {dot}


# Peaks by example.


def test_what_is_computed_entry_by_entry_is_written_over_what_it_is_computed_of() -> None:
    terms = Terms()
    x, y, z = leaf(terms, 0, A, C), leaf(terms, 1, C, B), leaf(terms, 2, B, D)
    product = terms.make(Dot(frozenset({C}), F32), (x, y))
    kernel = terms.make(Map("exp", F32), (terms.make(Map("neg", F32), (product,)),))
    result = terms.make(Dot(frozenset({B}), F32), (kernel, z))
    made = program(terms, [x, y, z], result)
    assert simulate(schedule(made), NO_PANELS)[0] == made.fixed_bytes + kernel.bytes
    both = program(terms, [x, y, z], result, terms.make(Reduce("sum", frozenset({A}), F32), (product,)))
    last = simulate(schedule(both), NO_PANELS)[0]
    assert last >= both.fixed_bytes + kernel.bytes, "what is read later is not written over"


def test_buffers_are_free_after_their_last_use() -> None:
    terms = Terms()
    x = leaf(terms, 0, A)
    vector = x
    for _ in range(3):
        matrix = terms.make(
            Map("exp", F32), (terms.make(Map("add", F32), (vector, terms.make(Iota(D, F32)))),)
        )
        vector = terms.make(Reduce("sum", frozenset({D}), F32), (matrix,))
    peak, usage = simulate(schedule(program(terms, [x], vector)), CPU)
    assert peak == 160 + 160 + 4 * 40 * 90, "input, output, one matrix; vectors lie where the output will be"
    assert usage.live[0][1] == 4 * 40 * 90


def test_what_is_gone_before_a_result_is_written_lies_in_its_place_if_it_fits() -> None:
    """XLA gives it the result's buffer."""
    left = {}
    for columns in ((B,), (B, C)):
        terms = Terms()
        x, y, z = leaf(terms, 0, A, D), leaf(terms, 1, D, C), leaf(terms, 2, A, *columns)
        matrix = terms.make(Map("exp", F32), (x,))
        small = terms.make(Dot(frozenset({D}), F32), (matrix, y))
        total = terms.make(Reduce("sum", frozenset({A, C}), F32), (small,))
        result = terms.make(Map("add", F32), (total, z))
        made = program(terms, [x, y, z], result)
        left[result.bytes >= matrix.bytes] = simulate(schedule(made), NO_PANELS)[0] - made.fixed_bytes
    assert left == {False: matrix.bytes, True: small.bytes + total.bytes}, "one at a time, the largest first"


def test_a_loop_needs_one_chunk_of_what_is_inside() -> None:
    terms = Terms()
    x, y = leaf(terms, 0, A), leaf(terms, 1, B)
    chunk = terms.make(Chunk(A), (x,))
    matrix = terms.make(Map("exp", F32), (terms.make(Map("mul", F32), (chunk, y)),))
    result = terms.make(Concat(A), (terms.make(Reduce("sum", frozenset({B}), F32), (matrix,)),))
    made = program(terms, [x, y], result)
    peaks = [simulate(schedule(made, {1: length}), CPU)[0] for length in (1, 10, 40)]
    fixed = 4 * (40 + 64 + 40)
    assert peaks == [fixed + 4 * length * (64 + 1) for length in (1, 10, 40)]


def test_half_precision_sums_are_carried_in_single_precision() -> None:
    terms = Terms()
    x = terms.make(Leaf(0, (A, B), "bfloat16"))
    chunk = terms.make(Chunk(B), (x,))
    partial = terms.make(Reduce("sum", frozenset({B}), "bfloat16"), (chunk,))
    total = terms.make(Fold(B, "sum"), (partial,))
    final = terms.make(Map("exp", "bfloat16"), (total,))
    _, usage = simulate(schedule(program(terms, [x], final), {1: 8}), CPU)
    assert dict(usage.live)[total] == 4 * 40


def attention(dtype: str, *monoids: Monoid) -> tuple[Program, list[Term]]:
    """A weighted sum{a c} over d of values{d c}, in one pass along d, for each of the monoids."""
    terms = Terms()
    scores, values = terms.make(Leaf(0, (A, D), dtype)), terms.make(Leaf(1, (D, C), dtype))
    chunk = terms.make(Chunk(D), (scores,))
    largest = terms.make(Reduce("max", frozenset({D}), dtype), (chunk,))
    weights = terms.make(Map("exp", dtype), (terms.make(Map("sub", dtype), (chunk, largest)),))
    normaliser = terms.make(Reduce("sum", frozenset({D}), dtype), (weights,))
    total = terms.make(Dot(frozenset({D}), dtype), (weights, terms.make(Chunk(D), (values,))))
    parts = {2: (largest, total), 3: (largest, normaliser, total)}
    folds = [terms.make(Fold(D, monoid), parts[len(monoid.state)]) for monoid in monoids]
    results = [terms.make(Map("neg", dtype), (fold,)) for fold in folds]
    return program(terms, [scores, values], *results), folds


def test_a_fold_keeps_all_parts_of_its_state_in_single_precision() -> None:
    for dtype in (F32, "bfloat16"):
        made, folds = attention(dtype, ATTENTION)
        _, usage = simulate(schedule(made, {1: 8}), CPU)
        assert dict(usage.live)[folds[0]] == 4 * (40 + 40 + 40 * 7)


def test_parts_of_a_state_that_folds_share_count_once() -> None:
    made, folds = attention(F32, ATTENTION, RESCALED)
    _, usage = simulate(schedule(made, {1: 8}), CPU)
    sizes = dict(usage.live)
    assert sum(sizes[fold] for fold in folds) == 4 * (40 + 40 + 40 * 7)


def test_an_output_that_is_an_input_is_a_copy() -> None:
    terms = Terms()
    x = leaf(terms, 0, A)
    assert simulate(schedule(program(terms, [x], x)), CPU)[0] == 2 * 160


def test_an_output_that_is_broadcast_is_counted_at_full_length() -> None:
    terms = Terms()
    x = leaf(terms, 0, A)
    exp = terms.make(Map("exp", F32), (x,))
    made = Program((x,), (Output(exp, (A, B)),), terms)
    assert simulate(schedule(made), CPU)[0] == 160 + 4 * 40 * 64


# Time.


def test_time_grows_with_what_is_computed() -> None:
    terms = Terms()
    x, y = leaf(terms, 0, A, D), leaf(terms, 1, D, B)
    small = program(terms, [x, y], terms.make(Dot(frozenset({D}), F32), (x, y)))
    large = program(terms, [x, y], terms.make(Map("exp", F32), (small.outputs[0].term,)))
    seconds = [predicted_seconds(build(made), NO_LOOPS, {}) for made in (small, large)]
    assert 0 < seconds[0] < seconds[1]


def test_more_and_shorter_chunks_take_longer() -> None:
    terms = Terms()
    x, y = leaf(terms, 0, A, D), leaf(terms, 1, D, B)
    dot = terms.make(Dot(frozenset({D}), F32), (terms.make(Chunk(A), (x,)), y))
    block = build(program(terms, [x, y], terms.make(Concat(A), (dot,))))
    seconds = [predicted_seconds(block, NO_LOOPS, {1: length}) for length in (40, 10, 2, 1)]
    assert seconds == sorted(seconds)


def test_panels_that_a_product_packs_count_while_it_runs() -> None:
    """A deep product packs 128 columns of an operand, in memory of the library's own."""
    deep, rows, columns = Axis(5, 5_000), Axis(6, 300), Axis(7, 400)
    terms = Terms()
    x, y = leaf(terms, 0, deep, rows), leaf(terms, 1, deep, columns)
    both = terms.make(Dot(frozenset({deep}), F32), (x, y))
    made = program(terms, [x, y], terms.make(Reduce("sum", frozenset({rows}), F32), (both,)))
    peak, usage = simulate(schedule(made), CPU)
    panels = 128 * 5_000 * 4
    assert peak == made.fixed_bytes + both.bytes + panels
    assert simulate(schedule(made), NO_PANELS)[0] == made.fixed_bytes + both.bytes
    assert (both, both.bytes) in usage.live


def test_small_values_take_no_memory_where_the_compiler_keeps_them_apart() -> None:
    """Of two intermediate values, 4 * 40 * 64 and 4 * 90 * 64 bytes, the smaller fits the fast memory."""
    terms = Terms()
    x, y = leaf(terms, 0, A, B, C), leaf(terms, 1, B, D, C)
    small, large = (terms.make(Reduce("sum", frozenset({C}), F32), [each]) for each in (x, y))
    result = terms.make(Dot(frozenset({B}), F32), [small, large])
    made = program(terms, [x, y], result)

    def temporaries(fast: int) -> int:
        machine = replace(NO_PANELS, fast_memory=fast)
        return simulate(schedule(made), machine)[0] - made.fixed_bytes

    sizes = small.bytes, large.bytes
    assert temporaries(0) == sum(sizes)
    assert temporaries(min(sizes)) == max(sizes)
    assert temporaries(sum(sizes)) == 0
