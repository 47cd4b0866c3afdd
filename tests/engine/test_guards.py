"""Rules with guards in the e-graph: they note where they match, and rewrite only what they are granted."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from eqsat.engine.compile import compile_rule
from eqsat.engine.compiled import CompiledRule, Granted
from eqsat.engine.saturate import Saturation, saturate
from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from eqsat.ir.ops import Leaf, Map
from eqsat.ir.program import Program
from eqsat.language.parse import parse_rules

PULL = """
rule pull [cancels]
  sum[K] (c{!K} * a{K})^2  =>  c^2 * sum[K] a^2
  guard max(sum[K] a^2) <= 9, max(abs(c)) <= 9
"""
SINGLE = """
rule twice [cancels]
  exp(a{n})  =>  exp(a / 2)^2
  where n in a
  guard max(sum[n] a) <= 9
"""


def compiled(text: str, guarded: bool = True) -> list[CompiledRule]:
    return [
        compile_rule(rule, number, guarded=guarded)
        for number, rule in enumerate(parse_rules(text, "my.rules").rules)
    ]


def squares() -> Program:
    """The sums of squares of rows of one matrix times a vector, and of another one."""

    def fn(x: jax.Array, y: jax.Array, c: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.sum((c[:, None] * x) ** 2, 1), jnp.sum((y * c[:, None]) ** 2, 1)

    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in [(4, 3), (4, 5), (4,)]]
    return lower(trace(fn, tuple(shapes), {}).closed)[0]


def makers(found: Saturation) -> set[int]:
    return {node.maker for eclass in found.graph.classes for node in eclass.nodes if node.maker >= 0}


def leaves(found: Saturation, classes: tuple[int, ...]) -> list[int]:
    """The inputs that classes are."""
    nodes = [node for number in classes for node in found.graph.classes[number].nodes]
    return [node.op.index for node in nodes if isinstance(node.op, Leaf)]


def test_where_a_guard_would_have_to_hold_is_noted_and_nothing_is_rewritten() -> None:
    program = squares()
    found = saturate(program, compiled(PULL), (), ())
    assert makers(found) == set()
    assert sorted(leaves(found, one.classes) for one in found.found) == [[0, 2], [1, 2]]
    assert [sorted(axis.size for axis in one.axes[0]) for one in found.found] in ([[3], [5]], [[5], [3]])


def test_what_is_granted_is_rewritten_and_nothing_else() -> None:
    program = squares()
    noted = saturate(program, compiled(PULL), (), ())
    for one in noted.found:
        index, _ = leaves(noted, one.classes)
        granted = [Granted(0, (program.inputs[index], program.inputs[2]), one.axes)]
        found = saturate(program, compiled(PULL), (), (), granted=granted)
        classes = [found.graph.class_of[output.term.number] for output in program.outputs]
        nodes = [len(found.graph.classes[number].nodes) for number in classes]
        assert nodes == [2 if number == index else 1 for number in range(2)]


def test_a_grant_is_for_one_choice_of_axes() -> None:
    def fn(x: jax.Array) -> jax.Array:
        return jnp.exp(x)

    shape = jax.ShapeDtypeStruct((4, 3), jnp.float32)
    program = lower(trace(fn, (shape,), {}).closed)[0]
    found = saturate(program, compiled(SINGLE), (), ())
    assert len(found.found) == 2
    assert {axis.size for one in found.found for axis in one.axes[0]} == {3, 4}
    granted = [Granted(0, program.inputs, found.found[0].axes)]
    assert saturate(program, compiled(SINGLE), (), (), granted=granted).matches["twice"] >= 1


def test_a_value_that_rules_made_can_be_granted() -> None:
    text = PULL + "rule spell-out  sin(a) => cos(a)"

    def fn(x: jax.Array, c: jax.Array) -> jax.Array:
        return jnp.sum((c[:, None] * jnp.sin(x)) ** 2, 1)

    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in [(4, 3), (4,)]]
    program = lower(trace(fn, tuple(shapes), {}).closed)[0]
    parsed = parse_rules(text, "my.rules").rules
    rules = [compile_rule(rule, number, guarded=number == 0) for number, rule in enumerate(parsed)]
    found = saturate(program, rules, (), ())
    [one] = found.found
    cosine = program.terms.make(Map("cos", "float32"), [program.inputs[0]])
    granted = [Granted(0, (cosine, program.inputs[1]), one.axes)]
    again = saturate(program, rules, (), (), granted=granted)
    assert 0 in makers(again)


def test_a_rule_that_a_caller_allows_in_any_case_needs_no_grant() -> None:
    found = saturate(squares(), compiled(PULL, guarded=False), (), ())
    assert makers(found) == {0}
    assert found.found == ()


@pytest.mark.parametrize("runs", [1, 2])
def test_what_was_granted_in_one_run_is_forgotten_in_the_next(runs: int) -> None:
    program, rules = squares(), compiled(PULL)
    [one, other] = saturate(program, rules, (), ()).found
    x, y, c = program.inputs
    for _ in range(runs):
        granted = [Granted(0, (x, c), one.axes), Granted(0, (y, c), other.axes)]
        saturate(program, rules, (), (), granted=granted)
        assert makers(saturate(program, rules, (), ())) == set()
