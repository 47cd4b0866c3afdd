"""What has been found out about a block, by all that it depends on.

Chunk lengths are tried for whole programs, most blocks of which come out with the same ones again. Without
looking them up, what a program of many loops takes to plan would grow faster than the program.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from eqsat.engine.cost import CostModel
from eqsat.planning.blocks import Block

Found = TypeVar("Found")

NO_CHUNKS: Mapping[int, int] = {}
"""The length of no loop is given, or counts."""


class Remembered(Generic[Found]):
    """One kind of finding, for as long as there are the blocks that it is about."""

    def __init__(self) -> None:
        # With the loops in a block by their numbers, whose chunk lengths count.
        self._of: WeakKeyDictionary[Block, tuple[tuple[int, ...], dict[Hashable, Found]]] = (
            WeakKeyDictionary()
        )

    def recall(
        self,
        block: Block,
        model: CostModel,
        chunks: Mapping[int, int],
        find: Callable[[], Found],
        also: Hashable = None,
    ) -> Found:
        """What `find` finds, which is called if it is not known.

        **Arguments:**

        - `model`: of the machine, and the lengths of the loops around the block.
        - `chunks`: the lengths of the loops in it.
        - `also`: what else it depends on.
        """
        if (known := self._of.get(block)) is None:
            known = self._of[block] = tuple(loop.id for loop in block.loops), {}
        loops, found = known
        around = frozenset(model.chunks.items())
        key = model.machine, model.library, around, tuple(map(chunks.get, loops)), also
        if key not in found:
            found[key] = find()
        return found[key]
