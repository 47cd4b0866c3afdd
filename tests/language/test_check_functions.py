"""What is said about functions that don't exist or are not what they are used as."""

from __future__ import annotations

import pytest

from eqsat.errors import RuleError
from eqsat.language.check import check_file
from eqsat.language.parse import parse_rules

# Each case is a file and, under the line, the whole message.
WRONG = {
    "unknown_function": """
rule r
  exp(a) * sqr(b) => b * a
----
my.rules:2:12: there is no elementwise function `sqr`
  2 |   exp(a) * sqr(b) => b * a
    |            ^
  hint: did you mean `sqrt`?
""",
    "function_of_numpy": """
rule r
  log(1 + exp(a)) => logaddexp(a, 0)
----
my.rules:2:22: there is no elementwise function `logaddexp`
  2 |   log(1 + exp(a)) => logaddexp(a, 0)
    |                      ^
  hint: functions are the elementwise primitives of JAX, such as `exp` or `log1p`
""",
    "unknown_reduction": """
rule r
  summ[k] a => a
----
my.rules:2:3: there is no reduction or operation `summ`
  2 |   summ[k] a => a
    |   ^
  hint: did you mean `sum`?
""",
    "function_for_a_class": """
rule r
  f(-a) => f(a)
  for f in cos
----
my.rules:3:7: there is no class `cos`
  3 |   for f in cos
    |       ^
  hint: functions are listed in braces: `for f in {cos}`
""",
    "unknown_class": """
rule r
  f(a) => f(-a)
  for f in elementwises
----
my.rules:3:7: there is no class `elementwises`
  3 |   for f in elementwises
    |       ^
  hint: did you mean `elementwise`?
""",
    "function_variable_without_class": """
rule r
  fun(a) => fun(-a)
----
my.rules:2:3: there is no elementwise function `fun`
  2 |   fun(a) => fun(-a)
    |   ^
  hint: if it is a variable, declare it: `for fun in elementwise`
""",
    "function_variable_with_a_functions_name": """
rule r
  exp(a) => exp(-a)
  for exp in elementwise
----
my.rules:3:7: `exp` is the name of a function
  3 |   for exp in elementwise
    |       ^
  hint: call the function variable `f`, `g`...
""",
    "too_many_operands": """
rule r
  exp(a, b) => a * b
----
my.rules:2:3: `exp` takes 1 operand, not 2
  2 |   exp(a, b) => a * b
    |   ^
  hint: write `exp(a)`
""",
    "too_few_operands": """
rule r
  max(a) => a
----
my.rules:2:3: `max` takes 2 operands, not 1
  2 |   max(a) => a
    |   ^
  hint: write `max(a, b)`
""",
    "reduction_as_a_function": """
rule r
  f(a) => f(-a)
  for f in reductions
----
my.rules:2:3: `f` ranges over reductions, so it is not written `f(a)`
  2 |   f(a) => f(-a)
    |   ^
  hint: reductions and selections are written `f[k] a`
""",
    "function_as_a_reduction": """
rule r
  f[K] a => f[K] (-a)
  for f in elementwise
----
my.rules:2:3: `f` ranges over elementwise, so it cannot reduce
  2 |   f[K] a => f[K] (-a)
    |   ^
  hint: functions are written `f(a)`
""",
    "misspelled_selection": """
rule r
  argmx[n] exp(a) => argmax[n] a
----
my.rules:2:3: there is no reduction or operation `argmx`
  2 |   argmx[n] exp(a) => argmax[n] a
    |   ^
  hint: did you mean `argmax`?
""",
    "named_selection_over_a_set": """
rule r
  argmax[N] exp(a) => argmax[N] a
----
my.rules:2:3: `N` is a set, but this operator takes single axes
  2 |   argmax[N] exp(a) => argmax[N] a
    |   ^
  hint: write single axes in lower case: `n`
""",
    "selection_over_a_set": """
rule r
  s[N] exp(a) => s[N] a
  for s in selections
----
my.rules:2:3: `N` is a set, but this operator takes single axes
  2 |   s[N] exp(a) => s[N] a
    |   ^
  hint: write single axes in lower case: `n`
""",
    "loop_over_a_set": """
rule r
  sum[N] a => fold[N, sum] sum[N] chunk[N] a
----
my.rules:2:15: `N` is a set, but this operator takes single axes
  2 |   sum[N] a => fold[N, sum] sum[N] chunk[N] a
    |               ^
  hint: write single axes in lower case: `n`
""",
    "fold_that_is_no_monoid": """
rule r
  mean[N] a => fold[n, mean] mean[N] chunk[n] a
  where n in N
----
my.rules:2:16: there is no monoid `mean`
  2 |   mean[N] a => fold[n, mean] mean[N] chunk[n] a
    |                ^
  hint: partial results of sum, prod, max, min, and, or or xor can be combined, but not those of mean
""",
    "fold_over_reductions": """
rule r
  f[N] a => fold[n, f] f[N] chunk[n] a
  for f in reductions
  where n in N
----
my.rules:2:13: a fold can't combine with any of the reductions
  2 |   f[N] a => fold[n, f] f[N] chunk[n] a
    |             ^
  hint: let `f` range over monoids, selections or unrounded
""",
    "fold_by_an_operation_that_has_no_state": """
rule r
  inv[n, j] a => fold[n, inv] inv[n, j] chunk[n] a
----
my.rules:2:18: a fold can't combine with the operation `inv`
  2 |   inv[n, j] a => fold[n, inv] inv[n, j] chunk[n] a
    |                  ^
  hint: of the operations, only qr_qt or qr_r are done chunk by chunk
""",
    "fold_by_an_operation_of_no_chunks": """
rule r
  qr_r[n, l, j] a => fold[n, qr_r] qr_r[n, l, j] a
----
my.rules:2:22: a fold by `qr_r` must be over `qr_r` itself, of chunks
  2 |   qr_r[n, l, j] a => fold[n, qr_r] qr_r[n, l, j] a
    |                      ^
  hint: write `fold[i, qr_r] qr_r[i, l, j] chunk[i] a`
""",
    "call_without_passes": """
rule r
  chunk[n] f(a..) => f(chunk[n] a..)
  for f in calls
----
my.rules:2:24: `f` may need the axis `n` whole
  2 |   chunk[n] f(a..) => f(chunk[n] a..)
    |                        ^
  hint: add the guard `passes(f, n)`
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
