"""XLA's compiler for CPUs, and the host as a machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import jax

from eqsat.targets.compiler_profile import HONEST, OWN, UNORDERED, CompilerProfile, Flags
from eqsat.targets.libraries import HostLibraries
from eqsat.targets.machine import Machine

HIDE_NOTHING: Flags = {
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT",
    # XLA leaves roundings to bfloat16 out where it can: a value computed in two loops would be two numbers.
    "xla_allow_excess_precision": False,
}

EMITTERS = "xla_cpu_use_fusion_emitters"
"""The option to write fusions in the newer of two ways."""

WIDTH = "xla_cpu_prefer_vector_width"
"""The option for the width of vectors, in bits."""

# Measured op by op in fresh processes (jaxlib 0.10 and 0.11, x86-64; docs/xla.md).
LIBRARIES = HostLibraries(
    eigen_depth=656,  # two panels of at most 328
    eigen_batches=2,
    ynn_columns=64,
    ynn_tile=4,
    ynn_rows=512,
    patches=1 << 20,
    sorted_entry=16,
    sequential=8,
    grain=1 << 17,  # an allocator keeps as much ready (M_MMAP_THRESHOLD)
)
"""The libraries that XLA for CPUs calls."""

COMPILER = CompilerProfile(
    options={
        HONEST: {**HIDE_NOTHING, "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"},
        UNORDERED: HIDE_NOTHING,
        OWN: {},
    },
    # Compiling takes a sixth of the time, or half of it where the compiler has only one way to write
    # fusions, as jaxlib 0.11 has (docs/log/planning-time.md).
    drafts=(
        {"xla_backend_optimization_level": "0", EMITTERS: False},
        {"xla_backend_optimization_level": "0"},
    ),
    inexact_draft=EMITTERS,
    deepest_draft=1_000,  # A stack of 8 MiB overflows at 7,000 (jaxlib 0.10).
    wide={WIDTH: 512},
    libraries=LIBRARIES,
    reduces_precision=False,
    rules=frozenset({"lapack"}),
)
"""XLA for CPUs. Its default fusions hide values from its own memory analysis, and its default scheduler
does not let large independent values share a buffer."""

NARROW_PRODUCTS = frozenset({"float32"} if jax.__version_info__ < (0, 11) else {"float32", "bfloat16"})
"""What products of bfloat16 are computed to without copies in single precision: to bfloat16 since jaxlib 0.11
(measured with 0.10.2, 0.11.2 and 0.12.0)."""

CPU = Machine(sorted_entry=LIBRARIES.sorted_entry, narrow_products=NARROW_PRODUCTS)
"""A two-core CPU with 32 MB of last-level cache.

Random bits: Threefry's rounds are a loop, which keeps both words of the last round beside those that it
makes: four arrays in all, and three of them temporary if bits are the result (jaxlib 0.10).

Sorts: 12 to 16 ns of one core for each entry and each power of two of a row's length, from 100 to 4
million, for floats with or without indices, and for integers with them; 2.3 ns for integers alone (jaxlib
0.11).
"""

BLOCKS = (4 << 20, 8 << 20)
"""Bytes: blocks are not chosen smaller or larger than this for the sake of a cache alone.

With 16 MB and a cache of 260 MB, kernels took 0.9 to 1.05 of the time, attention's gradients 1.0 to 1.15, a
Laplacian's gradient 1.5, and Sinkhorn 2.5 (two cores of a Xeon).
"""


def host_machine() -> Machine:
    """The default machine for a CPU, without measurements.

    Its blocks are a quarter of the last-level cache, if the system reports one.
    """
    cache = last_level_cache()
    return CPU if cache is None else replace(CPU, cache=min(max(cache // 4, BLOCKS[0]), BLOCKS[1]))


def last_level_cache() -> int | None:
    """Bytes of the processor's last-level cache, as reported by Linux; None if unknown."""
    return max(_caches(Path("/sys/devices/system/cpu/cpu0/cache")), default=(0, None))[1]


def _caches(folder: Path) -> Iterator[tuple[int, int]]:
    """The level and the bytes of each cache: a size reads "32768K"."""
    for cache in folder.glob("index*"):
        with suppress(OSError, ValueError, KeyError):
            size = (cache / "size").read_text().strip()
            units = {"K": 1 << 10, "M": 1 << 20}
            yield int((cache / "level").read_text()), int(size[:-1]) * units[size[-1]]
