"""Scratch on NVIDIA GPUs: what libraries take while they run, beside the buffers that XLA counts.

Workspaces of cuBLAS are buffers of the program, and are counted, if products are not made by Triton. Those of
cuSOLVER and cuFFT are taken from JAX's allocator when a call runs. XLA sorts long rows by CUB where it has a
device, and otherwise by a kernel of its own, which takes nothing. One stream runs one call at a time, so a
program needs the most that one of its calls needs.

These are upper bounds by documentation where there is any, and estimates otherwise.
"""

from __future__ import annotations

from eqsat.backend.hlo import Computation, HloModule, Instruction
from eqsat.backend.workspaces import largest_factor

COPIES = {
    "cusolver_potrf_ffi": 1.0,
    "cusolver_getrf_ffi": 1.0,
    "cusolver_geqrf_ffi": 1.0,
    "cusolver_orgqr_ffi": 1.0,
    "cusolver_syevd_ffi": 3.0,
    "cusolver_syevj_ffi": 3.0,
    "cusolver_gesvd_ffi": 3.0,
    "cusolver_gesvdj_ffi": 3.0,
    "cusolver_gesvdp_ffi": 4.0,
    "cusolver_sytrd_ffi": 1.0,
}
"""By call of cuSOLVER: its workspace in copies of its first operand, one matrix of a batch at a time.

LAPACK's divide and conquer for eigenvectors takes 2 n² + 6 n + 1 entries, and cuSOLVER's is the same
algorithm (netlib.org, dsyevd). Blocked factorisations take a block of columns, at most all. The others are
estimates. cuSOLVER has no figures in its documentation but what its `bufferSize` functions tell on a device.
"""

WORST_TRANSFORM = 8
"""cuFFT takes at most so many copies of its operand, as complex numbers (cuFFT's documentation, "Plan
creation": 8 * batch * n[0] * … * n[rank-1] elements)."""

SMALL_FACTOR = 7
"""If no prime factor of its lengths is larger, cuFFT takes at most one copy (its documentation names 2, 3, 5
and 7 as the factors that it has kernels for)."""


def cuda_scratch_bytes(module: HloModule) -> int:
    """Bytes that one call of a library takes at most."""
    return max(
        (
            _needed(computation, instruction)
            for computation in module.computations.values()
            for instruction in computation.instructions.values()
        ),
        default=0,
    )


def _needed(computation: Computation, instruction: Instruction) -> int:
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
            copies = COPIES.get(instruction.attribute("custom_call_target").strip('"'), 0.0)
            batch = max(first.elements // max(_matrix(first.shape), 1), 1)
            return int(copies * first.bytes) // batch
        case "fft":
            lengths = instruction.dimensions("fft_length")
            smooth = all(largest_factor(length) <= SMALL_FACTOR for length in lengths)
            entries = max(first.bytes, *(result.bytes for result in instruction.results))
            return entries if smooth else WORST_TRANSFORM * entries
        case "sort":
            # CUB sorts from one buffer to another, and back.
            return sum(operand.bytes for operand in operands)
    return 0


def _matrix(shape: tuple[int, ...]) -> int:
    """The entries of one matrix of a stack."""
    return shape[-1] * shape[-2] if len(shape) > 1 else shape[0] if shape else 1
