"""XLA's compiler for TPUs, and TPUs as machines, by the facts of a chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from eqsat.targets.compiler_profile import CompilerProfile
from eqsat.targets.machine import Machine

COMPILER = CompilerProfile(
    # XLA's own options are honest: it places every value that is not in registers or vector memory.
    # Of the 16 GiB of a v5e, its compiler lets programs have 15.75.
    memory_share=0.98,
    refusal=r"RESOURCE_EXHAUSTED(?s:.*)HLO temporaries \(([\d.]+)([KMGT]?)\)",
    packages="tpu",
    estimates=True,
)
"""XLA for TPUs. It refuses programs that exceed the memory of the chip."""

SINGLE = 1 / 6
"""The share of the rate of products in bfloat16 that those in single precision reach: six of the former make
one of the latter (`jax.lax.Precision.HIGHEST`)."""

ELEMENTWISE = 1 / 32
"""The share of the rate of products in bfloat16 that elementwise operations reach. A v5e has four units for
vectors of 8 × 128 lanes, and four that make 128 × 128 multiply-adds, at the same clock."""

CACHED = 10.0
"""How many times as fast as the memory of the chip its vector memory is. An estimate, not measured."""

FAST = 24 << 20
"""Bytes of values that the compiler keeps in vector memory, at most. Of values of 1 to 200 MB, it kept those
of up to 24 MB there, one at a time (jaxlib 0.10.2, libtpu 0.0.42 for a v5e)."""

TPU = Machine(
    flops=3.3e13,
    elements=6.2e12,
    bytes=8e11,
    cached_bytes=8e12,
    cache=32 << 20,
    kept=1 << 60,
    call=2e-6,
    iteration=0.0,
    sorted=1.0,
    sorted_integer=1.0,
    merges=False,
    patch=0.0,
    orders_convolutions=False,
    shifted_taps=0,
    fused_reduction=1 << 40,
    written_sum=16,
    fuses_products=True,
    cheap_uses=1 << 10,
    most_copies=0,
    shifted_work=0.0,
    repeated_work=0.0,
    stores_gathers=False,
    stores_broadcasts=True,
    fuses_extremes=True,
    fast_memory=FAST,
    rows=128,
    panel_columns=0,
    widens=False,
    indexed_slices=0,
    # JAX writes the rounds out (`jax._src.prng`); so XLA fuses them.
    random_copies=0,
    lanes=0,
    adds_rows=False,
    joins=False,
    clock=1.5e9,
)
"""A TPU of which nothing is known: of the class of a v5e, by its public figures; not measured."""


def tpu_machine(facts: Mapping[str, Any]) -> Machine:
    """A TPU as a machine, by its rate of products in bfloat16, the bandwidth of its memory, and its clock."""
    return replace(
        TPU,
        flops=SINGLE * facts["bfloat16_flops"],
        elements=ELEMENTWISE * facts["bfloat16_flops"],
        bytes=float(facts["memory_bandwidth"]),
        cached_bytes=CACHED * facts["memory_bandwidth"],
        clock=facts["clock_rate_ghz"] * 1e9,
    )
