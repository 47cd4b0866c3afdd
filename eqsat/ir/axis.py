"""Named axes and the layouts of arrays over them.

An axis is an identity with a length. Dimensions that must agree share one axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Axis:
    """An axis of a term.

    **Arguments:**

    - `id`: the identity. Axes of the same length but with different ids are different axes.
    - `size`: the length. It is never 1, because dimensions of length 1 have no axis.
    """

    id: int
    size: int

    def __hash__(self) -> int:
        # Axes are hashed very often, and within a program the id alone identifies them.
        return self.id

    @property
    def name(self) -> str:
        """A short name that is unique in its program: a, b, ..., z, a1, b1, ..."""
        letter = chr(ord("a") + self.id % 26)
        return letter if self.id < 26 else f"{letter}{self.id // 26}"

    def __repr__(self) -> str:
        return f"{self.name}:{self.size}"


Dimension = Axis | tuple[Axis, ...] | None
"""A dimension of an array: one axis, or several axes that a reshape merged, in row-major order.

`None` is a dimension of length 1.
"""

Layout = tuple[Dimension, ...]
"""The dimensions of an array, in order."""


NO_AXES: frozenset[Axis] = frozenset()


def parts(dimension: Dimension) -> tuple[Axis, ...]:
    """Returns the axes that make up a dimension, slowest first.

    >>> parts(None), parts(Axis(0, 3)), parts((Axis(0, 3), Axis(1, 4)))
    ((), (a:3,), (a:3, b:4))
    """
    if dimension is None:
        return ()
    return dimension if isinstance(dimension, tuple) else (dimension,)


def as_dimension(axes: Iterable[Axis]) -> Dimension:
    """Returns the dimension that consists of the given axes: the inverse of `parts`."""
    found = tuple(axes)
    return found if len(found) > 1 else found[0] if found else None


def layout_axes(layout: Layout) -> tuple[Axis, ...]:
    """Returns the axes of a layout in row-major order.

    >>> layout_axes((Axis(0, 3), None, (Axis(1, 4), Axis(2, 5))))
    (a:3, b:4, c:5)
    """
    return tuple(axis for dimension in layout for axis in parts(dimension))


def layout_shape(layout: Layout) -> tuple[int, ...]:
    """Returns the array shape that a layout describes.

    >>> layout_shape((Axis(0, 3), None, (Axis(1, 4), Axis(2, 5))))
    (3, 1, 20)
    """
    return tuple(math.prod(axis.size for axis in parts(dimension)) for dimension in layout)


def is_flat(layout: Layout) -> bool:
    """Returns whether every dimension is a single axis or has length 1."""
    return not any(isinstance(dimension, tuple) for dimension in layout)
