"""What reports and errors say of a program: plain data, which can be kept on disk and shown later."""

from __future__ import annotations

import os
from dataclasses import dataclass

LONG_PATH = 30
"""A path of more characters is shown as its file and the folder that it is in."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's source.

    **Attributes:**

    - `file`, `line`, `function`: where, as Python's tracebacks have it.
    - `code`: the text of the line, if it could be read.
    - `gradient`: whether it is not the line itself that is meant, but what differentiation made of it.

    >>> str(Place("models/attention.py", 12, "Layer.scores"))
    'models/attention.py:12 in scores'
    """

    file: str
    line: int
    function: str
    code: str = ""
    gradient: bool = False

    @property
    def short(self) -> str:
        """File and line, the file as seen from the current folder."""
        path = os.path.relpath(self.file) if self.file.startswith(os.getcwd() + os.sep) else self.file
        if len(path) > LONG_PATH:
            path = os.path.join(*path.split(os.sep)[-2:])
        return f"{path}:{self.line}"

    def __str__(self) -> str:
        name = self.function.split(".")[-1]
        within = "" if name == "<module>" else " in a lambda" if name == "<lambda>" else f" in {name}"
        return f"{self.short}{within}{', its gradient' if self.gradient else ''}"


@dataclass(frozen=True, slots=True)
class AxisRecord:
    """An axis of an array.

    **Attributes:**

    - `name`: what the plan's source calls it: "a", "b"...
    - `size`: its length.
    - `label`: where it is from, "y.0" being dimension 0 of the argument y; its name if no argument has it.
    - `chunk`: how much of it there is at a time, inside a loop over it.

    >>> print(AxisRecord("c", 30000, "y.0"), AxisRecord("c", 30000, "y.0", 100))
    y.0:30000 y.0:100/30000
    """

    name: str
    size: int
    label: str
    chunk: int | None = None

    @property
    def length(self) -> str:
        """Its length, or how much of it there is: "100/30000"."""
        return str(self.size) if self.chunk is None else f"{self.chunk}/{self.size}"

    def __str__(self) -> str:
        return f"{self.label}:{self.length}"


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """An array that a program makes or is given.

    **Attributes:**

    - `bytes`: those that are there at a time.
    - `op`: what makes it: "exp", "sum over x.1", "argument x".
    - `place`: the line of the user's source that it is from.

    >>> axes = AxisRecord("a", 20, "x.0"), AxisRecord("c", 30, "y.0", 10)
    >>> str(TensorRecord(800, "float32", axes, "exp"))
    'float32[x.0:20, y.0:10/30]'
    """

    bytes: int
    dtype: str
    axes: tuple[AxisRecord, ...]
    op: str
    place: Place | None = None

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.axes))}]"

    @property
    def sizes(self) -> str:
        """The same without names of axes, for where there is little room: "float32[20, 10/30]"."""
        return f"{self.dtype}[{', '.join(axis.length for axis in self.axes)}]"


@dataclass(frozen=True, slots=True)
class BarrierRecord:
    """What stops an axis from being split.

    **Attributes:**

    - `axis`: the axis.
    - `op`: the op that needs it whole, or makes it all at once: "cholesky"; "" if no op does.
    - `reason`: why, as the rest of a sentence: "cholesky needs it whole".
    - `place`: where that op is in the user's source.
    """

    axis: AxisRecord
    op: str
    reason: str
    place: Place | None = None

    def __str__(self) -> str:
        at = f" ({self.place.short})" if self.place else ""
        return f"{self.axis.label} ({self.axis.size}): {self.reason}{at}"


@dataclass(frozen=True, slots=True)
class PeakTensor:
    """One of the arrays that make a peak, and what stops its axes, one by one, from being split."""

    tensor: TensorRecord
    barriers: tuple[BarrierRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class GuardRecord:
    """What a program tests of its data, and what it is where a test fails.

    **Attributes:**

    - `tests`: for each rule that is used where its guard holds, its name and its guard.
    - `seconds`: what a call should take where a test fails.
    - `rules_fired`: the rules that made the program for any data, and how many ops each made.
    """

    tests: tuple[str, ...]
    seconds: float
    rules_fired: dict[str, int]


@dataclass(frozen=True, slots=True)
class SearchStep:
    """One decision of the search for a program.

    **Attributes:**

    - `decision`: what was done: "compile a program predicted to need 31 MB and 12 ms".
    - `outcome`: what came of it: "needs 33 MB: too big".
    - `seconds`: how long it took.
    """

    decision: str
    outcome: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.decision}: {self.outcome}" if self.outcome else self.decision
