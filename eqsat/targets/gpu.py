"""XLA's compiler for GPUs, and GPUs as machines, by the facts of a device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from eqsat.targets.compiler_profile import HONEST, CompilerProfile, Flags
from eqsat.targets.libraries import NvidiaLibraries
from eqsat.targets.machine import Machine
from eqsat.targets.product_tiles import ProductTiles

SOFTMAX_REWRITER = "triton-softmax-rewriter"
"""XLA's name of the pass that makes one kernel of a softmax or a normalisation."""

AUTOTUNER = "autotuner"
"""XLA's name of the pass that chooses kernels, and tries them out where there is a device."""

UNTUNED: Flags = {"xla_disable_hlo_passes": f"{SOFTMAX_REWRITER},{AUTOTUNER}"}
"""No kernels are chosen. Products then have all the workspace that they may take. With
`xla_gpu_autotune_level=0`, jaxlib 0.12 takes the first kernel, which has 4 MB (docs/log/accelerators.md)."""

LIBRARIES = NvidiaLibraries(
    # LAPACK's divide and conquer for eigenvectors takes 2 n² + 6 n + 1 entries, and cuSOLVER's is the same
    # algorithm (netlib.org, dsyevd). Blocked factorisations take a block of columns, at most all. The others
    # are estimates. cuSOLVER has no figures in its documentation but what its `bufferSize` functions tell on
    # a device.
    solver_copies={
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
    },
    # cuFFT's documentation, "Plan creation": 8 * batch * n[0] * … * n[rank-1] elements.
    most_transform_copies=8,
    # The documentation names 2, 3, 5 and 7 as the factors that it has kernels for.
    small_factor=7,
)
"""The libraries that XLA for GPUs of NVIDIA calls."""

COMPILER = CompilerProfile(
    # A product in a Triton kernel takes no workspace, and one in cuBLAS does; which of the two is faster is
    # tried out on the device. Without Triton, the workspace is a buffer that is counted, and the choice does
    # not depend on whether there is a device. The softmax rewriter makes Triton kernels whose compilation may
    # end the process: "LLVM Fatal Error while compiling Triton kernel: Dimensions must match" (jaxlib 0.10.2,
    # a fused layer normalisation over three axes). Where there is a device, XLA tries out kernels for fusions
    # on it: for 64 s for Sinkhorn's iterations, which took 0.9 s without and then ran as fast, and for one
    # program until a kernel failed with "misaligned address" (an H100, jaxlib 0.11.2).
    options={
        HONEST: {
            "xla_gpu_enable_triton_gemm": False,
            "xla_disable_hlo_passes": SOFTMAX_REWRITER,
            "xla_gpu_experimental_enable_fusion_autotuner": False,
        }
    },
    # Where the device is present, XLA tries out kernels of products on it while it compiles: that takes
    # seconds, and as much memory as their operands and results, which is just what the device lacks for a
    # program that is too large for it (80 GB for a kernel matrix of 40 GB on an H200, jaxlib 0.11.2).
    drafts=(UNTUNED,),
    # Where the device is absent, XLA takes the choice for made, and counts less for it: see HOPPER_WORKSPACE.
    absent=UNTUNED,
    libraries=LIBRARIES,
    rules=frozenset({"fused_products"}),
    # JAX's default: XLA_PYTHON_CLIENT_MEM_FRACTION (docs.jax.dev, "GPU memory allocation").
    memory_share=0.75,
    packages="gpu",
    estimates=True,
)
"""XLA for GPUs."""

# What XLA for GPUs stores (jaxlib 0.10, by its buffers for an H100; `python -m benchmarks.storage_model`): it
# computes what a reduction reads on the fly, and reductions of up to 8 entries inside of what reads them, if
# there is one reader. Those of up to 3 entries may have two readers on a V100 or an A100, and eight on
# an H100 or H200 (squared distances, with 1 to 8 maxima of them). A value with an exponential is stored if
# more than two read it, or if it is broadcast. Concatenations, padded arrays and a scatter's updates are
# computed on the fly, too. `TreeReductionRewriter` splits long reductions.

# Measured on an H200 (jaxlib 0.11.2, CUDA 13; the table is in docs/log/accelerators.md), taken for all GPUs:

MOVED = 0.76
"""The share of the memory's bandwidth that kernels reach: a copy reached 0.76 of it, a sum of rows 0.61."""

MULTIPLIED = 0.75
"""The share of the peak that large products reach: 0.74 in single precision, 0.77 in TF32."""

ISSUED = 0.5
"""Two instructions count as one addition, which is the unit of the costs of elementwise functions. A chain of
multiplications and additions in registers reaches the peak; an exponential takes 10 instructions, a division
9, a logarithm 33, a power 78."""

REDUCTION = 6.0
"""Additions that an entry of a reduction costs. An entry of a kernel matrix of 100,000² points takes 1.4 ps,
of which 1 ps are its operations; one of a logsumexp, read twice, 1.9 ps, and one of an argmin 1 ps."""

LONG_INLINED = 14.0
"""Additions that an entry of a reduction costs that is computed inside of another, if it has more than three:
an entry of a kernel matrix takes 9.9 ps with ten coordinates, and 1.4 ps with three."""

SELECTED = 200.0
"""Additions that an entry costs of which the ten largest are selected: 12 ps in rows of 500,000, 20 ps in
rows of 50,000."""

SORTED = 5.0
"""Additions for each of the log2(n)² comparisons of an entry that is sorted: 70 ps in rows of 50,000."""

ROW = 4.6e-7
"""Seconds for a row of a factorisation: Cholesky's takes 0.56 ms for 1,000 rows, and 1.86 ms for 4,000."""

LAUNCH = 2.5e-6
"""Seconds to start a kernel in a loop: 2.8 us for the second of an iteration, less for further ones."""

ITERATION = 4.5e-6
"""Seconds to start an iteration: 7.0 us for one with a single kernel."""

TENSOR = {(8, 0): 512, (8, 6): 256, (8, 9): 256, (9, 0): 1024, (10, 0): 2048, (12, 0): 256}
"""By compute capability, multiply-adds in TF32 per core and cycle, dense (NVIDIA's data sheets: 156 TFLOPS
for an A100, 77 for an RTX A6000, 494 for an H100; recalled, not looked up, and only the H200's was measured).
Before 8.0 there is no TF32."""

LINK = 4.5e11
"""Bytes per second between the GPUs of a host, in one direction: NVLink of an H100 has 900 GB/s in both
(NVIDIA's data sheet). Hosts are tied by less. Not measured."""

MESSAGE = 1e-5
"""Seconds to start a collective. An estimate, not measured."""

CACHED = 2.0
"""How many times as fast as the memory the L2 cache is. An estimate, not measured."""

WORKSPACE = 4 << 20
"""Bytes of the buffer that XLA gives to every product by cuBLAS (`s8[4194304]` in the text of programs that
are compiled for a V100, jaxlib 0.10)."""

HOPPER, HOPPER_WORKSPACE = 9, 32 << 20
"""From this compute capability on, a product may take so many bytes: NVIDIA recommends as much (cuBLAS's
documentation, "cublasSetWorkspace"), and XLA lets the algorithms that it tries out on a device have it. On an
H200 with jaxlib 0.11.2, four of 32 plans for an absent H100 needed 25 to 49 MB more than they were certified
for: compiled for an absent device, a product has 4 MB, unless no kernels are to be tried out."""

TILES = ProductTiles(cores=108, together=2, side=64, aligned=8, least_terms=256, most_bytes=WORKSPACE)
"""Products on an A100, which has 108 processors.

- `side`: on an H200, a product of 256 x 32,000 by 32,000 x 64 ran in tiles of 64 x 64
  (`cutlass_80_tensorop_s1688gemm_64x64_32x6_tt_align4`).
- `together`: chosen by hand, for the times of products on an H100 (docs/log/accelerators.md).
- `aligned`: cuBLAS has fast kernels for operands whose rows begin at multiples of 16 bytes (its
  documentation, "Tensor Core Usage"), which are 8 entries of 2 bytes. On an H200, products of 250 rows and
  columns of 6,000 ran on kernels for any address (`align1`), at 40 TFLOPS of the 370 that others reach.
- `least_terms`: a choice, not measured. `most_bytes`: no more than the workspace of any product.

Of the four forms that a product of row-major matrices has, that of two transposed ones ran on kernels for
Ampere on the H200, and the other three on kernels for Hopper: `transposes_slowly`."""

SMALLEST_BLOCK = 32 << 20
"""Bytes. A block of 2^22 numbers in double precision fills any of these chips, whatever its cache."""

GPU = Machine(
    flops=1.4e13,
    reduced_flops=1.2e14,
    elements=5e12,
    bytes=2e12,
    cached_bytes=4e12,
    cache=SMALLEST_BLOCK,
    kept=1 << 60,
    call=LAUNCH,
    iteration=ITERATION,
    reduction=REDUCTION,
    long_inlined=LONG_INLINED,
    row=ROW,
    link=LINK,
    message=MESSAGE,
    selected=SELECTED,
    sorted=SORTED,
    sorted_integer=SORTED,
    merges=False,
    patch=0.0,
    orders_convolutions=False,
    shifted_taps=0,
    fused_reduction=1 << 40,
    inlined_reduction=8,
    short_reduction=3,
    short_uses=2,
    written_sum=16,
    sums_pairs=True,
    cheap_uses=2,
    most_copies=0,
    shifted_work=0.0,
    repeated_work=0.0,
    stores_gathers=False,
    # Column reductions: 4,000 entries are reduced in one step, 5,000 in two (jaxlib 0.10, for an H100).
    split_reduction=1 << 14,
    split_columns=1 << 12,
    # A warp reduces a column per thread. With three columns, a sum in two steps took 71 ms, and one along the
    # last axis 7 ms (forces of 40,000 bodies, an H100, jaxlib 0.11.2).
    few_columns=32,
    emits_steps=True,
    stores_broadcasts=True,
    fuses_joins=True,
    fuses_extremes=True,
    fuses_selections=True,
    # As the certificate counts for CUB (backend/cuda_scratch.py).
    sort_copies=1,
    # JAX calls a kernel of its own.
    random_copies=0,
    overwrites=False,
    rows=256,
    tiles=TILES,
    transposes_slowly=True,
    panel_columns=0,
    widens=False,
    indexed_slices=0,
    product_workspace=WORKSPACE,
    lanes=0,
    adds_rows=False,
    joins=False,
    # An H100 that 17 processes shared held 188 MB of three chunks where 125 MB of two had been certified
    # (jaxlib 0.11.2, docs/log/accelerators.md): the runtime frees what was read in threads of its own.
    late_chunks=1,
)
"""A GPU of which nothing is known: of the class of an A100. JAX keeps all memory that it has taken."""


def gpu_machine(facts: Mapping[str, Any]) -> Machine:
    """A GPU as a machine, by the fields of XLA's `GpuDeviceInfoProto`.

    Single-precision operations per second are cores × units of each × clock, and twice as many with fused
    multiply-adds.
    """
    cycles = facts["core_count"] * facts["clock_rate_ghz"] * 1e9
    issued = cycles * facts["fpus_per_core"]
    capability = (facts["compute_capability_major"], facts["compute_capability_minor"])
    tensor = TENSOR.get(capability, TENSOR.get((capability[0], 0), 0))
    return replace(
        GPU,
        flops=MULTIPLIED * 2 * issued,
        reduced_flops=MULTIPLIED * 2 * tensor * cycles,
        elements=ISSUED * issued,
        bytes=MOVED * facts["memory_bandwidth"],
        cached_bytes=CACHED * facts["memory_bandwidth"],
        tiles=replace(TILES, cores=facts["core_count"]),
        cache=max(SMALLEST_BLOCK, facts["l2_cache_size"] // 2),
        short_uses=math.inf if capability[0] >= HOPPER else GPU.short_uses,
        product_workspace=HOPPER_WORKSPACE if capability[0] >= HOPPER else WORKSPACE,
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
