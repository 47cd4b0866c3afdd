"""Axis coalescing: which dimensions of which arrays are the same axis.

Every dimension starts as an axis of its own. An op that wants two axes to be one asks for it, and
is granted it unless the two interfere, that is occur together in one schema, as the two sides of
`x[:, None] - x[None]` do. This is how register allocators coalesce copies (Chaitin 1982).
"""

from __future__ import annotations

from collections.abc import Iterable


class AxisClasses:
    """Union-find over provisional axes (ints), with interference."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._sizes: list[int] = []
        self._neighbours: list[set[int]] = []

    def fresh(self, size: int) -> int:
        """A new axis of that length."""
        self._parent.append(len(self._parent))
        self._sizes.append(size)
        self._neighbours.append(set())
        return len(self._parent) - 1

    def size(self, axis: int) -> int:
        return self._sizes[axis]

    def find(self, axis: int) -> int:
        """The representative of the class that `axis` is in."""
        root = axis
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[axis] != root:
            self._parent[axis], axis = root, self._parent[axis]
        return root

    def same(self, left: int, right: int) -> bool:
        return self.find(left) == self.find(right)

    def interferes(self, left: int, right: int) -> bool:
        return self.find(right) in self._neighbours[self.find(left)]

    def keep_apart(self, axes: Iterable[int]) -> None:
        """Make the given axes, all of different classes, interfere with one another."""
        roots = [self.find(axis) for axis in axes]
        for position, left in enumerate(roots):
            for right in roots[position + 1 :]:
                assert left != right, "an axis cannot occur twice in one schema"
                self._neighbours[left].add(right)
                self._neighbours[right].add(left)

    def unify(self, left: int, right: int) -> bool:
        """Make the two axes one if they may be; whether they are one now."""
        left, right = self.find(left), self.find(right)
        if left == right:
            return True
        if right in self._neighbours[left] or self._sizes[left] != self._sizes[right]:
            return False
        if len(self._neighbours[left]) < len(self._neighbours[right]):
            left, right = right, left
        self._parent[right] = left
        for neighbour in self._neighbours[right]:
            self._neighbours[neighbour].discard(right)
            self._neighbours[neighbour].add(left)
        self._neighbours[left] |= self._neighbours[right]
        self._neighbours[right] = set()
        return True
