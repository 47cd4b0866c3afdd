"""Why a saturation stopped, and what it found."""

from __future__ import annotations

import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from eqsat.engine import saturate as saturation
from eqsat.engine.compile import compile_rule
from eqsat.engine.compiled import CompiledRule
from eqsat.engine.encode import LOADED
from eqsat.engine.library import Library
from eqsat.engine.saturate import Limits, Saturation, saturate
from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from eqsat.ir.ops import Map
from eqsat.ir.program import Program
from eqsat.language.parse import parse_rules
from eqsat.planning.search_space import stored_results
from eqsat.targets.cpu import CPU

TERMS = 7


def rules(text: str, first: int = 0) -> list[CompiledRule]:
    parsed = parse_rules(text, "my.rules").rules
    return [compile_rule(rule, number) for number, rule in enumerate(parsed, first)]


def long_sum() -> Program:
    """t0 + (t1 + (t2 + ...)), of different terms."""
    shapes = [jax.ShapeDtypeStruct((3,), jnp.float32)] * TERMS

    def add(first: jax.Array, *rest: jax.Array) -> jax.Array:
        return first + add(*rest) if rest else first

    return lower(trace(add, tuple(shapes), {}).closed)[0]


ASSOCIATIVE = rules("rule explode  a + (b + c) == (a + b) + c")
HARMLESS = rules("rule harmless  exp(log(a)) => a", first=100)
GROWING = rules("rule grow  exp(a) => exp(-(-a))")


def run(program: Program, chosen: list[CompiledRule], limits: Limits | None = None) -> Saturation:
    return saturate(program, chosen, (), (), limits)


def test_nothing_left_to_do() -> None:
    result = run(long_sum(), HARMLESS)
    assert result.stop_reason == result.told == "saturated"
    assert result.restless == ()
    assert result.matches == {}
    assert result.banned == ()
    assert result.graph.node_count == 2 * TERMS - 1
    assert all(node.maker == LOADED for eclass in result.graph.classes for node in eclass.nodes)


def test_no_rules() -> None:
    result = run(long_sum(), [])
    assert (result.stop_reason, result.matches) == ("saturated", {})


def test_too_many_nodes() -> None:
    result = run(long_sum(), ASSOCIATIVE, Limits(algebra_growth=0, rule_growth=1000, effort=1e9, seconds=60))
    assert result.stop_reason == "limit of 500 new e-nodes"
    assert result.growth[0][0] == "explode"
    assert re.fullmatch(
        r"limit of 500 new e-nodes; most terms are from explode \([\d,]+\); still at work: explode",
        result.told,
    )
    # A round is finished before it is looked at: it may overshoot, but not without bound.
    assert 500 < result.graph.node_count < 5000


def test_too_long() -> None:
    result = run(long_sum(), ASSOCIATIVE, Limits(effort=0.0))
    assert result.stop_reason == "limit of 0.0 million units of effort"
    result = run(long_sum(), ASSOCIATIVE, Limits(seconds=0.0))
    assert result.stop_reason == "time limit of 0 s"
    assert result.seconds < 5


def test_too_many_rounds() -> None:
    result = run(long_sum(), ASSOCIATIVE, Limits(algebra_rounds=1, effort=1e9, seconds=60))
    assert result.stop_reason == "limit of 1 rounds"


def test_a_rule_that_feeds_itself_stops() -> None:
    """exp(-(-a)) matches the rule again, with -(-a) for a."""
    (x,) = [jax.ShapeDtypeStruct((3,), jnp.float32)]
    program, _ = lower(trace(jnp.exp, (x,), {}).closed)
    result = run(program, GROWING, Limits(algebra_rounds=4, effort=1e9, seconds=60))
    assert result.stop_reason == "limit of 4 rounds"
    assert result.restless == ("grow",)
    assert result.matches["grow"] >= 4


def test_a_rule_waits_until_its_ops_are_right_over_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """That exp and log are both there is not enough; and another rule may bring them together."""
    read: list[str] = []
    need = Library.need

    def noted(library: Library, rule: CompiledRule) -> None:
        read.append(rule.name)
        need(library, rule)

    monkeypatch.setattr(Library, "need", noted)
    chosen = rules("rule inverse  log(exp(a)) => a\nrule twice  -(-a) => a")
    x = jax.ShapeDtypeStruct((3,), jnp.float32)

    def matched(function: Callable[[jax.Array], jax.Array]) -> set[str]:
        read.clear()
        return set(run(lower(trace(function, (x,), {}).closed)[0], chosen).matches)

    assert matched(lambda x: jnp.exp(jnp.log(x))) == set()
    assert "inverse" not in read
    assert matched(lambda x: jnp.log(jnp.negative(-jnp.exp(x)))) == {"inverse", "twice"}
    assert "inverse" in read


def test_a_rule_that_explodes_is_banned_and_the_others_go_on() -> None:
    limits = Limits(rule_matches=1000, rule_growth=0, algebra_growth=10_000, effort=1e9, seconds=60)
    result = run(long_sum(), [*ASSOCIATIVE, *HARMLESS], limits)
    assert result.banned == ("explode",)
    assert result.stop_reason == "saturated"
    assert result.matches["explode"] > 10


def test_beyond_a_length_of_the_program_a_rule_may_add_less(monkeypatch: pytest.MonkeyPatch) -> None:
    def added() -> int:
        limits = Limits(rule_matches=1000, rule_growth=64, algebra_growth=10_000, effort=1e9, seconds=60)
        return dict(run(long_sum(), ASSOCIATIVE, limits).growth)["explode"]

    before = added()
    monkeypatch.setattr(saturation, "LONG_GROWTH", 0)
    assert added() < before / 4


def test_algebra_is_over_before_loops_begin() -> None:
    """Algebra that was cut short does not keep loops from being found."""
    (x,) = [jax.ShapeDtypeStruct((50,), jnp.float32)]
    program, _ = lower(trace(lambda x: jnp.sum(jnp.exp(x)), (x,), {}).closed)
    text = """
    rule grow       exp(a) => exp(-(-a))
    rule split-sum  sum[N] a => fold[n, sum] sum[N] chunk[n] a  where n in N, large(n)
    rule chunk-map  chunk[n] f(a..) => f(chunk[n] a..)  for f in elementwise
    """
    axes = sorted(program.axes())
    result = saturate(
        program,
        rules(text),
        axes,
        stored_results(program, axes, CPU),
        Limits(algebra_rounds=3, effort=1e9, seconds=60),
    )
    assert result.stop_reason == "limit of 3 rounds"
    assert result.matches["split-sum"] == 1
    assert result.matches["chunk-map"] > 1


@pytest.mark.parametrize("count", [1, 3])
def test_every_term_of_the_program_has_a_class(count: int) -> None:
    program = long_sum()
    result = run(program, ASSOCIATIVE, Limits(algebra_rounds=count, effort=1e9, seconds=60))
    for term in program.reachable():
        eclass = result.graph.classes[result.graph.class_of[term.number]]
        assert (eclass.axes, eclass.dtype, eclass.open) == (term.axes, term.dtype, frozenset())
        assert any(node.op == term.op for node in eclass.nodes)


DISTINCT = """
rule split-rows  sum[k] a{n} => concat[n] sum[k] chunk[n] a  where large(n)
"""


def test_different_letters_are_different_axes() -> None:
    """With n = k the rule would lay the chunks of a sum over k side by side along k."""
    (x,) = [jax.ShapeDtypeStruct((5, 7), jnp.float32)]
    program, _ = lower(trace(lambda x: jnp.sum(jnp.exp(x), 1), (x,), {}).closed)
    result = saturate(program, rules(DISTINCT), sorted(program.axes()), (), None)
    assert result.matches["split-rows"] == 1


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("rule r  gt(a, b) => lt(-a, -b)", lambda x, y: x > y),
        ("rule r  exp(max(a, b)) => exp(select_n(gt(a, b), b, a))", lambda x, y: jnp.exp(jnp.maximum(x, y))),
    ],
)
def test_dtypes_of_what_a_comparison_compares(text: str, function: Callable[..., jax.Array]) -> None:
    x = jax.ShapeDtypeStruct((5,), jnp.float32)
    program, _ = lower(trace(function, (x, x), {}).closed)
    result = run(program, rules(text))
    assert result.matches["r"] > 0
    dtypes = {
        (node.op.name, eclass.dtype)
        for eclass in result.graph.classes
        for node in eclass.nodes
        if isinstance(node.op, Map)
    }
    assert dtypes.isdisjoint({("neg", "bool"), ("select_n", "bool")})
