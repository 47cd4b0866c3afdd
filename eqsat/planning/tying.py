"""Tying: loops that compute the same value in several places share one chunk length.

A product of 16 rows rounds differently from one of 17 (docs/xla.md). If a value must have the same bits
wherever it is computed, corresponding loops around it share one length, and so do corresponding loops inside
that accumulate it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from weakref import WeakKeyDictionary

from eqsat.ir.axis import Axis
from eqsat.ir.ops import Concat, Fold
from eqsat.ir.program import Program
from eqsat.ir.term import reachable
from eqsat.planning.blocks import Block, Loop

Ties = tuple[frozenset[int], ...]
"""Sets of loops, by their ids, that share one chunk length."""

_TIES: WeakKeyDictionary[Block, Ties] = WeakKeyDictionary()


def ties(program: Program, block: Block) -> Ties:
    """The sets of loops of a program that share one chunk length."""
    values = [term for inner in program.inside() for term in inner.alike if term.open]
    if not values:
        return ()
    if block not in _TIES:
        inside = {
            value.number: frozenset(
                term.number for term in reachable([value]) if isinstance(term.op, (Fold, Concat))
            )
            for value in values
        }
        found = _Places(inside)
        found.look(block, (), {})
        _TIES[block] = tuple(_joined(found.together.values()))
    return _TIES[block]


def tied(chunks: Mapping[int, int], block: Block, together: Ties) -> dict[int, int]:
    """The chunk lengths with one length for tied loops: the shortest, unless one must be longer."""
    found = dict(chunks)
    if together:
        least = {loop.id: loop.shortest for loop in block.loops}
        for loops in together:
            length = max(min(found[loop] for loop in loops), *(least[loop] for loop in loops))
            found.update(dict.fromkeys(loops, length))
    return found


class _Places:
    """Finds the loops in which values are computed.

    **Attributes:**

    - `inside`: by number of a value, the numbers of the loop results that it is computed from.
    - `together`: the loops to tie, by the value and the axis or loop result that they compute for it.
    """

    def __init__(self, inside: Mapping[int, frozenset[int]]) -> None:
        self.inside = inside
        self.together: dict[Hashable, set[int]] = {}

    def look(self, block: Block, around: tuple[Block, ...], loops: Mapping[Axis, int]) -> None:
        around = (*around, block)
        for step in block.steps:
            for result in step.results:
                if result.number in self.inside:
                    for axis in result.open & loops.keys():
                        self._add((result.number, axis), loops[axis])
                    for outer in around:
                        self._collect(outer, result.number)
            if isinstance(step, Loop):
                self.look(step.body, around, {**loops, step.axis: step.id})
        for body in block.bodies:
            self.look(body, around, loops)

    def _collect(self, block: Block, value: int) -> None:
        """Add the loops of a block, and those inside them, that compute results for a value."""
        for loop in block.own_loops:
            wanted = [result.number for result in loop.results if result.number in self.inside[value]]
            for number in wanted:
                self._add((value, number), loop.id)
            if wanted:
                self._collect(loop.body, value)

    def _add(self, key: Hashable, loop: int) -> None:
        self.together.setdefault(key, set()).add(loop)


def _joined(sets: Iterable[set[int]]) -> list[frozenset[int]]:
    """The unions of sets that overlap; sets of one element are left out."""
    found: list[set[int]] = []
    for some in sets:
        common = [other for other in found if other & some]
        found = [other for other in found if not other & some]
        found.append(some.union(*common))
    return [frozenset(some) for some in found if len(some) > 1]
