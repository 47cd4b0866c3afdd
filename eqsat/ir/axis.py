"""Named axes: an identity with a length. Two dimensions are one axis when they must agree."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Axis:
    """An axis of a term.

    **Arguments:**

    - `id`: identity; two axes with one length are still different axes.
    - `size`: its length. Axes of length 1 do not exist: a unit dimension is no axis.
    """

    id: int
    size: int

    @property
    def name(self) -> str:
        """A short name, unique in its program: a, b, ..., z, a1, b1, ..."""
        letter = chr(ord("a") + self.id % 26)
        return letter if self.id < 26 else f"{letter}{self.id // 26}"

    def __repr__(self) -> str:
        return f"{self.name}:{self.size}"


Layout = tuple[Axis | None, ...]
"""Which axis each dimension of an array is; `None` is a dimension of length 1."""


def layout_shape(layout: Layout) -> tuple[int, ...]:
    """The array shape that a layout describes.

    >>> layout_shape((Axis(0, 3), None))
    (3, 1)
    """
    return tuple(1 if axis is None else axis.size for axis in layout)
