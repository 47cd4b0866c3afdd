"""Axis coalescing: which dimensions of which arrays are the same axis, and of which axes they are made.

Every dimension starts as an axis of its own. An op that wants two axes to be one asks for it, and
is granted it unless the two interfere, that is occur together in one schema, as the two sides of
`x[:, None] - x[None]` do. This is how register allocators coalesce copies (Chaitin 1982).

A reshape asks for something else: that an axis be several, or that several be one dimension. So an axis
may be made of *parts*, in row-major order, and what has no parts is an *atom*. Schemas are sets of atoms,
and to coalesce two axes is to split them at the same places, then to coalesce their atoms:

    (6, 4) and (2, 12)  are both  (2, 3, 4)         (2, 3) and (3, 2)  have no common parts
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from operator import mul


class AxisClasses:
    """Union-find over provisional axes (ints), with interference and parts."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._sizes: list[int] = []
        self._neighbours: list[set[int]] = []
        self._parts: dict[int, tuple[int, ...]] = {}
        self._causes: dict[int, frozenset[int]] = {}
        self._twins: dict[int, set[int]] = {}

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

    def atoms(self, axis: int) -> tuple[int, ...]:
        """The axes without parts that `axis` is made of, as representatives, the slowest first."""
        root = self.find(axis)
        parts = self._parts.get(root)
        if parts is None:
            return (root,)
        return tuple(atom for part in parts for atom in self.atoms(part))

    def atoms_of(self, axes: Iterable[int | None]) -> tuple[int, ...]:
        """The atoms of several axes, in their order; `None` is a dimension without any."""
        return tuple(atom for axis in axes if axis is not None for atom in self.atoms(axis))

    def sizes(self, axis: int) -> tuple[int, ...]:
        """The lengths of the atoms of `axis`."""
        return tuple(self._sizes[atom] for atom in self.atoms(axis))

    def same(self, left: int, right: int) -> bool:
        return self.atoms(left) == self.atoms(right)

    def interferes(self, left: int, right: int) -> bool:
        """Whether an atom of one axis occurs together with an atom of the other."""
        others = self.atoms(right)
        return any(not self._neighbours[atom].isdisjoint(others) for atom in self.atoms(left))

    def keep_apart(self, axes: Iterable[int]) -> None:
        """Make the given axes, all of different classes, interfere with one another."""
        atoms = self.atoms_of(axes)
        for position, left in enumerate(atoms):
            for right in atoms[position + 1 :]:
                assert left != right, "an axis cannot occur twice in one schema"
                self._neighbours[left].add(right)
                self._neighbours[right].add(left)

    def unify(self, left: int, right: int) -> bool:
        """Make the two axes one if they may be; whether they are one now.

        If they can be split alike, but some of their atoms interfere, the others have become one.
        """
        if not self.split_alike([left, right]):
            return False
        one = True
        for pair in zip(self.atoms(left), self.atoms(right), strict=True):
            one = self._unify_atoms(*map(self.find, pair)) and one
        return one

    def _unify_atoms(self, left: int, right: int) -> bool:
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
        self._twins.setdefault(left, set()).update(self._twins.pop(right, ()))
        return True

    # Parts.

    def merged(self, axes: Sequence[int], causes: frozenset[int]) -> int:
        """The axis that is made of the given ones, the slowest first, for a reason; one alone is itself."""
        if len(axes) == 1:
            return axes[0]
        made = self.fresh(math.prod(self._sizes[axis] for axis in axes))
        self._parts[made] = tuple(axes)
        self._causes[made] = causes
        return made

    def causes(self, axis: int) -> frozenset[int]:
        """The reshapes because of which `axis` has parts."""
        root = self.find(axis)
        own = self._causes.get(root, frozenset())
        return own.union(*(self.causes(part) for part in self._parts.get(root, ())))

    def causes_of(self, axes: Iterable[int]) -> frozenset[int]:
        return frozenset[int]().union(*(self.causes(axis) for axis in axes))

    def pair(self, left: int, right: int) -> None:
        """Two axes that are renamings of one another: from now on, both are split as one of them is."""
        for one, other in zip(self.atoms(left), self.atoms(right), strict=True):
            self._twins.setdefault(one, set()).add(other)
            self._twins.setdefault(other, set()).add(one)

    def split_alike(self, axes: Sequence[int]) -> bool:
        """Split the atoms of the given axes, of one length, at the same places; whether that was possible."""
        if len({self._sizes[axis] for axis in axes}) > 1:
            return False
        causes = self.causes_of(axes)
        # An atom may be in several of the axes: what one needs of it may split others further.
        while len({self.sizes(axis) for axis in axes}) > 1:
            places = frozenset[int]().union(*(boundaries(self.sizes(axis)) for axis in axes))
            if not nested(places) or not all(self.split([axis], places, causes) for axis in axes):
                return False
        return True

    def split(self, axes: Sequence[int], places: Iterable[int], causes: frozenset[int]) -> bool:
        """Split axes that stand in a row so that they have boundaries at the given places, if they can be.

        **Arguments:**

        - `places`: each as the number of elements from there to the end, as in `boundaries`.
        - `causes`: the reshapes that ask for it.
        """
        wanted = frozenset(places)
        sizes = [self._sizes[atom] for atom in self.atoms_of(axes)]
        if not nested(wanted | boundaries(sizes)):
            return False
        # One cut may bring others with it, of axes that are renamings of what is cut.
        while cut := self._first_cut(axes, wanted):
            atom, pieces = cut
            if math.prod(pieces) != self._sizes[atom]:
                return False
            self._cut(atom, pieces, causes)
        return True

    def _first_cut(self, axes: Sequence[int], places: frozenset[int]) -> tuple[int, list[int]] | None:
        """An atom in a row of axes that has one of the places inside it, and into what they cut it."""
        after = 1
        for atom in reversed(self.atoms_of(axes)):
            end = after * self._sizes[atom]
            if inside := [place for place in places if after < place < end]:
                return atom, [b // a for a, b in pairwise(sorted([after, *inside, end]))][::-1]
            after = end
        return None

    def _cut(self, atom: int, sizes: Sequence[int], causes: frozenset[int]) -> None:
        """Make an atom, and all that are renamings of it, consist of new ones of these lengths."""
        alike = {atom}
        stack = [atom]
        while stack:
            for twin in self._twins.pop(stack.pop(), ()):
                root = self.find(twin)
                if root not in alike:
                    alike.add(root)
                    stack.append(root)
        made: list[tuple[int, ...]] = []
        for root in sorted(alike):
            pieces = tuple(self.fresh(size) for size in sizes)
            neighbours = self._neighbours[root]
            self._neighbours[root] = set()
            self._parts[root], self._causes[root] = pieces, causes
            for neighbour in neighbours:
                self._neighbours[neighbour].discard(root)
                self._neighbours[neighbour].update(pieces)
            for piece in pieces:
                self._neighbours[piece] |= neighbours | (set(pieces) - {piece})
            made += [pieces]
        for first, second in pairwise(made):
            for one, other in zip(first, second, strict=True):
                self.pair(one, other)


def boundaries(sizes: Sequence[int]) -> frozenset[int]:
    """Where a row of axes can be cut: how many elements there are from each boundary to the end.

    >>> sorted(boundaries((2, 3, 4)))
    [1, 4, 12, 24]
    """
    return frozenset(accumulate(reversed(sizes), mul, initial=1))


def nested(places: Iterable[int]) -> bool:
    """Whether there can be boundaries at all of the places: each divides the next one.

    >>> nested([1, 4, 12, 24]), nested([1, 2, 3, 6])
    (True, False)
    """
    return all(b % a == 0 for a, b in pairwise(sorted(set(places))))
