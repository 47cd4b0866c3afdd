"""In which order many factors are best multiplied: exact where that is quick, greedy beyond.

A network is a product of factors over indices, summed over all indices but the result's. It is
computed by pairwise steps; a step sums over what no other factor and not the result has. Sets of
indices and of factors are bit sets.

opt_einsum gives the greedy path. Its exact searches have no limit on their time and lose the optimum
where an index is in three factors, so the exact search, the same dynamic programming, is here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from opt_einsum.paths import greedy, linear_to_ssa

Path = tuple[tuple[int, int], ...]
"""Steps: the numbers of two values. The factors come first, then the steps' results in order."""

MAX_OUTER = 6
"""Up to this many factors, products of factors without a common index are tried as well."""

MOST_PAIRS = 180_000
"""The number of pairs of parts that one search may look at: that of a chain of 72 matrices."""


@dataclass(frozen=True, slots=True)
class Network:
    """A sum of products.

    **Attributes:**

    - `factors`: the indices of each. An index that is not in the result is in at least two.
    - `result`: the indices that are not summed over. A factor need not have them.
    - `lengths`: of the indices, at least 1; index number i is the bit 1 << i.
    """

    factors: tuple[int, ...]
    result: int
    lengths: tuple[int, ...]

    def values(self, path: Path) -> list[int]:
        """The indices of the factors and of each step's result."""
        # How many values have each index; the result counts, too.
        left = dict.fromkeys(places(self.result), 1)
        for indices in self.factors:
            for index in places(indices):
                left[index] = left.get(index, 0) + 1
        values = list(self.factors)
        for one, other in path:
            kept = values[one] | values[other]
            for index in places(values[one] & values[other]):
                left[index] -= 1
                if left[index] == 1:
                    kept ^= 1 << index
            values.append(kept)
        return values


@dataclass(slots=True)
class Effort:
    """How many pairs of parts all searches together may still look at."""

    pairs: int


@dataclass(frozen=True, slots=True)
class Expense:
    """The cost of an order: its flops, and the elements of its largest intermediate or result."""

    flops: int
    peak: int


def best_paths(network: Network, cap: int | None, effort: Effort) -> list[Path]:
    """The path of fewest flops and, if that has a large intermediate, the fastest with the smallest one.

    **Arguments:**

    - `cap`: elements. The fastest path whose intermediates are within it is returned as well.
    """
    if len(network.factors) < 2:
        return [()]
    solver = Solver(network, effort)
    fastest = solver.fastest()
    peak = solver.expense(fastest).peak
    found = [fastest]
    if peak > solver.elements(network.result):
        leanest = solver.search(lean=True, below=peak)
        if leanest is not None:
            smallest = solver.expense(leanest).peak
            found.append(solver.search(most=smallest) or leanest)
            if cap is not None and smallest < cap < peak:
                found += filter(None, [solver.search(most=cap)])
    return list(dict.fromkeys(found))


def bits(numbers: int) -> Iterator[int]:
    """The bits of a bit set, each as a set of its own, lowest first."""
    while numbers:
        lowest = numbers & -numbers
        yield lowest
        numbers ^= lowest


def places(numbers: int) -> Iterator[int]:
    """The members of a bit set."""
    return (bit.bit_length() - 1 for bit in bits(numbers))


class OutOfEffort(Exception):
    """A search was abandoned."""


class Solver:
    """Searches paths of one network."""

    def __init__(self, network: Network, effort: Effort) -> None:
        self.network = network
        self.effort = effort
        self._elements: dict[int, int] = {0: 1}
        self.holders: dict[int, int] = {}
        for number, indices in enumerate(network.factors):
            for index in bits(indices):
                self.holders[index] = self.holders.get(index, 0) | 1 << number

    def elements(self, indices: int) -> int:
        """The number of elements of a value with these indices."""
        known = self._elements.get(indices)
        if known is None:
            first = indices & -indices
            rest = self.elements(indices ^ first)
            known = self._elements[indices] = rest * self.network.lengths[first.bit_length() - 1]
        return known

    def kept(self, first: int, second: int, members: int) -> int:
        """The indices that remain in the product of two values, which consists of the factors `members`."""
        indices = first | second
        for index in bits(first & second & ~self.network.result):
            if not self.holders[index] & ~members:
                indices ^= index
        return indices

    def expense(self, path: Path) -> Expense:
        """An addition or a multiplication counts as one flop."""
        values = self.network.values(path)
        flops, peak = 0, 0
        for (one, other), kept in zip(path, values[len(self.network.factors) :], strict=True):
            both = values[one] | values[other]
            flops += self.elements(both) * (1 + (both != kept))
            peak = max(peak, self.elements(kept))
        return Expense(flops, peak)

    def fastest(self) -> Path:
        """The path of fewest flops, as far as can be known."""
        guess = self.greedy()
        return self.search(below=self.expense(guess).flops) or guess

    def greedy(self) -> Path:
        """A path that takes the best next step: the smallest result for the longest sum.

        Of chains of matrices with random lengths, it takes up to three times the flops of the best
        path. (opt_einsum's own criterion takes up to a hundred times, and lets a vector wait.)
        """
        path = greedy(
            [frozenset(bits(indices)) for indices in self.network.factors],
            frozenset(bits(self.network.result)),
            {1 << number: length for number, length in enumerate(self.network.lengths)},
            cost_fn=_result_per_sum,
        )
        return tuple((one, other) for one, other in linear_to_ssa(path))

    def search(self, lean: bool = False, below: float = math.inf, most: float = math.inf) -> Path | None:
        """The best path through connected parts; None if there is none, or if the search takes too long.

        **Arguments:**

        - `lean`: whether the best path has the smallest peak, rather than the fewest flops.
        - `below`: the cost that the path must beat.
        - `most`: the largest number of elements of an intermediate.
        """
        kept = sum(index for index in bits(self.network.result) if self.holders.get(index, 0).bit_count() > 2)
        # An index that stays may connect nearly all factors, and so nearly all sets of them.
        for unconnecting in (0, kept) if kept else (0,):
            try:
                path = self._searched(unconnecting, lean, below, most)
            except OutOfEffort:
                continue
            if path is None:
                return None
            expense = self.expense(path)
            better = (expense.peak if lean else expense.flops) < below
            return path if better and expense.peak <= most else None
        return None

    def _searched(self, unconnecting: int, lean: bool, below: float, most: float) -> Path | None:
        """Dynamic programming over connected sets of factors, from small to large."""
        parts = Parts(self, unconnecting)
        indices, joints, best, elements = parts.indices, parts.joints, parts.best, self.elements
        small_network = len(self.network.factors) <= MAX_OUTER
        allowed = MOST_PAIRS if small_network else min(MOST_PAIRS, self.effort.pairs)
        pairs = 0
        for size in range(2, len(self.network.factors) + 1):
            for small in range(1, size // 2 + 1):
                few, many = sorted((small, size - small), key=lambda count: len(parts.levels[count]))
                for one in parts.levels[few]:
                    cost_one, first = best[one][0], indices[one]
                    for joint in bits(joints[one]):
                        partners = parts.having[many].get(joint, ())
                        pairs += 1 + len(partners)
                        for other in partners:
                            if one & other or (few == many and one > other):
                                continue
                            members = one | other
                            second = indices[other]
                            kept = indices.get(members)
                            if kept is None:
                                kept = self.kept(first, second, members)
                            if lean:
                                cost = max(cost_one, best[other][0], elements(kept))
                            else:
                                flops = elements(first) * elements(second) // elements(first & second)
                                cost = cost_one + best[other][0] + flops * (1 + (kept != first | second))
                            if cost >= below or (members in best and cost >= best[members][0]):
                                continue
                            if members not in best and elements(kept) <= most:
                                parts.enter(members, kept)
                            if members in indices:
                                best[members] = (cost, one, other)
                    if pairs > allowed:
                        self.effort.pairs -= pairs
                        raise OutOfEffort
            parts.close(size)
        self.effort.pairs -= pairs
        return parts.path()


class Parts:
    """Sets of factors, and for each the best way known to multiply its factors.

    **Attributes:**

    - `indices`: those of its product.
    - `joints`: those by which it is connected to other parts.
    - `best`: the cost of its product, and the two parts that it is made from; a factor has none.
    - `levels`: the parts by their number of factors; `having`: also by joint.
    """

    def __init__(self, solver: Solver, unconnecting: int) -> None:
        factors = solver.network.factors
        self.solver = solver
        self.connecting = ~unconnecting
        # In a small network, everything is connected: by an index that does not exist.
        self.common = 1 << len(solver.network.lengths) if len(factors) <= MAX_OUTER else 0
        self.indices: dict[int, int] = {}
        self.joints: dict[int, int] = {}
        self.best: dict[int, tuple[int, int, int]] = {}
        self.levels: list[list[int]] = [[] for _ in range(len(factors) + 1)]
        self.having: list[dict[int, list[int]]] = [{} for _ in self.levels]
        for number, indices in enumerate(factors):
            self.enter(1 << number, indices)
            self.best[1 << number] = (0, 0, 0)
        self.close(1)

    def enter(self, part: int, indices: int) -> None:
        """A new part with these indices."""
        self.indices[part] = indices
        self.joints[part] = self.common or indices & self.connecting
        self.levels[part.bit_count()].append(part)

    def close(self, size: int) -> None:
        """All parts of that size have been entered."""
        for part in self.levels[size]:
            for joint in bits(self.joints[part]):
                self.having[size].setdefault(joint, []).append(part)

    def path(self) -> Path | None:
        """The path to the product of all: connected factors first, then always the two smallest products."""
        whole = self.components()
        if any(part not in self.best for part in whole):
            return None
        path: list[tuple[int, int]] = []

        def value(part: int) -> int:
            _, one, other = self.best[part]
            return part.bit_length() - 1 if not other else step(value(one), value(other))

        def step(one: int, other: int) -> int:
            path.append((one, other))
            return len(self.levels[1]) + len(path) - 1

        products = [(self.indices[part], value(part)) for part in whole]
        while len(products) > 1:
            products.sort(key=lambda product: -self.solver.elements(product[0]))
            (first, one), (second, other) = products.pop(), products.pop()
            products.append((first | second, step(one, other)))
        return tuple(path)

    def components(self) -> list[int]:
        """The largest connected sets of factors."""
        components: list[tuple[int, int]] = []
        for factor in self.levels[1]:
            part, joints = factor, self.joints[factor]
            apart = []
            for other, other_joints in components:
                if joints & other_joints:
                    part, joints = part | other, joints | other_joints
                else:
                    apart.append((other, other_joints))
            components = [*apart, (part, joints)]
        return [part for part, _ in components]


def _result_per_sum(result: int, first: int, second: int, *_: object) -> float:
    """The elements of a step's result over the length that it sums over, as a logarithm."""
    return 3 * math.log(result) - math.log(first) - math.log(second)
