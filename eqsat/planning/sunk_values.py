"""Code sinking: large values that loops over chunks read are computed inside, where they don't fit before.

    d = a[i] - b[j];  for each c: … d / c …   =>   for each c: … (a[i] - b[j]) / c …

No chunk of such a value exists: it lacks the axis of the loop, and a factorisation needs its own axes whole.
Inside of the loop, XLA fuses elementwise functions into what reads them. It would move them out again, were
their operands not read anew for each chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from eqsat.engine.storage_model import is_expensive
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Chunk, Const, Delta, Iota, Map, Reduce
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Term, reachable
from eqsat.planning.blocks import Block, Compute, Schedule
from eqsat.planning.candidates import Candidate, scheduled
from eqsat.planning.liveness import simulate
from eqsat.planning.loops import build, is_free
from eqsat.planning.provenance import makers_after
from eqsat.targets.machine import Machine

MOST_ROUNDS = 3
"""How often a program is changed, each time by what is large at the peak that was left."""

SMALL_SHARE = 64
"""A value smaller than 1/64 of the peak stays before the loop: a choice, not measured."""

SMALLER = 4
"""The operands of what is computed inside are at most this part of it, since the loop holds them."""


def with_sunk_values(
    candidate: Candidate, budget: float, machine: Machine, largest_block: float
) -> Candidate:
    """The candidate, or if it doesn't fit, a smaller one that computes values inside its loops."""
    for _ in range(MOST_ROUNDS):
        if candidate.predicted_peak <= budget:
            break
        before = candidate.schedule.program
        program = _Sinking(candidate.schedule, machine).program()
        if program is before:
            break
        makers = makers_after(_terms(before), _terms(program), candidate.makers)
        other = scheduled(program, build(program), makers, budget, machine, largest_block)
        if other.predicted_peak >= candidate.predicted_peak:
            break
        candidate = other
    return candidate


def _terms(program: Program) -> list[Term]:
    return [output.term for output in program.outputs]


@dataclass
class _Sinking:
    """One change of a program."""

    schedule: Schedule
    machine: Machine

    def program(self) -> Program:
        """The program with what is large at its peak inside of loops; the same if there is nothing."""
        program, terms = self.schedule.program, self.schedule.program.terms
        large = self._large()
        loops = dict(_loops_around(self.schedule.block))
        found: dict[int, Term] = {}
        sunk: dict[tuple[int, Axis], Term | None] = {}
        for term in program.reachable():
            args = [found[arg.number] for arg in term.args]
            inner = [axis for axis in loops.get(term.number, ()) if axis in term.open]
            if inner and isinstance(term.op, Map | Reduce):
                for place, arg in enumerate(term.args):
                    if arg.number in large and inner[-1] not in arg.open | arg.axes:
                        args[place] = self._inside(arg, inner[-1], found, sunk) or args[place]
            changed = any(new is not old for new, old in zip(args, term.args, strict=True))
            found[term.number] = terms.make(term.op, args) if changed else term
            if changed and term.number in terms.origins:
                terms.origins.setdefault(found[term.number].number, terms.origins[term.number])
        if all(found[term.number] is term for term in _terms(program)):
            return program
        outputs = tuple(Output(found[output.term.number], output.layout) for output in program.outputs)
        alike = tuple(found.get(term.number, term) for term in program.alike)
        return replace(program, outputs=outputs, alike=alike)

    def _large(self) -> set[int]:
        """The numbers of elementwise values that are large at the peak, and may be computed anywhere."""
        program = self.schedule.program
        peak, usage = simulate(self.schedule, self.machine)
        together = {term.number for term in reachable(program.alike)}
        return {
            term.number
            for term, size in usage.live
            if SMALL_SHARE * size >= peak and self._is_cheap(term) and term.number not in together
        }

    def _is_cheap(self, term: Term) -> bool:
        return isinstance(term.op, Map) and not is_expensive(term.op, self.machine)

    def _inside(
        self, term: Term, axis: Axis, found: Mapping[int, Term], sunk: dict[tuple[int, Axis], Term | None]
    ) -> Term | None:
        """A value as a loop computes it for each chunk of an axis; None if it would read what is large."""
        key = term.number, axis
        if key not in sunk:
            sunk[key] = None
            terms, args = self.schedule.program.terms, []
            for arg in term.args:
                new: Term | None = found[arg.number]
                assert new is not None
                if axis in arg.open | arg.axes:
                    return None
                if isinstance(arg.op, Delta):
                    first, second = (terms.make(Iota(one, "int32")) for one in (arg.op.first, arg.op.second))
                    new = terms.make(Map("eq", "bool"), [terms.make(Chunk(axis), [first]), second])
                elif is_free(arg) or SMALLER * arg.bytes <= term.bytes:
                    new = new if isinstance(arg.op, Const) else terms.make(Chunk(axis), [new])
                else:
                    new = self._inside(arg, axis, found, sunk) if self._is_cheap(arg) else None
                if new is None:
                    return None
                args.append(new)
            made = terms.make(term.op, args)
            sunk[key] = made if axis in made.open else None
        return sunk[key]


def _loops_around(block: Block, around: tuple[Axis, ...] = ()) -> dict[int, tuple[Axis, ...]]:
    """By number of a term, the axes of the loops around it, the outermost first."""
    found: dict[int, tuple[Axis, ...]] = {}
    for step in block.steps:
        if isinstance(step, Compute):
            found.setdefault(step.term.number, around)
    for loop in block.own_loops:
        for number, axes in _loops_around(loop.body, (*around, loop.axis)).items():
            found.setdefault(number, axes)
    return found
