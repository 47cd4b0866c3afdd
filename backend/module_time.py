"""The time of a compiled program, from its text: what its kernels move and compute, beside a machine's rates.

    seconds(kernel) = launch + max(bytes / bandwidth, work / rate)          (the roofline model)

What a loop executes counts once for every iteration. A compiler may state the cycles of a kernel itself, as
that for TPUs does; then these count. The figure is an estimate by public rates, and not measured.

Source: S. Williams, A. Waterman, D. Patterson, "Roofline" (Communications of the ACM 52(4), 2009).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from eqsat.backend.hlo import Array, Computation, HloModule, Instruction
from eqsat.backend.scratch import NOT_RUN
from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.targets.machine import Machine

COSTS = {
    name: ELEMENTWISE[function].cost
    for name, function in {
        "exponential": "exp",
        "exponential-minus-one": "expm1",
        "log": "log",
        "log-plus-one": "log1p",
        "logistic": "logistic",
        "tanh": "tanh",
        "sine": "sin",
        "cosine": "cos",
        "tan": "tan",
        "sqrt": "sqrt",
        "rsqrt": "rsqrt",
        "cbrt": "cbrt",
        "erf": "erf",
        "divide": "div",
        "power": "pow",
        "atan2": "atan2",
        "remainder": "rem",
    }.items()
}
"""By opcode of an elementwise function, its cost per entry in additions. All others cost one."""

NOTHING = NOT_RUN - {"iota"} | {
    "add-dependency",
    "async-done",
    "async-start",
    "async-update",
    "copy-done",
    "copy-start",
    "opt-barrier",
    "slice-done",
    "slice-start",
}
"""Opcodes that start no kernel, or that run beside the kernels."""

VIEWS = frozenset({"slice", "dynamic-slice", "gather"})
"""Opcodes that read of an operand no more than their result has."""

MOVES = VIEWS | {
    "broadcast",
    "concatenate",
    "copy",
    "dynamic-update-slice",
    "iota",
    "pad",
    "reshape",
    "reverse",
    "transpose",
}
"""Opcodes that compute nothing when they are fused."""

TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')

CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')

FACTORISATION = re.compile(r"cusolver|potrf|trsm|getrf|Cholesky|Triangular|Eigh|Qr|Lu")
"""Of the names of calls, those of factorisations and solves."""

SELECTION = re.compile(r"TopK", re.IGNORECASE)
"""Of the names of calls, those that select the largest entries of rows."""

PRECISE = re.compile(r"operand_precision[^\]}]*high", re.IGNORECASE)

CONTRACTED = re.compile(r'"lhs_contracting_dimensions":\["([\d",]*)"\]')


def estimated_seconds(module: HloModule, machine: Machine) -> float:
    """The seconds of a call of a compiled program, by the rates of a machine."""
    return _Estimate(module, machine).computation(module.entry)


@dataclass
class _Estimate:
    """The times of the computations of one module."""

    module: HloModule
    machine: Machine

    def __post_init__(self) -> None:
        self._known: dict[str, float] = {}

    def computation(self, name: str) -> float:
        """The seconds of a computation whose instructions run one after another."""
        if name not in self._known:
            computation = self.module.computations[name]
            self._known[name] = sum(
                self._instruction(computation, i) for i in computation.instructions.values()
            )
        return self._known[name]

    def _instruction(self, computation: Computation, instruction: Instruction) -> float:
        if instruction.opcode in NOTHING:
            return 0.0
        called = [name for name in instruction.calls() if name in self.module.computations]
        match instruction.opcode:
            case "while":
                return self._trips(instruction) * (
                    self.machine.iteration + sum(map(self.computation, called))
                )
            case "conditional":
                return self.machine.call + max(map(self.computation, called), default=0.0)
            case "call":
                return sum(map(self.computation, called))
        stated = CYCLES.search(instruction.attributes)
        if stated and self.machine.clock:
            return int(stated[1]) / self.machine.clock
        operands = [
            array
            for name in instruction.operands
            if name in computation.instructions
            for array in computation.instructions[name].results
        ]
        fused = [self.module.computations[name] for name in called if instruction.opcode == "fusion"]
        if fused:
            moving = sum(self._moving(array) for body in fused for array in _moved(body))
            computing = sum(self._body(body) for body in fused)
        else:
            arrays = (*operands, *instruction.results)
            moving = sum(map(self._moving, _touched(instruction, arrays)))
            computing = self._computing(instruction, operands)
            if instruction.opcode == "dot" or "gemm_backend_config" in instruction.attributes:
                return self.machine.call + self.machine.multiplying(computing, moving)
        return self.machine.call + max(moving, computing)

    def _trips(self, loop: Instruction) -> int:
        """The iterations of a loop: as stated, or by the constant that its condition compares with; or 1."""
        stated = TRIPS.search(loop.attributes)
        if stated:
            return int(stated[1])
        condition = self.module.computations.get(loop.attribute("condition").lstrip("%"))
        if condition is None:
            return 1
        limits = [
            int(found[1])
            for instruction in condition.instructions.values()
            if instruction.opcode == "constant" and (found := re.fullmatch(r"(\d+)", instruction.literal))
        ]
        return limits[0] if len(limits) == 1 else 1

    def _moving(self, array: Array) -> float:
        """Seconds to read or to write an array."""
        fits = array.bytes <= self.machine.cache
        return array.bytes / (self.machine.cached_bytes if fits else self.machine.bytes)

    def _body(self, body: Computation) -> float:
        """Seconds to compute what is fused, whatever is moved."""
        seconds = 0.0
        read = {name for i in body.instructions.values() if i.opcode != "tuple" for name in i.operands}
        for instruction in body.instructions.values():
            if instruction.opcode in NOTHING or instruction.opcode in MOVES:
                continue
            inner = [self.module.computations[name] for name in instruction.calls()]
            if instruction.opcode == "fusion":
                seconds += sum(map(self._body, inner))
            else:
                inlined = instruction.name in read
                seconds += self._computing(instruction, _operands(body, instruction), inlined)
        return seconds

    def _computing(self, instruction: Instruction, operands: list[Array], inlined: bool = False) -> float:
        """Seconds to compute one instruction, whatever is moved.

        **Arguments:**

        - `inlined`: whether the kernel computes something else with its result.
        """
        entries = instruction.results[0].elements if instruction.results else 0
        read = max((array.elements for array in operands), default=0)
        match instruction.opcode:
            case "dot" | "convolution":
                return self._product(instruction, operands)
            case "custom-call" if "gemm_backend_config" in instruction.attributes:
                return self._product(instruction, operands)
            case "cholesky" | "triangular-solve":
                return self._solving(operands)
            case "custom-call" if FACTORISATION.search(instruction.attribute("custom_call_target")):
                return self._solving(operands)
            case "custom-call" if SELECTION.search(instruction.attribute("custom_call_target")):
                work = self.machine.selected * read
            case "reduce":
                work = read * self._reducing(instruction, operands, inlined)
            case "reduce-window" | "scatter" | "select-and-scatter":
                work = read
            case "sort":
                along = instruction.dimensions("dimensions")
                length = operands[0].shape[along[0]] if operands and along else 1
                work = self.machine.sorting(length) * read
            case _:
                work = entries
        return COSTS.get(instruction.opcode, 1.0) * work / self.machine.elements

    def _solving(self, operands: list[Array]) -> float:
        """Seconds of a factorisation or a solve, cubic in the last dimension of the first operand.

        A solve takes the larger of its operands as often as the matrix has rows.
        """
        first = operands[0] if operands else None
        if first is None or not first.shape:
            return 0.0
        rows, work = first.shape[-1], 2.0 * max(array.elements for array in operands)
        return rows * (work / self.machine.flops + self.machine.row)

    def _product(self, instruction: Instruction, operands: list[Array]) -> float:
        """Seconds of the multiplications and additions of a matrix product."""
        entries = instruction.results[0].elements
        precise = PRECISE.search(instruction.attributes) is not None
        dtype = operands[0].dtype if operands else ""
        terms = _contracted(instruction, operands)
        rate = self.machine.product_flops(dtype, precise)
        if len(operands) > 1 and terms:
            rows, columns = (max(operand.elements // terms, 1) for operand in operands[:2])
            batch = max(rows * columns // max(entries, 1), 1)
            rate *= self.machine.busy(rows // batch, columns // batch, batch)
        return 2 * entries * terms / rate

    def _reducing(self, instruction: Instruction, operands: list[Array], inlined: bool) -> float:
        """Additions that an entry costs which a reduction reads."""
        length = operands[0].elements // max(instruction.results[0].elements, 1)
        if not inlined:
            return self.machine.reduction
        return 1.0 if length <= self.machine.short_reduction else self.machine.long_inlined


def _operands(computation: Computation, instruction: Instruction) -> list[Array]:
    return [
        array
        for name in instruction.operands
        if name in computation.instructions
        for array in computation.instructions[name].results
    ]


def _moved(body: Computation) -> list[Array]:
    """The arrays that a fusion reads from memory and writes, each as far as it does."""
    moved: list[Array] = []
    updated: set[str] = set()
    for instruction in body.instructions.values():
        if instruction.opcode == "dynamic-update-slice":
            # What it updates stays in place.
            updated.add(instruction.operands[0])
            moved += _operands(body, instruction)[1:2]
    for instruction in body.instructions.values():
        if instruction.opcode == "parameter" and instruction.name not in updated:
            readers = [i for i in body.instructions.values() if instruction.name in i.operands]
            views = [
                reader
                for reader in readers
                if reader.opcode in VIEWS and reader.operands[0] == instruction.name
            ]
            if readers and len(views) == len(readers):
                moved += [array for view in views for array in view.results]
            else:
                moved += instruction.results
        elif instruction.is_root:
            roots = [body.instructions[n] for n in instruction.operands if n in body.instructions]
            for root in roots if instruction.opcode == "tuple" else [instruction]:
                moved += [] if root.opcode == "dynamic-update-slice" else root.results
    return moved


def _touched(instruction: Instruction, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    """Of the operands and results of an instruction, what it reads and writes."""
    match instruction.opcode:
        case "dynamic-slice" | "slice" | "gather":
            return instruction.results * 2
        case "dynamic-update-slice":
            return arrays[1:2] * 2
        case "custom-call":
            # The last of several results is a workspace.
            return arrays[:-1] if len(instruction.results) > 1 else arrays
    return arrays


def _contracted(instruction: Instruction, operands: list[Array]) -> int:
    """The length of the axes that a product sums over."""
    if len(operands) < 2:
        return 1
    first = operands[0]
    if instruction.opcode == "convolution":
        # What is last in the result is taken for the kernel's output features.
        return max(operands[1].elements // max(instruction.results[0].shape[-1], 1), 1)
    stated = CONTRACTED.search(instruction.attributes)
    if stated:
        places: tuple[int, ...] = tuple(int(number) for number in stated[1].replace('"', "").split(","))
    else:
        places = instruction.dimensions("lhs_contracting_dims")
    return math.prod(first.shape[place] for place in places)
