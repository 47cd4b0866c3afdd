"""Caches findings about blocks, keyed by everything that they depend on.

Chunk lengths are tried for whole programs, and most blocks get the same lengths again. Without a cache,
planning time would grow faster than the number of loops.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from eqsat.engine.cost import CostModel
from eqsat.planning.blocks import Block

Found = TypeVar("Found")

NO_CHUNKS: Mapping[int, int] = {}
"""No loop has a given length, or no loop's length matters."""


class Remembered(Generic[Found]):
    """A cache for one kind of finding; entries live as long as their blocks."""

    def __init__(self) -> None:
        # By block, the ids of the loops inside, whose chunk lengths are part of the key, and the findings.
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
        """The cached finding, or else the result of `find`.

        **Arguments:**

        - `model`: the cost model, with the machine and the chunk lengths of the loops around the block.
        - `chunks`: the chunk lengths of the loops inside the block.
        - `also`: whatever else the finding depends on.
        """
        if (known := self._of.get(block)) is None:
            known = self._of[block] = tuple(loop.id for loop in block.loops), {}
        loops, found = known
        around = frozenset(model.chunks.items())
        key = model.machine, model.library, around, tuple(map(chunks.get, loops)), also
        if key not in found:
            found[key] = find()
        return found[key]
