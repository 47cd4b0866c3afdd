"""Chooses how a top-k selection from a row is computed: by `lax.top_k`, by blocks, or one entry at a time.

The k best entries of a row are in the k blocks that have the largest maxima. So a selection by blocks reads
the row once, at the speed of a reduction, and then selects from those blocks only. The constants were
measured on CPU (jaxlib 0.10). Both the emitted programs and the cost model use them.
"""

from __future__ import annotations

import math

LONGEST_BLOCK = 32
"""The largest number of entries of a block.

XLA computes the operand of a reduction on the fly only up to this length.
"""

LIBRARY_DTYPE = "float32"
"""The dtype for which XLA has a top-k function.

It sorts rows of other dtypes, which takes a hundred times as long.
"""

DTYPES = frozenset(
    {LIBRARY_DTYPE, "float64", "float16", "bfloat16"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
"""The dtypes whose values can be ordered as integers of the same width."""

MOST_SUCCESSIVE = 64
"""The largest k for which entries are found one at a time instead of by sorting. Sorting is faster beyond."""

LIBRARY_ROW = (2048, 200)
"""The shortest row that is selected from by blocks, if XLA has a top-k function for its dtype.

It has at least the first number of entries, and at least the second number for each entry selected.
"""

SORTED_ROW = (512, 50)
"""The same limits for dtypes that XLA sorts."""

UNSORTED_ROW = 64
"""Rows that are shorter than this are left to `lax.top_k`, whatever their dtype."""


def shortest_row(k: int, dtype: str) -> int:
    """Returns the length of the shortest row from which k entries are selected by blocks.

    >>> shortest_row(10, "float32"), shortest_row(100, "float32"), shortest_row(10, "float64")
    (2048, 20000, 512)
    """
    least, each = LIBRARY_ROW if dtype == LIBRARY_DTYPE else SORTED_ROW
    return max(least, each * k)


def by_blocks(k: int, length: int, dtype: str) -> bool:
    """Returns whether the k best entries of a row of that length are selected by blocks."""
    return dtype in DTYPES and length >= shortest_row(k, dtype)


def successively(k: int, length: int, dtype: str) -> bool:
    """Returns whether the k best entries of a row of that length may be found one at a time.

    Rows shorter than `UNSORTED_ROW` are still left to the library: see `leaves_to_library`.
    """
    others = dtype in DTYPES and dtype != LIBRARY_DTYPE
    return others and k <= MOST_SUCCESSIVE and not by_blocks(k, length, dtype)


def leaves_to_library(k: int, length: int, dtype: str) -> bool:
    """Returns whether the k best entries of a row of that length are left to `lax.top_k`.

    >>> leaves_to_library(10, 1000, "float32"), leaves_to_library(10, 10_000, "float32")
    (True, False)
    >>> leaves_to_library(10, 50, "float64"), leaves_to_library(10, 100, "float64")
    (True, False)
    """
    if by_blocks(k, length, dtype):
        return False
    return length < UNSORTED_ROW or not successively(k, length, dtype)


def block_length(k: int, length: int) -> int:
    """Returns the number of entries of a block.

    Unless blocks would be longer than `LONGEST_BLOCK`, there are about as many blocks as there are entries in
    the k blocks that are chosen.

    >>> block_length(10, 4000), block_length(10, 100_000)
    (20, 32)
    """
    return min(LONGEST_BLOCK, math.isqrt(length // k))
