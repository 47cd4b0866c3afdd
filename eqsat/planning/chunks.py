"""Chunk lengths: large enough to be fast, small enough to fit.

A loop's block is the largest value that one iteration of its body stores. Blocks of a quarter of the
last-level cache are as fast as any, so the search starts there. It ends at the largest blocks whose simulated
peak is within the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from eqsat.engine.cost import CostModel
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Reduce
from eqsat.ir.program import Program
from eqsat.planning.blocks import Block, Compute, Loop, Schedule
from eqsat.planning.liveness import predicted_peak, predicted_seconds
from eqsat.planning.memo import NO_CHUNKS, Remembered
from eqsat.planning.order import in_lean_order
from eqsat.planning.recomputing import recomputing_loops
from eqsat.planning.relayout import reads_again, relayouts
from eqsat.planning.storage import stored_terms
from eqsat.planning.tying import Ties, tied, ties
from eqsat.targets.machine import Machine

SHRINK = 1.5
"""The factor between successive block sizes that are tried."""

HALVINGS = 3
"""The number of bisection steps between a block size that fits and a larger one that would be faster."""

WORTH_MEMORY = 0.99
"""More memory is worthwhile if the program then takes less than this part of the time."""

PATIENCE = 3
"""The search stops after this many smaller block sizes in a row that are no faster."""

OUTER = (1.0, 4.0, 16.0)
"""Factors by which the chunks of outer loops are lengthened, one trial each.

With longer outer chunks, inner loops run less often, on shorter chunks of their own.
"""

DIVISOR_SLACK = 0.75
"""A divisor of the axis is preferred from about this part of the wanted length on: it leaves no remainder."""

DEEP = 32
"""The inner length from which a matrix product needs enough rows to run at full speed."""


_HEAVIEST: Remembered[int] = Remembered()


def even_length(size: int, longest: int, aligned: int = 1) -> int:
    """A chunk length of at most `longest` that cuts `size` evenly: a near divisor, or equal parts.

    **Arguments:**

    - `aligned`: what the length should be a multiple of, if it is less than `size`; a remainder counts less.

    >>> even_length(100_000, 600), even_length(100_003, 600), even_length(7, 100)
    (500, 599, 7)
    >>> even_length(6_000, 250, 8), even_length(100_003, 600, 8)
    (240, 600)
    """
    longest = max(1, min(size, longest))
    parts = -(-size // longest)
    even = divisors(size, longest, math.ceil(parts / DIVISOR_SLACK))
    if even and (parts == 1 or longest < aligned):
        return even[0]
    multiples = [length for length in even if length % aligned == 0]
    if multiples:
        return multiples[0]
    equal = -(-size // parts)
    if longest < aligned or aligned == 1:
        return equal
    return min(-(-equal // aligned), longest // aligned) * aligned


def divisors(size: int, longest: int, most_parts: int) -> list[int]:
    """The lengths up to the longest that cut `size` into at most so many equal parts; the longest first."""
    parts = -(-size // longest)
    if most_parts - parts <= longest:
        return [size // count for count in range(parts, most_parts + 1) if size % count == 0]
    return [length for length in range(longest, -(-size // most_parts) - 1, -1) if size % length == 0]


def summing(block: Block, machine: Machine) -> dict[int, int]:
    """By loop, the chunk lengths with which long sums compute their operands on the fly and store none."""
    found: dict[int, int] = {}
    for loop in block.loops:
        longest = max((_as_it_goes(loop, inner, machine) for inner in loop.body.blocks()), default=0)
        if longest and loop.axis.size > longest:
            found[loop.id] = even_length(loop.axis.size, longest)
    return found


def _as_it_goes(loop: Loop, block: Block, machine: Machine) -> int:
    """The longest chunk of a loop's axis with which a reduction of the block does not store its operand."""
    longest = 0
    for step in block.steps:
        if isinstance(step, Compute) and isinstance(step.term.op, Reduce):
            (operand,) = step.term.args
            if loop.axis in step.term.op.axes & operand.open and reads_again(step.term):
                others = math.prod(axis.size for axis in step.term.op.axes - operand.open)
                longest = max(longest, machine.fused_reduction // max(others, 1))
    return longest


def _heaviest(loop: Loop, lengths: Mapping[Axis, int], machine: Machine, fixed: Mapping[int, int]) -> int:
    """Bytes of the largest value stored in one iteration of a loop, inner loops included."""
    return _heaviest_in(loop.body, loop.axis, CostModel(machine, lengths), fixed)


def _heaviest_in(block: Block, axis: Axis, model: CostModel, fixed: Mapping[int, int]) -> int:
    return _HEAVIEST.recall(block, model, fixed, lambda: _found_heaviest(block, axis, model, fixed), axis)


def _found_heaviest(block: Block, axis: Axis, model: CostModel, fixed: Mapping[int, int]) -> int:
    stored = stored_terms(block, model)
    largest = 1
    for relayout in relayouts(block, model).values():
        copies = [model.bytes(copy) for copy in relayout.sources.values() if axis in copy.open]
        largest = max([largest, *copies])
    for step in block.steps:
        for result in step.results:
            # A loop's results are stored in the block around the loop, not in its body.
            if result.number in stored and axis in result.axes:
                largest = max(largest, model.bytes(result))
        if isinstance(step, Loop):
            lengths = {**model.chunks, step.axis: fixed.get(step.id, 1)}
            largest = max(largest, _heaviest(step, lengths, model.machine, fixed))
    return max([largest, *(_heaviest_in(body, axis, model, fixed) for body in block.bodies)])


def _multiplies(loop: Loop) -> bool:
    """Whether the loop's chunk provides the rows of a matrix product with a long inner axis."""
    return any(
        loop.axis in product.axes and len(product.axes) > 1 and math.prod(a.size for a in op.axes) >= DEEP
        for product, op in loop.body.products
    )


def alignment(loop: Loop, machine: Machine) -> int:
    """What the loop's chunks should be a multiple of, for products with them as rows, columns or terms."""
    products = (found for block in loop.body.blocks() for found in block.products)
    multiplied = any(loop.axis in product.axes | op.axes for product, op in products)
    return machine.tiles.aligned if multiplied and machine.tiles else 1


def chunk_length(loop: Loop, longest: float, machine: Machine) -> int:
    """The length of a loop's chunks that is at most `longest`, or the shortest that the loop can have."""
    length = even_length(loop.axis.size, max(1, int(longest)), alignment(loop, machine))
    return max(length, loop.shortest)


def lengths_for(
    block: Block,
    target: float,
    machine: Machine,
    fixed: Mapping[int, int] = NO_CHUNKS,
    outer: float = 1.0,
    together: Ties = (),
) -> dict[int, int]:
    """Chunk lengths, by loop, with which loops' blocks are about `target` bytes at most.

    **Arguments:**

    - `fixed`: the lengths of loops that are given.
    - `outer`: the factor by which the chunks of loops with loops inside are lengthened.
    - `together`: the sets of loops that share one length.
    """
    chunks: dict[int, int] = {}
    again = recomputing_loops(block)

    def size(block: Block, around: Mapping[Axis, int]) -> None:
        for body in block.bodies:
            size(body, around)
        for step in block.own_loops:
            if step.id in fixed:
                chunks[step.id] = fixed[step.id]
            else:
                chunks[step.id] = chosen(step, around)
            size(step.body, {**around, step.axis: chunks[step.id]})

    def chosen(step: Loop, around: Mapping[Axis, int]) -> int:
        # Operands of such sums are copied from `lanes` entries on, so weigh a chunk of that length.
        unit = min(machine.lanes or 1, step.axis.size) if fixed else 1
        longest = target * unit / _heaviest(step, {**around, step.axis: unit}, machine, fixed)
        if _multiplies(step):
            # A product with few rows runs far below the machine's peak rate.
            longest = max(longest, machine.rows * min(1.0, target / machine.cache))
        if any(loop.id not in fixed for loop in step.body.loops):
            # Tiling: this loop takes its share of the block, the inner loops take the rest.
            longest = min(longest, outer * max(min(longest, machine.rows), longest ** (1 / 2)))
        return chunk_length(step, longest, machine)

    size(block, {})
    # A loop of one chunk is straight-line code to the compiler, which keeps what it would compute again.
    for loop in block.loops:
        if loop.id in again and chunks[loop.id] == loop.axis.size >= 2 * loop.shortest:
            half = -(-loop.axis.size // 2)
            chunks[loop.id] = even_length(loop.axis.size, half, alignment(loop, machine))
    return tied(chunks, block, together)


def choose_lengths(
    program: Program,
    block: Block,
    budget: float,
    machine: Machine,
    largest_block: float = math.inf,
) -> tuple[Schedule, int]:
    """The schedule with the fastest chunk lengths within the budget, or else the leanest, and its peak.

    If the steps do not fit in the given order, they are put in a leaner one.

    **Arguments:**

    - `budget`: bytes of arguments, outputs and temporaries.
    - `largest_block`: the largest block size to try, in bytes.
    """
    found = _choose_lengths(program, block, budget, machine, largest_block, NO_CHUNKS)
    fixed = summing(block, machine)
    if fixed:
        other = _choose_lengths(program, block, budget, machine, largest_block, fixed)
        found = min(found, other, key=lambda way: (max(way[1] - budget, 0), _seconds(way[0], machine)))
    return found


def _choose_lengths(
    program: Program,
    block: Block,
    budget: float,
    machine: Machine,
    largest_block: float,
    fixed: Mapping[int, int],
) -> tuple[Schedule, int]:
    """As `choose_lengths`, with fixed lengths for some loops."""
    targets = list(_targets(min(machine.cache, largest_block)))
    nested = any(loop.body.own_loops for loop in block.loops)
    shapes = OUTER if nested else OUTER[:1]
    together = ties(program, block)

    def sized(target: float) -> tuple[Schedule, int]:
        schedule = Schedule(program, block, lengths_for(block, target, machine, fixed, together=together))
        return schedule, predicted_peak(schedule, machine)

    def leaner(found: tuple[Schedule, int]) -> tuple[Schedule, int]:
        """The schedule as it is if it fits, else with its steps in a leaner order."""
        if found[1] <= budget:
            return found
        schedule = in_lean_order(found[0], machine)
        return found if schedule is found[0] else (schedule, predicted_peak(schedule, machine))

    def fastest(number: int, found: tuple[Schedule, int]) -> tuple[Schedule, int]:
        """The fastest schedule with blocks of the size at `number`, or somewhat smaller."""
        least, worse = _seconds(found[0], machine), 0
        seen = [found[0].chunks]
        for smaller in range(number, len(targets)):
            gains, more = False, False
            for outer in shapes:
                chunks = lengths_for(block, targets[smaller], machine, fixed, outer, together)
                if chunks in seen:
                    continue
                seen.append(chunks)
                more = True
                other = Schedule(program, block, chunks)
                seconds = _seconds(other, machine)
                gains |= seconds < least
                if seconds < least and (peak := predicted_peak(other, machine)) <= budget:
                    found, least = (other, peak), seconds
            worse = 0 if gains else worse + more
            if worse == PATIENCE:
                break
        return found

    longest = sized(targets[0])
    if not longest[0].chunks or len(targets) == 1:
        return leaner(longest)
    if longest[1] <= budget:
        return fastest(0, longest)
    # Smaller blocks need less memory. If the smallest do not fit, no order of the largest is looked for.
    leanest = leaner(sized(targets[-1]))
    if leanest[1] > budget and leanest[1] <= longest[1]:
        return leanest
    best = leaner(longest)
    block = best[0].block
    if best[1] <= budget:
        return fastest(0, best)
    if leanest[1] > budget:
        return min(best, leanest, key=lambda found: found[1])
    # Bisection finds the largest that fit.
    too_large, small = 0, len(targets) - 1
    block = leanest[0].block
    too_much = best[0]
    while small - too_large > 1:
        middle = (too_large + small) // 2
        found = sized(targets[middle])
        if found[1] > budget:
            too_large, too_much = middle, found[0]
        else:
            small, leanest = middle, found
    if _seconds(too_much, machine) < WORTH_MEMORY * _seconds(leanest[0], machine):
        leanest = _between(sized, targets[too_large], targets[small], leanest, budget)
    return fastest(small, leanest)


def _between(
    sized: Callable[[float], tuple[Schedule, int]],
    too_large: float,
    fits: float,
    found: tuple[Schedule, int],
    budget: float,
) -> tuple[Schedule, int]:
    """The largest blocks that fit, by bisection between a size that is too large and that of `found`."""
    for _ in range(HALVINGS):
        middle = math.sqrt(too_large * fits)
        other = sized(middle)
        if other[1] > budget:
            too_large = middle
        else:
            fits, found = middle, other
    return found


def _seconds(schedule: Schedule, machine: Machine) -> float:
    return predicted_seconds(schedule.block, CostModel(machine, {}), schedule.chunks)


def _targets(largest: float) -> Iterator[float]:
    """The block sizes to try, in bytes, from the largest down to less than one byte."""
    target = float(largest)
    yield target
    while target >= 1:
        target /= SHRINK
        yield target
