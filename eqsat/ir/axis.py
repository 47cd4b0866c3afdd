"""Named axes: an identity with a length. Two dimensions are one axis when they must agree."""

from __future__ import annotations

import math
from collections.abc import Iterable
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

    def __hash__(self) -> int:
        # Sets of axes are looked up all the time, and an identity is enough to tell axes apart.
        return self.id

    @property
    def name(self) -> str:
        """A short name, unique in its program: a, b, ..., z, a1, b1, ..."""
        letter = chr(ord("a") + self.id % 26)
        return letter if self.id < 26 else f"{letter}{self.id // 26}"

    def __repr__(self) -> str:
        return f"{self.name}:{self.size}"


Dimension = Axis | tuple[Axis, ...] | None
"""What a dimension of an array is: an axis, or several in row-major order, as a reshape merges them.

`None` is a dimension of length 1.
"""

Layout = tuple[Dimension, ...]
"""What each dimension of an array is."""


NO_AXES: frozenset[Axis] = frozenset()


def parts(dimension: Dimension) -> tuple[Axis, ...]:
    """The axes that a dimension is made of, the slowest first.

    >>> parts(None), parts(Axis(0, 3)), parts((Axis(0, 3), Axis(1, 4)))
    ((), (a:3,), (a:3, b:4))
    """
    if dimension is None:
        return ()
    return dimension if isinstance(dimension, tuple) else (dimension,)


def as_dimension(axes: Iterable[Axis]) -> Dimension:
    """The dimension that is made of the given axes: the converse of `parts`."""
    found = tuple(axes)
    return found if len(found) > 1 else found[0] if found else None


def layout_axes(layout: Layout) -> tuple[Axis, ...]:
    """The axes of a layout in the order in which they lie in memory.

    >>> layout_axes((Axis(0, 3), None, (Axis(1, 4), Axis(2, 5))))
    (a:3, b:4, c:5)
    """
    return tuple(axis for dimension in layout for axis in parts(dimension))


def layout_shape(layout: Layout) -> tuple[int, ...]:
    """The array shape that a layout describes.

    >>> layout_shape((Axis(0, 3), None, (Axis(1, 4), Axis(2, 5))))
    (3, 1, 20)
    """
    return tuple(math.prod(axis.size for axis in parts(dimension)) for dimension in layout)


def is_flat(layout: Layout) -> bool:
    """Whether every dimension is one axis, or of length 1."""
    return not any(isinstance(dimension, tuple) for dimension in layout)
