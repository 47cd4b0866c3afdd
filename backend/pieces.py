"""The lengths in which the axes of a schedule are gone through, and what divides them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from eqsat.ir.axis import Axis


@dataclass(frozen=True)
class Pieces:
    """The lengths that an axis has in loops over its chunks.

    **Attributes:**

    - `shortest`: the length of the shortest chunks, remainders aside.
    - `divisor`: what divides the lengths of all chunks, remainders included.
    """

    shortest: int
    divisor: int

    @classmethod
    def of(cls, axis: Axis) -> Pieces:
        """All of an axis, as one piece."""
        return cls(axis.size, axis.size)

    @classmethod
    def together(cls, several: Iterable[Pieces]) -> Pieces:
        """Those of axes that are gone through as one."""
        found = cls(1, 1)
        for pieces in several:
            found = cls(found.shortest * pieces.shortest, found.divisor * pieces.divisor)
        return found

    def with_chunks(self, length: int) -> Pieces:
        """These, and chunks of some length."""
        # What divides an axis and its chunks divides the remainder.
        return Pieces(min(self.shortest, length), math.gcd(self.divisor, length))
