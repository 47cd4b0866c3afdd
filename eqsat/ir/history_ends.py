"""What stacked results of scans end in: reductions over the iterations, and last entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.ir.axis import Axis
from eqsat.ir.control import Scan
from eqsat.ir.dtypes import is_extended
from eqsat.ir.history_functions import adds_up, goes_inside
from eqsat.ir.history_parts import Parts, parts_read, some_iterations, takes_last
from eqsat.ir.ops import Dot, Map, Opaque
from eqsat.ir.program import Program
from eqsat.ir.term import Term, Terms


@dataclass(frozen=True, slots=True)
class End:
    """A reduction over the iterations, or over some of them; or a last entry.

    **Attributes:**

    - `parts`: the slices of the stacked result of which it reduces a function, if it is not one of all.
    """

    term: Term
    parts: Parts | None = None


def ends_of_histories(program: Program, exact: bool = False) -> dict[Term, list[Term]]:
    """The stacked results of which only the last entry or reductions are read, and what that is.

    It may need others of them first: the variance needs the mean. And products may be large.
    """
    return {stack: [end.term for end in ends] for stack, _, ends in ended(program, exact, wide=True)}


def ended(program: Program, exact: bool, wide: bool) -> Iterator[tuple[Term, Axis, list[End]]]:
    """Yields stacked results of which only the last entry or reductions are read, and their first axis.

    **Arguments:**

    - `exact`: whether results must stay the same to the last bit.
    - `wide`: whether products may be larger than what an iteration adds to the history.
    """
    terms = list(program.reachable())
    readers: dict[int, list[Term]] = {}
    for term in terms:
        for arg in dict.fromkeys(term.args):
            readers.setdefault(arg.number, []).append(term)
    outputs = {output.term.number for output in program.outputs}
    for term in terms:
        if not isinstance(term.op, Opaque) or is_extended(term.dtype):
            continue
        control = term.op.call.control
        if isinstance(control, Scan) and control.length and term.op.result >= len(control.carried):
            axis = term.op.call.out_layouts[term.op.result][0]
            if not isinstance(axis, Axis):
                continue
            ends = _Ends(program.terms, readers, outputs, exact, wide).of(term, axis)
            if ends:
                yield term, axis, ends


@dataclass(frozen=True, slots=True)
class _Ends:
    """What is made of stacked results in the end.

    **Attributes:**

    - `readers`: by number of a term, the terms that read it.
    - `outputs`: the numbers of what the program gives.
    """

    terms: Terms
    readers: Mapping[int, Sequence[Term]]
    outputs: set[int]
    exact: bool
    wide: bool

    def of(self, stack: Term, axis: Axis) -> list[End] | None:
        """What all that is made of a stacked result ends in; None if that is not always a reduction or the
        last entry.
        """
        found: dict[int, End] = {}
        waiting: list[tuple[Term, Axis]] = [(stack, axis)]
        seen = {stack.number}
        while waiting:
            term, along = waiting.pop()
            if term.number in self.outputs or not self.readers.get(term.number):
                return None
            for reader in self.readers[term.number]:
                if reader.number in seen:
                    continue
                seen.add(reader.number)
                part = some_iterations(reader, stack)
                if term is stack and takes_last(reader, stack):
                    found[reader.number] = End(reader)
                elif part is not None:
                    waiting.append((reader, part[0]))
                elif adds_up(reader, along, stack, self.exact, self.wide):
                    parts = self._parts(reader, along, stack) if along != axis else None
                    if along != axis and parts is None:
                        return None  # Over all iterations, other operands would be other entries.
                    found[reader.number] = End(reader, parts)
                elif goes_inside(reader, along, stack, self.exact):
                    waiting.append((reader, along))
                else:
                    return None
        return list(found.values())

    def _parts(self, reader: Term, along: Axis, stack: Term) -> Parts | None:
        return parts_read(summand(self.terms, reader, along), along, stack, self.exact)


def summand(terms: Terms, end: Term, axis: Axis) -> Term:
    """What a reduction over the iterations reduces."""
    if not isinstance(end.op, Dot):
        return end.args[0]
    others = end.op.axes - {axis}
    op = replace(end.op, axes=others) if others else Map("mul", end.op.dtype)
    return terms.make(op, end.args)
