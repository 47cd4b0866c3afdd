"""Scratch on NVIDIA GPUs: what libraries take while they run, beside the buffers that XLA counts.

Workspaces of cuBLAS are buffers of the program, and are counted, if products are not made by Triton. Those of
cuSOLVER and cuFFT are taken from JAX's allocator when a call runs. XLA sorts long rows by CUB where it has a
device, and otherwise by a kernel of its own, which takes nothing. One stream runs one call at a time, so a
program needs the most that one of its calls needs.

The libraries' sizes are upper bounds by documentation where there is any, and estimates otherwise.
"""

from __future__ import annotations

from eqsat.backend.hlo import Computation, HloModule, Instruction
from eqsat.backend.workspaces import largest_factor
from eqsat.targets.libraries import NvidiaLibraries


def cuda_scratch_bytes(module: HloModule, libraries: NvidiaLibraries) -> int:
    """Bytes that one call of a library takes at most."""
    return max(
        (
            _needed(computation, instruction, libraries)
            for computation in module.computations.values()
            for instruction in computation.instructions.values()
        ),
        default=0,
    )


def _needed(computation: Computation, instruction: Instruction, libraries: NvidiaLibraries) -> int:
    operands = [
        result
        for name in instruction.operands
        if name in computation.instructions
        for result in computation.instructions[name].results
    ]
    if not operands:
        return 0
    first = operands[0]
    match instruction.opcode:
        case "custom-call":
            name = instruction.attribute("custom_call_target").strip('"')
            copies = libraries.solver_copies.get(name, 0.0)
            batch = max(first.elements // max(_matrix(first.shape), 1), 1)
            return int(copies * first.bytes) // batch
        case "fft":
            lengths = instruction.dimensions("fft_length")
            smooth = all(largest_factor(length) <= libraries.small_factor for length in lengths)
            entries = max(first.bytes, *(result.bytes for result in instruction.results))
            return entries if smooth else libraries.most_transform_copies * entries
        case "sort":
            # CUB sorts from one buffer to another, and back.
            return sum(operand.bytes for operand in operands)
    return 0


def _matrix(shape: tuple[int, ...]) -> int:
    """The entries of one matrix of a stack."""
    return shape[-1] * shape[-2] if len(shape) > 1 else shape[0] if shape else 1
