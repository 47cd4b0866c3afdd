"""Stacked results of scans of which only a few entries, reductions and small functions are read, as carries.

    scan(...)[1][-1]  =  the entry of the last iteration
    scan(...)[1][p]  =  e in the end,  where every iteration  e = (t = p: its entry, otherwise e)
    sum_t f(scan(...)[1][t])  =  s in the end,  where  s = 0,  and every iteration  s = s + f(its entry)
    (compensated if there are many iterations: `compensated_sums`)
    f(scan(...)[1])  =  what is stacked if every iteration gives  f(its entry)

Several entries, given by a slice or by indices, have a row of a carry each (`carried_rows`). Where the best
entry is, and what is accumulated at indices, are carries, too (`history_carries`).

The labels after the last iteration of k-means, the last state of a trajectory, the mean of all iterates, the
loss of what is read out of a recurrent network's states, the energy of each state, its distance from the
first one. f may be elementwise, sum over what every iteration needs whole, read entries that are some
iterations apart (`history_parts`), and entries that were taken before or are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from eqsat.ir.carried_rows import rows_of
from eqsat.ir.carrying_scans import CarriedHistory, Carry, Function, Rows
from eqsat.ir.compensated_sums import MANY
from eqsat.ir.device_terms import Numbers
from eqsat.ir.history_carries import carries_of, entry_carry, is_iteration, over_all
from eqsat.ir.history_ends import (
    MOST_ENTRIES,
    End,
    History,
    histories,
    is_last,
    place_of,
    scan_of,
)
from eqsat.ir.iteration_values import IterationValues, entry_of
from eqsat.ir.ops import Call, Const, Leaf, Opaque
from eqsat.ir.program import Output, Program
from eqsat.ir.reduction_monoids import identity_text
from eqsat.ir.sliced_calls import SlicedTerms
from eqsat.ir.substitution import substituted, with_inputs
from eqsat.ir.term import Term


def with_histories_carried(
    program: Program,
    exact: bool = False,
    scan: int | None = None,
    wide: bool = False,
    stacked: bool = False,
    numbered: Callable[[Call, Call], Call] | None = None,
    only: Callable[[End], bool] | None = None,
    next_leaf: Callable[[], int] | None = None,
) -> Program:
    """Returns the program with carries for stacked results of which not all entries are read.

    **Arguments:**

    - `exact`: whether results must stay the same to the last bit: then floats are not added up otherwise.
    - `scan`: the number of the only call whose results are to be carried; None for all.
    - `wide`: whether to carry products that are larger than what an iteration adds to a history, too. Then
      all sums are compensated, since others may need them first: differences from a mean need its digits.
    - `stacked`: whether to carry what is read of a result in the end though something else reads its entries,
      for which it is stacked as well.
    - `numbered`: returns a call that was made of another one with a number of its own; None if the program
      has all calls that there are.
    - `only`: which reductions, entries and functions to carry, while histories are stacked for all others;
      None for all.
    - `next_leaf`: returns the number of a new input of a body; None if the program has all that there are.
    """
    while True:
        found = next(_found(program, exact, scan, wide, stacked, numbered, only, next_leaf), None)
        if found is None:
            return program
        readers = found.readers
        gone = {reader.number for reader in readers}
        equalities = [pair for pair in program.equalities if gone.isdisjoint(t.number for t in pair)]
        batch = next((form for stack, form in equalities if stack is found.stack), None)
        if batch is not None:
            # As a batch, it is reduced whole.
            equalities = [pair for pair in equalities if found.stacked or pair[0] is not found.stack]
            reduced = substituted(program.terms, readers, {found.stack.number: batch})
            equalities += zip(readers, reduced, strict=True)
        trimmed = replace(program, equalities=tuple(equalities))
        scan = None if scan is None else program.next_call()
        program = with_inputs(trimmed, program.inputs, found.replacements(program))


def _found(
    program: Program,
    exact: bool,
    scan: int | None,
    wide: bool,
    stacked: bool,
    numbered: Callable[[Call, Call], Call] | None,
    only: Callable[[End], bool] | None,
    next_leaf: Callable[[], int] | None,
) -> Iterator[CarriedHistory]:
    """Yields the stacked results that can be carried."""
    for found in histories(program, exact, wide, functions=True):
        assert isinstance(found.stack.op, Opaque)
        wanted = scan is None or found.stack.op.call.id == scan
        ends = list(filter(only, found.ends)) if only is not None else found.ends
        whole = found.is_whole or len(ends) < len(found.ends)
        if ends and wanted and (stacked or not whole):
            read = replace(found, ends=ends, given=found.given or whole)
            history = _carried_history(program, read, wide, numbered, next_leaf)
            if history is not None:
                yield history


def _carried_history(
    program: Program,
    found: History,
    wide: bool,
    numbered: Callable[[Call, Call], Call] | None,
    next_leaf: Callable[[], int] | None,
) -> CarriedHistory | None:
    """What is carried in place of a stacked result; None if an iteration can't compute it.

    **Arguments:**

    - `wide`: whether products may take longer than for all iterations at once, and all sums are compensated.
    """
    terms, numbers = program.terms, Numbers.after(program, next_leaf)
    entries_added = MANY if wide else found.axis.size
    stack, axis, ends = found.stack, found.axis, found.ends
    assert isinstance(stack.op, Opaque)
    if entry_of(stack.op, axis) is None:
        return None
    numbered = numbered or numbers.numbered
    slices = SlicedTerms(terms, numbered)
    values = IterationValues(terms, numbers, stack, wide=wide, numbered=numbered)
    carries: list[Carry] = []
    functions: list[Function] = []
    rows: list[Rows] = []
    entries: dict[Term, list[Term]] = {}
    longest: dict[Term, int] = {}
    for end in ends:
        for result, count in end.parts.longest.items() if end.parts is not None else ():
            longest[result] = max(count, longest.get(result, 0))
    for result, count in longest.items():
        assert isinstance(result.op, Opaque)
        own, made = result.op.call.out_layouts[result.op.result][1:], entry_of(result.op)
        if made is None:
            return None
        for lag in range(count + 1):
            if lag:
                before = terms.make(Leaf(numbers.input(), own, result.dtype))
                start = terms.make(Const(identity_text("sum", result.dtype), result.dtype))
                carries.append(Carry(None, start, before, Output(made, own)))
                made = before
            entries.setdefault(result, []).append(values.stand_in(own, made, axis))
    taken = [end for end in ends if end.takes_rows]
    single = [end for end in taken if end.rows is not None and end.axis not in end.term.axes]
    if sum(not is_last(end, stack) for end in single) > MOST_ENTRIES:
        return None
    begin = min(_begin(end, stack) for end in ends)
    for end in taken:
        assert end.source is not None
        along = axis if end.looked_up is None else end.axis
        entry = values.of(end.source, along)
        if entry is None:
            return None
        if end in single:
            if entry.axes != end.term.axes:
                return None
            assert end.rows is not None
            (row,) = end.rows
            here = None if is_last(end, stack) else values.of(is_iteration(terms, axis, row), axis)
            carries.append(entry_carry(terms, numbers, end.term, entry, here))
            if place_of(row, stack) <= begin:
                # Every iteration that is read has it: it was taken before, or is.
                values.know(end.term, carries[-1].output.term)
            continue
        several = rows_of(terms, end, along)
        slot = values.of(several.slot, along)
        if slot is None or entry.axes | several.place.axes != end.term.axes:
            return None
        carry, replaced = several.carried(slices, numbers, entry, slot, len(carries), stack.op.call)
        carries.append(carry)
        rows.append(replaced)
    for end in ends:
        if end.takes_rows:
            continue
        along = end.axis if end.parts is None else axis
        read = over_all(slices, end, axis, entries, (one.term for one in taken))
        inside = [entry for value in read if (entry := values.of(value, along)) is not None]
        if len(inside) < len(read):
            return None
        if end.stacked:
            (entry,) = inside
            functions.append(Function(end, Output(entry, tuple(sorted(entry.axes)))))
            if entry.axes | {end.axis} != end.term.axes:
                return None
        else:
            for_end = carries_of(slices, numbers, end, inside, scan_of(stack).reverse, entries_added)
            if for_end is None:
                return None
            carries += for_end
    return CarriedHistory(
        stack,
        axis,
        tuple(carries),
        tuple(functions),
        tuple(rows),
        tuple(values.operands),
        found.is_whole,
    )


def _begin(end: End, stack: Term) -> int:
    """How many iterations come before the first one in which something is computed for an end."""
    if end.rows is not None:
        return scan_of(stack).length if end.source is stack else place_of(end.rows[0], stack)
    if end.parts is None:
        return 0
    iterations = end.parts.iterations
    return min(place_of(iterations[0], stack), place_of(iterations[-1], stack))
