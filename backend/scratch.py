"""Scratch: the memory of a compiled program beside its buffers, on CPU.

XLA's memory analysis counts the buffers that it assigns. It misses the memory of the libraries that its
instructions call: packed panels of matrix products, workspaces of LAPACK, copies that are sorted. It also
misses the values inside `__ynn_fusion`s. All of this is computed from the text of the compiled program.

The figures were measured op by op in fresh processes (jaxlib 0.10 and 0.11, x86-64). What a library keeps
per process, whatever it is called with, is not counted: 7 MB of OpenBLAS, code that is loaded when first
used. On other platforms XLA's figure contains the scratch, which its instructions take from its allocator.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from eqsat.backend.hlo import Computation, HloModule, Instruction
from eqsat.backend.workspaces import (
    column_bytes,
    convolution_bytes,
    lapack_bytes,
    panel_bytes,
    product_bytes,
    selection_bytes,
    summed_bytes,
    transform_bytes,
)
from eqsat.targets.libraries import HostLibraries

NOT_RUN = frozenset(
    {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "iota", "partition-id", "after-all"}
)
"""Opcodes that take no time: nothing is executed for them."""

RENAMING = frozenset({"broadcast", "bitcast", "reshape"})
"""Opcodes for which a fusion makes no value."""


def scratch_bytes(module: HloModule, libraries: HostLibraries, threads: int = 0) -> int:
    """Bytes that a program needs at most beside its buffers.

    **Arguments:**

    - `threads`: of the device; those that this process may use if 0.
    """
    return Scratch(module, libraries, threads or len(os.sched_getaffinity(0))).most()


class Scratch:
    """The scratch of the computations of one module."""

    def __init__(self, module: HloModule, libraries: HostLibraries, threads: int) -> None:
        self.module = module
        self.libraries = libraries
        self.threads = threads
        self._known: dict[str, int] = {}

    def most(self) -> int:
        return self._sequence(self.module.entry)

    def _sequence(self, name: str) -> int:
        """The scratch of a computation, some instructions of which may run at the same time."""
        if name not in self._known:
            computation = self.module.computations[name]
            needs = {}
            for instruction in computation.instructions.values():
                need = self._instruction(computation, instruction)
                if need >= self.libraries.grain:
                    needs[instruction.name] = need
            self._known[name] = self._at_once(computation, needs)
        return self._known[name]

    def _at_once(self, computation: Computation, needs: dict[str, int]) -> int:
        """The most that independent instructions need together, at most one for each thread.

        An instruction and the largest of those that are independent of it: no set of independent ones
        needs more than this does for its largest member.
        """
        most = max(needs.values(), default=0)
        executed = sum(instruction.opcode not in NOT_RUN for instruction in computation.instructions.values())
        if executed <= self.libraries.sequential or len(needs) < 2:
            return most
        names = list(needs)
        before = _ancestors(computation, names)
        for number, name in enumerate(names):
            others = sorted(
                (
                    needs[other]
                    for place, other in enumerate(names)
                    if needs[other] <= needs[name]
                    and place != number
                    and not before[name] >> place & 1
                    and not before[other] >> number & 1
                ),
                reverse=True,
            )
            most = max(most, needs[name] + sum(others[: self.threads - 1]))
        return most

    def _instruction(self, within: Computation, instruction: Instruction) -> int:
        operands = [within.instructions[name].results for name in instruction.operands]
        flat = [arrays[0] for arrays in operands if arrays]
        match instruction.opcode:
            case "while" | "call" | "conditional":
                return max((self._sequence(name) for name in instruction.calls()), default=0)
            case "fusion" if "__ynn_fusion" in instruction.attributes:
                return self._fused(self.module.computations[instruction.calls()[0]])
            case "dot":
                return product_bytes(instruction, flat, self.threads, self.libraries)
            case "sort":
                return self._sort(instruction)
            case "fft":
                return transform_bytes(instruction, flat[0], self.threads)
            case "convolution":
                return convolution_bytes(instruction, flat, self.libraries)
            case "custom-call":
                if 'custom_call_target="TopK"' in instruction.attributes:
                    return selection_bytes(flat[0])
                return lapack_bytes(instruction, flat)
        return 0

    def _sort(self, instruction: Instruction) -> int:
        """A copy of half of a row, or of all of it in wider entries if more than `<` compares them."""
        first = instruction.results[0]
        length = first.shape[instruction.dimensions("dimensions")[0]]
        comparison = self.module.computations[instruction.calls()[0]]
        if len(instruction.results) == 1 and len(comparison.instructions) == 3:
            return length * first.bytes // max(2 * first.elements, 1)
        return length * self.libraries.sorted_entry * len(instruction.results)

    def _fused(self, computation: Computation) -> int:
        """The memory of a YNNPACK fusion: the peak of its values, each alive until its last use.

        YNNPACK may share buffers and compute values in blocks. In measurements, it never needed more than
        this and the panels of matrix products, which include some sums of products.
        """
        instructions = list(computation.instructions.values())
        last: dict[str, int] = {}
        for place in reversed(range(len(instructions))):
            instruction = instructions[place]
            read = last.get(instruction.name, place) if instruction.opcode in RENAMING else place
            for operand in instruction.operands:
                last[operand] = max(last.get(operand, 0), read)
        live: dict[str, int] = {}
        most = packing = 0
        for place, instruction in enumerate(instructions):
            if instruction.opcode in NOT_RUN | RENAMING:
                continue
            if instruction.opcode == "dot":
                flat = [computation.instructions[name].results[0] for name in instruction.operands]
                packing = max(packing, panel_bytes(instruction, flat, self.threads, self.libraries))
            if instruction.opcode == "reduce":
                packing = max(packing, self._reduced(computation, instruction))
            if not instruction.is_root:
                live[instruction.name] = sum(result.bytes for result in instruction.results)
            most = max(most, sum(live.values()))
            live = {name: size for name, size in live.items() if last.get(name, place) > place}
        return most + packing

    def _reduced(self, computation: Computation, reduction: Instruction) -> int:
        """The scratch of a reduction, its operand excluded."""
        operand = computation.instructions[reduction.operands[0]].results[0]
        columns = column_bytes(operand, frozenset(reduction.dimensions("dimensions")), self.libraries)
        return max(columns, self._summed(computation, reduction))

    def _summed(self, computation: Computation, reduction: Instruction) -> int:
        """The scratch of a reduction that may be computed as a matrix product."""
        reducer = self.module.computations[reduction.calls()[0]]
        product = computation.instructions[reduction.operands[0]]
        while product.opcode == "convert":
            product = computation.instructions[product.operands[0]]
        if all(one.opcode != "add" for one in reducer.instructions.values()):
            return 0
        if product.opcode != "multiply" or len(set(product.operands)) < 2:
            return 0
        left, right = (varying(computation, name) for name in product.operands)
        reduced = frozenset(reduction.dimensions("dimensions"))
        return summed_bytes(product.results[0], reduced, left, right, self.threads, self.libraries)


def varying(computation: Computation, name: str) -> frozenset[int]:
    """The dimensions that a value varies with, as far as broadcasts tell."""
    instructions = computation.instructions
    shape = instructions[name].results[0].shape
    long = frozenset(number for number, length in enumerate(shape) if length > 1)
    found: set[int] = set()
    seen, waiting = {name}, [name]
    while waiting:
        instruction = instructions[waiting.pop()]
        if instruction.opcode == "broadcast":
            found |= long & frozenset(instruction.dimensions("dimensions"))
        elif not instruction.operands or any(
            instructions[one].results[0].shape != shape for one in instruction.operands
        ):
            return long
        else:
            waiting += set(instruction.operands) - seen
            seen |= set(instruction.operands)
    return frozenset(found)


def _ancestors(computation: Computation, names: Sequence[str]) -> dict[str, int]:
    """For each of some instructions, which of them it depends on: a bit for each."""
    bits = {name: 1 << place for place, name in enumerate(names)}
    before: dict[str, int] = {}
    for name, instruction in computation.instructions.items():
        found = 0
        for operand in instruction.operands:
            found |= before.get(operand, 0) | bits.get(operand, 0)
        before[name] = found
    return before
