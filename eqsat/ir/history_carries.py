"""What a scan carries in place of a stacked result: reductions of it, single entries, and where its best is.

max_t f(h[t])  =  m in the end,  where every iteration  m = max(m, f(its entry))
argmax_t f(h[t])  =  i in the end,  where every iteration  (m, i) = (f(its entry), t) if that is larger than m
h0.at[f(h[t])].add(g(h[t]))  =  a in the end,  where every iteration  a = a.at[f(its entry)].add(g(its entry))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from eqsat.ir.axis import Axis
from eqsat.ir.carrying_scans import Carry
from eqsat.ir.compensated_sums import added, is_compensated
from eqsat.ir.device_terms import Numbers
from eqsat.ir.dtypes import accumulator, is_real_float
from eqsat.ir.history_ends import End, summands
from eqsat.ir.history_functions import ACCUMULATED, ROUNDED
from eqsat.ir.history_parts import is_read, place_in, row_of_iteration, where_read
from eqsat.ir.ops import Const, Dot, Iota, Leaf, Map, Opaque, Reduce, Select
from eqsat.ir.program import Output
from eqsat.ir.reduction_monoids import MERGES, identity_text
from eqsat.ir.sliced_calls import SlicedTerms, partial_call
from eqsat.ir.term import Term, Terms


def over_all(
    slices: SlicedTerms, end: End, axis: Axis, entries: Mapping[Term, Sequence[Term]], taken: Iterable[Term]
) -> list[Term]:
    """What is reduced or stacked, over all iterations: where it was not reduced, what changes nothing.

    Of a selection, it is the entries, their places, and whether they are read.

    **Arguments:**

    - `slices`: makes the terms along all iterations of those along a slice.
    - `entries`: by stacked result, what stands for its entries of the iteration, of that before, and so on.
    - `taken`: single entries, which are the same in all iterations.
    """
    terms = slices.terms
    read = [end.term] if end.stacked else list(summands(terms, end.term, end.axis))
    selects = isinstance(end.term.op, Select) and not end.stacked
    if end.parts is None:
        everywhere = terms.make(Const("True", "bool"))
        return [*read, terms.make(Iota(end.axis, "int32")), everywhere] if selects else read
    known = {term.number: term for term in taken}
    known |= {number: entries[stack][lag] for number, (stack, lag) in end.parts.slices.items()}
    for number, row in end.parts.rows.items():
        known[number] = row_of_iteration(terms, end.parts, axis, row)
    whole = slices.moved(read, known, end.parts.axis, axis)
    if end.stacked:
        return whole
    if selects:
        return [*whole, place_in(terms, end.parts, axis), is_read(terms, end.parts, axis)]
    nothing = terms.make(Const(identity_text(_kind(end.term), whole[-1].dtype), whole[-1].dtype))
    return [*whole[:-1], where_read(terms, end.parts, axis, whole[-1], nothing)]


def carries_of(
    slices: SlicedTerms, numbers: Numbers, end: End, entries: Sequence[Term], reverse: bool, count: int
) -> list[Carry] | None:
    """The carries for a reduction; None if an iteration can't do its part of it.

    **Arguments:**

    - `entries`: what one iteration has of what is reduced.
    - `reverse`: whether the scan starts with the last iteration.
    - `count`: sums are compensated as those of so many entries are.
    """
    match end.term.op:
        case Select():
            return _selected(slices.terms, numbers, end.term, entries, reverse)
        case Opaque():
            carry = _accumulated(slices, numbers, end, entries)
            return None if carry is None else [carry]
    (entry,) = entries
    return reduction_carries(slices.terms, numbers.input, end.term, entry, count)


def _kind(end: Term) -> str:
    """The kind of a reduction: products are summed."""
    if isinstance(end.op, Opaque):
        return ACCUMULATED[end.op.call.primitive.name]
    return getattr(end.op, "kind", "sum")


def _selected(
    terms: Terms, numbers: Numbers, end: Term, entries: Sequence[Term], reverse: bool
) -> list[Carry]:
    """The carries for the place of the best entry: that entry, and its place.

    Of equal entries, the first one is the best, and NaN is better than any number.
    """
    assert isinstance(end.op, Select)
    entry, place, here = entries
    largest, dtype = end.op.kind == "argmax", entry.dtype

    def made(name: str, dtype: str, *args: Term) -> Term:
        return terms.make(Map(name, dtype), args)

    layout = tuple(sorted(entry.axes))
    best = terms.make(Leaf(numbers.input(), layout, dtype))
    found = terms.make(Leaf(numbers.input(), layout, end.dtype))
    # In reverse, the first one comes last.
    name = ("ge" if reverse else "gt") if largest else ("le" if reverse else "lt")
    better = made(name, "bool", entry, best)
    if is_real_float(dtype):
        unordered, before = made("ne", "bool", entry, entry), made("eq", "bool", best, best)
        if not reverse:
            unordered = made("and", "bool", unordered, before)
        better = made("or", "bool", better, unordered)
    better = made("and", "bool", better, here)
    if place.dtype != end.dtype:
        place = made("convert", end.dtype, place)
    kind = "max" if largest else "min"
    start = terms.make(Const(identity_text(kind, dtype), dtype))
    first = terms.make(Const(identity_text("sum", end.dtype), end.dtype))
    return [
        Carry(None, start, best, Output(made("select_n", dtype, better, best, entry), layout)),
        Carry(end, first, found, Output(made("select_n", end.dtype, better, found, place), layout)),
    ]


def _accumulated(slices: SlicedTerms, numbers: Numbers, end: End, entries: Sequence[Term]) -> Carry | None:
    """The carry for what a call accumulates: each iteration adds its own updates."""
    assert isinstance(end.term.op, Opaque)
    call, start = end.term.op.call, end.term.args[0]
    layout = tuple(sorted(end.term.axes))
    before = slices.terms.make(Leaf(numbers.input(), layout, end.term.dtype))
    made = partial_call(call, end.axis, [before.dtype, *(entry.dtype for entry in entries)])
    if made is None:
        return None
    after = slices.terms.make(Opaque(slices.numbered(made, call), 0), [before, *entries])
    return Carry(end.term, start, before, Output(after, layout))


def is_iteration(terms: Terms, axis: Axis, row: int) -> Term:
    """For each iteration, whether it is that of a row."""
    numbers, wanted = terms.make(Iota(axis, "int32")), terms.make(Const(str(row), "int32"))
    return terms.make(Map("eq", "bool"), [numbers, wanted])


def entry_carry(terms: Terms, numbers: Numbers, reader: Term, entry: Term, here: Term | None) -> Carry:
    """The carry for one entry.

    **Arguments:**

    - `here`: in an iteration, whether the entry is its own; None for that of the last iteration.
    """
    layout = tuple(sorted(entry.axes))
    nothing = terms.make(Const(identity_text("sum", entry.dtype), entry.dtype))
    if here is None:
        return Carry(reader, nothing, None, Output(entry, layout))
    before = terms.make(Leaf(numbers.input(), layout, entry.dtype))
    kept = terms.make(Map("select_n", entry.dtype), [here, before, entry])
    return Carry(reader, nothing, before, Output(kept, layout))


def reduction_carries(
    terms: Terms, next_leaf: Callable[[], int], end: Term, entry: Term, count: int
) -> list[Carry]:
    """The carries for a reduction.

    **Arguments:**

    - `next_leaf`: returns the number of a new input of a body.

    - `entry`: what one iteration has of what is reduced, or a segment of iterations.
    - `count`: sums are compensated as those of so many entries are.
    """
    assert isinstance(end.op, Reduce | Dot)
    kind, dtype = getattr(end.op, "kind", "sum"), end.op.dtype
    if kind in ROUNDED:
        dtype = accumulator(dtype)
        if entry.dtype != dtype:
            entry = terms.make(Map("convert", dtype), [entry])
    layout = tuple(sorted(entry.axes))
    start = terms.make(Const(identity_text(kind, dtype), dtype))
    before = terms.make(Leaf(next_leaf(), layout, dtype))
    if kind != "sum" or not is_compensated(dtype, count):
        merged = terms.make(Map(MERGES[kind], dtype), [before, entry])
        return [Carry(end, start, before, Output(merged, layout))]
    excess = terms.make(Leaf(next_leaf(), layout, dtype))
    total, beyond = added(terms, before, excess, entry)
    none = terms.make(Const("0.0", dtype))
    return [
        Carry(end, start, before, Output(total, layout)),
        Carry(None, none, excess, Output(beyond, layout)),
    ]
