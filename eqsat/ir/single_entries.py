"""One entry along an axis as a reduction, which takes the entries in any chunks.

All other entries become the least one, of real numbers and integers:

    a[k]  =  max over n of (a[n] if n = k, else -inf)
"""

from __future__ import annotations

from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import is_inexact, is_real_float, limits_of
from eqsat.ir.ops import Const, Iota, Map, Reduce
from eqsat.ir.term import Term, Terms


def entry_at(terms: Terms, term: Term, axis: Axis, place: int) -> Term:
    """The entry at a place along an axis, bit by bit; a complex zero may lose its sign."""
    counted = [terms.make(Iota(axis, "int32")), terms.make(Const(str(place), "int32"))]
    is_it = terms.make(Map("eq", "bool"), counted)
    kind, others = _keeping(term.dtype)
    rest = terms.make(Const(others, term.dtype))
    chosen = terms.make(Map("select_n", term.dtype), [is_it, rest, term])
    return terms.make(Reduce(kind, frozenset({axis}), term.dtype), [chosen])


def extreme(dtype: str, lowest: bool) -> str:
    """The text of the lowest or the highest value of a dtype."""
    if dtype == "bool":
        return str(not lowest)
    if is_inexact(dtype):
        return "-inf" if lowest else "inf"
    limits = limits_of(dtype)
    return str(int(limits.min if lowest else limits.max))


def _keeping(dtype: str) -> tuple[str, str]:
    """A reduction that keeps one entry as it is among others that are all equal; and these."""
    if dtype == "bool":
        return "or", "False"
    if is_inexact(dtype):
        return ("max", "-inf") if is_real_float(dtype) else ("sum", "0j")
    return "max", extreme(dtype, True)
