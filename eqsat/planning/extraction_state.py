"""The state of extraction from a search space and from the spaces of the bodies inside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

from eqsat.engine.extract import Extractor
from eqsat.engine.node_choices import Inside
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Call
from eqsat.planning.candidates import Candidate
from eqsat.planning.search_space import SearchSpace

if TYPE_CHECKING:
    from eqsat.planning.candidate_builder import CandidateBuilder


@dataclass(frozen=True, eq=False)
class PlannedCall:
    """A call of control flow with the candidates `found` for its bodies, and their time and memory."""

    call: Call
    makers: dict[int, str]
    inside: Inside
    found: tuple[Candidate, ...]


@dataclass
class ExtractionState:
    """The state of extraction from one search space.

    **Attributes:**

    - `bodies`: for each call of control flow, the state of each body; a candidate for a body without large
      values.
    - `planned`: by number, these calls as they were last planned.
    - `seen`: earlier selections, each as the identities of its nodes.
    - `extractor`, `counted`: the latest extractor, and the planned calls that it uses.
    - `cap`, `largest`: the latest cap, and bytes of the largest buffer that a program under it may have.
    - `exhausted`: whether there was no program under the latest cap.
    - `found`, `latest`: all candidates found, and the one chosen last, if the space is that of a body;
      `best`: the ones chosen, by cap and memory for temporaries; `builder`: what built those found last.
    - `in_chunks`: whether calls of control flow are planned for loops over chunks around them; values in
      their bodies are then smaller.
    - `splits`: the sets of axes to loop over, one after the other, and None for any.
    """

    space: SearchSpace
    bodies: dict[Call, tuple[ExtractionState | Candidate, ...]]
    planned: dict[int, PlannedCall] = field(default_factory=dict)
    seen: set[frozenset[tuple[int, int]]] = field(default_factory=set)
    extractor: Extractor | None = None
    counted: dict[int, PlannedCall] = field(default_factory=dict)
    cap: float = 0.0
    largest: float = 0.0
    exhausted: bool = False
    found: list[Candidate] = field(default_factory=list)
    latest: Candidate | None = None
    best: dict[tuple[float, int], Candidate] = field(default_factory=dict)
    builder: CandidateBuilder | None = None
    in_chunks: bool = False
    splits: tuple[frozenset[Axis] | None, ...] = ()

    @staticmethod
    def of(space: SearchSpace) -> ExtractionState:
        """The state before anything is extracted."""
        bodies = {call: _states(inside) for call, inside in space.bodies.items()}
        return ExtractionState(space, bodies, splits=tuple(_splits(space.large)))

    def for_chunks(self) -> ExtractionState | None:
        """The state for calls of control flow that loops over chunks run; None if loops cut none of them.

        Calls that loops do not cut are planned as in this state, so their bodies are extracted once.
        """
        large = frozenset(self.space.large)
        if all(call.cut.isdisjoint(large) for call in self.bodies):
            return None
        bodies = {
            call: shared if call.cut.isdisjoint(large) else _states(self.space.bodies[call])
            for call, shared in self.bodies.items()
        }
        return ExtractionState(self.space, bodies, in_chunks=True, splits=self.splits)


def _states(inside: Iterable[SearchSpace | Candidate]) -> tuple[ExtractionState | Candidate, ...]:
    return tuple(inner if isinstance(inner, Candidate) else ExtractionState.of(inner) for inner in inside)


def _splits(large: Sequence[Axis]) -> Iterator[frozenset[Axis] | None]:
    """The choices of axes to loop over: each alone, each pair of three or more, then any (None)."""
    for axis in large:
        yield frozenset({axis})
    if len(large) > 2:
        yield from map(frozenset, combinations(large, 2))
    if len(large) != 1:
        yield None
