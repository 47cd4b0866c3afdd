"""Files: what they include, what they know, and what loading them does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eqsat.errors import RuleError, RuleSyntaxError
from eqsat.ir.operations import REGISTERED, OperationSpec
from eqsat.language.parse import load_rules, load_text, parse_rules
from eqsat.language.vocabulary import all_files

RBF = "operation rbf[i, j, k](x: i k, y: j k) -> i j\n"
LARGEST = "monoid largest state m = -inf merge m = max(m1, m2)\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_include_is_relative_to_its_file(write: Path) -> None:
    (write / "sub" / "deep").mkdir(parents=True)
    (write / "top.rules").write_text('include "sub/middle.rules"\nrule t  a + a => 2 * a')
    (write / "sub" / "middle.rules").write_text('include "deep/low.rules" include "../side.rules"')
    (write / "sub" / "deep" / "low.rules").write_text("rule l  exp(log(a)) => a")
    (write / "side.rules").write_text("rule s  log(exp(a)) => a")
    loaded = load_rules("top.rules")
    assert [file.file for file in all_files([loaded])] == [
        "sub/deep/low.rules",
        "side.rules",
        "sub/middle.rules",
        "top.rules",
    ]
    assert [rule.qualified for file in all_files([loaded]) for rule in file.rules] == [
        "low.l",
        "side.s",
        "top.t",
    ]


def test_a_file_is_read_once(write: Path) -> None:
    (write / "base.rules").write_text(LARGEST + RBF)
    for name in ("left", "right"):
        (write / f"{name}.rules").write_text('include "base.rules"')
    (write / "top.rules").write_text(
        'include "left.rules" include "./right.rules"\nrule r  rbf[i, j, k](a, b) => rbf[j, i, k](b, a)'
    )
    loaded = load_rules("top.rules")
    assert loaded.includes[0].includes[0] is loaded.includes[1].includes[0]
    assert len(list(all_files([loaded]))) == 4


def test_a_file_that_includes_itself(write: Path) -> None:
    (write / "self.rules").write_text('include "self.rules"')
    with pytest.raises(RuleSyntaxError, match=r"`self.rules` includes `self.rules`"):
        load_rules("self.rules")


def test_what_is_no_text_is_not_read(write: Path) -> None:
    (write / "low.rules").write_bytes(b"\xff\xfe\x00")
    (write / "top.rules").write_text('include "low.rules"')
    with pytest.raises(RuleSyntaxError, match=r"^low.rules: this is not UTF-8 text"):
        load_rules("low.rules")
    with pytest.raises(RuleSyntaxError, match=r"^top.rules:1:9: `low.rules`: this is not UTF-8 text"):
        load_rules("top.rules")


def test_a_byte_order_mark_and_line_ends_do_not_matter(write: Path) -> None:
    (write / "mine.rules").write_bytes(b"\xef\xbb\xbfrule r\r\n  a + a => 2 * a\r\n")
    assert str(load_rules("mine.rules").rules[0].right.position) == "mine.rules:2:14"


def test_an_error_in_an_included_file_is_shown_there(write: Path) -> None:
    (write / "low.rules").write_text("rule r  a + => a")
    (write / "top.rules").write_text('include "low.rules"')
    with pytest.raises(RuleSyntaxError, match=r"^low.rules:1:13: unexpected `=>`"):
        load_rules("top.rules")


def test_names_of_known_files_can_be_used(write: Path) -> None:
    known = parse_rules(RBF + LARGEST, "known.rules")
    text = "rule r  rbf[i, j, k](a, b) => fold[k, largest] max[k] chunk[k] (a{k} * b)"
    (write / "mine.rules").write_text(text)
    with pytest.raises(RuleError):
        load_rules("mine.rules")
    [rule] = load_rules("mine.rules", known=[known]).rules
    assert rule.monoids == (("largest", known.monoids[0].monoid),)


def test_a_file_may_declare_a_monoid_of_a_known_name() -> None:
    known = parse_rules(LARGEST, "known.rules")
    own = "monoid largest state x = -inf merge x = max(x1, x2)\n"
    file = parse_rules(own + "rule r  fold[n, largest] a => a", "mine.rules", known=[known])
    assert file.rules[0].monoids == (("largest", file.monoids[0].monoid),)


def test_loading_registers_nothing(write: Path) -> None:
    (write / "mine.rules").write_text(RBF)
    load_rules("mine.rules")
    assert "rbf" not in REGISTERED
    (write / "other.rules").write_text("operation rbf[i, j, k](x: k i, y: k j) -> i j")
    assert load_rules("other.rules").operations


def test_a_file_cannot_name_the_operation_of_a_file_that_it_does_not_include(write: Path) -> None:
    (write / "first.rules").write_text(RBF)
    load_rules("first.rules")
    rule = "rule r  rbf[i, j, k](a, b) => rbf[j, i, k](b, a)"
    (write / "second.rules").write_text(rule)
    with pytest.raises(RuleError, match="there is no operation `rbf`"):
        load_rules("second.rules")
    (write / "second.rules").write_text(f'include "first.rules"\n{rule}')
    assert load_rules("second.rules").rules


def test_a_registered_operation_can_be_used_without_a_declaration(write: Path) -> None:
    (declaration,) = parse_rules(RBF, "my.rules").operations
    REGISTERED["rbf"] = OperationSpec(declaration.signature)
    (write / "mine.rules").write_text("rule r  rbf[i, j, k](a, b) => rbf[j, i, k](b, a)")
    assert load_rules("mine.rules").rules


HOSTILE = {
    "parentheses": (
        "rule r  " + "(" * 10_000 + "a" + ")" * 10_000 + " => b",
        "terms are nested more than 100 deep",
    ),
    "summands": ("rule r  " + " + ".join("a" * 20_000) + " => b", "terms are nested more than 100 deep"),
    "commuting": (
        "rule r  " + " + ".join("a" * 50) + " => 50 * a",
        "this side has more than 8 operators",
    ),
    "exponent": ("rule r  a^" + "9" * 5_000 + " => a", "this exponent has more than 9 digits"),
    "number": ("rule r  a + " + "9" * 5_000 + " => a", "this number is too large"),
    "characters": ("rule r  a + 0 => a\n" * 50_000, "this is more than 500,000 characters"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_texts_beyond_the_limits_are_refused_at_a_place(name: str) -> None:
    text, message = HOSTILE[name]
    with pytest.raises((RuleError, RuleSyntaxError), match=rf"^my.rules:1:\d+: {message}") as caught:
        load_text(text, "my.rules")
    assert all(len(line) < 180 for line in str(caught.value).split("\n"))


def test_long_sums_are_read() -> None:
    [rule] = load_text("rule r  90 * a => " + " + ".join("a" * 90), "my.rules").rules
    assert rule.name == "r"


def test_long_chains_of_includes_are_refused(write: Path) -> None:
    for number in range(60):
        (write / f"{number}.rules").write_text(f'include "{number + 1}.rules"')
    (write / "60.rules").write_text("rule r  a + 0 => a")
    with pytest.raises(RuleSyntaxError, match=r"^49.rules:1:9: more than 50 files include one another"):
        load_rules("0.rules")
    assert len(list(all_files([load_rules("20.rules")]))) == 41


def test_what_is_included_twice_at_every_step_takes_no_longer(write: Path) -> None:
    for number in range(40):
        (write / f"{number}.rules").write_text(f'include "{number + 1}.rules"\n' * 2)
    (write / "40.rules").write_text("rule r  a + 0 => a")
    loaded = load_rules("0.rules")
    assert hash(loaded) == hash(load_rules("0.rules"))
    assert len(list(all_files([loaded]))) == 41


def test_devices_are_not_read(write: Path) -> None:
    (write / "top.rules").write_text('include "/dev/zero"')
    with pytest.raises(RuleSyntaxError, match=r"^top.rules:1:9: `/dev/zero`: this is not a text file"):
        load_rules("top.rules")


def test_all_errors_are_reported_in_the_order_of_their_places(write: Path) -> None:
    (write / "low.rules").write_text("rule l  a -> a + 0")
    (write / "top.rules").write_text(
        'include "side.rules"\nrule one  a + 0 -> a\nrule two  exp(log(a)) => b\nrule three  a * 1 => a\n'
        "rule four  a * 0 => c\nrule five  a +\n"
    )
    (write / "side.rules").write_text("rule s  a + 0 => d")
    with pytest.raises(RuleSyntaxError) as caught:
        load_rules("top.rules")
    found = re.findall(r"^(\w+\.rules:\d+):\d+: ", str(caught.value), re.MULTILINE)
    assert found == ["top.rules:2", "top.rules:3", "top.rules:5", "top.rules:6", "side.rules:1"]


def test_what_lacks_an_include_is_only_parsed(write: Path) -> None:
    text = 'include "no.rules"\nrule one  f[i](a) => a\nrule two  a + => a\n'
    with pytest.raises(RuleSyntaxError) as caught:
        load_text(text, "top.rules")
    assert re.findall(r"^top.rules:(\d+)", str(caught.value), re.MULTILINE) == ["1", "3"]


def test_most_errors_are_counted() -> None:
    text = "".join(f"rule r{number}  a + 0 => b\n" for number in range(50))
    with pytest.raises(RuleError, match=r"\.\.\. and 30 more$"):
        load_text(text, "my.rules")
