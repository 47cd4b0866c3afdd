"""The extractors of a search space: with the chunk lengths that extraction assumes, or the shortest."""

from __future__ import annotations

import math
from collections.abc import Mapping

from eqsat.engine.cost import CostModel
from eqsat.engine.extract import Extractor
from eqsat.engine.storage_model import StorageModel
from eqsat.ir.axis import Axis
from eqsat.ir.tiled_values import with_tiles
from eqsat.planning.candidate_builder import BuiltCandidate
from eqsat.planning.candidates import Candidate
from eqsat.planning.extraction_state import PlannedCall
from eqsat.planning.loop_axes import computed
from eqsat.planning.search_space import SearchSpace

STREAMED_SHARE = 1 / 8
"""The share of the cap for a chunk of an input that is read: others, and what is made of it, are beside."""


def nominal_chunks(space: SearchSpace, cap: float, short: bool = False) -> dict[Axis, int]:
    """The chunk lengths that extraction assumes.

    A chunk of the largest term or input should be within the cap and the cache. If the cap allows, it has
    enough rows for a matrix product to run at full speed, whatever the cache.

    **Arguments:**

    - `short`: whether terms in the program's equalities count, and what operations need beside their results.
      These may be larger than all others: what is compared where entries of a sorted array are found by
      counting, or what a product of narrow floats takes in single precision.
    """
    largest: dict[Axis, int] = {}
    model = StorageModel(space.machine, {})
    given = ((leaf, leaf.axes) for leaf in space.program.inputs)
    for term, axes in (*computed(space.program, short), *computed(with_tiles(space.program)), *given):
        most = max(term.bytes, model.workspace(term.op, term.args) if short else 0)
        for axis in axes:
            largest[axis] = max(largest.get(axis, 1), most)
    if space.streams:
        cap *= STREAMED_SHARE
    block = min(cap, space.machine.cache)
    chunks = {}
    for axis in space.large:
        fast = int(axis.size * block / largest.get(axis, 1))
        most = int(axis.size * cap / largest.get(axis, 1))
        chunks[axis] = max(1, min(axis.size, max(fast, min(space.machine.rows, most))))
    return chunks


def extractor_of(space: SearchSpace, model: CostModel, planned: Mapping[int, PlannedCall]) -> Extractor:
    """The extraction from a space, with what the programs inside of calls need."""
    class_of = space.saturation.graph.class_of
    roots = [class_of[output.term.number] for output in space.program.outputs]
    inside = {number: call.inside for number, call in planned.items()}
    return Extractor(space.saturation.graph, model, roots, inside, space.families, space.streams)


def cheapest(space: SearchSpace, budget: int) -> Candidate | None:
    """The fastest program without loops, whatever it stores."""
    extractor = extractor_of(space, CostModel(space.machine, {}), {})
    selection = extractor.extract(math.inf, frozenset())
    return None if selection is None else BuiltCandidate.of(space, selection, budget, {}).candidate
