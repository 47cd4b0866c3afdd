"""Products of matrices in parts: some of the terms at a time, where the result has too few tiles for a GPU.

A GPU computes a product by tiles of the result, each on one of its processors. A small result of a long sum,
as the gradient of a layer's weights is, leaves most of them idle. So the sum is taken in parts: a batch of
products, which are added up. cuBLAS has kernels that do so, and often does not take them.
"""

from __future__ import annotations

LEAST_TERMS = 256
"""The fewest terms of a part."""

MOST_BYTES = 4 << 20
"""Bytes of the results of all parts: as much as cuBLAS takes as workspace for a product on any GPU."""


def part_of_product(terms: int, tiles: int, size: int, *, cores: int, aligned: int = 8) -> int | None:
    """The number of terms of a part; None if the product is best taken whole.

    **Arguments:**

    - `tiles`: how many tiles the result has; `size`: its bytes.
    - `cores`: how many tiles are computed at a time.
    - `aligned`: what the number of terms must be a multiple of.

    >>> part_of_product(32_000, tiles=4, size=65_536, cores=132)
    1000
    >>> part_of_product(32_000, tiles=128, size=2_097_152, cores=132)
    """
    wanted = min(cores // tiles, terms // LEAST_TERMS, MOST_BYTES // size)
    for parts in range(wanted, 1, -1):
        if terms % (parts * aligned) == 0:
            return terms // parts
    return None
