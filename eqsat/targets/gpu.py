"""XLA's compiler for GPUs, and GPUs as machines, by the facts of a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from eqsat.targets.compiler_profile import HONEST, CompilerProfile
from eqsat.targets.machine import Machine

SOFTMAX_REWRITER = "triton-softmax-rewriter"
"""XLA's name of the pass that makes one kernel of a softmax or a normalisation."""

COMPILER = CompilerProfile(
    # A product in a Triton kernel takes no workspace, and one in cuBLAS does; which of the two is faster is
    # tried out on the device. Without Triton, the workspace is a buffer that is counted, and the choice does
    # not depend on whether there is a device. The softmax rewriter makes Triton kernels whose compilation may
    # end the process: "LLVM Fatal Error while compiling Triton kernel: Dimensions must match" (jaxlib 0.10.2,
    # a fused layer normalisation over three axes).
    options={HONEST: {"xla_gpu_enable_triton_gemm": False, "xla_disable_hlo_passes": SOFTMAX_REWRITER}},
    scratch="cuda",
    rules=frozenset({"fused_products"}),
    # JAX's default: XLA_PYTHON_CLIENT_MEM_FRACTION (docs.jax.dev, "GPU memory allocation").
    memory_share=0.75,
    packages="gpu",
    estimates=True,
)
"""XLA for GPUs."""

# What XLA for GPUs stores (jaxlib 0.10, by its buffers for an H100; `python -m benchmarks.storage_model`): it
# computes what a reduction reads on the fly, and reductions of up to 8 entries inside of what reads them; a
# value with an exponential is stored if more than two read it, or if it is broadcast. `TreeReductionRewriter`
# splits long reductions.

ISSUED = 0.5
"""The share of the peak rate of elementwise operations that a kernel reaches: the rest goes to addresses,
conversions and control. An estimate, not measured."""

CACHED = 2.0
"""How many times as fast as the memory the L2 cache is. An estimate, not measured."""

WORKSPACE = 4 << 20
"""Bytes of the buffer that XLA gives to every product by cuBLAS (`s8[4194304]` in the text of programs that
are compiled for a V100 or an H100, jaxlib 0.10)."""

SMALLEST_BLOCK = 32 << 20
"""Bytes. A block of 2^22 numbers in double precision fills any of these chips, whatever its cache."""

LAUNCH = 5e-6
"""Seconds to start a kernel in a loop. An estimate, not measured."""

GPU = Machine(
    flops=1e14,
    elements=5e12,
    bytes=2e12,
    cached_bytes=4e12,
    cache=SMALLEST_BLOCK,
    kept=1 << 60,
    call=LAUNCH,
    fused_reduction=1 << 40,
    inlined_reduction=8,
    written_sum=16,
    sums_pairs=True,
    cheap_uses=2,
    split_reduction=1 << 14,
    stores_broadcasts=True,
    fuses_extremes=True,
    overwrites=False,
    rows=256,
    panel_columns=0,
    product_workspace=WORKSPACE,
    lanes=0,
    adds_rows=False,
    joins=False,
)
"""A GPU of which nothing is known: of the class of an A100. JAX keeps all memory that it has taken."""


def gpu_machine(facts: Mapping[str, Any]) -> Machine:
    """A GPU as a machine, by the fields of XLA's `GpuDeviceInfoProto`.

    Single-precision operations per second are cores × units of each × clock, and twice as many with fused
    multiply-adds.
    """
    issued = facts["core_count"] * facts["fpus_per_core"] * facts["clock_rate_ghz"] * 1e9
    return replace(
        GPU,
        flops=2 * issued,
        elements=ISSUED * issued,
        bytes=float(facts["memory_bandwidth"]),
        cached_bytes=CACHED * facts["memory_bandwidth"],
        cache=max(SMALLEST_BLOCK, facts["l2_cache_size"] // 2),
    )


def configuration(facts: Mapping[str, Any], memory: int, description: str) -> str:
    """The text of XLA's `GpuTargetConfigProto` for a device, with which XLA compiles where it is absent."""
    version = ("compute_capability_major", "compute_capability_minor")
    fields = {name: value for name, value in facts.items() if name not in version}
    lines = "\n".join(
        f"  {name}: {value}" for name, value in (fields | {"device_memory_size": memory}).items()
    )
    major, minor = (facts[name] for name in version)
    return (
        f"gpu_device_info {{\n{lines}\n  cuda_compute_capability {{ major: {major} minor: {minor} }}\n}}\n"
        'platform_name: "CUDA"\n'
        "dnn_version_info { major: 9 minor: 10 }\n"
        "runtime_version { major: 12 minor: 8 }\n"
        f'device_description_str: "{description}"\n'
    )
