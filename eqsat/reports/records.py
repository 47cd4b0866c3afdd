"""The data in plans and explanations, independent of how it is shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from eqsat.support.records import GuardRecord, PeakTensor, Place, SearchStep, TensorRecord
from eqsat.support.units import format_bytes, format_seconds


@dataclass(frozen=True, slots=True)
class LoopReport:
    """One loop of a plan.

    **Attributes:**

    - `axis`, `size`: the axis that is looped over, by its name in the source, and its length.
    - `chunk`, `count`: the length of the chunks (the last may be shorter) and their number.
    - `combines`: how chunks are combined into each result: "sum", "concatenation", "top_k"...
    - `label`: the argument dimension that the axis comes from: "y.0" is dimension 0 of the argument y.
    - `parent`: the position in the plan of the loop around it; -1 if there is none.
    - `computes`: the arrays that every iteration stores, largest first.
    - `places`: the lines of the user's source that it computes.
    - `seconds`: the predicted time of all iterations.
    - `recomputes`: the arrays that this loop computes although an earlier one did, since they would not fit.
    - `recompute_seconds`: the time of this recomputation, by the machine model.
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
    """A step of a program, or several successive steps merged.

    **Attributes:**

    - `label`: the op or loop; of merged steps, the one that takes most memory.
    - `seconds`: the predicted time.
    - `bytes`: memory in use while it runs, by simulation, arguments and results included.
    - `loop`: the position in the plan of the loop that it is; -1 if it is none.
    - `place`: the line of the user's source that it comes from, if known.
    """

    label: str
    seconds: float
    bytes: int
    loop: int = -1
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A program's memory over time, by simulation. XLA's certified peak may be higher or lower.

    **Attributes:**

    - `steps`: the steps, in the order in which they run.
    - `peak_bytes`: the most memory in use at any time.
    - `held_bytes`: memory in use throughout: arguments, and results that are passed on.
    - `live`: the arrays alive at the peak, arguments included, largest first.
    """

    steps: tuple[StepRecord, ...] = ()
    peak_bytes: int = 0
    held_bytes: int = 0
    live: tuple[TensorRecord, ...] = ()

    @property
    def seconds(self) -> float:
        """The predicted time of all steps."""
        return sum(step.seconds for step in self.steps)


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """An array in a program's graph, with the ops fused into it.

    **Attributes:**

    - `kind`: "argument", "value" or "result".
    - `tensor`: the array.
    - `fused`: the ops between it and the arrays that it is made from, whose values are not stored.
    - `box`: the position of the box that it is in; -1 if there is none.
    """

    kind: str
    tensor: TensorRecord
    fused: tuple[str, ...] = ()
    box: int = -1


@dataclass(frozen=True, slots=True)
class BoxRecord:
    """A loop, or control flow, around nodes of a graph; `parent` is the box around it, by position, or -1."""

    label: str
    parent: int = -1


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """The graph of the arrays that a program stores.

    **Attributes:**

    - `edges`: pairs of positions of nodes, of which the second is made from the first.
    - `left_out`: the number of arrays, the smallest, that are left out because there are too many.
    """

    nodes: tuple[NodeRecord, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    boxes: tuple[BoxRecord, ...] = ()
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class MeshAxisRecord:
    """An axis of a mesh of `size` devices, and what is `split` over it; empty if nothing is."""

    name: str
    size: int
    split: str


@dataclass(frozen=True, slots=True)
class SharedArray:
    """An argument or a result of a function that devices share out.

    **Attributes:**

    - `kind`: "argument" or "result".
    - `dims`: for each dimension, the axes of the mesh that it is split over.
    - `bytes`, `local_bytes`: of the array, and of what a device has of it.
    """

    name: str
    kind: str
    type: str
    dims: tuple[tuple[str, ...], ...]
    bytes: int
    local_bytes: int

    @property
    def over(self) -> tuple[str, ...]:
        """The axes of the mesh that it is split over."""
        return tuple(name for names in self.dims for name in names)


@dataclass(frozen=True, slots=True)
class CollectiveRecord:
    """A call by which devices talk.

    **Attributes:**

    - `name`: of JAX's function, or "moves arguments", "moves results".
    - `over`: the axis of the mesh.
    - `type`: of what a device gets.
    - `calls`: how often it runs.
    - `bytes`: what a device gets in all of them.
    - `seconds`: the predicted time of all of them.
    """

    name: str
    over: str
    type: str
    calls: int
    bytes: int
    seconds: float
    place: Place | None = None

    def __str__(self) -> str:
        often = f", {self.calls:,} times" if self.calls > 1 else ""
        over = f" over {self.over}" if self.over else ""
        figures = f"{format_bytes(self.bytes)}{often}, {format_seconds(self.seconds)}"
        return f"{self.name}{over}{f' of {self.type}' if self.type else ''}: {figures}"


@dataclass(frozen=True, slots=True)
class SharingRecord:
    """How devices share a function out, by the program before it is rewritten for each of them."""

    axes: tuple[MeshAxisRecord, ...] = ()
    arrays: tuple[SharedArray, ...] = ()
    collectives: tuple[CollectiveRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class TimedProgram:
    """A program that was timed before one was chosen.

    **Attributes:**

    - `what`: its loops, or that it is the function as written.
    - `options`: the name of the compiler options that it is compiled with.
    - `peak_bytes`: the certified peak, as for a plan.
    - `predicted_seconds`, `seconds`: the time of a call, by the machine model and as measured (the median).
    - `calls`: the number of calls made, including the first, which is a warm-up.
    - `chosen`: whether it was chosen for the plan.
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
    """The programs that `optimize(…, tune=True)` timed.

    **Attributes:**

    - `programs`: the programs; the first is the one predicted to be best. Empty if none was timed.
    - `note`: why none was timed, or not all.
    - `settled`: whether another attempt would give the same result.
    """

    programs: tuple[TimedProgram, ...] = ()
    note: str = ""
    settled: bool = True


@dataclass(frozen=True)
class PlanRecord:
    """The fields of a `Plan`, which documents them."""

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
    estimated: bool = False
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
    target: str = ""
    device_bytes: int = 0
    remedy: str = ""
    devices: str = ""
    communicated_bytes: int = 0
    sharing: SharingRecord = field(default=SharingRecord(), repr=False)
    deployment: Any = field(default=None, repr=False, compare=False)

    @property
    def inside_jit(self) -> str:
        """Whether the peak is certified inside another `jit`, which has its own compiler options, in words.

        There, loops of several plans in one program share memory, whatever the options.
        """
        if self.options == "XLA's own":
            return "certified: it was compiled with XLA's own options"
        return (
            "not certified: XLA's own options may hide values in fusions;"
            " pass compiler_options=eqsat.compiler_options() to that jit"
        )

    @property
    def heading(self) -> str:
        """A title for the report, in one line."""
        return f"eqsat plan for {self.title or 'a program'}: {format_bytes(self.budget_bytes)}"


@dataclass(frozen=True, slots=True)
class Price:
    """The cost of a budget.

    **Attributes:**

    - `peak_bytes`: the certified peak of its plan.
    - `seconds`: the predicted time of a call.
    - `loops`: the axes that its plan loops over, with the chunk lengths: "x.0 by 100".
    - `changed`: whether its plan differs from the function as written.
    """

    budget_bytes: int
    peak_bytes: int
    seconds: float
    loops: tuple[str, ...] = ()
    changed: bool = True


@dataclass(frozen=True)
class ExplanationRecord:
    """The fields of an `Explanation`, which documents them."""

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
        """A title for the report, in one line."""
        return f"eqsat explanation of {self.title}"
