"""The machine model: rates by which time is predicted, and sizes by which chunks are chosen.

Only ratios matter for choosing between programs. Those here hold for small CPUs and for large GPUs; what
holds for the machine at hand is measured when asked for, by `eqsat.targets.calibration`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine.

    **Attributes:**

    - `flops`: floating-point operations per second in a large matrix product.
    - `elements`: elementwise additions per second, operands in cache.
    - `bytes`: bytes per second to and from main memory.
    - `cached_bytes`: bytes per second where the data fits `cache`.
    - `cache`: bytes of a block that is fast to produce and consume.
    - `kept`: bytes of the largest block that a process keeps from one call to the next.
    - `fresh`: bytes per second of a larger block, which comes from the system in every call, in pages that
      are cleared first.
    - `call`: seconds to start one operation.
    - `fused_reduction`: the longest reduction that computes its operand on the fly; the operand of a
      longer one is stored.
    - `rows`: the fewest rows with which a matrix product runs near full speed.
    - `panel_columns`: the number of columns of an operand that a matrix product packs at a time, in memory
      of its own. A batch of products packs all columns. 0 if nothing is packed.
    - `packing`: the slowdown of a program whose products are emitted so that they pack less.
    - `lanes`: the number of entries, adjacent in memory, that are processed at once; 0 if their order does
      not matter.
    - `adds_rows`: whether the product of a vector and a matrix adds the matrix's rows one after the other:
      an entry's rounding error then grows with their number.
    - `joins`: whether products of one matrix with several narrow ones are taken as one.
    - `copies`: whether operands of short reductions may be copied to an order for `lanes`, and operands of
      products so that these can be taken as one.
    """

    flops: float = 6e10
    elements: float = 4e9
    bytes: float = 1e10
    cached_bytes: float = 4e10
    cache: int = 8 << 20
    kept: int = 32 << 20
    fresh: float = 1e9
    call: float = 2e-6
    fused_reduction: int = 32
    rows: int = 64
    panel_columns: int = 128
    packing: float = 1.2
    lanes: int = 8
    copies: bool = True
    adds_rows: bool = True
    joins: bool = True

    def taking(self, size: float) -> float:
        """Seconds to get a block of `size` bytes for a call. Large blocks are not kept between calls."""
        return size / self.fresh if size > self.kept else 0.0


CPU = Machine()
"""A two-core CPU with 32 MB of last-level cache."""

GPU = Machine(
    flops=1e14,
    elements=5e11,
    bytes=3e12,
    cached_bytes=6e12,
    cache=32 << 20,
    kept=1 << 60,
    call=1e-5,
    fused_reduction=1 << 40,
    rows=256,
    panel_columns=0,
    lanes=0,
    adds_rows=False,
    joins=False,
)
"""A GPU of the class of an A100 or H200, by its public figures; not measured.

A block of 32 MB is 2^22 numbers in double precision: enough to fill the chip, and within its 50 MB of cache.
Reductions of any length compute what they read as they go. JAX keeps all memory that it has taken.
"""

BLOCKS = (4 << 20, 8 << 20)
"""Bytes: blocks are not chosen smaller or larger than this for the sake of a cache alone.

With 16 MB and a cache of 260 MB, kernels took 0.9 to 1.05 of the time, attention's gradients 1.0 to 1.15, a
Laplacian's gradient 1.5, and Sinkhorn 2.5 (two cores of a Xeon).
"""


def machine_for(platform: str) -> Machine:
    """The default machine for a platform, "cpu" or "gpu", without measurements.

    The block of a CPU is a quarter of its last-level cache, if the system reports one.
    """
    if platform != "cpu":
        return GPU
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
