"""Records of a program for reports and errors: plain data that can be saved and shown later."""

from __future__ import annotations

import os
from dataclasses import dataclass

LONG_PATH = 30
"""A path of more characters is shortened to the file and its folder."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's source.

    **Attributes:**

    - `file`, `line`, `function`: the location, as in Python's tracebacks.
    - `code`: the text of the line, if it could be read.
    - `gradient`: whether the place is that of the line's derivative, not of the line itself.

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
        """The file, relative to the current folder, and the line."""
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

    - `name`: its name in the plan's source: "a", "b"...
    - `size`: its length.
    - `label`: the argument dimension that it comes from ("y.0" is dimension 0 of y), or else its name.
    - `chunk`: the chunk length, inside a loop over it.

    >>> print(AxisRecord("c", 30000, "y.0"), AxisRecord("c", 30000, "y.0", 100))
    y.0:30000 y.0:100/30000
    """

    name: str
    size: int
    label: str
    chunk: int | None = None

    @property
    def length(self) -> str:
        """Its length, or the length of a chunk and of the whole: "100/30000"."""
        return str(self.size) if self.chunk is None else f"{self.chunk}/{self.size}"

    def __str__(self) -> str:
        return f"{self.label}:{self.length}"


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """An array that a program makes or is given.

    **Attributes:**

    - `bytes`: the size of its buffer.
    - `op`: the op that makes it: "exp", "sum over x.1", "argument x".
    - `place`: the line of the user's source that it comes from.

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
        """A shorter form without the names of axes: "float32[20, 10/30]"."""
        return f"{self.dtype}[{', '.join(axis.length for axis in self.axes)}]"


@dataclass(frozen=True, slots=True)
class BarrierRecord:
    """A barrier that stops an axis from being split.

    **Attributes:**

    - `axis`: the axis.
    - `op`: the op that needs the axis whole, or makes it whole: "cholesky"; "" if there is no such op.
    - `reason`: the reason: "cholesky needs it whole".
    - `place`: the line of the user's source that the op comes from.
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
    """One of the arrays at a peak, with the barriers that stop its axes from being split."""

    tensor: TensorRecord
    barriers: tuple[BarrierRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class GuardRecord:
    """The tests of a program's data, and the program that runs if one fails.

    **Attributes:**

    - `tests`: the name and guard of each rule that is used only if its guard holds.
    - `seconds`: the predicted time of a call if a test fails.
    - `rules_fired`: the rules that made the program for any data, with the number of ops that each made.
    """

    tests: tuple[str, ...]
    seconds: float
    rules_fired: dict[str, int]


@dataclass(frozen=True, slots=True)
class SearchStep:
    """One decision of the search for a program.

    **Attributes:**

    - `decision`: the action taken: "compile a program predicted to need 31 MB and 12 ms".
    - `outcome`: its result: "needs 33 MB: too big".
    - `seconds`: the time that it took.
    """

    decision: str
    outcome: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.decision}: {self.outcome}" if self.outcome else self.decision
