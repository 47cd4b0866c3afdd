"""How a GPU shares out a matrix product: by tiles of its result, which its processors compute.

A small result of a long sum, as the gradient of a layer's weights is, has few tiles and leaves most
processors idle. So the sum is taken in parts: a batch of products, which are added up. cuBLAS has kernels
that do so, and often does not take them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProductTiles:
    """The tiles of a product's result.

    **Attributes:**

    - `cores`: how many processors there are; `together`: how many tiles each of them computes at a time.
    - `side`: rows and columns of a tile.
    - `aligned`: products are fast if the lengths of their axes are multiples of this one.
    - `least_terms`: the fewest terms of a part of a sum.
    - `most_bytes`: of the results of all parts, at most.
    """

    cores: int
    together: int
    side: int
    aligned: int
    least_terms: int
    most_bytes: int

    def count(self, rows: int, columns: int, batch: int = 1) -> int:
        """How many tiles the results of a batch of products have; an empty result counts as one tile.

        >>> tiles = ProductTiles(132, 2, 64, 8, 256, 4 << 20)
        >>> tiles.count(256, 64), tiles.count(8_192, 8_192)
        (4, 16384)
        """
        return max(batch * math.ceil(rows / self.side) * math.ceil(columns / self.side), 1)

    def busy(self, rows: int, columns: int, batch: int = 1) -> float:
        """The share of the processors' rate that tiles of so many products keep busy."""
        return min(1.0, self.count(rows, columns, batch) / (self.together * self.cores))

    def part(self, terms: int, rows: int, columns: int, batch: int, itemsize: int) -> int | None:
        """The number of terms of a part of each sum; None if the products are best taken whole.

        **Arguments:**

        - `itemsize`: bytes of an entry of the results.

        >>> tiles = ProductTiles(132, 2, 64, 8, 256, 4 << 20)
        >>> tiles.part(32_000, 256, 64, batch=1, itemsize=4)
        1000
        >>> tiles.part(32_000, 8_192, 64, batch=1, itemsize=4)
        """
        most = self.most_bytes // max(batch * rows * columns * itemsize, 1)
        wanted = min(self.cores // self.count(rows, columns, batch), terms // self.least_terms, most)
        for parts in range(wanted, 1, -1):
            if terms % (parts * self.aligned) == 0:
                return terms // parts
        return None
