"""What is said about wrong guards and examples, and about rules that change nothing."""

from __future__ import annotations

import pytest

from eqsat.errors import RuleError
from eqsat.language.check import check_file
from eqsat.language.parse import parse_rules

# Each case is a file and, under the line, the whole message.
WRONG = {
    "unknown_guard": """
rule r
  a{n} => concat[n] chunk[n] a
  where larg(n), stored(a)
----
my.rules:3:9: there is no guard `larg`
  3 |   where larg(n), stored(a)
    |         ^
  hint: did you mean `large`?
""",
    "guard_of_too_many": """
rule r
  a{n} => concat[n] chunk[n] a
  where large(n, a)
----
my.rules:3:9: `large` takes 1 operand, not 2
  3 |   where large(n, a)
    |         ^
  hint: it is `large(axis)`
""",
    "guard_of_another_kind": """
rule r
  a{n} => concat[n] chunk[n] a
  where large(a)
----
my.rules:3:9: `large` takes an axis, but `a` is a term
  3 |   where large(a)
    |         ^
  hint: it is `large(axis)`
""",
    "passes_of_an_elementwise_function": """
rule r
  chunk[n] f(a..) => f(chunk[n] a..)
  for f in elementwise
  where passes(f, n)
----
my.rules:4:9: `passes` takes a call, but `f` is a function
  4 |   where passes(f, n)
    |         ^
  hint: declare it `for f in calls`
""",
    "example_of_another_rule": """
rule r
  exp(log(a)) => a
  example b: i
----
my.rules:3:3: the left side has no variable `b`
  3 |   example b: i
    |   ^
  hint: it has `a`
""",
    "example_that_leaves_one_out": """
rule r
  exp(a) * exp(b) => exp(a + b)
  example a: i
----
my.rules:3:3: the example does not say which axes `b` has
  3 |   example a: i
    |   ^
  hint: a scalar has none: `b:`
""",
    "example_of_a_set": """
rule r
  exp(log(a)) => a
  example a: K
----
my.rules:3:3: an example names single axes, in lower case
  3 |   example a: K
    |   ^
  hint: name the axes of the set: `a: i j`
""",
    "same_sides": """
rule r
  a + 0 == a + 0
----
my.rules:1:6: the sides of `r` are the same
  1 | rule r
    |      ^
  hint: operands of `+`, `*`, `max`, `min`, `dot`... are matched in both orders without a rule
""",
    "commutativity": """
rule r
  a * exp(b) => exp(b) * a
----
my.rules:1:6: the sides of `r` are the same
  1 | rule r
    |      ^
  hint: operands of `+`, `*`, `max`, `min`, `dot`... are matched in both orders without a rule
""",
    "everything_matches": """
rule r
  a => -(-a)
----
my.rules:2:3: every term matches `a`
  2 |   a => -(-a)
    |   ^
  hint: add a condition: `where stored(a)`
""",
    "everything_matches_from_the_right": """
rule r
  a + 0 == a
----
my.rules:2:12: every term matches `a`
  2 |   a + 0 == a
    |            ^
  hint: write `=>` instead of `==`, or add a condition: `where stored(a)`
""",
}


def check(text: str) -> None:
    check_file(parse_rules(text, "my.rules"))


@pytest.mark.parametrize("case", WRONG)
def test_message(case: str) -> None:
    text, message = WRONG[case].removeprefix("\n").split("\n----\n")
    with pytest.raises(RuleError) as caught:
        check(text)
    assert str(caught.value) == message.rstrip("\n")
