"""Artificial dependences: results that seem to depend on others, so that XLA removes nothing of a scan.

The same scan with the same results is the same code wherever it runs. With fewer results, XLA may round
others otherwise, as by a reciprocal in place of a division.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from jax import lax

from eqsat.ir.axis import NO_AXES
from eqsat.ir.ops import Call, Const, Map, Opaque
from eqsat.ir.reduction_monoids import identity_text
from eqsat.ir.term import Term, Terms


class Numbering(Protocol):
    """Terms, and numbers for new calls."""

    @property
    def terms(self) -> Terms: ...

    def numbered(self, made: Call, origin: Call) -> Call:
        """A call that was made of another one with a number of its own."""


def with_dependences(
    around: Numbering,
    results: Sequence[Term],
    carries: int,
    computed: Sequence[Term],
    unread: Collection[int],
) -> list[Term]:
    """The results of a scan, where carries seem to depend on what else is computed.

    **Arguments:**

    - `carries`: how many carries there are, which come first. If there are none, all results depend.
    - `computed`: the results of calls that they seem to depend on.
    - `unread`: the numbers of results that nothing reads.
    """
    terms, found = around.terms, list(results)
    if not computed:
        return found
    true: Term | None = None
    for value in computed:
        differs = terms.make(Map("ne", "bool"), [_first_entry(around, value), _zero(terms, value.dtype)])
        count = terms.make(Map("convert", "int32"), [differs])
        # This is always true, but not known to XLA.
        less = terms.make(Map("lt", "bool"), [count, terms.make(Const("2", "int32"))])
        true = less if true is None else terms.make(Map("and", "bool"), [true, less])
    assert true is not None
    for place in range(carries or len(found)):
        if place not in unread:
            choice = [true, _zero(terms, found[place].dtype), found[place]]
            found[place] = terms.make(Map("select_n", found[place].dtype), choice)
    return found


def _first_entry(around: Numbering, value: Term) -> Term:
    """The first entry of a result, by a call that no rule takes inside of what computes it."""
    layout = tuple(sorted(value.axes))
    if not layout:
        return value
    assert isinstance(value.op, Opaque)
    params = {
        "start_indices": tuple(0 for _ in layout),
        "limit_indices": tuple(1 for _ in layout),
        "strides": None,
    }
    origin = value.op.call
    one = Call(origin.id, lax.slice_p, params, (layout,), ((None,) * len(layout),), (value.dtype,), NO_AXES)
    return around.terms.make(Opaque(around.numbered(one, origin), 0), [value])


def _zero(terms: Terms, dtype: str) -> Term:
    return terms.make(Const(identity_text("sum", dtype), dtype))
