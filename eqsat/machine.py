"""The machine model: rates by which time is predicted, and sizes by which chunks are chosen.

The defaults are ratios measured on a small CPU; only ratios matter for choosing between programs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine.

    **Attributes:**

    - `flops`: floating-point operations per second in a large matrix product.
    - `elements`: elementwise additions per second, operands in cache.
    - `bytes`: bytes per second to and from main memory.
    - `cached_bytes`: bytes per second where the data fits `cache`.
    - `cache`: bytes of a block that is fast to produce and consume.
    - `call`: seconds to start one operation.
    - `fused_reduction`: the longest reduction that computes its operand on the fly; the operand of a
      longer one is stored.
    - `rows`: fewest rows of a matrix product that still run near full speed.
    """

    flops: float = 6e10
    elements: float = 4e9
    bytes: float = 1e10
    cached_bytes: float = 4e10
    cache: int = 8 << 20
    call: float = 2e-6
    fused_reduction: int = 32
    rows: int = 64


CPU = Machine()
"""A two-core CPU with 32 MB of last-level cache."""
