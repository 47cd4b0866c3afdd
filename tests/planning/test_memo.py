"""What is remembered of blocks: found once, and told apart by all that it depends on."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from eqsat.engine.cost import CostModel
from eqsat.ir.axis import Axis
from eqsat.planning.blocks import Block
from eqsat.planning.capped_extraction import attempts
from eqsat.planning.memo import Remembered
from eqsat.planning.search_space import prepare
from eqsat.rulesets.selection import rules_for
from eqsat.targets.cpu import CPU
from tests.stages import lowered, normal


def looped() -> Block:
    program, _ = lowered(lambda x, y: jnp.exp(x[:, None] - y).sum(1), normal(400), normal(500))
    search = prepare(program, rules_for((), "reassociates"), 50_000, CPU)
    return next(c.schedule.block for group in attempts(search, 50_000) for c in group if c.loops)


class Finder:
    """Finds out something new each time."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> int:
        self.times += 1
        return self.times


def test_what_is_the_same_is_found_once() -> None:
    block, remembered, find = looped(), Remembered[int](), Finder()
    chunks = {loop.id: 7 for loop in block.loops}
    others = {**chunks, -1: 3}  # of a loop that is not in the block
    same = [remembered.recall(block, CostModel(CPU, {}), given, find) for given in (chunks, chunks, others)]
    assert same == [1, 1, 1]


def test_what_is_different_is_found_anew() -> None:
    block, remembered, find = looped(), Remembered[int](), Finder()
    chunks = {loop.id: 7 for loop in block.loops}
    longer = {loop.id: 8 for loop in block.loops}
    model, axis = CostModel(CPU, {}), Axis(-1, 10)
    asked: list[tuple[Any, ...]] = [
        (block, model, chunks, find),
        (block, model, longer, find),
        (block, CostModel(CPU, {axis: 2}), chunks, find),
        (block, CostModel(CPU, {axis: 3}), chunks, find),
        (block, CostModel(replace(CPU, lanes=0), {}), chunks, find),
        (block, CostModel(CPU, {}, library=True), chunks, find),
        (block, model, chunks, find, "something else"),
        (looped(), model, chunks, find),
    ]
    assert [remembered.recall(*one) for one in asked] == list(range(1, len(asked) + 1))
    assert [remembered.recall(*one) for one in asked[:-1]] == list(range(1, len(asked)))


def test_blocks_are_not_kept_for_what_is_known_of_them() -> None:
    remembered = Remembered[int]()
    remembered.recall(looped(), CostModel(CPU, {}), {}, Finder())
    gc.collect()
    assert not remembered._of
