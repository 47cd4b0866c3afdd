"""What rules match and build, on programs made by hand: operations, deltas, sizes, constants, properties."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from eqsat.engine.compile import compile_rule
from eqsat.engine.cost import CostModel
from eqsat.engine.extract import Extractor
from eqsat.engine.saturate import Saturation, saturate
from eqsat.engine.snapshot import ENode
from eqsat.ir.axis import Axis
from eqsat.ir.interpret import interpret
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.ops import Const, Delta, Dot, Fold, Iota, Leaf, Map, Op, Operation, Reduce, Rename, Select
from eqsat.ir.program import KnownFact, Output, Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term, Terms
from eqsat.language.parse import parse_rules
from eqsat.targets.cpu import CPU

I, J, K, C = Axis(0, 5), Axis(1, 5), Axis(2, 3), Axis(3, 4)  # noqa: E741


class Maker:
    """Makes programs."""

    def __init__(self) -> None:
        self.terms = Terms()
        self.inputs: list[Term] = []
        self.facts: list[KnownFact] = []

    def leaf(self, *axes: Axis, dtype: str = "float32") -> Term:
        self.inputs.append(self.terms.make(Leaf(len(self.inputs), axes, dtype)))
        return self.inputs[-1]

    def make(self, op: Op, *args: Term) -> Term:
        return self.terms.make(op, args)

    def map(self, name: str, *args: Term, dtype: str = "float32") -> Term:
        return self.make(Map(name, dtype), *args)

    def number(self, value: float, dtype: str = "float32") -> Term:
        return self.make(Const(repr(value), dtype))

    def operation(self, name: str, axes: Iterable[Axis], *args: Term) -> Term:
        spec = OPERATIONS[name]
        return self.make(Operation(spec, tuple(axes), spec.dtype or args[0].dtype), *args)

    def dot(self, axes: Iterable[Axis], left: Term, right: Term) -> Term:
        return self.make(Dot(frozenset(axes), left.dtype), left, right)

    def program(self, result: Term) -> Program:
        output = Output(result, tuple(sorted(result.axes)))
        made = Program(tuple(self.inputs), (output,), self.terms, (), tuple(self.facts))
        check_program(made)
        return made


def run(program: Program, text: str, large: tuple[Axis, ...] = ()) -> Saturation:
    file = parse_rules(text, "my.rules")
    rules = [compile_rule(rule, number) for number, rule in enumerate([*file.rules, *file.facts])]
    return saturate(program, rules, large, [output.term for output in program.outputs])


def results(program: Program, saturation: Saturation) -> list[Term]:
    """The result in all ways that its class holds, found to mean the same."""
    graph = saturation.graph
    (root,) = (graph.class_of[output.term.number] for output in program.outputs)
    rng = np.random.default_rng(0)
    arrays = [_drawn(rng, leaf) for leaf in program.inputs]
    wanted = interpret(program, arrays)
    selection = Extractor(graph, CostModel(CPU, {}), range(len(graph.classes))).extract(np.inf)
    assert selection is not None
    found = []
    for node in graph.classes[root].nodes:
        terms: dict[int, Term] = {}
        term = _term({**selection.nodes, root: node}, root, program.terms, terms)
        output = Output(term, program.outputs[0].layout)
        rewritten = Program(program.inputs, (output,), program.terms)
        check_program(rewritten)
        for length in (1, 2, 100):
            chunks = {axis: min(length, axis.size) for axis in rewritten.axes()}
            (value,) = interpret(rewritten, arrays, chunks)
            np.testing.assert_allclose(value, wanted[0], rtol=1e-9, atol=1e-9)
        found.append(term)
    return found


def _term(chosen: dict[int, ENode], number: int, terms: Terms, done: dict[int, Term]) -> Term:
    if number not in done:
        node = chosen[number]
        done[number] = terms.make(node.op, [_term(chosen, child, terms, done) for child in node.children])
    return done[number]


def _drawn(rng: np.random.Generator, leaf: Term) -> np.ndarray:
    assert isinstance(leaf.op, Leaf)
    shape = tuple(axis.size for axis in leaf.op.layout if axis is not None)
    values = rng.normal(size=shape)
    if len(shape) > 1 and shape[0] == shape[1]:
        values = values @ values.T + 5 * np.eye(shape[0])
    return np.asarray(values).astype(leaf.dtype)


def operators(terms: list[Term]) -> list[str]:
    return [term.op.spec.name if isinstance(term.op, Operation) else type(term.op).__name__ for term in terms]


SOLVE = "rule r  dot[i](inv[i, j] A, b) => solve[i, j](A, b)"


@pytest.mark.parametrize("batch", [(), (C,)])
def test_an_operation_is_matched_and_built_for_all_slices(batch: tuple[Axis, ...]) -> None:
    make = Maker()
    matrix, right = make.leaf(I, J), make.leaf(I, *batch)
    program = make.program(make.dot([I], make.operation("inv", (I, J), matrix), right))
    assert operators(results(program, run(program, SOLVE))) == ["Dot", "solve"]


def test_the_core_axes_of_an_operation_have_roles() -> None:
    make = Maker()
    matrix, right = make.leaf(I, J), make.leaf(J, C)
    # The columns of the inverse are along i: this is no product with the inverse but with its transpose.
    transposed = make.operation("inv", (J, I), matrix)
    program = make.program(make.dot([J], transposed, right))
    (_, solved) = results(program, run(program, SOLVE))
    assert isinstance(solved.op, Operation)
    assert solved.op.axes == (J, I)


def test_an_operation_gets_no_chunk_of_a_core_axis() -> None:
    make = Maker()
    values = make.leaf(I, K)
    program = make.program(make.make(Reduce("sum", frozenset({I}), "float32"), make.map("square", values)))
    text = "rule split  sum[N] a => fold[n, sum] sum[N] chunk[n] a where n in N, large(n)\n"
    text += "rule chunk  chunk[n] a^2 => (chunk[n] a)^2\n"
    text += "rule sorted  sum[n] a^2 => sum[n] ((sort[n] a) * (sort[n] a))"
    saturation = run(program, text, (I,))
    assert saturation.matches["sorted"] == 1
    assert {type(term.op) for term in results(program, saturation)} == {Reduce, Fold}


WOODBURY = """
rule delta  eq(iota[i], iota[j]) => delta[i, j]  where size(i) = size(j)
rule woodbury [amplifies]
  solve[i, j](diag[i, j] d + dot[k](u{i}, v{j}), b)
    =>  rename[i->j] (b / d - dot[l](rename[k->l] u / d,
          solve[k, l](diag[k, l] 1 + dot[i](rename[j->i] v, rename[k->l] u / d),
                      dot[i](rename[j->i] v, b / d))))
  where l = copy(k), size(k) < size(i)
"""


def _diagonal_plus_product(make: Maker, inner: Axis) -> Program:
    left, right, diagonal = make.leaf(I, inner), make.leaf(inner, J), make.leaf(I)
    right_side = make.leaf(I, C)
    same = make.map("eq", make.make(Iota(I, "int32")), make.make(Iota(J, "int32")), dtype="bool")
    positive = make.map("add", make.map("square", diagonal), make.number(3.0))
    matrix = make.map(
        "add", make.map("select_n", same, make.number(0.0), positive), make.dot([inner], left, right)
    )
    return make.program(make.operation("solve", (I, J), matrix, right_side))


def test_a_fresh_axis_where_a_matrix_needs_one_twice() -> None:
    program = _diagonal_plus_product(Maker(), K)
    assert operators(results(program, run(program, WOODBURY))) == ["solve", "Rename"]


def test_a_fresh_axis_that_is_longer() -> None:
    make = Maker()
    program = make.program(make.dot([K], make.leaf(I, K), make.leaf(K, J)))
    text = """
rule two-more
  dot[k](a, b) => dot[l](append[m, l](append[k, m](a, 0), 2), append[m, l](append[k, m](b, 1), 0))
  where m = copy(k) + 1, l = copy(k) + 2"""
    found = results(program, run(program, text))
    depths = {axis.size for term in found if isinstance(term.op, Dot) for axis in term.op.axes}
    assert depths == {K.size, K.size + 2}


def test_a_comparison_of_sizes() -> None:
    program = _diagonal_plus_product(Maker(), Axis(9, 6))
    saturation = run(program, WOODBURY)
    assert saturation.matches["delta"] > 0
    assert saturation.matches["woodbury"] == 0


@pytest.mark.parametrize(
    ("comparison", "fires"),
    [("size(N) = 15", True), ("size(N) < 15", False), ("c = size(N)", True), ("2 * c > size(N) + 1", True)],
)
def test_the_size_of_a_set_and_the_value_of_a_constant(comparison: str, fires: bool) -> None:
    make = Maker()
    total = make.make(Reduce("sum", frozenset({I, K}), "float32"), make.leaf(I, K, C))
    # The constant is only known by its computation.
    count = make.map("mul", make.number(5.0), make.number(3.0))
    program = make.program(make.map("div", total, count))
    saturation = run(program, f"rule mean  (sum[N] a) / c => mean[N] a where constant(c), {comparison}")
    assert [term.op for term in results(program, saturation) if isinstance(term.op, Reduce)] == (
        [Reduce("mean", frozenset({I, K}), "float32")] if fires else []
    )


def test_sizes_are_those_of_whole_axes() -> None:
    """The mean of a chunk is not its sum divided by the length of the axis."""
    make = Maker()
    total = make.make(Reduce("sum", frozenset({I}), "float32"), make.leaf(I, K))
    program = make.program(make.map("div", total, make.number(5.0)))
    text = """
    rule split  sum[N] a => fold[n, sum] sum[N] chunk[n] a  where n in N, large(n)
    rule inside  (fold[n, sum] a) / c => fold[n, sum] (a / c)
    rule mean  (sum[N] a) / c => mean[N] a  where c = size(N)
    """
    saturation = run(program, text, (I,))
    assert saturation.matches["inside"] == 1
    results(program, saturation)


def test_an_integer_has_no_half() -> None:
    for dtype, matches in (("int32", 0), ("float32", 1), ("bfloat16", 1), ("complex64", 1)):
        make = Maker()
        program = make.program(make.map("neg", make.leaf(I, dtype=dtype), dtype=dtype))
        assert run(program, "rule half  -a => 0.5 * (-2 * a)").matches["half"] == matches


def test_a_number_is_matched_by_its_value() -> None:
    make = Maker()
    program = make.program(
        make.map("mul", make.leaf(I, dtype="int32"), make.number(1, "int32"), dtype="int32")
    )
    assert operators(results(program, run(program, "rule one  a * 1 => a"))) == ["Leaf"]


def test_an_iota_of_another_dtype_is_another_term() -> None:
    make = Maker()
    whole = make.map("convert", make.make(Iota(I, "int32")))
    program = make.program(make.map("add", whole, make.make(Iota(I, "float32"))))
    graph = run(program, "rule one  a * 1 => a").graph
    assert len([c for c in graph.classes if any(isinstance(n.op, Iota) for n in c.nodes)]) == 2


def test_facts_are_derived_and_used() -> None:
    text = """
    fact square  nonnegative(a^2)
    fact sum     nonnegative(a + b)  where nonnegative(a), nonnegative(b)
    fact gram    symmetric[i, j](dot[K](a{i}, rename[i->j] a))
    fact swapped symmetric[j, i](a)  where symmetric[i, j](a)
    rule absolute  abs(a) => a  where nonnegative(a)
    rule transpose  inv[i, j] a => inv[j, i] a  where symmetric[j, i](a)
    """
    make = Maker()
    x = make.leaf(I)
    total = make.map("add", make.map("square", x), make.map("square", make.leaf(C)))
    program = make.program(make.map("abs", total))
    assert operators(results(program, run(program, text))) == ["Map"]
    assert run(program, text).matches["absolute"] > 0
    make = Maker()
    x = make.leaf(I, K)
    gram = make.dot([K], x, make.make(Rename(I, J), x))
    program = make.program(make.operation("inv", (I, J), make.map("square", gram)))
    assert run(program, text).matches["transpose"] == 0
    program = make.program(make.operation("inv", (I, J), gram))
    assert run(program, text).matches["transpose"] > 0


def test_what_the_user_assures_is_a_fact() -> None:
    make = Maker()
    matrix = make.leaf(I, J)
    make.facts.append(KnownFact("spd", matrix, (I, J)))
    program = make.program(make.operation("solve", (I, J), matrix, make.leaf(I, C)))
    rule = (
        "rule by-cholesky  solve[i, j](A, b)"
        " => solve_upper[j, i](cholesky[i, j] A, solve_lower[i, j](cholesky[i, j] A, b)) where spd[i, j](A)"
    )
    saturation = run(program, rule)
    assert saturation.matches["by-cholesky"] == 1


def test_a_top_k_is_built_and_matched() -> None:
    make = Maker()
    ordered = make.operation("reverse", (I,), make.operation("sort", (I,), make.leaf(I, C)))
    program = make.program(make.operation("head", (I, K), ordered))
    text = "rule best  head[n, m] reverse[n] sort[n] a => top_k[n, m] a\n"
    text += "rule again  top_k[n, m] (-a) => top_k[n, m] (-a)"
    found = results(program, run(program, text))
    assert [term.op for term in found if isinstance(term.op, Select)] == [
        Select("top_k", I, 3, K, "values", "float32")
    ]


def test_a_fold_of_a_declared_monoid() -> None:
    make = Maker()
    x = make.leaf(C, I)
    most = make.make(Reduce("max", frozenset({I}), "float32"), x)
    shifted = make.map("exp", make.map("sub", x, most))
    program = make.program(make.make(Reduce("sum", frozenset({I}), "float32"), shifted))
    text = """
    monoid rescaled
      state m = -inf, s = 0
      merge m = max(m1, m2), s = s1 * exp(m1 - m) + s2 * exp(m2 - m)
    rule split
      sum[N] exp(x - max[N] x)
        => fold[n, rescaled](max[N] chunk[n] x, sum[N] exp(chunk[n] x - max[N] chunk[n] x))
      where n in N, large(n)
    """
    found = results(program, run(program, text, (I,)))
    assert [type(term.op).__name__ for term in found] == ["Reduce", "Fold"]


def test_a_delta_is_the_same_either_way_round() -> None:
    make = Maker()
    program = make.program(make.map("convert", make.make(Delta(I, J))))
    graph = run(program, "rule one  a * 1 => a").graph
    (both,) = [c for c in graph.classes if any(isinstance(n.op, Delta) for n in c.nodes)]
    assert {node.op for node in both.nodes} == {Delta(I, J), Delta(J, I)}


def test_a_chunk_and_another_name_of_an_operation() -> None:
    make = Maker()
    solved = make.operation("solve", (I, J), make.leaf(I, J), make.leaf(I, C))
    program = make.program(make.make(Rename(J, Axis(7, 5)), solved))
    text = """
    rule split  a{n} => concat[n] chunk[n] a  where large(n), stored(a)
    rule chunk-rename  chunk[n] rename[j->k] a{n} => rename[j->k] chunk[n] a
    rule chunk-operation  chunk[n] f(a..) => f(chunk[n] a..)  for f in operations where passes(f, n)
    rule rename-operation  rename[j->k] f(a..) => f(rename[j->k] a..)  for f in operations
    """
    found = results(program, run(program, text, (C,)))
    assert {type(term.op).__name__ for term in found} == {"Rename", "Concat", "Operation"}
