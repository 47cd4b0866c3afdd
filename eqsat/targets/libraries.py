"""What is known of the libraries that compiled programs call: the sizes by which they take memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class HostLibraries:
    """The libraries of XLA for CPUs: Eigen, YNNPACK, its own sorts and convolutions.

    **Attributes:**

    - `eigen_depth`: Eigen packs so many rows of both operands of a product at a time.
    - `eigen_batches`: products of a batch that are under way at once, per thread.
    - `ynn_columns`: YNNPACK packs so many columns of the right operand of a product at a time, per thread.
    - `ynn_tile`: it packs a multiple of so many columns; where there are fewer, it fills up.
    - `ynn_rows`: it adds up so many rows at a time.
    - `patches`: bytes of the blocks of patches in which a convolution over images is done.
    - `sorted_entry`: bytes that an entry of an operand takes while it is sorted by a comparison of several.
    - `sequential`: computations of at most so many instructions run one by one; others, as soon as operands
      are ready.
    - `grain`: bytes. Smaller scratch is not counted.
    """

    eigen_depth: int
    eigen_batches: int
    ynn_columns: int
    ynn_tile: int
    ynn_rows: int
    patches: int
    sorted_entry: int
    sequential: int
    grain: int


@dataclass(frozen=True)
class NvidiaLibraries:
    """cuSOLVER and cuFFT.

    **Attributes:**

    - `solver_copies`: by call of cuSOLVER, its workspace in copies of its first operand, one matrix of a
      batch at a time.
    - `most_transform_copies`: cuFFT takes at most so many copies of its operand, as complex numbers.
    - `small_factor`: if no prime factor of its lengths is larger, cuFFT takes at most one copy.
    """

    solver_copies: Mapping[str, float]
    most_transform_copies: int
    small_factor: int
