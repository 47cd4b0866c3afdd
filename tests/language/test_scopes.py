"""What is said about rules that get axes wrong, and which rules are let through."""

from __future__ import annotations

import re

import pytest

from eqsat.errors import RuleError
from eqsat.language.check import check_file
from eqsat.language.parse import parse_rules

# Each case is a file and, under the line, the whole message.
WRONG = {
    "summed_axis_escapes": """
rule r
  sum[K] (c * a) => c * sum[K] a
----
my.rules:2:21: an axis of `K` is free on the right but not on the left
  2 |   sum[K] (c * a) => c * sum[K] a
    |                     ^
  hint: if `c` has no axis of `K`, say so on the left: `c{!K}`
""",
    "free_axis_is_captured": """
rule r
  c * sum[K] a => sum[K] (c * a)
----
my.rules:2:19: an axis of `K` is free on the left but not on the right
  2 |   c * sum[K] a => sum[K] (c * a)
    |                   ^
  hint: if `c` has no axis of `K`, say so on the left: `c{!K}`
""",
    "captured_from_right_to_left": """
rule r
  sum[K] (c * a{K}) == c * sum[K] a
----
my.rules:2:24: an axis of `K` is free on the right but not on the left
  2 |   sum[K] (c * a{K}) == c * sum[K] a
    |                        ^
  hint: if `c` has no axis of `K`, say so on the left: `c{!K}`
""",
    "captured_by_a_contraction": """
rule r
  dot[K](dot[J](a, b), c{!J}) => dot[J](dot[K](a, c), b)
  where J in a, K in a, K in c
----
my.rules:2:48: an axis of `K` is free on the right but not on the left
  2 |   dot[K](dot[J](a, b), c{!J}) => dot[J](dot[K](a, c), b)
    |                                                ^
  hint: if `b` has no axis of `K`, say so on the left: `b{!K}`
""",
    "reduced_on_one_side_only": """
rule r
  sum[K] a => a
----
my.rules:2:15: an axis of `K` is free on the right but not on the left
  2 |   sum[K] a => a
    |               ^
  hint: both sides of a rule must have the same axes
""",
    "axes_of_a_variable_lost": """
rule r
  a - a => 0
----
my.rules:2:12: the left side has all axes of `a`, which the right side may lack
  2 |   a - a => 0
    |            ^
  hint: both sides of a rule must have the same axes
""",
    "axes_of_another_variable_lost": """
rule r
  max(a, max(a, b)) => a
----
my.rules:2:24: the left side has all axes of `b`, which the right side may lack
  2 |   max(a, max(a, b)) => a
    |                        ^
  hint: both sides of a rule must have the same axes
""",
    "captured_by_a_renaming": """
rule r
  rename[j->k] f[K] a => f[K] rename[j->k] a
  for f in reductions
----
my.rules:2:31: the operand may already have an axis `k`
  2 |   rename[j->k] f[K] a => f[K] rename[j->k] a
    |                               ^
  hint: if `a` lacks the axis `k`, say so on the left: `a{!k}`
""",
    "reduction_of_an_axis_that_may_be_missing": """
rule r
  sum[K] (a{K} + b) => (sum[K] a) + sum[K] b
----
my.rules:2:37: `sum[K]` is over axes of `K`, which its operand may lack
  2 |   sum[K] (a{K} + b) => (sum[K] a) + sum[K] b
    |                                     ^
  hint: if `b` has all axes of `K`, say so on the left: `b{K}`
""",
    "empty_reduction": """
rule r
  sum[K] (a{K} - b{K}) => sum[K] (a - b - 0 * mean[J] b)
  where J = axes(b) - axes(a)
----
my.rules:2:47: `J` may be empty, but a reduction needs at least one axis
  2 |   sum[K] (a{K} - b{K}) => sum[K] (a - b - 0 * mean[J] b)
    |                                               ^
  hint: add the guard `nonempty(J)`
""",
    "chunk_in_no_loop": """
rule r
  f[N] a => f[N] chunk[n] a
  for f in monoids
  where n in N
----
my.rules:2:13: `chunk[n]` is not inside a loop over `n`
  2 |   f[N] a => f[N] chunk[n] a
    |             ^
  hint: put it inside `concat[n]` or `fold[n, sum]`
""",
    "loop_without_chunk": """
rule r
  f[N] a => fold[n, f] f[N] a
  for f in monoids
  where n in N
----
my.rules:2:13: all iterations of this loop are the same: its body has no `chunk[n]`
  2 |   f[N] a => fold[n, f] f[N] a
    |             ^
  hint: write `chunk[n] a` for what differs
""",
    "fold_of_what_keeps_the_axis": """
rule r
  f[N] a => f[N] fold[n, f] chunk[n] a
  for f in monoids
  where n in N
----
my.rules:2:18: the body of this loop still has the axis `n`, whose chunks it combines
  2 |   f[N] a => f[N] fold[n, f] chunk[n] a
    |                  ^
  hint: reduce each chunk first: `fold[n, sum] sum[n] chunk[n] a`
""",
    "chunk_meets_the_whole": """
rule r
  a{n} * b{n} => concat[n] (a * chunk[n] b)
  where large(n)
----
my.rules:2:31: a chunk along `n` meets an operand that is not cut along `n`
  2 |   a{n} * b{n} => concat[n] (a * chunk[n] b)
    |                               ^
  hint: take a chunk of each operand that has `n`
""",
    "chunk_of_one_operand_of_two": """
rule r
  chunk[n] (a * b) => a * chunk[n] b
----
my.rules:2:25: the left side is a chunk along `n`, but the right side is not
  2 |   chunk[n] (a * b) => a * chunk[n] b
    |                         ^
  hint: if `a` lacks the axis `n`, say so on the left: `a{!n}`
""",
    "chunk_forgotten": """
rule r
  chunk[n] f(a..) => f(a..)
  for f in elementwise
----
my.rules:2:22: the left side is a chunk along `n`, but the right side is not
  2 |   chunk[n] f(a..) => f(a..)
    |                      ^
  hint: take a chunk of each operand that may have `n`
""",
    "operation_of_a_chunk": """
rule r
  logsumexp[n] a => fold[n, max] logsumexp[n] chunk[n] a  where large(n)
----
my.rules:2:34: `logsumexp[n]` needs the axis `n` whole, but this is a chunk of it
  2 |   logsumexp[n] a => fold[n, max] logsumexp[n] chunk[n] a  where large(n)
    |                                  ^
  hint: it can work on chunks along all other axes
""",
    "best_entries_of_a_chunk": """
rule r
  max[n] a => fold[n, max] max[m] top_k[n, m] chunk[n] a  where large(n), m = axis(size(n) / 2)
----
my.rules:2:35: `top_k[n, m]` needs the axis `n` whole, but this is a chunk of it
  2 |   max[n] a => fold[n, max] max[m] top_k[n, m] chunk[n] a  where large(n), m = axis(size(n) / 2)
    |                                   ^
  hint: `fold[n, s] chunk[n] a`, with s in selections, keeps the best of all
""",
    "renaming_of_a_product": """
rule r
  sum[i, j] (w{i, !j} * rename[i->j] w * (x{i, !j} - rename[i->j] x)) => 0 * sum[i] w
----
my.rules:2:25: this never matches: the operand may already have an axis `j`
  2 |   sum[i, j] (w{i, !j} * rename[i->j] w * (x{i, !j} - rename[i->j] x)) => 0 * sum[i] w
    |                         ^
  hint: `rename[i->j]` applies to the whole product: write `(rename[i->j] a) * b`
""",
    "property_of_an_axis_that_is_not_there": """
rule r
  exp(a{!i}) * b{i, j} => b * exp(a + 0)  where spd[i, j](a)
----
my.rules:2:16: this never matches: the axis `i` cannot exist
  2 |   exp(a{!i}) * b{i, j} => b * exp(a + 0)  where spd[i, j](a)
    |                ^
  hint: compare the patterns and the `where` clauses
""",
    "never_matches": """
rule r
  sum[K] a{!K} => a
----
my.rules:2:3: this never matches: `sum[K]` is over axes of `K`, which its operand may lack
  2 |   sum[K] a{!K} => a
    |   ^
  hint: compare the patterns and the `where` clauses
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


RIGHT = """
    log(exp(a)) => a
    a * exp(b) == exp(b) * (a + 0)
    sum[K] (c{!K} * a) == c * sum[K] a{K}
    sum[J] sum[K] a => sum[J, K] a
    sum[J] sum[K] a => sum[K] sum[J] a
    sum[n] a => sum[n] (a + 0 * iota[n])
    sum[K] a => sum[K] (a - mean[J] a) where J = axes(a) - K, nonempty(J)
    dot[K](a, b) => sum[K] (a * b)
    dot[K](sum[J] a, b{!J}) => sum[J] dot[K](a, b)
    f[N] a => fold[n, f] f[N] chunk[n] a  for f in monoids where n in N
    concat[n] chunk[n] a => a
    concat[n] (a * chunk[n] b) => a * b
    concat[n] (a{!n} * chunk[n] b) => a * concat[n] chunk[n] b
    fold[n, sum] sum[n] chunk[n] a => sum[n] a
    fold[n, sum] (c{!n} * sum[n] chunk[n] a) => c * sum[n] a
    s[n] a => fold[n, s] chunk[n] a  for s in selections
    argmax[n] a => fold[n, min] ((min[n] chunk[n] iota[n]) + argmax[n] chunk[n] a)
    chunk[n] s[k] a{n} => s[k] chunk[n] a  for s in selections
    chunk[n] f(a..) => f(chunk[n] a..)  for f in calls where passes(f, n)
    f(f(a..)) => f(a..)  for f in calls
    sum[K] f(a..) => -sum[K] (-f(a..))  for f in calls
    rename[j->k] (a * b) => (rename[j->k] a) * rename[j->k] b
    rename[j->k] a{j} => concat[k] chunk[k] rename[j->k] a  where large(k)
"""


@pytest.mark.parametrize("rule", [line.strip() for line in RIGHT.strip().splitlines()])
def test_is_let_through(rule: str) -> None:
    check(f"rule right  {rule}")


# Rules of which every pattern is needed: with any one of them gone, an axis escapes or is captured.
NEEDED = """
    sum[K] (c{!K} * a) == c * sum[K] a
    sum[K] (a / c{!K}) == (sum[K] a) / c
    sum[K] (a{K} + b{K}) == (sum[K] a) + sum[K] b
    sum[K] dot[J](a, b{!K}) => dot[J](sum[K] a, b)
    dot[K](dot[J](a, b{!K}), c{!J}) => dot[J](dot[K](a, c), b)
    rename[j->k] f[K] a{!k} => f[K] rename[j->k] a  for f in reductions
    a{!n} * concat[n] chunk[n] b{n} => concat[n] (a * chunk[n] b)
"""


@pytest.mark.parametrize("rule", [line.strip() for line in NEEDED.strip().splitlines()])
def test_a_missing_pattern_is_asked_for(rule: str) -> None:
    check(f"rule complete  {rule}")
    for pattern in re.findall(r"\{.*?\}", rule):
        if pattern == "{n}":  # implied: there are no chunks of what lacks the axis
            continue
        before, after = rule.split(pattern, 1)
        with pytest.raises(RuleError) as caught:
            check(f"rule incomplete  {before}{after}")
        assert f"say so on the left: `{before[-1]}{pattern}`" in str(caught.value)
