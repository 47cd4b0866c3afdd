"""What is said about rules that do not parse."""

from __future__ import annotations

import re

import pytest

from eqsat.errors import RuleSyntaxError
from eqsat.language.common_mistakes import CHARACTERS
from eqsat.language.parse import parse_rules

# Each case is a file and, under the line, the whole message.
WRONG = {
    "one_equals_sign": """
rule r
  exp(log(a)) = a
----
my.rules:2:15: unexpected `=`
  2 |   exp(log(a)) = a
    |               ^
  hint: expected `=>`, `==` or an operator
        `=>` rewrites one way, `==` both ways
""",
    "unfinished_rule": """
rule r
  sum[k] a =>   # later
----
my.rules:2:14: the rule is not finished
  2 |   sum[k] a =>   # later
    |              ^
  hint: expected a term, such as `a`, `2`, `exp(a)` or `sum[k] a`
""",
    "missing_operand": """
rule r
  sum[k] a * => b
----
my.rules:2:14: unexpected `=>`
  2 |   sum[k] a * => b
    |              ^
  hint: expected a term, such as `a`, `2`, `exp(a)` or `sum[k] a`
""",
    "missing_name": """
rule a + 0 => a
----
my.rules:1:6: this rule has no name
  1 | rule a + 0 => a
    |      ^
  hint: `a` stands in the place of the name: write `rule name  left => right`
""",
    "no_rule": """
# a comment
a + 0 => a
----
my.rules:2:1: unexpected `a`
  2 | a + 0 => a
    | ^
  hint: expected `rule`, `fact`, `monoid`, `operation` or `include`
""",
    "juxtaposition": """
rule r
  2 a => a + a
----
my.rules:2:5: unexpected `a`
  2 |   2 a => a + a
    |     ^
  hint: expected `=>`, `==` or an operator
        a product is written with `*`
""",
    "numpy_product": """
rule r
  a @ b => b
----
my.rules:2:5: unexpected `@`
  2 |   a @ b => b
    |     ^
  hint: expected `=>`, `==` or an operator
        a matrix product is a contraction over a named axis: `dot[k](a, b)`
""",
    "numpy_power": """
rule r
  a**2 => a * a
----
my.rules:2:5: unexpected `*`
  2 |   a**2 => a * a
    |     ^
  hint: expected a term, such as `a`, `2`, `exp(a)` or `sum[k] a`
        a power is written `a^2`
""",
    "fractional_exponent": """
rule r
  a^0.5 => sqrt(a)
----
my.rules:2:5: the exponent `0.5` is not an integer
  2 |   a^0.5 => sqrt(a)
    |     ^
  hint: write `pow(a, b)`
""",
    "open_parenthesis": """
rule r
  exp(a + b => exp(a) * exp(b)
----
my.rules:2:13: unexpected `=>`
  2 |   exp(a + b => exp(a) * exp(b)
    |             ^
  hint: expected `..`, `)`, `,` or an operator
        a parenthesis is not closed
""",
    "closed_too_often": """
rule r
  a * 0) => 0
----
my.rules:2:8: unexpected `)`
  2 |   a * 0) => 0
    |        ^
  hint: expected `=>`, `==` or an operator
        it closes no parenthesis
""",
    "open_pattern": """
rule r
  a{k => b
----
my.rules:2:7: unexpected `=>`
  2 |   a{k => b
    |       ^
  hint: expected `}` or `,`
""",
    "reduction_without_axes": """
rule r
  sum a => a
----
my.rules:2:7: unexpected `a`
  2 |   sum a => a
    |       ^
  hint: expected `=>`, `==` or an operator
        a reduction names its axes: `sum[k] a`
""",
    "fold_without_monoid": """
rule r
  sum[N] a => fold[n] sum[N] chunk[n] a
----
my.rules:2:21: unexpected `]`
  2 |   sum[N] a => fold[n] sum[N] chunk[n] a
    |                     ^
  hint: expected `,`
        write `fold[n, sum] a`
""",
    "rename_with_a_fat_arrow": """
rule r
  rename[j=>k] a => a
----
my.rules:2:11: unexpected `=>`
  2 |   rename[j=>k] a => a
    |           ^
  hint: expected `->`
        write `rename[j->k] a`
""",
    "dot_of_one": """
rule r
  dot[k](a) => a
----
my.rules:2:11: unexpected `)`
  2 |   dot[k](a) => a
    |           ^
  hint: expected `,` or an operator
        it closes no parenthesis
""",
    "function_call_of_a_loop": """
rule r
  chunk(a) => a
----
my.rules:2:8: unexpected `(`
  2 |   chunk(a) => a
    |        ^
  hint: expected `[`
        write `chunk[n] a`
""",
    "word_of_the_language_as_a_name": """
rule r
  sum[in] a => a
----
my.rules:2:7: unexpected `in`
  2 |   sum[in] a => a
    |       ^
  hint: expected a name
        `in` is a word of the language, so it can't be a name
""",
    "unknown_character": """
rule r
  a => b;
----
my.rules:2:9: unexpected `;`
  2 |   a => b;
    |         ^
  hint: a rule ends where the next `rule` begins, its items are separated by `,`
""",
    "unknown_accuracy": """
rule r [exactly]
  a + 0 => a
----
my.rules:1:9: there is no accuracy class `exactly`
  1 | rule r [exactly]
    |         ^
  hint: did you mean `exact`?
""",
    "guard_without_parentheses": """
rule r
  a{n} => concat[n] chunk[n] a
  where large n
----
my.rules:3:15: unexpected `n`
  3 |   where large n
    |               ^
  hint: write `large(axis)`
""",
    "class_without_in": """
rule r
  f(a) => f(a)
  for f elementwise
----
my.rules:3:9: unexpected `elementwise`
  3 |   for f elementwise
    |         ^
  hint: expected `in`
        `for f in {sin, cos}` lists functions, `for f in elementwise` names a class
""",
    "definition_that_adds": """
rule r
  a => b where J = axes(a) + axes(b)
----
my.rules:2:28: this does not define a set of axes
  2 |   a => b where J = axes(a) + axes(b)
    |                            ^
  hint: write the axes of one term without those of others: `J = axes(a) - axes(b)`
""",
    "example_without_colon": """
rule r
  a => b
  example a i k
----
my.rules:3:11: unexpected `a`
  3 |   example a i k
    |           ^
  hint: expected a name and a colon, as in `a: i k`
""",
    "two_equations": """
rule r
  a + 0 => a => a - 0
----
my.rules:2:14: unexpected `=>`
  2 |   a + 0 => a => a - 0
    |              ^
  hint: expected an operator, a clause (`for`, `where`, `guard`, `example`, `reject`, `source`) or the \
next `rule`
""",
    "tab_before_the_error": """
rule r
\ta => => b
----
my.rules:2:7: unexpected `=>`
  2 |  a => => b
    |       ^
  hint: expected a term, such as `a`, `2`, `exp(a)` or `sum[k] a`
""",
}


@pytest.mark.parametrize("case", WRONG)
def test_message(case: str) -> None:
    text, message = WRONG[case].removeprefix("\n").split("\n----\n")
    with pytest.raises(RuleSyntaxError) as caught:
        parse_rules(text, "my.rules")
    assert str(caught.value) == message.rstrip("\n")


FORM = "the word is `where` here: `where float(a), n in K`"
FOLLOWS = "conditions follow the equation: `left => right  where float(a)`"
NO_COMMA = "write no comma before a clause: `left => right  where float(a)`"
ONE_WAY, BOTH_WAYS = "`=>` rewrites one way, `==` both ways", "`==` rewrites both ways"
LISTED = "`for f in {sin, cos}` lists functions, `for f in elementwise` names a class"


@pytest.mark.parametrize(
    ("text", "place", "found", "advice"),
    [
        ("a * 1 => a such that float(a)", "2:12", "such", FORM),
        ("a * 1 => a s.t. float(a)", "2:12", "s", FORM),
        ("a * 1 => a when float(a)", "2:12", "when", FORM),
        ("a * 1 => a if float(a)", "2:12", "if", FORM),
        ("a * 1 => a iff float(a)", "2:12", "iff", FORM),
        ("a * 1 => a with float(a)", "2:12", "with", FORM),
        (
            "a * 1 => a unless float(a)",
            "2:12",
            "unless",
            "conditions cannot be negated, except for comparisons: `where size(k) != 1`",
        ),
        ("a * 1 => a, where float(a)", "2:11", ",", NO_COMMA),
        ("a * 1 => a,\n  where float(a)", "2:11", ",", NO_COMMA),
        ("a * 1 => a : float(a)", "2:12", ":", FOLLOWS),
        ("if float(a) a * 1 => a", "2:4", "float", FOLLOWS),
        ("let l = copy(k) a * 1 => a", "2:5", "l", FOLLOWS),
        (
            "for f in {sin} f(-a) => -f(a)",
            "2:1",
            "for",
            "clauses follow the equation: `left => right  for f in elementwise`",
        ),
        ("a * 1 -> a", "2:7", "->", ONE_WAY),
        ("a * 1 := a", "2:7", ":=", ONE_WAY),
        ("a * 1 ~ a", "2:7", "~", ONE_WAY),
        ("a * 1 ~> a", "2:7", "~>", ONE_WAY),
        ("a * 1 <= a", "2:7", "<=", ONE_WAY),
        ("a * 1 ==> a", "2:7", "==>", ONE_WAY),
        ("a * 1 <=> a", "2:7", "<=>", BOTH_WAYS),
        ("a * 1 <-> a", "2:7", "<->", BOTH_WAYS),
        ("a * 1 === a", "2:7", "===", BOTH_WAYS),
        ("a <- a * 1", "2:3", "<-", "rules are read from left to right: `left => right`"),
        ("a * 1 => a where n in N -> large(n)", "2:25", "->", "the conditions follow the equation"),
        ("a{k} => a where l := copy(k)", "2:19", ":=", "a definition is written with `=`: `l = copy(k)`"),
        ("f(-a) => -f(a) for f in [sin, tan]", "2:25", "[", LISTED),
        ("f(-a) => -f(a) for f in (sin, tan)", "2:25", "(", LISTED),
        ("f(-a) => -f(a) for f = sin", "2:22", "=", LISTED),
        ("f(-a) => -f(a) for all f in {sin, tan}", "2:24", "f", LISTED),
        (
            "f(-a) => -f(a) where f in {sin, tan}",
            "2:27",
            "{",
            "functions are listed by `for`: `for f in {sin, cos}`",
        ),
        ("(exact) a * 1 => a", "2:9", "a", "the accuracy class is in brackets: `rule r [exact]`"),
    ],
)
def test_what_is_written_by_habit_is_understood(text: str, place: str, found: str, advice: str) -> None:
    message = message_about(f"rule r\n{text}")
    assert message is not None
    assert message.startswith(f"my.rules:{place}: unexpected `{found}`\n")
    assert message.endswith(advice)


def test_functions_that_end_a_rule_without_braces() -> None:
    message = message_about("rule r  f(-a) => -f(a)  for f in sin, tan")
    assert message is not None
    assert message.startswith("my.rules:1:42: the rule is not finished\n")
    assert message.endswith(LISTED)


def message_about(text: str) -> str | None:
    """What is said about a text, if it is wrong."""
    try:
        parse_rules(text, "my.rules")
    except RuleSyntaxError as error:
        return str(error)
    return None


EVERY_FORM = """operation o[i, j](x: i j, y) -> i from "mine:o"
monoid m state s = 0, t = -inf merge s = s1 + s2, t = max(t1, t2) finish s
fact f spd[i, j](inv[i, j] a) where spd[i, j](a)
rule every-form [exact]  # a comment
  max(f[N] g(a..), 0)^2 / b{n, !k} => -fold[n, f] rename[j->k] dot[N](chunk[n] a, 2.5)
  for f in monoids where J = axes(a) - K, n in N, size(n) < 2 example a: i k b: source "x"
rule r fold[n, m](diag[i, j] a, delta[i, j]) == o[i, j](iota[i], b) where l = copy(n) + 1, c > 0"""


def test_every_beginning_of_a_file_parses_or_is_explained() -> None:
    for length in range(len(EVERY_FORM)):
        message = message_about(EVERY_FORM[:length])
        if message is not None:
            hint = message.split("\n  hint: ")[1]
            assert not re.search(r"\b_?[A-Z]{2,}", hint), "the name of a token of the grammar"
    assert message_about(EVERY_FORM) is None


@pytest.mark.one_in(3)
@pytest.mark.parametrize("character", "!@#$%^&*()[]{}<>=-+/\\|;:'\",.?~`_é0aA \t\n")
def test_any_character_somewhere_parses_or_is_explained(character: str) -> None:
    for place in range(ord(character) % 23, len(EVERY_FORM) + 1, 23):
        message = message_about(EVERY_FORM[:place] + character + EVERY_FORM[place:])
        assert message is None or "\n  hint: " in message


@pytest.mark.parametrize("character", CHARACTERS)
def test_what_is_on_no_keyboard_has_a_spelling(character: str) -> None:
    for text in (f"rule r  a {character} b => b", f"rule r  a => {character} b"):
        message = message_about(text)
        assert message is not None
        assert message.endswith(CHARACTERS[character])
