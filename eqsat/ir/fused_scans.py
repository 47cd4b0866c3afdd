"""Scan fusion: a scan that goes through what another one stacks, as one scan that stacks nothing of it.

    h = scan(f, xs),  scan(g, h)   =>   scan(g after f, xs)

Each iteration of `g` reads what the iteration of `f` beside it has made, as the layers of a recurrent network
do, or a filter of a simulated path. What is read may be an elementwise function of it. This is loop fusion
(Kennedy and McKinley, "Maximizing Loop Parallelism and Improving Data Locality via Loop Fusion and
Distribution", 1993).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from eqsat.ir.axis import Axis
from eqsat.ir.comparing import compared
from eqsat.ir.control import Body
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.device_terms import Numbers
from eqsat.ir.history_ends import histories, scan_of
from eqsat.ir.history_parts import is_of_scan
from eqsat.ir.iteration_values import IterationValues, Operand
from eqsat.ir.ops import Call, Leaf, Opaque
from eqsat.ir.program import Program
from eqsat.ir.scalar_expansion import LARGE
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term, reachable
from eqsat.ir.unused_results import application, trimmed

T = TypeVar("T")


def with_fused_scans(program: Program, exact: bool = False) -> Program:
    """Returns the program with one scan for two, where only scans read what the first one stacks.

    **Arguments:**

    - `exact`: whether results must stay the same to the last bit.
    """
    while fusion := next(_fusions(program, exact), None):
        program = fusion.fused()
    return program


def _fusions(program: Program, exact: bool) -> Iterator[_Fusion]:
    """Yields the pairs of scans that can be fused, of which the first one stacks something large.

    What is small stays stacked: `scalar_expansion` would take the scans apart again.
    """
    largest = max((term.bytes for term in program.reachable()), default=0)
    for history in histories(program, exact):
        if history.others and LARGE * history.stack.bytes >= largest and history.is_read_on():
            readers = {application(reader): reader for reader, _ in history.others}
            for reader in readers.values():
                fusion = _Fusion.of(program, history.stack, reader, exact)
                if fusion is not None:
                    yield fusion


@dataclass(frozen=True, slots=True)
class _Fusion:
    """Two scans that can be fused.

    **Attributes:**

    - `first`: a result of the scan that stacks.
    - `second`: a result of the scan that reads.
    - `numbers`: the numbers that are free for inputs of bodies.
    - `entries`: what an iteration computes of what the first scan makes, by operand of the second one.
    - `operands`: what it needs for that from outside.
    """

    program: Program
    first: Term
    second: Term
    numbers: Numbers
    entries: Mapping[int, Term]
    operands: Sequence[Operand]

    @staticmethod
    def of(program: Program, first: Term, second: Term, exact: bool) -> _Fusion | None:
        """How two scans can be fused; None if the second one needs more of the first than single entries."""
        call, control, numbers = _call(second), scan_of(second), Numbers.after(program)
        values = IterationValues(program.terms, numbers, first, exact)
        once = compared(program).once
        dependent: set[int] = set()
        for term in reachable(second.args):
            own = is_of_scan(term, first)
            if own or any(arg.number in dependent for arg in term.args):
                dependent.add(term.number)
                if not own and term.number in once:
                    # Computed here and elsewhere, it might be rounded otherwise.
                    return None
        entries: dict[int, Term] = {}
        for place, arg in enumerate(second.args):
            if arg.number not in dependent:
                continue
            axis, *layout = call.arg_layouts[place] or (None,)
            if place not in control.sliced or not isinstance(axis, Axis) or axis not in arg.axes:
                return None
            entry = values.of(arg, axis)
            if entry is None or any(
                not isinstance(leaf.op, Leaf) or leaf.op.layout != tuple(layout) or leaf.axes != entry.axes
                for leaf, source in _inputs(call)
                if source == place
            ):
                return None
            entries[place] = entry
        return _Fusion(program, first, second, numbers, entries, values.operands)

    def fused(self) -> Program:
        """The program with one scan."""
        program, terms = self.program, self.program.terms
        made, args = self._call()
        places = self._places()
        results = [
            term for term in program.known() if any(is_of_scan(term, at) for at in (self.first, self.second))
        ]
        used = self._used()
        fewer, renumbered, left = trimmed(made, args, {places[self._key(term)] for term in used}) or (
            made,
            {place: place for place in places.values()},
            range(len(args)),
        )
        fewer, given = replace(fewer, id=program.next_call()), [args[place] for place in left]
        known: dict[int, Term] = {}
        for term in used:
            new = terms.make(Opaque(fewer, renumbered[places[self._key(term)]]), given)
            known[term.number] = new
            if term.number in terms.origins:
                terms.origins.setdefault(new.number, terms.origins[term.number])
        # What is known of results that are not stacked any more would keep them.
        gone = {term.number for term in results} - known.keys()

        def stays(*about: Term) -> bool:
            return gone.isdisjoint(term.number for term in reachable(about))

        program = replace(
            program,
            equalities=tuple(pair for pair in program.equalities if stays(*pair)),
            facts=tuple(fact for fact in program.facts if stays(fact.term)),
            alike=tuple(term for term in program.alike if stays(term)),
        )
        return with_inputs(program, program.inputs, known)

    def _call(self) -> tuple[Call, tuple[Term, ...]]:
        """The one scan, and its operands: those of the first, what is left of the second, and new ones."""
        terms, (first, second) = self.program.terms, (_call(self.first), _call(self.second))
        kept = [place for place in range(len(self.second.args)) if place not in self.entries]
        moved = {place: len(self.first.args) + number for number, place in enumerate(kept)}
        added = range(len(self.first.args) + len(kept), len(self.first.args) + len(kept) + len(self.operands))
        known: dict[int, Term] = {}
        inputs = list(_inputs(first))
        for leaf, source in _inputs(second):
            if source in self.entries:
                known[leaf.number] = self.entries[source]
            else:
                # Both scans may have the same body.
                assert isinstance(leaf.op, Leaf)
                fresh = terms.make(replace(leaf.op, index=self.numbers.input()), [])
                known[leaf.number] = fresh
                inputs.append((fresh, moved[source]))
        inputs += [(operand.leaf, place) for operand, place in zip(self.operands, added, strict=True)]
        own = first.bodies[0].program
        inner = with_inputs(second.bodies[0].program, (), known)
        body = replace(
            own,
            inputs=tuple(leaf for leaf, _ in inputs),
            outputs=self._placed(own.outputs, inner.outputs),
            equalities=(*own.equalities, *inner.equalities),
            facts=(*own.facts, *inner.facts),
            alike=(*own.alike, *inner.alike),
        )
        one, other = scan_of(self.first), scan_of(self.second)
        control = replace(
            one,
            carried=(*one.carried, *(moved[place] for place in other.carried)),
            sliced=(
                *one.sliced,
                *(moved[place] for place in other.sliced if place in moved),
                *(place for operand, place in zip(self.operands, added, strict=True) if operand.sliced),
            ),
            unroll=min(one.unroll, other.unroll),
        )
        made = replace(
            first,
            arg_layouts=(
                *first.arg_layouts,
                *(second.arg_layouts[place] for place in kept),
                *(operand.layout for operand in self.operands),
            ),
            out_layouts=self._placed(first.out_layouts, second.out_layouts),
            out_dtypes=self._placed(first.out_dtypes, second.out_dtypes),
            control=control,
            bodies=(),
            unread=frozenset(),
        )
        args = (*self.first.args, *(self.second.args[place] for place in kept))
        args += tuple(operand.value for operand in self.operands)
        return with_bodies(made, [Body(body, tuple(source for _, source in inputs))], args), args

    def _placed(self, first: Sequence[T], second: Sequence[T]) -> tuple[T, ...]:
        """Entries for the results of both scans: carries, and then what is stacked."""
        one, other = len(scan_of(self.first).carried), len(scan_of(self.second).carried)
        return (*first[:one], *second[:other], *first[one:], *second[other:])

    def _places(self) -> dict[tuple[bool, int], int]:
        """The result that has become of each one, by whether it is of the second scan, and its number."""
        both = [
            [(is_second, number) for number in range(len(_call(term).out_layouts))]
            for is_second, term in ((False, self.first), (True, self.second))
        ]
        return {key: place for place, key in enumerate(self._placed(*both))}

    def _key(self, term: Term) -> tuple[bool, int]:
        """Whether a result is of the second scan, and its number."""
        assert isinstance(term.op, Opaque)
        return is_of_scan(term, self.second), term.op.result

    def _used(self) -> list[Term]:
        """The results of both scans that are read by others than the iterations of the second one."""
        inside = [arg for place, arg in enumerate(self.second.args) if place in self.entries]
        operands = [operand.value for operand in self.operands]
        left = [arg for arg in self.second.args if arg not in inside]
        found: list[Term] = []
        waiting = [output.term for output in self.program.outputs]
        seen: set[int] = set()
        while waiting:
            term = waiting.pop()
            if term.number in seen:
                continue
            seen.add(term.number)
            if is_of_scan(term, self.second):
                waiting += [*left, *operands]
            else:
                waiting += term.args
            if is_of_scan(term, self.first) or is_of_scan(term, self.second):
                found.append(term)
        return found


def _call(result: Term) -> Call:
    assert isinstance(result.op, Opaque)
    return result.op.call


def _inputs(call: Call) -> Iterator[tuple[Term, int]]:
    """Yields the inputs of a scan's body, and the operands that feed them."""
    (body,) = call.bodies
    return zip(body.program.inputs, body.sources, strict=True)
