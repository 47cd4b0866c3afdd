"""The decisions of a search for a program, which are logged as text."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.compiler.candidate_compiler import CompiledCandidate
from eqsat.planning.candidates import Candidate
from eqsat.planning.capped_extraction import Step
from eqsat.support.units import format_bytes, format_seconds


@dataclass(frozen=True)
class Saturate:
    """Make a search space by applying rules."""

    axes: int | None

    def __str__(self) -> str:
        return "apply rules, " + (
            "without loops" if self.axes is None else f"with loops over {self.axes} axes"
        )


@dataclass(frozen=True)
class Extract:
    """Take the next step of extraction in the search space."""

    step: Step

    def __str__(self) -> str:
        return f"extract {self.step}"


@dataclass(frozen=True)
class SearchParts:
    """Search the parts of the program one by one, and put what is found together."""

    def __str__(self) -> str:
        return "search the program part by part"


@dataclass(frozen=True)
class Compile:
    """Compile the candidate that should be the fastest."""

    candidate: Candidate

    def __str__(self) -> str:
        return f"compile a program of {predicted_text(self.candidate)}"


@dataclass(frozen=True)
class Provide:
    """Compile the best candidate so far, since time may run out before there is a better one."""

    candidate: Candidate

    def __str__(self) -> str:
        return f"compile a program of {predicted_text(self.candidate)}, in case time runs out"


@dataclass(frozen=True)
class Accept:
    """Accept a program that fits, since all others should be slower."""

    compiled: CompiledCandidate

    def __str__(self) -> str:
        return f"accept a program of {predicted_text(self.compiled.candidate)}, which fits"


@dataclass(frozen=True)
class Lengthen:
    """Compile a program that fits with longer chunks, though shorter than those that were too large."""

    candidate: Candidate

    def __str__(self) -> str:
        return f"compile the same with longer chunks, of {predicted_text(self.candidate)}"


@dataclass(frozen=True)
class DraftLeast:
    """Compile the next of the programs that need least memory."""

    number: int

    def __str__(self) -> str:
        return f"compile program {self.number} of those that need least memory"


@dataclass(frozen=True)
class Grow:
    """Lengthen the chunks of a program that needs less than the budget."""

    compiled: CompiledCandidate

    def __str__(self) -> str:
        return f"lengthen the chunks of a program that needs {format_bytes(self.compiled.peak)}"


@dataclass(frozen=True)
class Stop:
    """End the search."""

    reason: str

    def __str__(self) -> str:
        return f"stop, since {self.reason}"


Decision = Saturate | Extract | SearchParts | Compile | Provide | Accept | Lengthen | DraftLeast | Grow | Stop


def predicted_text(candidate: Candidate) -> str:
    """The predicted peak and time of a candidate."""
    return f"{format_bytes(candidate.predicted_peak)} and {format_seconds(candidate.predicted_seconds)}"


def peak_text(compiled: CompiledCandidate) -> str:
    """The certified peak of a program."""
    return f"it needs {format_bytes(compiled.peak)}"
