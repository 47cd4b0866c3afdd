"""Candidates: programs in blocks with chunk lengths, and their predicted time and memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from eqsat.engine.cost import CostModel
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import is_real_float
from eqsat.ir.ops import Dot, Leaf, Map, Operation, Reduce, Rename
from eqsat.ir.program import Program
from eqsat.ir.term import Term
from eqsat.ir.unused_results import without_unused_results
from eqsat.planning.blocks import Block, Compute, FusedProducts, Relayout, Schedule
from eqsat.planning.chunks import choose_lengths, chunk_length
from eqsat.planning.fragmentation import fragmentation
from eqsat.planning.horizontal_fusion import fused_products_in
from eqsat.planning.liveness import iterations_of, predicted_peak, predicted_seconds
from eqsat.planning.loops import build
from eqsat.planning.relayout import relayouts_in
from eqsat.planning.repeated_reads import read_repeatedly_in
from eqsat.planning.tying import tied, ties
from eqsat.targets.machine import Machine

ROWWISE = frozenset({"softmax", "logsumexp"})
"""Named operations whose bodies reduce elementwise values along rows."""

LONG_SHARE = 1 / 16
"""XLA's fusions pay if long reductions read more than this part of what all reductions and products read.

Kernels in 100 coordinates took 1.6 times as long with fusions: there, long reductions, those of the squares,
read 1/50 of the entries.
"""

SHORT_SHARE = 1 / 6
"""XLA's fusions cost time if short reductions read more than this part of what reductions and products read.

Of 28 measured programs, 14 are above this share. All of these are faster without fusions: they take 0.09 to
0.97 of the time.
"""


GAP_STEPS = 3
"""The steps of the bisection for the chunks with which buffers and the gaps between them fit."""


@dataclass(frozen=True)
class Candidate:
    """A program that may fit the budget.

    **Attributes:**

    - `makers`: by number of a term that a rule made, or made needless, the rule's name.
    - `relayouts`: by number of a reduction or stored value, the operands that are copied for it.
    - `fused_products`: by block, the products that are computed as one.
    - `predicted_peak`: bytes, by simulation.
    - `seconds`: the time of its computations, by the cost model.
    - `taking`: the time to allocate its memory.
    - `fused`: whether XLA's own fusions should make it faster, if there is room for the values they hide.
    - `read_repeatedly`: by block, the values that are stored since readers would compute them again.
    - `branches`: for a program that tests its data, the program for any data, and the one for data that
      passes.
    - `tests`: its tests, as text.
    - `recomputing`: of a program of inputs that are read by chunks, the same with less that is kept from loop
      to loop.
    """

    schedule: Schedule
    makers: dict[int, str]
    predicted_peak: int
    seconds: float
    taking: float = 0.0
    fused: bool = False
    relayouts: Mapping[int, Relayout] = field(default_factory=dict)
    fused_products: Mapping[Block, tuple[FusedProducts, ...]] = field(default_factory=dict)
    read_repeatedly: Mapping[Block, frozenset[int]] = field(default_factory=dict)
    branches: tuple[Candidate, ...] = ()
    tests: tuple[str, ...] = ()
    recomputing: Candidate | None = None

    @property
    def predicted_seconds(self) -> float:
        """The predicted time of a call."""
        return self.seconds + self.taking

    @property
    def loops(self) -> int:
        """The number of loops over chunks."""
        return len(self.schedule.block.loops)


def as_written(program: Program, machine: Machine, library: bool = False) -> Candidate:
    """The program as written, as a candidate.

    **Arguments:**

    - `library`: whether the program is compiled without being emitted. Then XLA computes selections, and
      nothing is copied for reductions.
    """
    if library:
        machine = machine.unemitted
    program, _ = without_unused_results(program)
    block = build(program)
    schedule, peak = choose_lengths(program, block, math.inf, machine)
    return predicted(schedule, {}, peak, machine, library)


def rechunk(
    candidate: Candidate, budget: float, machine: Machine, largest_block: float = math.inf
) -> Candidate:
    """The same program with chunk lengths for another budget, in blocks of at most `largest_block` bytes."""
    schedule = candidate.schedule
    found = scheduled(schedule.program, schedule.block, candidate.makers, budget, machine, largest_block)
    return _with_branches(found, candidate)


def rescaled(candidate: Candidate, factor: float, machine: Machine) -> Candidate:
    """The same program with chunks that are longer by a factor, up to the lengths of their axes."""
    schedule = candidate.schedule
    chunks = {
        loop.id: chunk_length(loop, factor * schedule.chunks[loop.id], machine)
        for loop in schedule.block.loops
    }
    together = ties(schedule.program, schedule.block)
    other = replace(schedule, chunks=tied(chunks, schedule.block, together))
    found = predicted(other, candidate.makers, predicted_peak(other, machine), machine)
    return _with_branches(found, candidate)


def _with_branches(found: Candidate, before: Candidate) -> Candidate:
    """The candidate with the branches of one that differs only in its chunk lengths."""
    if not before.branches:
        return found
    plain, _ = before.branches
    seconds = max(found.seconds - plain.seconds, 0.0)
    return replace(found, seconds=seconds, branches=before.branches, tests=before.tests)


def useful_axes(schedule: Schedule) -> frozenset[Axis]:
    """The axes of loops with more than one iteration."""
    loops = schedule.block.loops
    return frozenset(loop.axis for loop in loops if schedule.chunks[loop.id] < loop.axis.size)


def scheduled(
    program: Program,
    block: Block,
    makers: dict[int, str],
    budget: float,
    machine: Machine,
    largest_block: float = math.inf,
) -> Candidate:
    """The candidate with the best chunk lengths for a budget, in blocks of at most `largest_block` bytes."""

    def within(room: float) -> tuple[Candidate, int]:
        schedule, peak = choose_lengths(program, block, room, machine, largest_block=largest_block)
        return predicted(schedule, makers, peak, machine), peak

    found, peak = within(budget)
    if peak <= budget < found.predicted_peak:
        # The gaps between its buffers have to fit, too; they shrink with the chunks.
        room, too_much = budget - (found.predicted_peak - peak), budget
        found, peak = within(room)
        for _ in range(GAP_STEPS):
            middle = (room + too_much) / 2
            other, other_peak = within(middle)
            if other.predicted_peak <= budget:
                found, peak, room = other, other_peak, middle
            else:
                too_much = middle
    copies = sum(relayout.bytes + relayout.held for relayout in found.relayouts.values())
    groups = (group for together in found.fused_products.values() for group in together)
    copies += sum(group.bytes + group.held + group.result_bytes for group in groups)
    if peak - copies <= budget < peak:
        # It may fit without the copies for its reductions and products.
        plain = replace(machine, copies=False)
        return scheduled(program, block, makers, budget, plain, largest_block)
    return found


def predicted(
    schedule: Schedule, makers: dict[int, str], peak: int, machine: Machine, library: bool = False
) -> Candidate:
    """The candidate for a schedule with a given peak, to which the gaps between buffers are added."""
    peak += fragmentation(schedule, machine)
    model = CostModel(machine, {}, library=library)
    seconds = predicted_seconds(schedule.block, model, schedule.chunks)
    taking = machine.taking(peak - schedule.program.fixed_bytes)
    alike = bool(ties(schedule.program, schedule.block))
    fused = fusion_pays(schedule, machine) and fusions_round(schedule.program) and not alike
    copies = (
        relayouts_in(schedule, machine),
        fused_products_in(schedule, machine),
        read_repeatedly_in(schedule, machine),
    )
    return Candidate(schedule, makers, peak, seconds, taking, fused, *copies)


def contracts(program: Program) -> bool:
    """Whether a program does nothing but contract its inputs: sums of products, outer products included."""
    work = [term.op for term in program.reachable() if not isinstance(term.op, (Leaf, Rename))]
    sums = all(isinstance(op, Dot) or (isinstance(op, Map) and op.name == "mul") for op in work)
    return sums and any(isinstance(op, Dot) for op in work)


def fusion_pays(schedule: Schedule, machine: Machine) -> bool:
    """Whether XLA's own fusions should make a program clearly faster.

    On CPU, they were measured to do so where long reductions read elementwise values, as in a variance (1.4
    to 4 times faster).
    """
    read = _read(schedule, machine)
    return read.long > LONG_SHARE * (read.sums + read.rows) and not read.mostly_short


def fusions_round(program: Program) -> bool:
    """Whether XLA's own fusions round floats, and wrap integers around, wherever the program does.

    On CPU, XLA computes bfloat16 values inside a fusion in single precision. A value that is computed in two
    loops would then have two different results: scores would exceed their maximum, and exponentials overflow.
    Inside a fusion, 8-bit integers do not wrap around, so that their maxima and minima are wrong.
    """
    terms = [term for part in program.inside() for term in part.reachable()]
    read = (arg for term in terms for arg in term.args)
    return not any(isinstance(arg.op, Map) and arg.dtype == "bfloat16" for arg in read) and not any(
        _is_extreme(term) and term.dtype in ("int8", "uint8") for term in terms
    )


def fusions_lose(program: Program) -> bool:
    """Whether XLA's own fusions may lose NaN and the sign of zero, as they do in maxima and minima of floats.

    Plain JAX uses these fusions too, so only programs that must be exact are compiled without them.
    """
    terms = (term for part in program.inside() for term in part.reachable())
    return any(_is_extreme(term) and is_real_float(term.dtype) for term in terms)


def _is_extreme(term: Term) -> bool:
    return isinstance(term.op, Reduce) and term.op.kind in ("max", "min")


def fusion_costs(schedule: Schedule, machine: Machine) -> bool:
    """Whether XLA's own fusions should make a program slower.

    On CPU, they were measured to double the time, or worse, where much of the work is in short reductions,
    as over the coordinates of a distance.
    """
    return _read(schedule, machine).mostly_short


@dataclass
class _Read:
    """The number of entries that reductions and products read, and that the operations in `ROWWISE` read."""

    sums: int = 0
    rows: int = 0
    long: int = 0
    """Of both, the entries read by long reductions of elementwise values, and by operations on long rows."""
    short: int = 0
    """Of `sums`, the entries read by short reductions that compute their operands on the fly."""

    @property
    def mostly_short(self) -> bool:
        return self.short > SHORT_SHARE * self.sums


def _read(schedule: Schedule, machine: Machine) -> _Read:
    model = _model(schedule, machine)
    read = _Read()
    groups = (group for together in fused_products_in(schedule, machine).values() for group in together)
    multiplied = {product.number for group in groups for product in group.products}
    for term, times in _computed(schedule.block):
        entries = times * max((arg.elements for arg in term.args), default=0)
        if isinstance(term.op, Operation) and term.op.spec.name in ROWWISE:
            read.rows += entries
            read.long += entries if term.op.axes[0].size > machine.fused_reduction else 0
        elif isinstance(term.op, (Reduce, Dot)):
            read.sums += entries
            if _reads_maps(term) and _is_short(term, model):
                read.short += entries
            elif _reads_maps(term) and isinstance(term.op, Reduce) and term.number not in multiplied:
                read.long += entries
    return read


def _model(schedule: Schedule, machine: Machine) -> CostModel:
    """The cost model at a schedule's chunk lengths: on a chunk, a long reduction may be a short one."""
    lengths: dict[Axis, int] = {}
    for loop in schedule.block.loops:
        lengths[loop.axis] = min(schedule.chunks[loop.id], lengths.get(loop.axis, loop.axis.size))
    return CostModel(machine, lengths)


def _computed(block: Block, times: int = 1) -> Iterator[tuple[Term, int]]:
    """The terms computed in a block, each with its iterations of control flow; all chunks count as one."""
    for step in block.steps:
        if isinstance(step, Compute):
            yield step.term, times
    for loop in block.own_loops:
        yield from _computed(loop.body, times)
    for call in block.calls:
        for body in call.bodies:
            yield from _computed(body, times * iterations_of(call.term))


def _reads_maps(term: Term) -> bool:
    return any(isinstance(arg.op, Map) for arg in term.args)


def _is_short(term: Term, model: CostModel) -> bool:
    """Whether a term is a short reduction that computes its operand on the fly, or a short vector product."""
    if isinstance(term.op, Reduce):
        return not model.stores_operands(term.op, term.args)
    assert isinstance(term.op, Dot)
    added = math.prod(axis.size for axis in term.op.axes)
    vectors = all(arg.elements == term.elements * added for arg in term.args)
    length = model.elements(term.op.axes, term.args[0].open)
    return vectors and length <= model.machine.fused_reduction
