"""Sums of weights over sets that are given as the bits of integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

FEW = 7
"""Up to so many bytes that are not zero are added up one by one, more by NumPy, which begins slowly."""

_SUBSETS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(float)
"""All subsets of eight things, a row each."""


class Weights:
    """Weights of classes, and their sums over sets of classes, given as the bits of integers.

    For every eight classes there is a table of the sums of all their subsets, so that a sum takes one look
    for each byte that is not zero.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        self._bytes = -(-len(weights) // 8)
        self._weights = np.zeros((self._bytes, 8))
        self._weights.ravel()[: len(weights)] = weights
        self._sums = (self._weights @ _SUBSETS.T).ravel()
        self._numbers = self._sums.data

    def set(self, index: int, weight: float) -> None:
        place, bit = divmod(index, 8)
        if self._weights[place, bit] != weight:
            self._weights[place, bit] = weight
            self._sums[256 * place : 256 * (place + 1)] = _SUBSETS @ self._weights[place]

    def sum(self, mask: int) -> float:
        total, place, rest = 0.0, 0, mask
        for _ in range(FEW):
            if not rest:
                return total
            zeros = ((rest & -rest).bit_length() - 1) >> 3
            rest >>= 8 * zeros
            place += zeros
            total += self._numbers[256 * place + (rest & 255)]
            rest >>= 8
            place += 1
        if not rest:
            return total
        found = np.frombuffer(mask.to_bytes(self._bytes, "little"), np.uint8)
        places = found.nonzero()[0]
        return float(self._sums[256 * places + found[places]].sum())
