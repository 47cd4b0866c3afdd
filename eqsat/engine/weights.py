"""Sums of weights over sets that are given as the bits of integers."""

from __future__ import annotations

import numpy as np

_SUBSETS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(float)
"""All subsets of eight things, a row each."""


class Weights:
    """Weights of classes, and their sums over sets of classes, given as the bits of integers.

    For every eight classes there is a table of the sums of all their subsets, so that a sum takes one look
    for each byte that is not zero.
    """

    def __init__(self, count: int) -> None:
        self._bytes = -(-count // 8)
        self._weights = np.zeros((self._bytes, 8))
        self._sums = np.zeros(self._bytes * 256)

    def set(self, index: int, weight: float) -> None:
        place, bit = divmod(index, 8)
        if self._weights[place, bit] != weight:
            self._weights[place, bit] = weight
            self._sums[256 * place : 256 * (place + 1)] = _SUBSETS @ self._weights[place]

    def sum(self, mask: int) -> float:
        if not mask:
            return 0.0
        first = ((mask & -mask).bit_length() - 1) >> 3
        mask >>= 8 * first
        found = np.frombuffer(mask.to_bytes((mask.bit_length() + 7) >> 3, "little"), np.uint8)
        places = found.nonzero()[0]
        return float(self._sums[256 * (places + first) + found[places]].sum())
