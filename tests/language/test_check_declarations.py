"""What is said about declarations of operations and monoids."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat.errors import RuleError
from eqsat.language.check import check_file
from eqsat.language.parse import parse_rules

RIGHT = """
    operation rbf[i, j, k](x: i k, y: j k) -> i j  from "package.module:rbf"
    operation total[n](a: n) ->
    operation pick[n](a: n, index) ->
    operation spread[n, m](a: n) -> m
    monoid largest state m = -inf merge m = max(m1, m2)
"""


@pytest.mark.parametrize("text", [line.strip() for line in RIGHT.strip().splitlines()])
def test_is_let_through(text: str) -> None:
    check_file(parse_rules(text, "my.rules"))


WRONG = {
    "operation f[i](x: i) -> i operation f[i](x: i) ->": "there is already an operation `f`, in line 1",
    "operation inv[i, j](A: i j) -> j i": "`inv` is a built-in operation",
    "operation sum[i](a: i) ->": "`sum` is a reduction",
    "operation argmax[i](a: i) ->": "`argmax` is a selection",
    "operation exp[i](a: i) -> i": "`exp` is an elementwise function",
    "operation spd[i](a: i) ->": "`spd` is a property",
    "operation large[i](a: i) ->": "`large` is a guard",
    "operation diag[i, j](a: i) -> i j": "`diag` is a word of the language",
    "operation f[i](a: i, a: i) ->": "two operands are called `a`",
    "operation f[i, i](a: i) ->": "`i` occurs twice in the brackets",
    "operation f[i](a: i i) ->": "`i` occurs twice in the operand `a`",
    "operation f[i](a: i) -> i i": "`i` occurs twice in the result",
    "operation f[i](a: i j) ->": "the axis `j` of the operand `a` is not in the brackets",
    "operation f[i](a: i) -> j": "the axis `j` of the result is not in the brackets",
    "operation f[i, j](a: i) -> i": "neither an operand nor the result has the axis `j`",
    "operation f[I](a: I) ->": "`I` is a set",
    "monoid sum state s = 0 merge s = s1 + s2": "`sum` is a built-in reduction",
    "monoid m state s = 0 merge s = s1 + s2 monoid m state s = 0 merge s = s1 + s2": (
        "there is already a monoid `m`, in line 1"
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_is_refused(text: str) -> None:
    with pytest.raises(RuleError) as caught:
        check_file(parse_rules(text, "my.rules"))
    first, *rest = str(caught.value).split("\n")
    assert first.split(": ", 1)[1] == WRONG[text]
    assert rest[-1].startswith("  hint: ")


def test_includes_and_their_file_agree(tmp_path: Path) -> None:
    (tmp_path / "low.rules").write_text("monoid m state s = 0 merge s = s1 + s2\noperation f[i](a: i) ->")
    top = f'include "{tmp_path}/low.rules"\n'
    check_file(parse_rules(top + "monoid m state s = 0 merge s = s1 + s2", "top.rules"))
    check_file(parse_rules(top + "operation f[i](a: i) ->", "top.rules"))
    with pytest.raises(RuleError, match="an included file declares another monoid `m`"):
        check_file(parse_rules(top + "monoid m state s = 1 merge s = s1 * s2", "top.rules"))
    with pytest.raises(RuleError, match="there is already another operation `f`"):
        check_file(parse_rules(top + "operation f[i](a: i) -> i", "top.rules"))
