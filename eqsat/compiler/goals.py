"""What a search is given: its goal, and a compiler of candidates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from eqsat.compiler.candidate_compiler import CompiledCandidate, Stopwatch
from eqsat.planning.candidates import Candidate


class Compiler(Protocol):
    """A compiler of candidates."""

    @property
    def stopwatch(self) -> Stopwatch:
        """Measures the stages of planning."""

    @property
    def smallest(self) -> CompiledCandidate | None:
        """The program with the smallest peak so far."""

    def compile(self, candidate: Candidate, budget: float) -> CompiledCandidate:
        """Emit and compile a candidate."""


@dataclass(frozen=True)
class Goal:
    """The goal of a search.

    **Attributes:**

    - `budget`, `fixed`: bytes: of arguments, outputs and temporaries, and of arguments and outputs.
    - `spaces`: for each space, in order, the number of axes that may be looped over; None for no loops.
    - `longest`: seconds. Candidates predicted to take as long are not compiled.
    - `enough`: seconds. A program that fits and takes no longer ends the search.
    - `brisk`: seconds. Candidates that should take longer are compiled only after wider spaces were searched.
    - `most`: so many candidates are compiled at most.
    """

    budget: int
    fixed: int
    spaces: tuple[int | None, ...]
    longest: float = math.inf
    enough: float = math.inf
    brisk: float = math.inf
    most: float = math.inf
