"""Assertions about what rules can prove, and over which axes their programs can stream.

Expressions are texts, evaluated with `jax.numpy`'s names and the declared arrays. Two expressions are
traced into one program. Rules prove them equal if they bring both results into one e-class. Besides, nearly
every assertion draws programs at random from the e-graph, and checks that they mean what the original does,
which finds rules that should not have fired.

>>> prove("(a @ b) @ v", "a @ (b @ v)", "a: i k   b: k j   v: j", "reassociate")
>>> cannot_prove("sum(a, 0)", "sum(a, 1)", "a: i p", "reassociate")
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import jax
import numpy as np
from jax import lax

import eqsat
from eqsat.engine.compiled import CompiledRule
from eqsat.engine.cost import CostModel
from eqsat.engine.extract import Extractor
from eqsat.engine.saturate import Saturation, saturate
from eqsat.engine.storage_model import Value
from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from eqsat.ir.axis import Axis
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Chunk, Const, Iota, Leaf, Op, Rename
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term
from eqsat.language.accuracies import ACCURACIES
from eqsat.planning.search_space import stored_results
from eqsat.reports.plan import Plan
from eqsat.rules import FOR_TARGETS
from eqsat.rulesets.selection import rules_for
from eqsat.targets.cpu import CPU
from examples.comparison import in_double_precision

LENGTHS = {"i": 5, "j": 7, "k": 3, "l": 2, "m": 4, "n": 11, "p": 5}
"""The length of each axis of a declaration. All differ but those of i and p, which may be transposed."""

DRAWS = 6
"""The number of programs that are drawn from an e-graph."""


def _widened(a: Any, b: Any) -> Any:
    """Returns the matrix product of narrow integers, accumulated in int32."""
    return jax.numpy.matmul(a, b, preferred_element_type=jax.numpy.int32)


def _wide(a: Any, b: Any) -> Any:
    """Returns the matrix product of floats that may be narrow, accumulated in float32."""
    return jax.numpy.matmul(a, b, preferred_element_type=jax.numpy.float32)


LOCALS: dict[str, Any] = {
    "lax": lax,
    "jax": jax,
    "softmax": jax.nn.softmax,
    "widened": _widened,
    "wide": _wide,
    "assume": eqsat.assume,
    "solve_triangular": jax.scipy.linalg.solve_triangular,
    "solve": jax.numpy.linalg.solve,
    "inv": jax.numpy.linalg.inv,
    "det": jax.numpy.linalg.det,
    "slogdet": jax.numpy.linalg.slogdet,
    "cholesky": jax.numpy.linalg.cholesky,
    "qr": jax.numpy.linalg.qr,
    "svd": jax.numpy.linalg.svd,
    "lstsq": jax.numpy.linalg.lstsq,
}


def declared(arrays: str, *expressions: str) -> dict[str, np.ndarray]:
    """Draws the declared arrays that the expressions use.

    `x: i k   n: int32 j   c:` declares a matrix, a vector and a scalar; `s: spd i p` is positive definite.
    """
    used = set(re.findall(r"\w+", " ".join(expressions)))
    rng = np.random.default_rng(0)
    found: dict[str, np.ndarray] = {}
    for name, words in re.findall(r"(\w+):((?:\s+\w+\b(?!:))*)", arrays):
        axes = [word for word in words.split() if word in LENGTHS or word.isdigit()]
        dtype = next((word for word in words.split() if word not in axes), "float32")
        shape = tuple(LENGTHS.get(word) or int(word) for word in axes)
        if name in used:
            drawn = _positive if dtype == "spd" else _drawn
            found[name] = drawn(rng, shape, jax.numpy.dtype("float32" if dtype == "spd" else dtype))
    return found


def _positive(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Returns well-conditioned symmetric positive definite matrices."""
    values = rng.normal(size=shape) / np.sqrt(shape[-1])
    return (values @ values.swapaxes(-1, -2) + np.eye(shape[-1])).astype(dtype)


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    if dtype.kind in "iu":
        return rng.integers(1, 9, shape).astype(dtype)
    values = rng.normal(size=shape)
    return np.asarray(values + 1j * rng.normal(size=shape) if dtype.kind == "c" else values).astype(dtype)


def function(*expressions: str, names: tuple[str, ...]) -> Callable[..., tuple[Any, ...]]:
    """Returns the JAX function from the named arrays to the values of the expressions."""

    def evaluate(*values: Any) -> tuple[Any, ...]:
        scope = {**vars(jax.numpy), **LOCALS, **dict(zip(names, values, strict=True))}
        return tuple(eval(expression, scope) for expression in expressions)

    return evaluate


@cache
def shipped() -> Mapping[str, CompiledRule]:
    """Returns every shipped rule by name, compiled for a run of all of them."""
    every = rules_for((), ACCURACIES[-1], of_target=FOR_TARGETS)
    return {compiled.name: compiled for compiled in every}


@dataclass(frozen=True)
class Graph:
    """A saturated e-graph and the program that was loaded into it."""

    program: Program
    arrays: tuple[Any, ...]
    saturation: Saturation

    def classes(self) -> list[int]:
        """Returns the e-class of each output."""
        class_of = self.saturation.graph.class_of
        return [class_of[output.term.number] for output in self.program.outputs]

    def cheapest(self, model: CostModel, one_pass: bool = False) -> tuple[Program, frozenset[str]]:
        """Returns the cheapest program, and the names of the rules that made its nodes.

        With `one_pass`, it prefers programs in which no loop needs another loop over the same axis.
        """
        roots = self.classes()
        extractor = Extractor(self.saturation.graph, model, roots)
        selection = extractor.extract(float("inf"), one_pass=one_pass) or extractor.extract(float("inf"))
        assert selection is not None
        terms: dict[int, Term] = {}
        for number, node in selection.nodes.items():
            terms[number] = self.program.terms.make(node.op, [terms[child] for child in node.children])
        outputs = tuple(
            Output(terms[root], output.layout)
            for root, output in zip(roots, self.program.outputs, strict=True)
        )
        name_of = {compiled.number: name for name, compiled in shipped().items()}
        makers = {name_of[node.maker] for node in selection.nodes.values() if node.maker in name_of}
        return replace(self.program, outputs=outputs), frozenset(makers)

    def check(self, program: Program) -> None:
        """Checks that a program is well-formed, and means what the original does for every chunk length."""
        check_program(program)
        loops = any(term.open for term in program.reachable())
        for length in (1, 2, 3, 100) if loops else (100,):
            chunks = {axis: min(length, axis.size) for axis in program.axes()}
            for value, reference in zip(interpret(program, self.arrays, chunks), self.expected, strict=True):
                np.testing.assert_allclose(value, reference, rtol=1e-9, atol=1e-9)

    @cached_property
    def expected(self) -> Sequence[Any]:
        """The results of the original program."""
        return interpret(self.program, self.arrays)

    def check_draws(self) -> None:
        """Checks that programs drawn at random mean what the original does."""
        rng = random.Random(0)
        drawn = {self.cheapest(_AtRandom(CPU, {}, rng))[0].outputs: None for _ in range(DRAWS)}
        for outputs in drawn:
            if outputs != self.program.outputs:
                self.check(replace(self.program, outputs=outputs))


@dataclass(frozen=True)
class _AtRandom(CostModel):
    """A cost model with random costs, so that the cheapest program is a random one."""

    rng: random.Random

    def seconds(self, op: Op, result: Value, operands: Any) -> float:
        return self.rng.random() ** 4


@dataclass(frozen=True)
class _Whole(CostModel):
    """A cost model in which values over the whole of an axis are expensive."""

    axis: Axis

    def seconds(self, op: Op, result: Value, operands: Any) -> float:
        whole = self.axis in result.axes - result.open and not isinstance(op, Leaf | Iota | Const)
        return 1000.0 if whole else 1.0


def saturated(expressions: tuple[str, ...], arrays: str, rules: str, over: str = "") -> Graph:
    """Returns the e-graph of these expressions after saturation; `over` names the axes that may be split."""
    values = declared(arrays, *expressions)
    return traced(function(*expressions, names=tuple(values)), tuple(values.values()), rules, over)


def traced(fn: Callable[..., Any], values: tuple[Any, ...], rules: str, over: str = "") -> Graph:
    """Returns the e-graph of a function of these arrays after saturation."""
    program, constants = lower(trace(fn, values, {}).closed, reshapes=False)
    large = [axis_called(name, program) for name in over.split()]
    return saturated_program(program, (*values, *constants), rules, large)


def saturated_program(
    program: Program, arrays: tuple[Any, ...], rules: str, large: list[Axis], draws: bool = True
) -> Graph:
    """Returns the e-graph of a program after saturation; with `draws`, it tests programs drawn from it."""
    chosen = [shipped()[name] for name in rules.split()]
    graph = Graph(program, arrays, saturate(program, chosen, large, stored_results(program, large, CPU)))
    if draws:
        graph.check_draws()
    return graph


def axis_called(name: str, program: Program) -> Axis:
    """Returns the axis of a declaration's letter: the first axis of that length in the program's inputs."""
    axes = (axis for term in program.inputs for axis in sorted(term.axes))
    return next(axis for axis in axes if axis.size == LENGTHS[name])


@cache
def compared(left: str, right: str, arrays: str) -> tuple[Program, tuple[Any, ...]] | None:
    """Returns a program that selects one of two values, and its arrays, or None if their types differ.

    Because of the selection, the same dimension of both values becomes one axis.
    """
    values = declared(arrays, left, right)
    both = function(left, right, names=tuple(values))

    def chosen(*inputs: Any) -> Any:
        first, second = map(jax.numpy.asarray, both(*inputs[:-1]))
        alike = (first.shape, first.dtype) == (second.shape, second.dtype)
        return lax.select_n(inputs[-1], first, second) if alike else (first, second)

    inputs = (*values.values(), np.asarray(True))
    program, constants = lower(trace(chosen, inputs, {}).closed, reshapes=False)
    return (program, (*inputs, *constants)) if len(program.outputs) == 1 else None


def proves(left: str, right: str, arrays: str, rules: str, draws: bool = True) -> bool:
    """Returns whether the rules bring both values into one e-class; `draws` is as for `saturated_program`."""
    loaded = compared(left, right, arrays)
    if loaded is None:
        return False
    graph = saturated_program(*loaded, rules, [], draws)
    class_of = graph.saturation.graph.class_of
    _, first, second = graph.program.outputs[0].term.args
    return class_of[first.number] == class_of[second.number]


def prove(left: str, right: str, arrays: str, rules: str, given: str = "") -> None:
    """Checks that the rules bring both expressions into one e-class, and that each of them is needed.

    The rules in `given` may be used as well, and need not be needed.
    """
    assert proves(left, right, arrays, f"{rules} {given}"), f"{rules} cannot prove {left} = {right}"
    for rule in rules.split():
        fewer = " ".join(name for name in rules.split() if name != rule)
        assert not proves(left, right, arrays, f"{fewer} {given}", draws=False), (
            f"{rule} is not needed for {left} = {right}"
        )


def cannot_prove(left: str, right: str, arrays: str, rules: str) -> None:
    assert not proves(left, right, arrays, rules), f"{rules} should not prove {left} = {right}"


def fires(rule: str, expression: str, arrays: str, given: str = "") -> bool:
    """Returns whether a rule matches in the e-graph of an expression, which `given` rules may extend."""
    return saturated((expression,), arrays, f"{rule} {given}").saturation.matches.get(rule, 0) > 0


def streams(expression: str, arrays: str, over: str, rules: str, one_pass: bool = False) -> bool:
    """Returns whether the rules find a program that needs only one chunk of the axis `over` at a time.

    Only inputs, renamings of them, constants, indices and the results may have the whole axis. With
    `one_pass`, the extraction prefers programs that visit each chunk only once.
    """
    graph = saturated((expression,), arrays, rules, over)
    return streaming(graph, axis_called(over, graph.program), one_pass)


def streaming(graph: Graph, axis: Axis, one_pass: bool = False) -> bool:
    """Returns what `streams` does, for an e-graph and an axis that may be split."""
    program, _ = graph.cheapest(_Whole(CPU, {}, axis), one_pass)
    graph.check(program)
    results = [output.term for output in program.outputs]
    terms = [term for term in program.reachable() if term not in results]
    return any(axis in term.open for term in terms) and not any(
        axis in term.axes - term.open and not _is_given(term) for term in terms
    )


def _is_given(term: Term) -> bool:
    while isinstance(term.op, Rename | Chunk):
        (term,) = term.args
    return isinstance(term.op, Leaf | Iota | Const)


def can_stream(expression: str, arrays: str, over: str, rules: str, one_pass: bool = False) -> None:
    """Checks that the rules find a program that streams over an axis, and that each of them is needed."""
    assert streams(expression, arrays, over, rules, one_pass), (
        f"{rules} cannot stream {expression} over {over}"
    )
    for rule in rules.split():
        fewer = " ".join(name for name in rules.split() if name != rule)
        assert not streams(expression, arrays, over, fewer, one_pass), (
            f"{rule} is not needed to stream {expression}"
        )


def cannot_stream(expression: str, arrays: str, over: str, rules: str, one_pass: bool = False) -> None:
    assert not streams(expression, arrays, over, rules, one_pass), f"{rules} should not stream {expression}"


def optimized(expression: str, arrays: str, budget: int, accuracy: str = "rescales") -> Plan:
    """Returns the plan for an expression, after checking its results and its peak memory.

    The results may differ from those in double precision by as much as plain JAX's do, and a small tolerance.
    """
    values = declared(arrays, expression)
    plain = function(expression, names=tuple(values))
    small = eqsat.optimize(plain, budget=budget, accuracy=accuracy, max_slowdown=None)
    flat = tuple(values.values())
    precise = in_double_precision(plain)(*flat)
    for result, of_jax, reference in zip(small(*flat), jax.jit(plain)(*flat), precise, strict=True):
        assert (result.shape, result.dtype) == (of_jax.shape, of_jax.dtype)
        if np.issubdtype(result.dtype, np.inexact):
            with np.errstate(over="ignore", invalid="ignore"):
                reference = np.asarray(reference, of_jax.dtype)
                differences = np.abs(np.asarray(of_jax) - reference)
            finite = np.isfinite(reference)
            largest = np.max(np.abs(reference), initial=0, where=finite)
            rounding = np.max(differences, initial=0, where=finite)
            np.testing.assert_allclose(result, reference, rtol=2e-5, atol=1e-5 * largest + rounding)
        else:
            np.testing.assert_array_equal(result, reference)
    plan = small.plan(*flat)
    assert plan.peak_bytes <= budget
    return plan
