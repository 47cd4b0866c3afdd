"""What rules are compiled into."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eqsat.engine.compile import compile_rule
from eqsat.engine.compiled import CompiledRule
from eqsat.engine.egraph import EGraph
from eqsat.errors import RuleError
from eqsat.language.check import check_file
from eqsat.language.parse import parse_rules
from eqsat.rulesets.files import shipped_files


def compiled(text: str, number: int = 0) -> CompiledRule:
    """A rule, accepted by the check and by the engine."""
    file = parse_rules(f"rule r  {text}", "my.rules")
    check_file(file)
    (rule,) = file.rules
    result = compile_rule(rule, number)
    EGraph().run_text(result.text)
    return result


def variants(text: str) -> int:
    return compiled(text).text.count("\n(rule ")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("exp(-a) => 1 / exp(a)", 1),
        # both orders of what commutes, and of every one of them
        ("exp(a) * exp(b) => exp(a + b)", 2),
        ("a * a => a^2", 1),
        ("(a + b) * c => a * c + b * c", 4),
        ("max(a, b) - c => max(a - c, b - c)", 2),
        ("a / b => a * b^-1", 1),
        ("dot[K](-a, b) => -dot[K](a, b)", 2),
        # parts that are equal have one order
        ("(a + b) * (a + b) => (a + b)^2", 2),
        ("max(a, b) - c * max(a, b) => max(a, b) * (1 - c)", 4),
        # one for each direction
        ("-(a - b) == b - a", 2),
        ("sum[K] (-a) == -sum[K] a", 2),
        ("sum[K] (c{!K} * a{K}) == c * sum[K] a", 4),
        ("sum[K] (a{K} + b{K}) == (sum[K] a) + (sum[K] b)", 4),
        # a function of one operand, of two, of three; each operand has the axis or not, but not none
        ("chunk[n] f(a..) => f(chunk[n] a..)  for f in elementwise", 1 + 3 + 7),
        ("rename[j->k] f(a..) => f(rename[j->k] a..)  for f in elementwise", 1 + 3 + 7),
        ("chunk[n] f(a..) => f(chunk[n] a..)  for f in calls where passes(f, n)", 1),
        ("chunk[n] dot[K](a, b) => dot[K](chunk[n] a, chunk[n] b)", 2 * 3),
        # an operand that is known to have it
        ("chunk[n] s[k] a{n} => s[k] chunk[n] a  for s in selections", 1),
        ("rename[j->k] (a{j} - b{!j}) => (rename[j->k] a) - rename[j->k] b", 1),
        ("f[N] a => fold[n, f] f[N] chunk[n] a  for f in monoids where n in N, large(n)", 1),
    ],
)
def test_the_number_of_variants(text: str, count: int) -> None:
    assert variants(text) == count


def test_what_gets_another_name_has_the_axis() -> None:
    text = "dot[k](a{!j}, exp(b)) => rename[j->i] dot[k](a, rename[i->j] exp(b))"
    (rule,) = parse_rules(f"rule r {text} where i in b, j = copy(i)", "my.rules").rules
    assert "(set-contains (set-diff (set-union A_a" in compile_rule(rule, 0).text


def test_what_stands_on_the_right_several_times_is_built_once() -> None:
    assert compiled("a * exp(b) => (a - log(b)) * (a - log(b)) + log(b)").text.count("(let r") == 4 * 2


def test_what_is_known_of_an_operand_is_looked_up_once() -> None:
    lines = compiled("chunk[n] f(a..) => f(chunk[n] a..)  for f in elementwise").text.splitlines()[1:]
    assert {(line.count("(type t_"), line.split(") (let")[0].count("(type ")) for line in lines} == {
        (operands, operands) for operands in (1, 2, 3)
    }


@pytest.mark.parametrize(
    "text",
    [
        "rename[j->k] a => rename[j->k] (-(-a))",
        "chunk[n] exp(a) => exp(chunk[n] a)",
        "a{n} => concat[n] chunk[n] a  where large(n), stored(a)",
        "sum[k] a => sum[k] (-(-a))",
        "f[k] a => f[k] (-(-a))  for f in selections",
    ],
)
def test_axes_that_the_left_side_tells_are_not_looked_for(text: str) -> None:
    assert "(axis x_" not in compiled(text).text


def test_axes_that_nothing_else_tells_are_looked_for() -> None:
    assert "(axis x_k)" in compiled("exp(a{k}) => exp(-(-a))").text


def test_every_shipped_rule_is_accepted_by_the_engine() -> None:
    rules = [rule for file in shipped_files() for rule in file.rules]
    graph = EGraph()
    for number, rule in enumerate(rules):
        result = compile_rule(rule, number)
        assert (result.name, result.number, result.ruleset) == (rule.name, number, f"rule-{number}")
        graph.run_text(result.text)
        graph.run_ruleset(result.ruleset)


def test_rules_about_loops_are_told_from_algebra() -> None:
    splits = {
        Path(file.file).stem: {compile_rule(rule, 0).splits for rule in file.rules}
        for file in shipped_files()
    }
    assert {name for name, kinds in splits.items() if kinds == {True}} == {"chunk", "split"}
    mixed = {name for name, kinds in splits.items() if kinds == {True, False}}
    assert mixed == {"factors", "softmax", "statistics"}


def test_what_a_rule_makes_carries_its_number() -> None:
    text = compiled("exp(a) * exp(b) => exp(a + b)", 7).text
    assert '(set (by-Map1 "exp" r3) 7)' in text
    assert ":ruleset rule-7" in text


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("sum[K] (c{!K} * a{K}) => c * sum[K] a", "(= 0 (set-length (set-intersect A_c S_K)))"),
        ("sum[K] (c{!K} * a{K}) => c * sum[K] a", "(= S_K (set-intersect A_a S_K))"),
        ("chunk[n] s[k] a{n} => s[k] chunk[n] a  for s in selections", "(set-contains A_a x_n)"),
        ("rename[j->k] f[K] a{!k} => f[K] rename[j->k] a  for f in reductions", "(set-not-contains A_a x_k)"),
        ("a{n} => concat[n] chunk[n] a  where large(n), stored(a)", "(large x_n)"),
        ("a{n} => concat[n] chunk[n] a  where large(n), stored(a)", "(stored t_a)"),
        ("a{n} => concat[n] chunk[n] a  where large(n), stored(a)", "(set-not-contains O_e x_n)"),
        ("exp(a) => exp(a + 0)", '(number "0.0" D_e)'),
        ("f[N] a => fold[n, f] f[N] chunk[n] a  for f in monoids where n in N, large(n)", '(!= f_f "mean")'),
        # arithmetic is kept to contractions of one dtype
        ("dot[K](-a, b) => -dot[K](a, b)", "(uniform precision)"),
    ],
)
def test_conditions_become_facts(text: str, fact: str) -> None:
    lines = compiled(text).text.splitlines()[1:]
    assert lines
    assert all(fact in line for line in lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sin(a, b) => a", "there is no elementwise function sin of 2 operands"),
        ("sum[J, K] a => sum[J] sum[K] a", "the left side reduces over one set of axes at a time"),
        (
            "dot[J, K](a, b) => sum[J] dot[K](a, b)",
            "the left side contracts over one set of axes at a time",
        ),
        ("a{N} => concat[N] chunk[N] a  where large(N), stored(a)", "N is a set of axes; one axis is needed"),
        ("sum[K] f(a..) => f(a..)  for f in calls", "only chunks and renamings can be taken"),
    ],
)
def test_what_can_not_be_compiled(text: str, message: str) -> None:
    """A rule that slipped through the check is still refused, in a sentence."""
    (rule,) = parse_rules(f"rule r  {text}", "my.rules").rules
    with pytest.raises(RuleError, match=message):
        compile_rule(rule, 0)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "f[N] a => fold[n, f] f[N] chunk[n] a  for f in monoids where n in N",
            id="`n in K` chooses n, each axis of K in turn",
        ),
        pytest.param("exp(a{k}) => exp(-(-a))", id="a pattern binds a single axis"),
        pytest.param("sum[k] rename[j->k] a => sum[j] a", id="a reduction over an axis bound by a renaming"),
    ],
)
def test_rules_that_the_check_accepts_are_accepted_by_the_engine(text: str) -> None:
    compiled(text)


def test_rules_are_compiled_alike_in_every_process() -> None:
    code = """
from eqsat.rulesets.selection import rules_for
for rule in rules_for((), 'reassociates'): print(rule.text)
"""
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def test_equal_parts_are_matched_once() -> None:
    """Whatever is said of the axes of their variables."""
    text = compiled("exp(a{!k} + b{k}) - (sum[k] (a + b)) => -((sum[k] (a + b)) - exp(a + b))").text
    for rule in text.split("\n(rule ")[1:]:
        assert rule[: rule.index("(let ")].count('(Map2 "add"') == 1
