"""The scan that carries what is read of a stacked result, in place of one that stacks it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from eqsat.ir.axis import Axis
from eqsat.ir.control import Body, Scan
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.history_ends import End
from eqsat.ir.history_parts import is_of_scan
from eqsat.ir.iteration_values import Operand
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.ops import Const, Iota, Map, Opaque, Operation, Reduce, Rename
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Term, Terms

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Carry:
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
class Rows:
    """Some rows of a stacked result, which are carried together.

    **Attributes:**

    - `reader`: the term that they replace.
    - `carry`: the number of the carry that has them, along `axis`.
    - `place`: the places of the reader's rows in it.
    - `inside`: which of them are rows; others are `filling`. None if all are.
    """

    reader: Term
    carry: int
    axis: Axis
    place: Term
    inside: Term | None = None
    filling: Term | None = None

    def of(self, terms: Terms, carried: Sequence[Term]) -> Term:
        """The rows, given all that is carried."""
        value = carried[self.carry]
        found = terms.make(Operation(OPERATIONS["take"], (self.axis,), value.dtype), [value, self.place])
        if self.inside is None or self.filling is None:
            return found
        return terms.make(Map("select_n", value.dtype), [self.inside, self.filling, found])


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a stacked result that is stacked in its place, or of slices of it."""

    end: End
    output: Output

    def of(self, terms: Terms, stacked: Term, axis: Axis) -> Term:
        """The function, given what is stacked along the axis of the iterations."""
        along = self.end.axis
        if self.end.parts is None:
            return stacked if along == axis else terms.make(Rename(axis, along), [stacked])
        iterations = self.end.parts.iterations
        place = terms.make(Iota(along, "int32"))
        for name, number in (("mul", iterations.step), ("add", iterations.start)):
            place = terms.make(Map(name, "int32"), [place, terms.make(Const(str(number), "int32"))])
        return terms.make(Operation(OPERATIONS["take"], (axis,), stacked.dtype), [stacked, place])


@dataclass(frozen=True, slots=True)
class CarriedHistory:
    """A stacked result, with what is carried instead, and the operands that are needed for that.

    **Attributes:**

    - `axis`: that of the iterations.
    - `functions`: what is stacked in its place.
    - `rows`: some of its rows.
    - `stacked`: whether it is stacked as well.
    """

    stack: Term
    axis: Axis
    carries: tuple[Carry, ...]
    functions: tuple[Function, ...]
    rows: tuple[Rows, ...]
    operands: tuple[Operand, ...]
    stacked: bool

    @property
    def readers(self) -> list[Term]:
        """The terms that it replaces."""
        some = [carry.reader for carry in self.carries if carry.reader is not None]
        return [*some, *(one.end.term for one in self.functions), *(one.reader for one in self.rows)]

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

        def placed(own: Sequence[T], new: Iterable[T], functions: Iterable[T]) -> tuple[T, ...]:
            """Entries for the results: the old and new carries, what is still stacked, and functions."""
            return (*own[:count], *new, *(own[number] for number in stacked), *functions)

        given = [one.output for one in self.functions]

        made = replace(
            call,
            id=program.next_call(),
            arg_layouts=(
                *call.arg_layouts,
                *(output.layout for output in outputs),
                *(operand.layout for operand in self.operands),
            ),
            out_layouts=placed(
                call.out_layouts,
                (output.layout for output in outputs),
                ((self.axis, *output.layout) for output in given),
            ),
            out_dtypes=placed(
                call.out_dtypes,
                (output.term.dtype for output in outputs),
                (output.term.dtype for output in given),
            ),
            control=replace(
                control, carried=(*control.carried, *range(begin, end)), sliced=(*control.sliced, *sliced)
            ),
        )
        inner = replace(
            body.program,
            inputs=(*body.program.inputs, *(leaf for leaf, _ in fed)),
            outputs=placed(body.program.outputs, outputs, given),
        )
        sources = (*body.sources, *(source for _, source in fed))
        made = with_bodies(made, [Body(inner, sources)], args)
        places = placed(range(len(call.out_layouts)), (-1 for _ in outputs), ())
        known = {
            term.number: terms.make(Opaque(made, places.index(term.op.result)), args)
            for term in program.known()
            if isinstance(term.op, Opaque) and is_of_scan(term, self.stack) and term.op.result not in gone
        }
        carried = [terms.make(Opaque(made, count + place), args) for place in range(len(outputs))]
        known |= {one.reader.number: one.of(terms, carried) for one in self.rows}
        for place, function in enumerate(self.functions):
            value = terms.make(Opaque(made, len(places) + place), args)
            known[function.end.term.number] = function.of(terms, value, self.axis)
        for carry, value in zip(self.carries, carried, strict=True):
            if carry.reader is None:
                continue
            others = value.axes - carry.reader.axes
            if others and isinstance(carry.reader.op, Reduce):
                # Inside, a sum over these axes would keep loops over their chunks from being outside.
                value = terms.make(Reduce(carry.reader.op.kind, others, value.dtype), [value])
            if value.dtype != carry.reader.dtype:
                value = terms.make(Map("convert", carry.reader.dtype), [value])
            known[carry.reader.number] = value
        return known
