"""Finds the terms that a schedule recomputes because storing them would not fit, and the time that costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.engine.cost import CostModel
from eqsat.ir.axis import Axis
from eqsat.ir.term import Term
from eqsat.planning.blocks import Block, Compute
from eqsat.planning.loops import is_free
from eqsat.support.weak_cache import weakly_cached
from eqsat.targets.machine import Machine


@dataclass(frozen=True, slots=True)
class Placed:
    """A block with its surroundings.

    **Attributes:**

    - `loops`: the loops around it, by position in the schedule, outermost first.
    - `lengths`: the chunk lengths of these loops.
    - `times`: the number of times that the block runs.
    """

    block: Block
    loops: tuple[int, ...]
    lengths: dict[Axis, int]
    times: int


@weakly_cached
def recomputing_loops(block: Block) -> frozenset[int]:
    """The ids of the loops that compute terms which other blocks compute, too."""
    times = Counter(number for inner in block.blocks() for number in _computed(inner))
    again = frozenset(number for number, count in times.items() if count > 1)
    return frozenset(loop.id for loop in block.loops if not again.isdisjoint(_computed(loop.body)))


def _computed(block: Block) -> set[int]:
    """The numbers of the terms that a block computes."""
    terms = (step.term for step in block.steps if isinstance(step, Compute))
    return {term.number for term in terms if not is_free(term)}


def computed_again(blocks: Sequence[Placed], machine: Machine) -> dict[int, list[tuple[Term, float]]]:
    """By position of a loop, the terms that it recomputes after an earlier block, with the predicted seconds.

    **Arguments:**

    - `blocks`: the blocks in the order in which they run.
    """
    known: set[int] = set()
    found: dict[int, list[tuple[Term, float]]] = {}
    for placed in blocks:
        model = CostModel(machine, placed.lengths)
        terms = [step.term for step in placed.block.steps if isinstance(step, Compute)]
        for term in (term for term in terms if not is_free(term)):
            if term.number in known and placed.loops:
                once = model.once(term.op, term, term.args)
                found.setdefault(placed.loops[-1], []).append((term, placed.times * once))
            known.add(term.number)
    return found
