"""Some rows of what a scan stacks, as a carry with a row for each of them, and one more for all others.

    h[rows]  =  carried[places of the rows] in the end,  where every iteration  carried[slot(t)] = its entry,
    slot(t) = k if t is the k-th of these rows, otherwise the last one, which nothing reads

The rows are given by a slice, or by indices that only the run may know: snapshots of a simulation.
"""

from __future__ import annotations

from dataclasses import dataclass

from jax import lax

from eqsat.ir.axis import Axis
from eqsat.ir.carrying_scans import Carry, Rows
from eqsat.ir.device_terms import Numbers
from eqsat.ir.history_ends import End
from eqsat.ir.looked_up_rows import LookUp, places_of
from eqsat.ir.ops import Call, Const, Iota, Leaf, Map, Opaque
from eqsat.ir.program import Output
from eqsat.ir.reduction_monoids import identity_text
from eqsat.ir.sliced_calls import SlicedTerms
from eqsat.ir.term import Term, Terms


@dataclass(frozen=True, slots=True)
class SomeRows:
    """Which rows a term is of a stacked result, or of a function of it.

    **Attributes:**

    - `reader`: the term.
    - `slot`: of each iteration, where its entry is kept.
    - `place`: where each row of the reader is kept.
    - `count`: how many rows there are.
    - `inside`: which of the reader's rows are rows, where others are `filling`. None if all are.
    """

    reader: Term
    slot: Term
    place: Term
    count: int
    inside: Term | None = None
    filling: Term | None = None

    def carried(
        self, slices: SlicedTerms, numbers: Numbers, entry: Term, slot: Term, carry: int, origin: Call
    ) -> tuple[Carry, Rows]:
        """The carry for them, and what it replaces.

        **Arguments:**

        - `entry`, `slot`: those of one iteration.
        - `carry`: the number of the carry.
        - `origin`: the call of the scan.
        """
        terms, own = slices.terms, tuple(sorted(entry.axes))
        axis = terms.axis(("carried rows", self.reader.number), self.count + 1)
        layout = (axis, *own)
        before = terms.make(Leaf(numbers.input(), layout, entry.dtype))
        call = Call(
            origin.id,
            lax.dynamic_update_slice_p,
            {},
            (layout, (None, *own), *((),) * len(layout)),
            (layout,),
            (entry.dtype,),
            frozenset(own),
        )
        after = terms.make(
            Opaque(slices.numbered(call, origin), 0), [before, entry, slot, *(_number(terms, 0) for _ in own)]
        )
        start = terms.make(Const(identity_text("sum", entry.dtype), entry.dtype))
        rows = Rows(self.reader, carry, axis, self.place, self.inside, self.filling)
        return Carry(None, start, before, Output(after, layout)), rows


def rows_of(terms: Terms, end: End, axis: Axis) -> SomeRows:
    """The rows that an end is, along the axis of iterations."""
    if end.looked_up is not None:
        return _looked_up(terms, end.term, axis, end.looked_up)
    assert end.rows is not None
    return _sliced(terms, end.term, axis, end.rows, end.axis)


def _sliced(terms: Terms, reader: Term, axis: Axis, rows: range, along: Axis) -> SomeRows:
    """The rows of a slice.

    **Arguments:**

    - `along`: the axis of the slice.
    """

    def made(name: str, dtype: str, *args: Term) -> Term:
        return terms.make(Map(name, dtype), args)

    after = made("sub", "int32", terms.make(Iota(axis, "int32")), _number(terms, rows.start))
    step = _number(terms, rows.step)
    inside = made("eq", "bool", made("rem", "int32", after, step), _number(terms, 0))
    place = made("div", "int32", after, step)
    for name, limit in (("ge", 0), ("lt", len(rows))):
        inside = made("and", "bool", inside, made(name, "bool", place, _number(terms, limit)))
    slot = made("select_n", "int32", inside, _number(terms, len(rows)), place)
    return SomeRows(reader, slot, terms.make(Iota(along, "int32")), len(rows))


def _looked_up(terms: Terms, reader: Term, axis: Axis, found: LookUp) -> SomeRows:
    """The rows that indices give."""
    places = places_of(terms, found, axis)
    filling = None if found.filling is None else terms.make(found.filling)
    inside = None if filling is None else places.inside
    return SomeRows(reader, places.slot, places.place, found.count, inside, filling)


def _number(terms: Terms, value: int) -> Term:
    return terms.make(Const(str(value), "int32"))
