"""What stacked results of scans end in: reductions over the iterations, and last entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.ir.axis import Axis
from eqsat.ir.control import Scan
from eqsat.ir.dtypes import is_extended
from eqsat.ir.history_functions import adds_up, goes_inside
from eqsat.ir.history_parts import Parts, parts_read, some_iterations, takes_last
from eqsat.ir.ops import Dot, Map, Opaque, Rename
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


@dataclass(frozen=True, slots=True)
class History:
    """A stacked result, with what is read of it.

    **Attributes:**

    - `axis`: that of the iterations.
    - `ends`: reductions over the iterations, and the last entry.
    - `others`: what else reads it, or a function of it, and the axis that has the iterations there.
    - `given`: whether the program gives it, or a function of it.
    """

    stack: Term
    axis: Axis
    ends: Sequence[End]
    others: Sequence[tuple[Term, Axis]]
    given: bool

    @property
    def is_whole(self) -> bool:
        """Whether anything needs more of it than the ends."""
        return self.given or bool(self.others)

    def is_read_back(self) -> bool:
        """Whether all else that reads it are iterations of scans in the other direction: backward passes."""
        back = (reads_slices(reader, along) and not self.is_beside(reader) for reader, along in self.others)
        return not self.given and all(back)

    def is_read_on(self) -> bool:
        """Whether all else that reads it are iterations of scans in the same direction."""
        beside = (reads_slices(reader, along) and self.is_beside(reader) for reader, along in self.others)
        return not self.given and all(beside)

    def is_beside(self, reader: Term) -> bool:
        """Whether another scan could run beside this one: with as many iterations, in the same direction."""
        one, other = scan_of(self.stack), scan_of(reader)
        return (one.reverse, one.length) == (other.reverse, other.length)


def reads_slices(reader: Term, along: Axis) -> bool:
    """Whether a term is a result of a scan that reads slices along an axis alone."""
    if not isinstance(reader.op, Opaque) or not isinstance(reader.op.call.control, Scan):
        return False
    sliced, layouts = reader.op.call.control.sliced, reader.op.call.arg_layouts
    read = [place for place, arg in enumerate(reader.args) if along in arg.axes]
    return bool(read) and all(place in sliced and layouts[place][0] == along for place in read)


def scan_of(result: Term) -> Scan:
    """The control of the scan that a term is a result of."""
    assert isinstance(result.op, Opaque)
    assert isinstance(result.op.call.control, Scan)
    return result.op.call.control


def histories(program: Program, exact: bool = False, wide: bool = False) -> Iterator[History]:
    """Yields the stacked results of scans.

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
            yield _Ends(program.terms, readers, outputs, exact, wide).of(term, axis)


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

    def of(self, stack: Term, axis: Axis) -> History:
        """What all that is made of a stacked result ends in."""
        found: dict[int, End] = {}
        others: list[tuple[Term, Axis]] = []
        given = False
        waiting: list[tuple[Term, Axis]] = [(stack, axis)]
        seen = {stack.number}
        while waiting:
            term, along = waiting.pop()
            given |= term.number in self.outputs
            for reader in self.readers.get(term.number, ()):
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
                    if along == axis or parts is not None:
                        found[reader.number] = End(reader, parts)
                    else:
                        # Over all iterations, other operands would be other entries.
                        others.append((reader, along))
                elif isinstance(reader.op, Rename) and reader.op.old == along:
                    waiting.append((reader, reader.op.new))
                elif goes_inside(reader, along, stack, self.exact):
                    waiting.append((reader, along))
                else:
                    others.append((reader, along))
        return History(stack, axis, list(found.values()), others, given)

    def _parts(self, reader: Term, along: Axis, stack: Term) -> Parts | None:
        return parts_read(summand(self.terms, reader, along), along, stack, self.exact)


def summand(terms: Terms, end: Term, axis: Axis) -> Term:
    """What a reduction over the iterations reduces."""
    if not isinstance(end.op, Dot):
        return end.args[0]
    others = end.op.axes - {axis}
    op = replace(end.op, axes=others) if others else Map("mul", end.op.dtype)
    return terms.make(op, end.args)
