"""Random trees of contractions, much shared and renamed: every better order is equal to what was written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from eqsat.engine.contraction_trees import Rebuilder, flatten
from eqsat.ir.axis import Axis, layout_shape
from eqsat.ir.ops import Const, Dot, Leaf, Map, Reduce, Rename
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Terms, reachable
from tests.engine.contractions import check_equal, ordered
from tests.nightly import THOROUGH

SIZES = [2, 2, 2, 3, 3]
AXES = [Axis(number, size) for number, size in enumerate(SIZES)]


def some(axes: Sequence[Axis]) -> st.SearchStrategy[list[Axis]]:
    """One or more of them, in any order."""
    return st.lists(st.sampled_from(axes), min_size=1, unique=True)


@st.composite
def random_programs(draw: st.DrawFn, dtype: str) -> Program:
    """Sums, products, contractions, renamings, signs, quotients and others over few axes, much shared."""
    terms = Terms()
    layouts = draw(st.lists(some(AXES), min_size=2, max_size=4))
    inputs = [terms.make(Leaf(i, tuple(layout), dtype)) for i, layout in enumerate(layouts)]
    made = [*inputs, terms.make(Const("3.0" if dtype == "float32" else "3", dtype))]
    for _ in range(draw(st.integers(3, 10))):
        # Trees are deep: mostly something is done to the latest term.
        a, b = draw(st.sampled_from([*made[-2:], made[-1]])), draw(st.sampled_from(made))
        common = sorted(a.axes & b.axes)
        kinds = ["mul", "mul", "neg"]
        kinds += ["dot"] * 4 if common else []
        kinds += ["sum", "rename", "rename"] if a.axes else []
        kinds += ["div", "tanh"] if dtype == "float32" else []
        match draw(st.sampled_from(kinds)):
            case "dot":
                term = terms.make(Dot(frozenset(draw(some(common))), dtype), (a, b))
            case "sum":
                summed = draw(some(sorted(a.axes)))
                term = terms.make(Reduce("sum", frozenset(summed), dtype), (a,))
            case "rename":
                old = draw(st.sampled_from(sorted(a.axes)))
                free = [axis for axis in AXES if axis.size == old.size and axis not in a.axes]
                if not free:
                    continue
                term = terms.make(Rename(old, draw(st.sampled_from(free))), (a,))
            case "div":
                term = terms.make(Map("div", dtype), (a, draw(st.sampled_from(made[: len(inputs) + 1]))))
            case "neg" | "tanh" as name:
                term = terms.make(Map(name, dtype), (a,))
            case _:
                term = terms.make(Map("mul", dtype), (a, b))
        made.append(term)
    roots = [draw(st.sampled_from(made)), made[-1]]
    return Program(tuple(inputs), tuple(Output(t, tuple(sorted(t.axes))) for t in roots), terms)


def values(program: Program) -> list[Any]:
    """Arrays for the inputs: positive numbers, or any integers."""
    rng = np.random.default_rng(0)
    shapes = [layout_shape(leaf.op.layout) for leaf in program.inputs if isinstance(leaf.op, Leaf)]
    if program.inputs[0].dtype == "int32":
        return [rng.integers(-(2**31), 2**31, shape) for shape in shapes]
    return [rng.uniform(0.5, 2, shape) for shape in shapes]


MOST_ELEMENTS = 1_000_000
"""Outer products of many factors, which any order may ask for, can be larger than the memory."""


class Everything:
    """A set that contains whatever one asks for."""

    def __contains__(self, member: object) -> bool:
        return True


@given(random_programs("float32"), st.data())
@settings(max_examples=250 if THOROUGH else 60)
def test_every_tree_in_any_order(program: Program, data: st.DataObject) -> None:
    check_program(program)
    rebuilder = Rebuilder(program, None)
    pairs = []
    for root in program.reachable():
        stops = data.draw(st.sets(st.integers(0, root.number), max_size=2))
        tree = flatten(root, stops, Everything())
        if not tree.factors:
            continue
        live = list(range(len(tree.factors)))
        path = []
        while len(live) > 1:
            step = data.draw(st.lists(st.sampled_from(live), min_size=2, max_size=2, unique=True))
            path.append((step[0], step[1]))
            live = [*(value for value in live if value not in step), len(tree.factors) + len(path) - 1]
        rebuilt = rebuilder.rebuild(tree, tuple(path))
        if all(term.elements <= MOST_ELEMENTS for term in reachable([rebuilt])):
            pairs.append((root, rebuilt))
        event(f"{min(len(tree.factors), 8)} factors")
    check_equal(replace(program, equalities=tuple(pairs)), values(program))


@given(random_programs("float32"), st.sampled_from([None, 2, 8]))
@settings(max_examples=200)
def test_random_programs(program: Program, cap: int | None) -> None:
    result = ordered(program, values(program), cap=cap)
    event(f"{min(len(result.equalities), 4)} better orders")


@given(random_programs("int32"))
@settings(max_examples=100)
def test_random_integer_programs(program: Program) -> None:
    # Exactly equal: sums and products wrap around.
    ordered(program, values(program))
