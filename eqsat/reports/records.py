"""The data of reports: what plans and explanations tell, apart from how it is shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from eqsat.support.records import GuardRecord, PeakTensor, Place, SearchStep, TensorRecord
from eqsat.support.units import format_bytes


@dataclass(frozen=True, slots=True)
class LoopReport:
    """One loop of a plan.

    **Attributes:**

    - `axis`, `size`: the axis that is looped over, by its name in the source, and its length.
    - `chunk`, `count`: the chunks' length (the last may be shorter) and their number.
    - `combines`: how the loop's results come together: "sum", "concatenation", "top_k"...
    - `label`: where the axis is from: "y.0" is dimension 0 of the argument y.
    - `parent`: which loop of the plan it is inside of, by position; -1: none.
    - `computes`: what every iteration stores, largest first.
    - `places`: the lines of the user's source that it computes.
    - `seconds`: predicted, all iterations together.
    - `recomputes`: what is computed in this loop and somewhere else as well, since it would not fit.
    - `recompute_seconds`: what computing it again costs, by the machine model.
    """

    axis: str
    size: int
    chunk: int
    count: int
    combines: tuple[str, ...]
    label: str = ""
    parent: int = -1
    computes: tuple[TensorRecord, ...] = ()
    places: tuple[Place, ...] = ()
    seconds: float = 0.0
    recomputes: tuple[TensorRecord, ...] = ()
    recompute_seconds: float = 0.0

    def __str__(self) -> str:
        name = self.label or self.axis
        how = " and ".join(self.combines)
        return f"{name}: {self.size} in {self.count} chunks of {self.chunk}, combined by {how}"


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step of a program, or several in a row.

    **Attributes:**

    - `label`: what is done, or what takes most memory of it.
    - `seconds`: predicted.
    - `bytes`: in memory while it runs, by simulation; arguments and results included.
    - `loop`: which loop of the plan it is, by position; -1: none.
    """

    label: str
    seconds: float
    bytes: int
    loop: int = -1
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """Memory over the time of a program, as simulated. XLA's certificate may be above it or below.

    **Attributes:**

    - `steps`: in the order in which they run.
    - `peak_bytes`: the most of any time.
    - `held_bytes`: what is there all the time: arguments, and results that are passed on.
    - `live`: the arrays that are there at the peak, arguments included, largest first.
    """

    steps: tuple[StepRecord, ...] = ()
    peak_bytes: int = 0
    held_bytes: int = 0
    live: tuple[TensorRecord, ...] = ()

    @property
    def seconds(self) -> float:
        """Predicted time of all steps."""
        return sum(step.seconds for step in self.steps)


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """An array of a program's graph, with what is computed on the way to it.

    **Attributes:**

    - `kind`: "argument", "value" or "result".
    - `tensor`: the array.
    - `fused`: the ops between it and the arrays that it is made of, which are stored nowhere.
    - `box`: which box it is in, by position; -1: none.
    """

    kind: str
    tensor: TensorRecord
    fused: tuple[str, ...] = ()
    box: int = -1


@dataclass(frozen=True, slots=True)
class BoxRecord:
    """A loop, or control flow, around nodes of a graph. `parent` is the box around it, or -1."""

    label: str
    parent: int = -1


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """The arrays that a program stores, and which of them are made of which.

    **Attributes:**

    - `edges`: from node to node, by position.
    - `left_out`: how many arrays are not shown, as there are too many: the smallest.
    """

    nodes: tuple[NodeRecord, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    boxes: tuple[BoxRecord, ...] = ()
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class TimedProgram:
    """A program that was timed before one was chosen.

    **Attributes:**

    - `what`: its loops, or that it is the function as written.
    - `options`: those that it is compiled with.
    - `peak_bytes`: as for a plan.
    - `predicted_seconds`, `seconds`: of a call, by the machine model and as measured: the median.
    - `calls`: so many were made, with the first one, which warms it up.
    - `chosen`: whether it is the plan.
    """

    what: str
    options: str
    peak_bytes: int
    predicted_seconds: float
    seconds: float
    calls: int
    chosen: bool


@dataclass(frozen=True, slots=True)
class Tuning:
    """What `optimize(…, tune=True)` has timed.

    **Attributes:**

    - `programs`: the one first that was predicted to be best. Empty if none was timed.
    - `note`: why none was, or not all.
    - `settled`: whether another attempt would come to the same.
    """

    programs: tuple[TimedProgram, ...] = ()
    note: str = ""
    settled: bool = True


@dataclass(frozen=True)
class PlanRecord:
    """The fields of a `Plan`, whose documentation says what they are."""

    budget_bytes: int
    peak_bytes: int
    original_peak_bytes: int
    changed: bool
    source: str
    stop_reason: str
    rules_fired: dict[str, int] = field(default_factory=dict)
    loops: tuple[LoopReport, ...] = ()
    predicted_peak_bytes: int = 0
    predicted_seconds: float = 0.0
    original_seconds: float = 0.0
    planning_seconds: dict[str, float] = field(default_factory=dict)
    constants: tuple[Any, ...] = field(default=(), repr=False)
    banned: tuple[str, ...] = ()
    title: str = ""
    argument_bytes: int = 0
    result_bytes: int = 0
    scratch_bytes: int = 0
    options: str = ""
    too_big: tuple[TensorRecord, ...] = ()
    before: MemoryRecord = field(default=MemoryRecord(), repr=False)
    after: MemoryRecord = field(default=MemoryRecord(), repr=False)
    graph: GraphRecord = field(default=GraphRecord(), repr=False)
    left_whole: tuple[PeakTensor, ...] = ()
    tuning: Tuning | None = None
    guard: GuardRecord | None = None
    search: tuple[SearchStep, ...] = field(default=(), repr=False)

    @property
    def inside_jit(self) -> str:
        """Whether the peak holds inside somebody else's `jit`, which has its own compiler options.

        Loops of several plans in one program share their memory there, whatever the options.
        """
        if self.options == "XLA's own":
            return "certified: it was compiled with XLA's own options"
        return (
            "not certified: XLA's own options may hide values in fusions;"
            " pass compiler_options=eqsat.compiler_options() to that jit"
        )

    @property
    def heading(self) -> str:
        """What it is about, in a line."""
        return f"eqsat plan for {self.title or 'a program'}: {format_bytes(self.budget_bytes)}"


@dataclass(frozen=True, slots=True)
class Price:
    """What a budget would cost.

    **Attributes:**

    - `peak_bytes`: certified, of its plan.
    - `seconds`: predicted.
    - `loops`: the axes that it loops over, and the lengths of chunks: "x.0 by 100".
    - `changed`: whether it is another program than the one as written.
    """

    budget_bytes: int
    peak_bytes: int
    seconds: float
    loops: tuple[str, ...] = ()
    changed: bool = True


@dataclass(frozen=True)
class ExplanationRecord:
    """The fields of an `Explanation`, whose documentation says what they are."""

    title: str
    original_peak_bytes: int
    original_seconds: float
    argument_bytes: int
    result_bytes: int
    minimum_bytes: int
    prices: tuple[Price, ...]
    largest: tuple[TensorRecord, ...] = ()
    before: MemoryRecord = field(default=MemoryRecord(), repr=False)
    floor_tensors: tuple[PeakTensor, ...] = ()

    @property
    def heading(self) -> str:
        """What it is about, in a line."""
        return f"eqsat explanation of {self.title}"
