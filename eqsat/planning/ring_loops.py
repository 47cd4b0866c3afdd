"""Programs in which two long axes never meet but in loops over one of them, chunk by chunk.

Devices can then have a part of each of the axes: the loop over the chunks of one of them is a ring, in which
a device gets one chunk after another from its neighbour (`eqsat/ir/ring.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from eqsat.engine.compiled import CompiledRule
from eqsat.engine.cost import CostModel
from eqsat.engine.extract import Extractor
from eqsat.engine.node_choices import Inside
from eqsat.engine.snapshot import EClass, ENode, Snapshot
from eqsat.ir.axis import Axis
from eqsat.ir.control import Body, iterations
from eqsat.ir.dtypes import accumulator
from eqsat.ir.ops import (
    Call,
    Chunk,
    Concat,
    Delta,
    Dot,
    Fold,
    Map,
    Opaque,
    Operation,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.program import Program
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term
from eqsat.planning.candidates import Candidate
from eqsat.planning.extracted_programs import built_program
from eqsat.planning.extraction_state import PlannedCall
from eqsat.planning.search_space import SearchSpace, prepare
from eqsat.targets.machine import Machine

MOST_SETS = 3
"""How many sets of axes are tried: those of the largest values."""


def axes_that_meet(program: Program, count: int) -> list[tuple[Axis, ...]]:
    """The sets of axes of which `count` devices might have a part each, those of the largest values first.

    No input or output has two axes of a set, and the devices divide all of them.
    """
    apart: set[frozenset[Axis]] = set()
    for given in (*program.inputs, *(output.term for output in program.outputs)):
        apart |= _pairs(given.axes)
    met: dict[frozenset[Axis], int] = {}
    renamed: set[frozenset[Axis]] = set()
    for inner in program.inside():
        renamed |= {
            frozenset({term.op.old, term.op.new}) for term in inner.known() if isinstance(term.op, Rename)
        }
        for term in inner.reachable():
            for pair in _pairs(axis for axis in term.axes if axis.size > count and axis.size % count == 0):
                if pair not in apart:
                    met[pair] = max(met.get(pair, 0), term.bytes)
    ranked = sorted(met, key=lambda pair: (-met[pair], sorted(pair)))

    def grown(axes: frozenset[Axis], links: Sequence[frozenset[Axis]]) -> frozenset[Axis]:
        for pair in links:
            for axis in sorted(pair - axes):
                others = {frozenset({axis, one}) for one in axes}
                if axis.size % count == 0 and axis.size > count and pair & axes and not others & apart:
                    axes |= {axis}
        return axes

    found: list[tuple[Axis, ...]] = []
    for pair in ranked:
        close = grown(pair, sorted(renamed, key=sorted))
        for axes in (grown(close, [*ranked, *ranked]), close):
            if tuple(sorted(axes)) not in found and len(found) < MOST_SETS:
                found.append(tuple(sorted(axes)))
    return found


def _pairs(axes: object) -> set[frozenset[Axis]]:
    several = sorted(axes)  # type: ignore[call-overload]
    return {frozenset({one, other}) for one in several for other in several if one < other}


def in_rings(
    program: Program, axes: Sequence[Axis], count: int, rules: Sequence[CompiledRule], machine: Machine
) -> Iterator[Program]:
    """Programs equal to one in which what has two of `axes` is only in folds over one of them.

    A fold is over one of the axes, and its result has another. Its body sums over no other, so no partial
    result has to be passed round.
    """
    space = prepare(with_nested_sums(program, frozenset(axes)), rules, 0, machine, axes=tuple(axes))
    rings = _Rings(frozenset(axes), count, machine)
    seen: set[tuple[int, ...]] = set()
    for one_pass in (True, False):
        found = rings.extracted(space, one_pass)
        if found is None:
            continue
        made = found[0]
        key = tuple(output.term.number for output in made.outputs)
        if key not in seen:
            seen.add(key)
            yield made


def with_nested_sums(program: Program, axes: frozenset[Axis]) -> Program:
    """The program with sums over several of the axes as sums over one of them, of sums over the others."""
    made: dict[int, Term] = {}
    calls: dict[Call, Call] = {}
    terms = program.terms

    def nested(op: Reduce | Dot, args: list[Term]) -> Term:
        first = sorted(op.axes & axes)[:-1]
        if not first:
            return terms.make(op, args)
        kind, dtype = "sum" if isinstance(op, Dot) else op.kind, op.dtype
        wide = accumulator(dtype) if kind in ("sum", "prod", "mean") else dtype
        if isinstance(op, Reduce) and wide != dtype:
            args = [terms.make(Map("convert", wide), args)]
        inner = terms.make(replace(op, axes=op.axes - frozenset(first), dtype=wide), args)
        outer = terms.make(Reduce(kind, frozenset(first), wide), [inner])
        return outer if wide == dtype else terms.make(Map("convert", dtype), [outer])

    for term in program.known():
        op, args = term.op, [made[arg.number] for arg in term.args]
        if isinstance(op, Opaque) and op.call.bodies:
            if op.call not in calls:
                bodies = (Body(with_nested_sums(body.program, axes), body.sources) for body in op.call.bodies)
                calls[op.call] = replace(op.call, bodies=tuple(bodies))
            op = replace(op, call=calls[op.call])
        if isinstance(op, Reduce | Dot):
            made[term.number] = nested(op, args)
        else:
            made[term.number] = terms.make(op, args)
    return with_inputs(program, program.inputs, made)


class _Rings:
    """Extraction of such programs.

    **Attributes:**

    - `axes`: those of which each device has a part.
    """

    def __init__(self, axes: frozenset[Axis], count: int, machine: Machine) -> None:
        self.axes = axes
        self.machine = machine
        self.chunks = {axis: axis.size // count for axis in axes}

    def extracted(self, space: SearchSpace, one_pass: bool) -> tuple[Program, float] | None:
        """The cheapest such program of a search space, and its time in seconds; None if there is none."""
        planned: dict[int, PlannedCall] = {}
        for call, bodies in space.bodies.items():
            found = [self._body(inner, one_pass) for inner in bodies]
            known = [one for one in found if one is not None]
            if len(known) < len(found):
                continue
            assert call.control is not None
            programs = [Body(made, body.sources) for body, (made, _) in zip(call.bodies, known, strict=True)]
            seconds = iterations(call.control) * sum(time for _, time in known)
            planned[call.id] = PlannedCall(replace(call, bodies=tuple(programs)), {}, Inside(seconds, 0), ())
        graph = self._allowed(space.saturation.graph, planned)
        roots = [graph.class_of[output.term.number] for output in space.program.outputs]
        inside = {number: call.inside for number, call in planned.items()}
        extractor = Extractor(graph, CostModel(self.machine, self.chunks), roots, inside, space.families)
        selection = extractor.extract(math.inf, self.axes, one_pass)
        if selection is None:
            return None
        made = built_program(space, selection, planned)
        # What must be computed alike everywhere would not be, in loops that are compiled apart.
        if any(term.open for term in made.program.alike):
            return None
        return made.program, selection.seconds

    def _body(self, inner: SearchSpace | Candidate, one_pass: bool) -> tuple[Program, float] | None:
        if isinstance(inner, Candidate):
            program = inner.schedule.program
            met = any(len(term.axes & self.axes) > 1 for term in program.reachable())
            return None if met else (program, inner.seconds)
        return self.extracted(inner, one_pass) or self.extracted(inner, not one_pass)

    def _allowed(self, graph: Snapshot, planned: Mapping[int, PlannedCall]) -> Snapshot:
        """The graph without the nodes that such a program cannot have."""
        together = [self._meets(eclass) for eclass in graph.classes]
        classes = [
            replace(
                eclass,
                nodes=[
                    node
                    for node in eclass.nodes
                    if (not met or isinstance(node.op, Delta))
                    and (isinstance(node.op, Chunk) or not any(together[child] for child in node.children))
                    and self._keeps(node, eclass, planned)
                ],
            )
            for eclass, met in zip(graph.classes, together, strict=True)
        ]
        return replace(graph, classes=classes)

    def _meets(self, eclass: EClass) -> bool:
        """Whether a value outside of loops has several of the axes."""
        return not eclass.open and len(eclass.axes & self.axes) > 1

    def _keeps(self, node: ENode, eclass: EClass, planned: Mapping[int, PlannedCall]) -> bool:
        opened = eclass.open & self.axes
        match node.op:
            case Fold(axis=axis, monoid=monoid):
                merged = isinstance(monoid, Opaque | Operation)
                return axis in self.axes and not opened and not merged and bool(eclass.axes & self.axes)
            case Concat():
                return False
            case Chunk(axis=axis):
                return axis in self.axes and opened == {axis}
            case Reduce(axes=axes) | Dot(axes=axes) | Operation(axes=axes):
                return not opened or not (frozenset(axes) & self.axes) - opened
            case Select(axis=axis, out_axis=out):
                return not opened or not ({axis, out} & self.axes)
            case Rename(old=old, new=new):
                # Under a name that is not split, a value would be whole.
                return not {old, new} & self.axes if opened else old not in self.axes or new in self.axes
            case Opaque(call=call) if call.bodies:
                return not opened and call.id in planned
            case Opaque(call=call):
                return not opened or not (call.whole | call.accumulates | call.sums) & self.axes
        return True
