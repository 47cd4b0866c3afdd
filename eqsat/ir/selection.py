"""How the best entries of a row are found: where it is not left to `lax.top_k`, and in which blocks.

The k best entries of a row are in the k blocks of it that have the best maxima: the row is read once, at the
rate of a reduction, and only what is in those blocks is selected from. The figures were measured on CPU
(jaxlib 0.10). Emitted programs go by them, and so does the cost model.
"""

from __future__ import annotations

import math

LONGEST_BLOCK = 32
"""Entries of a block, at most: XLA computes what a reduction of so many reads as it goes, and no more."""

LIBRARY_DTYPE = "float32"
"""The dtype for which XLA has a function of its own; it sorts others, which takes a hundred times as long."""

DTYPES = frozenset(
    {LIBRARY_DTYPE, "float64", "float16", "bfloat16"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
"""The dtypes whose order is that of integers of as many bits."""

MOST_SUCCESSIVE = 64
"""So many entries at most are found one after another, where XLA would sort; sorting is faster for more."""

LIBRARY_ROW = (2048, 200)
"""Rows of at least so many entries, and so many for each that is selected, are looked through by blocks."""

SORTED_ROW = (512, 50)
"""The same for what XLA would sort."""

UNSORTED_ROW = 64
"""Shorter rows are left to be sorted."""


def shortest_row(k: int, dtype: str) -> int:
    """Entries of a row from which selecting k of them by blocks is faster.

    >>> shortest_row(10, "float32"), shortest_row(100, "float32"), shortest_row(10, "float64")
    (2048, 20000, 512)
    """
    least, each = LIBRARY_ROW if dtype == LIBRARY_DTYPE else SORTED_ROW
    return max(least, each * k)


def by_blocks(k: int, length: int, dtype: str) -> bool:
    """Whether the k best entries of a row of that length are looked for by blocks."""
    return dtype in DTYPES and length >= shortest_row(k, dtype)


def successively(k: int, length: int, dtype: str) -> bool:
    """Whether the k best entries of a row of that length are found one after another."""
    others = dtype in DTYPES and dtype != LIBRARY_DTYPE
    return others and k <= MOST_SUCCESSIVE and not by_blocks(k, length, dtype)


def leaves_to_library(k: int, length: int, dtype: str) -> bool:
    """Whether the k best entries of a row of that length are left to `lax.top_k`.

    >>> leaves_to_library(10, 1000, "float32"), leaves_to_library(10, 10_000, "float32")
    (True, False)
    >>> leaves_to_library(10, 50, "float64"), leaves_to_library(10, 100, "float64")
    (True, False)
    """
    if by_blocks(k, length, dtype):
        return False
    return length < UNSORTED_ROW or not successively(k, length, dtype)


def block_length(k: int, length: int) -> int:
    """Entries of a block: as many maxima as there are entries in the blocks that are chosen, if that is few.

    >>> block_length(10, 4000), block_length(10, 100_000)
    (20, 32)
    """
    return min(LONGEST_BLOCK, math.isqrt(length // k))
