"""Sums that add up one entry after another and lose nothing to speak of: Kahan's compensated summation.

    rest = entry - excess;    total' = total + rest;    excess' = (total' - total) - rest

A plain float32 total of 0.1s stops growing at 2^21: further entries are less than half of its last digit. The
error of a compensated one doesn't grow with the number of entries.

Source: W. Kahan, Further remarks on reducing truncation errors, Communications of the ACM 8(1), 1965.
"""

from __future__ import annotations

from eqsat.ir.dtypes import is_real_float
from eqsat.ir.ops import Const, Map
from eqsat.ir.term import Term, Terms

MANY = 1_000
"""From so many entries on, a sum that takes them one by one is compensated."""


def is_compensated(dtype: str, entries: int) -> bool:
    """Whether a running sum of so many entries of a dtype is compensated."""
    return entries >= MANY and is_real_float(dtype)


def added(terms: Terms, total: Term, excess: Term, entry: Term) -> tuple[Term, Term]:
    """The total with an entry added, and by how much it exceeds the exact sum.

    From infinite totals nothing is missing: their excess, which would be NaN, is zero.
    """

    def made(name: str, *args: Term) -> Term:
        return terms.make(Map(name, total.dtype), args)

    rest = made("sub", entry, excess)
    after = made("add", total, rest)
    finite = terms.make(Map("is_finite", "bool"), [after])
    none = terms.make(Const("0.0", total.dtype))
    return after, made("select_n", finite, none, made("sub", made("sub", after, total), rest))
