"""The state of extraction from a search space and from the spaces of the bodies inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    - `largest`: bytes of the largest buffer that a program under the latest cap may have.
    - `exhausted`: whether there was no program under the latest cap.
    - `found`, `latest`: all candidates found, and the one chosen last, if the space is that of a body;
      `builder`: what built those that were found last.
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
    largest: float = 0.0
    exhausted: bool = False
    found: list[Candidate] = field(default_factory=list)
    latest: Candidate | None = None
    builder: CandidateBuilder | None = None
    in_chunks: bool = False
    splits: tuple[frozenset[Axis] | None, ...] = ()

    @staticmethod
    def of(space: SearchSpace, in_chunks: bool = False) -> ExtractionState:
        """The state before anything is extracted."""
        bodies = {
            call: tuple(
                inner if isinstance(inner, Candidate) else ExtractionState.of(inner) for inner in inside
            )
            for call, inside in space.bodies.items()
        }
        return ExtractionState(space, bodies, in_chunks=in_chunks, splits=tuple(_splits(space.large)))


def _splits(large: Sequence[Axis]) -> Iterator[frozenset[Axis] | None]:
    """The choices of axes to loop over: each alone, each pair of three or more, then any (None)."""
    for axis in large:
        yield frozenset({axis})
    if len(large) > 2:
        yield from map(frozenset, combinations(large, 2))
    if len(large) != 1:
        yield None
