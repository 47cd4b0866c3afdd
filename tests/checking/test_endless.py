"""Rules that never end are named, alone or together; those that end are not."""

from __future__ import annotations

import pytest

from eqsat.checking.endless import Together, endless
from eqsat.checking.filecheck import FileCheck
from eqsat.language.parse import load_text
from eqsat.rulesets.files import shipped_files

ENDLESS = {
    "a one more each time": "rule r  a + b  =>  a + b * 1  where float(a)  example  a: i  b: i",
    "without an example": "rule r  exp(a)  =>  exp(a - 0)  where float(a)",
    "both ways": "rule r [exact]  tanh(a)  ==  -tanh(-a)  where float(a)  example  a: i",
}

ENDING = {
    "associativity": "rule r [cancels]  (a + b) + c  =>  a + (b + c)  example  a: i  b: j  c: k",
    "a renaming": "rule r [exact]  diag[i, j] d{j, !i}  =>  diag[i, j] rename[j->i] d  example  d: j",
    "a chunk": "rule r [exact]  exp(a{n})  =>  concat[n] exp(chunk[n] a)  where large(n)  example  a: n",
}

PAIR = """
rule there  a - b  =>  a + -b  where float(a)  example  a: i  b: i
rule onward  a + b  =>  (a + 1) - (1 - b)  where float(a)  example  a: i  b: i
rule beside  exp(a) * exp(a)  =>  exp(a)^2  where float(a)  example  a: i
"""


@pytest.mark.parametrize("name", ENDLESS)
def test_a_rule_that_matches_what_it_makes_never_ends(name: str) -> None:
    assert endless(load_text(ENDLESS[name], "my.rules", []).rules[0], [])


@pytest.mark.parametrize("name", ENDING)
def test_a_rule_that_stops_by_itself_ends(name: str) -> None:
    assert not endless(load_text(ENDING[name], "my.rules", []).rules[0], shipped_files())


def test_rules_that_go_on_together_are_named_once() -> None:
    file = load_text(PAIR, "my.rules", [])
    together = Together(file, [])
    there, onward, beside = file.rules
    assert not endless(there, [])
    assert set(together.endless(there)) >= {"there", "onward"}
    assert together.endless(onward) == together.endless(beside) == ()


def test_strict_refuses_a_rule_that_never_ends_and_else_it_is_warned_of() -> None:
    file = load_text(ENDLESS["a one more each time"], "my.rules", [])
    for strict in (False, True):
        found = FileCheck(file, [], examples=4, strict=strict).growth(file.rules[0])
        ((message, advice),) = found
        assert message.startswith("`r` never ends: it matches its own results")
        assert "condition" in advice
    report = FileCheck(file, [], examples=4, strict=True).rule(file.rules[0])
    assert any("never ends" in failure for failure in report.failures)
    report = FileCheck(file, [], examples=4).rule(file.rules[0])
    assert any("never ends" in warning for warning in report.warnings)
    assert not report.failures
