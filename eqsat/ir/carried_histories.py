"""Stacked results of scans of which only the last entry or a reduction is read, as carries: none is stored.

    scan(...)[1][-1]  =  the entry of the last iteration
    sum_t f(scan(...)[1][t])  =  s in the end,  where  s = 0,  and every iteration  s = s + f(its entry)
    (compensated if there are many iterations: `compensated_sums`)

The labels after the last iteration of k-means, the last state of a trajectory, the mean of all iterates, the
loss of what is read out of a recurrent network's states. f may be elementwise, sum over what every iteration
needs whole, and read entries that are some iterations apart (`history_parts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from eqsat.ir.axis import Axis
from eqsat.ir.compensated_sums import MANY, added, is_compensated
from eqsat.ir.control import Body, Scan
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.device_terms import Numbers
from eqsat.ir.dtypes import accumulator
from eqsat.ir.history_ends import End, History, histories, summand
from eqsat.ir.history_functions import ROUNDED
from eqsat.ir.history_parts import is_of_scan, row_of_iteration, where_read
from eqsat.ir.iteration_values import IterationValues, Operand, entry_of
from eqsat.ir.ops import Const, Dot, Leaf, Map, Opaque, Reduce
from eqsat.ir.program import Output, Program
from eqsat.ir.reduction_monoids import MERGES, identity_text
from eqsat.ir.substitution import substituted, with_inputs
from eqsat.ir.term import Term, Terms

T = TypeVar("T")


def with_histories_carried(
    program: Program,
    exact: bool = False,
    scan: int | None = None,
    wide: bool = False,
    stacked: bool = False,
) -> Program:
    """Returns the program with carries for stacked results of which no single entry but the last is read.

    **Arguments:**

    - `exact`: whether results must stay the same to the last bit: then floats are not added up otherwise.
    - `scan`: the number of the only call whose results are to be carried; None for all.
    - `wide`: whether to carry products that are larger than what an iteration adds to a history, too. Then
      all sums are compensated, since others may need them first: differences from a mean need its digits.
    - `stacked`: whether to carry what is read of a result in the end though something else reads its entries,
      for which it is stacked as well.
    """
    while True:
        found = next(_found(program, exact, scan, wide, stacked), None)
        if found is None:
            return program
        readers = [carry.reader for carry in found.carries if carry.reader is not None]
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


@dataclass(frozen=True, slots=True)
class _Carry:
    """What a scan carries in place of a stacked result.

    **Attributes:**

    - `reader`: the term that it replaces; None for what only the iterations need.
    - `start`: what is carried at first.
    - `before`: what an iteration gets of it; None if it does not matter.
    - `output`: what an iteration makes of it.
    """

    reader: Term | None
    start: Term
    before: Term | None
    output: Output


@dataclass(frozen=True, slots=True)
class _CarriedHistory:
    """A stacked result, with what is carried instead, and the operands that are needed for that.

    **Attributes:**

    - `stacked`: whether it is stacked as well.
    """

    stack: Term
    carries: tuple[_Carry, ...]
    operands: tuple[Operand, ...]
    stacked: bool

    def replacements(self, program: Program) -> dict[int, Term]:
        """The terms of the scan that carries it, by the numbers of those that they replace."""
        assert isinstance(self.stack.op, Opaque)
        call, result, terms = self.stack.op.call, self.stack.op.result, program.terms
        control = call.control
        assert isinstance(control, Scan)
        (body,) = call.bodies
        count = len(control.carried)
        gone = set() if self.stacked else {result}
        stacked = [number for number in range(count, len(call.out_layouts)) if number not in gone]
        outputs = [carry.output for carry in self.carries]
        begin, end = len(self.stack.args), len(self.stack.args) + len(outputs)
        fed = [(carry.before, begin + place) for place, carry in enumerate(self.carries) if carry.before]
        fed += [(operand.leaf, end + place) for place, operand in enumerate(self.operands)]
        sliced = [end + place for place, operand in enumerate(self.operands) if operand.sliced]
        starts, values = (carry.start for carry in self.carries), (one.value for one in self.operands)
        args = (*self.stack.args, *starts, *values)

        def placed(own: Sequence[T], new: Iterable[T]) -> tuple[T, ...]:
            """Entries for the results: the old carries, the new ones, and what is still stacked."""
            return (*own[:count], *new, *(own[number] for number in stacked))

        made = replace(
            call,
            id=program.next_call(),
            arg_layouts=(
                *call.arg_layouts,
                *(output.layout for output in outputs),
                *(operand.layout for operand in self.operands),
            ),
            out_layouts=placed(call.out_layouts, (output.layout for output in outputs)),
            out_dtypes=placed(call.out_dtypes, (output.term.dtype for output in outputs)),
            control=replace(
                control, carried=(*control.carried, *range(begin, end)), sliced=(*control.sliced, *sliced)
            ),
        )
        inner = replace(
            body.program,
            inputs=(*body.program.inputs, *(leaf for leaf, _ in fed)),
            outputs=placed(body.program.outputs, outputs),
        )
        sources = (*body.sources, *(source for _, source in fed))
        made = with_bodies(made, [Body(inner, sources)], args)
        places = placed(range(len(call.out_layouts)), (-1 for _ in outputs))
        known = {
            term.number: terms.make(Opaque(made, places.index(term.op.result)), args)
            for term in program.known()
            if isinstance(term.op, Opaque) and is_of_scan(term, self.stack) and term.op.result not in gone
        }
        for place, carry in enumerate(self.carries):
            if carry.reader is None:
                continue
            value = terms.make(Opaque(made, count + place), args)
            others = value.axes - carry.reader.axes
            if others and isinstance(carry.reader.op, Reduce):
                # Inside, a sum over these axes would keep loops over their chunks from being outside.
                value = terms.make(Reduce(carry.reader.op.kind, others, value.dtype), [value])
            if value.dtype != carry.reader.dtype:
                value = terms.make(Map("convert", carry.reader.dtype), [value])
            known[carry.reader.number] = value
        return known


def _found(
    program: Program, exact: bool, scan: int | None, wide: bool, stacked: bool
) -> Iterator[_CarriedHistory]:
    """Yields the stacked results that can be carried."""
    for found in histories(program, exact, wide):
        assert isinstance(found.stack.op, Opaque)
        wanted = scan is None or found.stack.op.call.id == scan
        if found.ends and wanted and (stacked or not found.is_whole):
            history = _carried_history(program, found, MANY if wide else found.axis.size)
            if history is not None:
                yield history


def _of_all(terms: Terms, end: End, axis: Axis, entries: Mapping[Term, Sequence[Term]]) -> Term:
    """What is reduced, over all iterations: where it was not before, there is what changes nothing.

    **Arguments:**

    - `entries`: by stacked result, what stands for its entries of the iteration, of that before, and so on.
    """
    if end.parts is None:
        return summand(terms, end.term, axis)
    assert isinstance(end.term.op, Reduce | Dot)
    reduced = summand(terms, end.term, end.parts.axis)
    known = {number: entries[stack][lag] for number, (stack, lag) in end.parts.slices.items()}
    for number, row in end.parts.rows.items():
        known[number] = row_of_iteration(terms, end.parts, axis, row)
    (whole,) = substituted(terms, [reduced], known)
    kind = getattr(end.term.op, "kind", "sum")
    nothing = terms.make(Const(identity_text(kind, whole.dtype), whole.dtype))
    return where_read(terms, end.parts, axis, whole, nothing)


def _carried_history(program: Program, found: History, entries_added: int) -> _CarriedHistory | None:
    """What is carried in place of a stacked result; None if an iteration can't compute it.

    **Arguments:**

    - `entries_added`: sums are compensated as those of so many entries are.
    """
    terms, numbers = program.terms, Numbers.after(program)
    stack, axis, ends = found.stack, found.axis, found.ends
    assert isinstance(stack.op, Opaque)
    if entry_of(stack.op, axis) is None:
        return None
    values = IterationValues(terms, numbers, stack)
    carries: list[_Carry] = []
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
                carries.append(_Carry(None, start, before, Output(made, own)))
                made = before
            entries.setdefault(result, []).append(values.stand_in(own, made, axis))
    for end in ends:
        entry = values.of(_of_all(terms, end, axis, entries), axis)
        if entry is None:
            return None
        carries += _carried(terms, numbers, end.term, entry, entries_added)
    return _CarriedHistory(stack, tuple(carries), tuple(values.operands), found.is_whole)


def _carried(terms: Terms, numbers: Numbers, end: Term, entry: Term, count: int) -> list[_Carry]:
    """The carries for a reduction or a last entry.

    **Arguments:**

    - `entry`: what one iteration has of what is reduced.
    - `count`: sums are compensated as those of so many entries are.
    """
    if isinstance(end.op, Opaque):
        layout = end.op.call.arg_layouts[0][1:]
        nothing = terms.make(Const(identity_text("sum", entry.dtype), entry.dtype))
        return [_Carry(end, nothing, None, Output(entry, layout))]
    assert isinstance(end.op, Reduce | Dot)
    kind, dtype = getattr(end.op, "kind", "sum"), end.op.dtype
    if kind in ROUNDED:
        dtype = accumulator(dtype)
        if entry.dtype != dtype:
            entry = terms.make(Map("convert", dtype), [entry])
    layout = tuple(sorted(entry.axes))
    start = terms.make(Const(identity_text(kind, dtype), dtype))
    before = terms.make(Leaf(numbers.input(), layout, dtype))
    if kind != "sum" or not is_compensated(dtype, count):
        merged = terms.make(Map(MERGES[kind], dtype), [before, entry])
        return [_Carry(end, start, before, Output(merged, layout))]
    excess = terms.make(Leaf(numbers.input(), layout, dtype))
    total, beyond = added(terms, before, excess, entry)
    none = terms.make(Const("0.0", dtype))
    return [
        _Carry(end, start, before, Output(total, layout)),
        _Carry(None, none, excess, Output(beyond, layout)),
    ]
