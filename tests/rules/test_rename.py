"""Renamings of axes move inwards, past anything that does not bind the new name.

The programs are written in the IR: the frontend inserts a renaming only where it can't do without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np
import pytest
from jax import lax

from eqsat.ir.axis import Axis
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.ops import (
    Call,
    Delta,
    Dot,
    Iota,
    Leaf,
    Map,
    Op,
    Opaque,
    Operation,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Term, Terms
from tests.rules.proving import Graph, optimized, saturated_program, traced

AXES = {name: Axis(number, {"k": 3, "n": 40}.get(name, 5)) for number, name in enumerate("ijklmn")}
INPUTS = {"a": "i k", "b": "i k", "c": "l k", "d": "k", "e": "i l", "f": "i j", "g": "i n"}


def axes(names: str) -> frozenset[Axis]:
    return frozenset(AXES[name] for name in names.split())


class Terse:
    """Terms of the inputs, in few words."""

    def __init__(self) -> None:
        self.terms = Terms()
        layouts = [tuple(AXES[name] for name in names.split()) for names in INPUTS.values()]
        self.inputs = [self.make(Leaf(n, layout, "float32")) for n, layout in enumerate(layouts)]
        for name, term in zip(INPUTS, self.inputs, strict=True):
            setattr(self, name, term)

    a: Term
    b: Term
    c: Term
    d: Term
    e: Term
    f: Term
    g: Term

    def make(self, op: Op, *args: Term) -> Term:
        return self.terms.make(op, args)

    def to_j(self, a: Term, old: str = "i") -> Term:
        return self.renamed(old, "j", a)

    def renamed(self, old: str, new: str, a: Term) -> Term:
        return self.make(Rename(AXES[old], AXES[new]), a)

    def exp(self, a: Term) -> Term:
        return self.make(Map("exp", "float32"), a)

    def add(self, a: Term, b: Term) -> Term:
        return self.make(Map("add", "float32"), a, b)

    def mul(self, a: Term, b: Term) -> Term:
        return self.make(Map("mul", "float32"), a, b)

    def total(self, names: str, a: Term, kind: str = "sum") -> Term:
        return self.make(Reduce(kind, axes(names), "float32"), a)

    def dot(self, names: str, a: Term, b: Term) -> Term:
        return self.make(Dot(axes(names), "float32"), a, b)

    def delta(self, first: str, second: str) -> Term:
        return self.make(Delta(AXES[first], AXES[second]))

    def best(self, name: str, a: Term) -> Term:
        return self.make(Select("argmax", AXES[name], 1, None, "indices", "int32"), a)

    def softmax(self, name: str, a: Term) -> Term:
        return self.make(Operation(OPERATIONS["softmax"], (AXES[name],), "float32"), a)

    def call(self, a: Term, layout: str, passing: str) -> Term:
        """A primitive along the last axis of a layout."""
        axes = tuple(AXES[name] for name in layout.split())
        params = {"axis": len(axes) - 1, "reverse": False}
        passes = frozenset(AXES[name] for name in passing.split())
        return self.make(Opaque(Call(0, lax.cumsum_p, params, (axes,), (axes,), ("float32",), passes), 0), a)

    def solve(self, names: str, a: Term, b: Term) -> Term:
        rows, columns = names.split()
        return self.make(Operation(OPERATIONS["solve"], (AXES[rows], AXES[columns]), "float32"), a, b)

    def iota(self, name: str) -> Term:
        return self.make(Iota(AXES[name], "float32"))


def saturated(written: Callable[[Terse], tuple[Term, ...]], rules: str, large: Sequence[Axis] = ()) -> Graph:
    terse = Terse()
    outputs = tuple(Output(term, tuple(sorted(term.axes))) for term in written(terse))
    program = Program(tuple(terse.inputs), outputs, terse.terms)
    rng = np.random.default_rng(0)
    arrays = tuple(rng.normal(size=tuple(AXES[n].size for n in names.split())) for names in INPUTS.values())
    return saturated_program(program, arrays, rules, list(large))


def proves(written: Callable[[Terse], tuple[Term, Term]], rules: str) -> bool:
    left, right = saturated(written, rules).classes()
    return left == right


EVERY = (
    "rename-map rename-reduction rename-contraction rename-iota rename-delta rename-selection"
    " rename-operation rename-call rename-twice rename-back rename-reduced"
)


@pytest.mark.parametrize(
    ("rule", "written"),
    [
        ("rename-map", lambda t: (t.to_j(t.exp(t.a)), t.exp(t.to_j(t.a)))),
        ("rename-map", lambda t: (t.to_j(t.mul(t.a, t.b)), t.mul(t.to_j(t.a), t.to_j(t.b)))),
        # an operand without the axis is what it was
        ("rename-map", lambda t: (t.to_j(t.mul(t.a, t.c)), t.mul(t.to_j(t.a), t.c))),
        ("rename-map", lambda t: (t.to_j(t.mul(t.d, t.a)), t.mul(t.d, t.to_j(t.a)))),
        ("rename-reduction", lambda t: (t.to_j(t.total("k", t.a)), t.total("k", t.to_j(t.a)))),
        ("rename-reduction", lambda t: (t.to_j(t.total("k", t.a, "max")), t.total("k", t.to_j(t.a), "max"))),
        ("rename-reduction", lambda t: (t.to_j(t.total("l", t.e)), t.total("l", t.to_j(t.e)))),
        ("rename-contraction", lambda t: (t.to_j(t.dot("k", t.a, t.c)), t.dot("k", t.to_j(t.a), t.c))),
        ("rename-contraction", lambda t: (t.to_j(t.dot("k", t.d, t.a)), t.dot("k", t.d, t.to_j(t.a)))),
        (
            "rename-contraction",
            lambda t: (t.to_j(t.dot("k", t.a, t.b)), t.dot("k", t.to_j(t.a), t.to_j(t.b))),
        ),
        ("rename-iota", lambda t: (t.to_j(t.iota("i")), t.iota("j"))),
        ("rename-delta", lambda t: (t.to_j(t.delta("i", "l")), t.delta("j", "l"))),
        ("rename-delta", lambda t: (t.to_j(t.delta("i", "l"), "l"), t.delta("j", "i"))),
        ("rename-selection", lambda t: (t.to_j(t.best("k", t.a)), t.best("k", t.to_j(t.a)))),
        # an operation for each slice along the axis, and along the axis
        ("rename-operation", lambda t: (t.to_j(t.softmax("k", t.a)), t.softmax("k", t.to_j(t.a)))),
        ("rename-operation", lambda t: (t.to_j(t.softmax("i", t.a)), t.softmax("j", t.to_j(t.a)))),
        (
            "rename-operation",
            lambda t: (t.to_j(t.solve("l i", t.e, t.c)), t.solve("l j", t.to_j(t.e), t.c)),
        ),
        # a primitive along the axis, or along another one
        ("rename-call", lambda t: (t.to_j(t.call(t.a, "i k", "i")), t.call(t.to_j(t.a), "j k", "j"))),
        ("rename-call", lambda t: (t.to_j(t.call(t.e, "l i", "l")), t.call(t.to_j(t.e), "l j", "l"))),
        ("rename-twice", lambda t: (t.renamed("j", "l", t.to_j(t.a)), t.renamed("i", "l", t.a))),
        ("rename-back", lambda t: (t.renamed("j", "i", t.to_j(t.a)), t.a)),
        ("rename-reduced", lambda t: (t.total("j", t.to_j(t.a)), t.total("i", t.a))),
        ("rename-reduced", lambda t: (t.total("j k", t.to_j(t.a), "max"), t.total("i k", t.a, "max"))),
        (
            "rename-reduction rename-contraction rename-map",
            lambda t: (
                t.to_j(t.total("l", t.exp(t.dot("k", t.a, t.c)))),
                t.total("l", t.exp(t.dot("k", t.to_j(t.a), t.c))),
            ),
        ),
    ],
)
def test_a_renaming_moves_inwards(rule: str, written: Callable[[Terse], tuple[Term, Term]]) -> None:
    assert proves(written, rule)
    others = " ".join(name for name in EVERY.split() if name not in rule.split())
    assert not proves(written, others)


def test_two_axes_are_renamed_in_either_order() -> None:
    def written(t: Terse) -> tuple[Term, Term]:
        return t.renamed("l", "m", t.to_j(t.e)), t.to_j(t.renamed("l", "m", t.e))

    assert proves(written, "rename-past-rename")
    assert not proves(written, EVERY)


def test_a_transpose_is_the_same_by_way_of_rows_or_columns() -> None:
    def written(t: Terse) -> tuple[Term, Term]:
        rows = t.renamed("j", "l", t.renamed("l", "i", t.to_j(t.e)))
        columns = t.renamed("j", "i", t.renamed("i", "l", t.to_j(t.e, "l")))
        return rows, columns

    assert proves(written, "rename-across")
    assert not proves(written, f"{EVERY} rename-past-rename rename-contracted")


def test_a_symmetric_matrix_has_one_transpose() -> None:
    """What is equal to its own transpose, and sums of such, would otherwise be transposed on and on."""

    def written(t: Terse) -> tuple[Term, ...]:
        turned = t.renamed("j", "l", t.renamed("l", "i", t.to_j(t.e)))
        whole = t.add(t.e, turned)
        return t.renamed("j", "l", t.renamed("l", "i", t.to_j(whole))), whole

    graph = saturated(
        written, f"{EVERY} rename-past-rename rename-across symmetric-part transpose-of-symmetric"
    )
    first, second = graph.classes()
    assert first == second
    assert graph.saturation.stop_reason == "saturated"


def test_what_is_contracted_may_have_another_name() -> None:
    def written(t: Terse) -> tuple[Term, Term]:
        named = t.softmax("i", t.a)
        return t.dot("j", t.to_j(named), t.to_j(t.c, "l")), t.dot("i", named, t.renamed("l", "i", t.c))

    assert proves(written, "rename-contracted rename-twice")
    assert not proves(written, EVERY)


def test_what_is_contracted_keeps_a_name_that_the_other_operand_needs() -> None:
    def written(t: Terse) -> tuple[Term, ...]:
        return (t.dot("j", t.to_j(t.a), t.f),)

    assert saturated(written, "rename-contracted").saturation.matches["rename-contracted"] == 0


@pytest.mark.parametrize(
    ("rule", "written"),
    [
        # the new name is summed over: inside, it would be taken for the other one
        ("rename-reduction", lambda t: (t.to_j(t.total("j", t.f)), t.total("j", t.f))),
        ("rename-reduction", lambda t: (t.to_j(t.total("j", t.f)), t.total("i", t.f))),
        ("rename-contraction", lambda t: (t.to_j(t.dot("j", t.f, t.f)), t.dot("i", t.f, t.f))),
        ("rename-selection", lambda t: (t.to_j(t.best("j", t.f)), t.best("j", t.f))),
        ("rename-operation", lambda t: (t.renamed("j", "l", t.softmax("j", t.f)), t.softmax("j", t.f))),
        (
            "rename-operation",
            lambda t: (t.renamed("i", "j", t.solve("l i", t.e, t.c)), t.solve("l i", t.e, t.c)),
        ),
        ("rename-call", lambda t: (t.renamed("i", "j", t.call(t.a, "i k", "i")), t.call(t.a, "i k", "i"))),
        (
            "rename-call",
            lambda t: (t.to_j(t.call(t.e, "l i", "l")), t.call(t.to_j(t.e), "j l", "j")),
        ),
        ("rename-delta", lambda t: (t.to_j(t.delta("i", "l")), t.delta("i", "l"))),
        ("rename-twice", lambda t: (t.renamed("j", "l", t.to_j(t.a)), t.to_j(t.a))),
        # another axis is renamed, or nothing is
        ("rename-map", lambda t: (t.to_j(t.exp(t.e)), t.exp(t.to_j(t.e, "l")))),
        ("rename-map", lambda t: (t.to_j(t.exp(t.a)), t.exp(t.a))),
        ("rename-iota", lambda t: (t.to_j(t.iota("i")), t.iota("i"))),
        # another kind of reduction
        ("rename-reduction", lambda t: (t.to_j(t.total("k", t.a)), t.total("k", t.to_j(t.a), "max"))),
    ],
)
def test_names_are_not_confused(rule: str, written: Callable[[Terse], tuple[Term, Term]]) -> None:
    assert not proves(written, EVERY)
    assert saturated(written, rule).saturation.stop_reason == "saturated"


def test_a_name_is_not_captured() -> None:
    """Whatever is renamed has the old name and lacks the new one."""

    def written(t: Terse) -> tuple[Term, ...]:
        summed, product = t.total("j", t.f), t.dot("j", t.f, t.f)
        return t.to_j(summed), t.to_j(t.mul(summed, t.exp(product))), t.mul(t.f, t.to_j(summed))

    graph = saturated(written, EVERY).saturation.graph
    renamed = [node for eclass in graph.classes for node in eclass.nodes if isinstance(node.op, Rename)]
    assert len(renamed) > 3
    for node in renamed:
        (child,) = node.children
        assert node.op.old in graph.classes[child].axes
        assert node.op.new not in graph.classes[child].axes


@pytest.mark.parametrize(
    ("rule", "written"),
    [
        ("rename-to-contracted", lambda t: t.renamed("l", "i", t.dot("i", t.g, t.e))),
        ("rename-to-contracted", lambda t: t.renamed("l", "i", t.dot("i", t.e, t.g))),
        ("rename-to-reduced", lambda t: t.renamed("l", "i", t.total("i", t.e))),
        ("rename-to-reduced", lambda t: t.renamed("l", "i", t.total("i", t.e, "max"))),
    ],
)
def test_a_bound_name_makes_way_for_a_loop_over_it(rule: str, written: Callable[[Terse], Term]) -> None:
    """The sum is over another name then, so the name of the loop reaches the operands."""

    def binds_another(rules: str, *large: Axis) -> bool:
        graph = saturated(lambda t: (written(t),), rules, list(large))
        (number,) = graph.classes()
        nodes = graph.saturation.graph.classes[number].nodes
        return any(isinstance(node.op, (Dot, Reduce)) and AXES["i"] not in node.op.axes for node in nodes)

    assert binds_another(rule, AXES["i"])
    assert not binds_another(rule), "no loop is over it"
    assert not binds_another(EVERY, AXES["i"])


def test_the_columns_of_a_square_product_are_not_computed_chunk_by_chunk() -> None:
    """All of it would be computed for each chunk."""

    def classes(rows: str) -> set[frozenset[Axis]]:
        graph = saturated(
            lambda t: (t.renamed("l", "i", t.dot("i", getattr(t, rows), t.e)),),
            "rename-to-contracted",
            [AXES["i"]],
        )
        (number,) = graph.classes()
        nodes = graph.saturation.graph.classes[number].nodes
        return {node.op.axes for node in nodes if isinstance(node.op, Dot)}

    assert classes("g")
    assert not classes("a")


GRAM = "(lambda p: exp(p @ p.T) @ v)(concatenate([sin(x[:, None] * w), cos(x[:, None] * w)], 1))"


def test_a_plan_for_the_gram_matrix_of_what_a_primitive_makes() -> None:
    """The same features have two names, for rows and columns; both are computed by chunks."""
    plan = optimized(GRAM, "x: 2003   w: 7   v: 2003", 600_000)
    assert plan.original_peak_bytes > 10_000_000


def test_control_flow_keeps_the_names_that_its_bodies_know() -> None:
    def fn(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
        start = jax.numpy.zeros((x.shape[1], w.shape[0]))
        p = lax.scan(lambda carry, row: (jax.numpy.tanh(carry + row[:, None] * w), None), start, x)[0]
        return jax.numpy.exp(p @ p.T) @ v

    rng = np.random.default_rng(0)
    values = (rng.normal(size=(2, 11)), rng.normal(size=3), rng.normal(size=11))
    rules = "split-result split-contraction chunk-call chunk-rename chunk-map chunk-contraction"
    graph = traced(fn, values, f"rename-call {rules}", "n")
    for eclass in graph.saturation.graph.classes:
        for node in eclass.nodes:
            if isinstance(node.op, Opaque) and node.op.call.bodies:
                (original,) = {
                    op.call
                    for op in (t.op for t in graph.program.reachable())
                    if isinstance(op, Opaque) and op.call.bodies
                }
                assert node.op.call == original
