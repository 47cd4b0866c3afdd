"""What is said about names without a meaning, or with two."""

from __future__ import annotations

import pytest

from eqsat.errors import RuleError
from eqsat.language.check import check_file
from eqsat.language.parse import parse_rules

# Each case is a file and, under the line, the whole message.
WRONG = {
    "unbound_variable": """
rule r
  sum[K] a => sum[K] (a + b)
----
my.rules:2:27: the variable `b` is not bound on the left
  2 |   sum[K] a => sum[K] (a + b)
    |                           ^
  hint: the variables are `a`
""",
    "unbound_variable_in_the_other_direction": """
rule r
  a * exp(b - b) == a
----
my.rules:2:11: the variable `b` is not bound on the right
  2 |   a * exp(b - b) == a
    |           ^
  hint: `==` rewrites both ways; write `=>` to rewrite from left to right only
""",
    "unbound_axis": """
rule r
  exp(a) => concat[n] chunk[n] exp(a)
  where large(n)
----
my.rules:2:13: the axis `n` is not bound on the left
  2 |   exp(a) => concat[n] chunk[n] exp(a)
    |             ^
  hint: bind it by `where n in K`, or by a pattern on the left: `a{n}`
""",
    "length_for_an_axis": """
rule r
  sum[p] a => sum[h, j] split[p, h, j] a
  where h = axis(size(p) / 2), j = 2 * size(p) / (size(h) + size(h))
----
my.rules:3:32: `j = 2 * size(p) / (size(h) + size(h))` does not make an axis `j`
  3 |   where h = axis(size(p) / 2), j = 2 * size(p) / (size(h) + size(h))
    |                                ^
  hint: write `j = axis(2 * size(p) / (size(h) + size(h)))`
""",
    "number_for_an_axis": """
rule r
  sum[p] a => sum[h, j] split[p, h, j] a
  where h = axis(size(p) / 2), j = 2
----
my.rules:3:32: `j = 2` does not make an axis `j`
  3 |   where h = axis(size(p) / 2), j = 2
    |                                ^
  hint: write `j = axis(size(p) / 2)`
""",
    "axis_twice_in_a_reduction": """
rule r
  sum[p, p] a => sum[p] a
----
my.rules:2:3: the axis `p` occurs twice in `[p, p]`
  2 |   sum[p, p] a => sum[p] a
    |   ^
  hint: leave one of them out, or name another one
""",
    "axis_twice_in_a_contraction": """
rule r
  dot[j](a, b) => dot[j, j](a, b)
----
my.rules:2:19: the axis `j` occurs twice in `[j, j]`
  2 |   dot[j](a, b) => dot[j, j](a, b)
    |                   ^
  hint: leave one of them out, or name another one
""",
    "set_twice_in_a_reduction": """
rule r
  sum[J] sum[K] a => sum[J, K, J] a
----
my.rules:2:22: the set `J` occurs twice in `[J, K, J]`
  2 |   sum[J] sum[K] a => sum[J, K, J] a
    |                      ^
  hint: leave one of them out, or name another one
""",
    "unbound_set": """
rule r
  a + b => sum[K] (a + b)
----
my.rules:2:12: the set of axes `K` is not bound on the left
  2 |   a + b => sum[K] (a + b)
    |            ^
  hint: define it: `where K = axes(a) - axes(b)`
""",
    "unbound_set_in_a_pattern": """
rule r
  exp(a{K}) => log(a)
----
my.rules:2:7: the set of axes `K` is not bound on the left
  2 |   exp(a{K}) => log(a)
    |       ^
  hint: define it: `where K = axes(a) - axes(b)`
""",
    "unbound_name_in_a_guard": """
rule r
  exp(a) => log(a)
  where stored(b)
----
my.rules:3:9: `b` is not bound on the left
  3 |   where stored(b)
    |         ^
  hint: conditions may only use names that are matched
""",
    "unbound_name_in_a_definition": """
rule r
  exp(a) => log(a)
  where J = axes(a) - axes(b)
----
my.rules:3:9: the variable `b` is not bound on the left
  3 |   where J = axes(a) - axes(b)
    |         ^
  hint: the variables are `a`
""",
    "unbound_function": """
rule r
  exp(a) => f(a)
  for f in elementwise
----
my.rules:3:7: the function `f` is not bound on the left
  3 |   for f in elementwise
    |       ^
  hint: use it there, as in `f(a)` or `f[k] a`
""",
    "axis_and_term": """
rule r
  sum[k] k => exp(k)
----
my.rules:2:10: `k` is an axis and a term
  2 |   sum[k] k => exp(k)
    |          ^
  hint: call one of them something else
""",
    "pattern_contradicts_itself": """
rule r
  sum[K] (a{K} * b{!K}) => b{K} * sum[K] a
----
my.rules:2:28: `b` can't both have and lack `K`
  2 |   sum[K] (a{K} * b{!K}) => b{K} * sum[K] a
    |                            ^
  hint: a variable stands for one term: its patterns hold wherever it occurs
""",
    "definition_of_a_bound_set": """
rule r
  sum[K] (a * b) => sum[K] (b * a + 0)
  where K = axes(a) - axes(b)
----
my.rules:3:9: `K` already has a meaning
  3 |   where K = axes(a) - axes(b)
    |         ^
  hint: choose another name
""",
    "definition_of_one_axis": """
rule r
  exp(a * b) => exp(b) * a
  where j = axes(a) - axes(b)
----
my.rules:3:9: `j` is defined as a set of axes
  3 |   where j = axes(a) - axes(b)
    |         ^
  hint: write sets of axes in upper case: `J`
""",
    "operands_of_another_function": """
rule r
  f(a..) => exp(g(a..))
  for f in elementwise, g in elementwise
----
my.rules:3:25: the function `g` is not bound on the left
  3 |   for f in elementwise, g in elementwise
    |                         ^
  hint: use it there, as in `g(a)` or `g[k] a`
""",
    "operands_alone": """
rule r
  chunk[n] f(a..) => f(chunk[n] a)
  for f in elementwise
----
my.rules:2:33: `a` stands for all operands of `f`
  2 |   chunk[n] f(a..) => f(chunk[n] a)
    |                                 ^
  hint: use it as `f(a..)`
""",
    "sets_that_can_not_be_told_apart": """
rule r
  sum[J] sum[K] a == sum[J, K] a
----
my.rules:2:22: `[J, K]` can't be matched: nothing says which axes are in which
  2 |   sum[J] sum[K] a == sum[J, K] a
    |                      ^
  hint: write `=>` to rewrite from left to right only
""",
    "same_name_twice": """
rule r
  exp(log(a)) => a

rule r
  log(exp(a)) => a
----
my.rules:4:6: there is already a rule `r`, in line 1
  4 | rule r
    |      ^
  hint: the rules of one file must have different names
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
