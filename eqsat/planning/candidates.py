"""Candidates: programs in blocks with chunk lengths, and what is predicted of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from eqsat.engine.cost import CostModel
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Map, Opaque, Operation, Reduce
from eqsat.ir.program import Program
from eqsat.machine import Machine
from eqsat.planning.blocks import Block, Compute, Schedule, Turning
from eqsat.planning.chunks import choose_lengths, even_length, predicted_peak, shortest
from eqsat.planning.liveness import predicted_seconds
from eqsat.planning.loops import build
from eqsat.planning.storage import value_of
from eqsat.planning.turning import turned

ROWWISE = frozenset({"softmax", "logsumexp"})
"""Operations that are reductions of elementwise values inside."""


@dataclass(frozen=True)
class Candidate:
    """A program that may fit.

    **Attributes:**

    - `makers`: for terms that a rule made, by number, the rule's name.
    - `turned`: by the number of a reduction, the operands that are copied for it.
    - `predicted_peak`: by simulation, in bytes.
    - `seconds`: by the cost model, of what is computed; `taking` are those of getting the memory for it.
    - `fused`: whether the compiler's own fusions should make it faster, if there is room for what they hide.
    """

    schedule: Schedule
    makers: dict[int, str]
    predicted_peak: int
    seconds: float
    taking: float = 0.0
    fused: bool = False
    turned: Mapping[int, Turning] = field(default_factory=dict)

    @property
    def predicted_seconds(self) -> float:
        """What a call should take."""
        return self.seconds + self.taking

    @property
    def loops(self) -> int:
        """How many loops over chunks there are."""
        return len(list(self.schedule.block.loops()))


def as_written(program: Program, machine: Machine, library: bool = False) -> Candidate:
    """The program as it is.

    **Arguments:**

    - `library`: whether it is compiled without being emitted: selections are XLA's then, and nothing is
      copied for reductions.
    """
    if library:
        machine = replace(machine, lanes=0)
    block = build(program)
    schedule, peak = choose_lengths(program, block, math.inf, machine)
    return _predicted(schedule, {}, peak, machine, library)


def rechunk(candidate: Candidate, budget: float, machine: Machine) -> Candidate:
    """The same program with chunks for another budget."""
    schedule = candidate.schedule
    return scheduled(schedule.program, schedule.block, candidate.makers, budget, machine)


def rescaled(candidate: Candidate, factor: float, machine: Machine) -> Candidate:
    """The same program with chunks that are longer by a factor, as far as there is so much of their axes."""
    schedule = candidate.schedule
    chunks = {
        loop.id: max(even_length(loop.axis.size, int(factor * schedule.chunks[loop.id])), shortest(loop))
        for loop in schedule.block.loops()
    }
    other = replace(schedule, chunks=chunks)
    return _predicted(other, candidate.makers, predicted_peak(other, machine), machine)


def useful_axes(schedule: Schedule) -> frozenset[Axis]:
    """The axes whose loops turn more than once."""
    loops = schedule.block.loops()
    return frozenset(loop.axis for loop in loops if schedule.chunks[loop.id] < loop.axis.size)


def scheduled(
    program: Program,
    block: Block,
    makers: dict[int, str],
    budget: float,
    machine: Machine,
    largest_block: float = math.inf,
) -> Candidate:
    """The candidate with the best chunk lengths within a budget, with blocks of at most so many bytes."""
    schedule, peak = choose_lengths(program, block, budget, machine, largest_block=largest_block)
    return _predicted(schedule, makers, peak, machine)


def _predicted(
    schedule: Schedule, makers: dict[int, str], peak: int, machine: Machine, library: bool = False
) -> Candidate:
    model = CostModel(machine, {}, library=library)
    seconds = predicted_seconds(schedule.block, model, schedule.chunks)
    taking = machine.taking(peak - schedule.program.fixed_bytes)
    fused = fusion_pays(schedule.block, machine)
    return Candidate(schedule, makers, peak, seconds, taking, fused, turned(schedule, machine))


def fusion_pays(block: Block, machine: Machine) -> bool:
    """Whether the compiler's own fusions make a program faster rather than slower.

    Measured on CPU: they pay where long reductions read elementwise values, as in a variance (1.4 to 4
    times); they cost as much again where most of the work is a short reduction, over the coordinates of
    a distance, and in convolutions.
    """
    model = CostModel(machine, {})
    steps = [step for inner in block.blocks() for step in inner.steps]
    terms = [step.term for step in steps if isinstance(step, Compute)]
    most = max((term.elements for term in terms), default=0)
    pays = False
    for term in terms:
        reads_maps = any(isinstance(arg.op, Map) for arg in term.args)
        if isinstance(term.op, Opaque) and term.op.call.primitive.name == "conv_general_dilated":
            return False
        if isinstance(term.op, Reduce) and reads_maps:
            short = not model.stores_operands(term.op, [value_of(arg) for arg in term.args])
            if short and 2 * term.args[0].elements >= most:
                return False
            pays = pays or not short
        if isinstance(term.op, Operation) and term.op.spec.name in ROWWISE:
            pays = pays or term.op.axes[0].size > machine.fused_reduction
    return pays
