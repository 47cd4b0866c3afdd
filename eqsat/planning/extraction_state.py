"""How far the extraction of programs from a search space has come: its own, and that of the bodies inside."""

from __future__ import annotations

from dataclasses import dataclass, field

from eqsat.engine.extract import Extractor, Inside
from eqsat.ir.ops import Call
from eqsat.planning.candidates import Candidate
from eqsat.planning.search_space import SearchSpace


@dataclass(frozen=True, eq=False)
class PlannedCall:
    """Control flow with the programs `found` for its bodies, and what they need."""

    call: Call
    makers: dict[int, str]
    inside: Inside
    found: tuple[Candidate, ...]


@dataclass
class ExtractionState:
    """What has been extracted from one search space so far.

    **Attributes:**

    - `bodies`: for calls of control flow, the same for each body; the body itself if it has nothing large.
    - `planned`: those calls, by number, as they were planned last.
    - `seen`: what has been selected, by the nodes' identities.
    - `extractor`, `counted`: the latest extractor, and the calls that it counts with.
    - `largest`: bytes of the largest value that is stored under the latest cap.
    - `exhausted`: whether there was no program under that cap.
    - `latest`: of a body, the candidate found last.
    """

    space: SearchSpace
    bodies: dict[Call, tuple[ExtractionState | Candidate, ...]]
    planned: dict[int, PlannedCall] = field(default_factory=dict)
    seen: set[frozenset[tuple[int, int]]] = field(default_factory=set)
    extractor: Extractor | None = None
    counted: dict[int, PlannedCall] = field(default_factory=dict)
    largest: float = 0.0
    exhausted: bool = False
    latest: Candidate | None = None

    @staticmethod
    def of(space: SearchSpace) -> ExtractionState:
        """The state before anything is extracted."""
        bodies = {
            call: tuple(
                inner if isinstance(inner, Candidate) else ExtractionState.of(inner) for inner in inside
            )
            for call, inside in space.bodies.items()
        }
        return ExtractionState(space, bodies)
