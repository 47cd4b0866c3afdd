"""Loops that compute one value in several places have chunks of one length."""

from __future__ import annotations

import math

from eqsat.ir.axis import Axis
from eqsat.ir.ops import Chunk, Concat, Fold, Leaf, Map, Reduce
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Terms
from eqsat.planning.blocks import Schedule
from eqsat.planning.candidates import Candidate, rescaled, scheduled
from eqsat.planning.loops import build
from eqsat.planning.tying import tied, ties
from eqsat.targets.cpu import CPU

N, K = Axis(0, 1000), Axis(1, 30)
F32 = "float32"


def two_passes(alike: bool) -> Program:
    """max_n of a value, and where its entries equal that: the chunks are computed in two loops."""
    terms = Terms()
    x = terms.make(Leaf(0, (N, K), F32))
    chunk = terms.make(Chunk(N), (x,))
    value = terms.make(Reduce("sum", frozenset({K}), F32), (terms.make(Map("square", F32), (chunk,)),))
    largest = terms.make(Reduce("max", frozenset({N}), F32), (value,))
    whole = terms.make(Fold(N, "max"), (largest,))
    found = terms.make(Concat(N), (terms.make(Map("eq", "bool"), (value, whole)),))
    return Program((x,), (Output(found, (N,)),), terms, alike=(value,) if alike else ())


def candidate(alike: bool) -> Candidate:
    program = two_passes(alike)
    return scheduled(program, build(program), {}, math.inf, CPU)


def test_loops_that_compute_a_value_again_are_tied() -> None:
    program = two_passes(True)
    block = build(program)
    first, second = block.own_loops
    assert ties(program, block) == (frozenset({first.id, second.id}),)
    assert tied({first.id: 7, second.id: 12}, block, ties(program, block)) == {first.id: 7, second.id: 7}


def test_others_are_not() -> None:
    program = two_passes(False)
    block = build(program)
    assert ties(program, block) == ()
    assert tied({1: 7, 2: 12}, block, ()) == {1: 7, 2: 12}


def test_chunks_that_are_chosen_or_rescaled_have_one_length() -> None:
    found = candidate(True)
    assert len(set(found.schedule.chunks.values())) == 1
    unequal = Schedule(found.schedule.program, found.schedule.block, {1: 100, 2: 250})
    longer = rescaled(Candidate(unequal, {}, 0, 0.0), 2.0, CPU)
    assert len(longer.schedule.chunks) == 2
    assert len(set(longer.schedule.chunks.values())) == 1
