"""Trees of contractions, flat: one sum of a product of many factors; and back, in any order.

`A @ (B @ v) * c` is a tree of two contractions and a product; flat, it is the sum over two indices of
A B v c. A tree is made of contractions, sums, products, renamings, negations and divisions by what no
sum is over, all of one dtype. Its *indices* are its own: an axis that two of its contractions sum
over is two indices, so that nothing is captured. When a tree is rebuilt, each index gets an axis of
its own, and factors are renamed where that is another one than theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from eqsat.engine.contraction_paths import Network, Path, places
from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.ops import Dot, Map, Opaque, Reduce, Rename
from eqsat.ir.program import Program
from eqsat.ir.term import Term, Terms

Indices = dict[Axis, int]
"""Which index of a tree each axis of a term is."""

MAX_FACTORS = 128
"""The largest number of factors of a tree. Larger trees are cut, and each part cut off is one factor."""


def operands(term: Term) -> tuple[Term, ...]:
    """The operands that are part of the same tree of contractions as `term`, which is of one dtype."""
    if any(arg.dtype != term.dtype for arg in term.args):
        return ()
    match term.op:
        case Dot() | Reduce(kind="sum") | Rename() | Map(name="mul" | "neg"):
            return term.args
        case Map(name="div"):
            return term.args[:1]
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor of a tree: a term, and which index each of its axes is."""

    term: Term
    indices: Indices


@dataclass(frozen=True, slots=True)
class Scaling:
    """A factor or a divisor of one value of a tree, or "neg" if the value is negated."""

    function: str
    by: Factor | None = None

    @property
    def indices(self) -> frozenset[int]:
        return frozenset() if self.by is None else frozenset(self.by.indices.values())


@dataclass(slots=True)
class Tree:
    """A sum of a product.

    **Attributes:**

    - `axes`: for each index the axis that it was written as; those of `root` come first.
    - `factors`: in the order written; scalars are scalings.
    - `scalings`: the outermost first.
    - `contracts`: whether there are contractions, not only sums of products; `precision` is theirs.
    - `cut`: whether there are more factors.
    """

    root: Term
    axes: list[Axis]
    factors: list[Factor] = field(default_factory=list)
    scalings: list[Scaling] = field(default_factory=list)
    contracts: bool = False
    precision: str | None = None
    cut: bool = False

    @property
    def kept(self) -> range:
        """The indices that are not summed over."""
        return range(len(self.root.axes))

    def lone(self) -> frozenset[int]:
        """The indices that are summed over and in one factor only, which is summed before all else."""
        holders = Counter(index for factor in self.factors for index in factor.indices.values())
        return frozenset(index for index, n in holders.items() if n == 1 and index not in self.kept)

    def network(self) -> Network:
        """The product of the factors, each summed over its lone indices, as a network."""
        lone = self.lone()
        factors = [_bit_set(set(factor.indices.values()) - lone) for factor in self.factors]
        return Network(tuple(factors), _bit_set(self.kept), tuple(axis.size for axis in self.axes))


def flatten(root: Term, stops: Container[int], spread: Container[int]) -> Tree:
    """The tree of contractions with that root, which is one.

    **Arguments:**

    - `stops`: the numbers of terms that are factors as they are.
    - `spread`: the numbers of products that are taken apart.
    """
    tree = Tree(root, sorted(root.axes))
    stack = [Factor(root, {axis: index for index, axis in enumerate(tree.axes)})]
    while stack:
        part = stack.pop()
        term = part.term
        if term.number in stops and term is not root:
            inner = None
        elif len(operands(term)) > 1 and len(stack) + len(tree.factors) + 2 > MAX_FACTORS:
            inner = None
            tree.cut = True
        else:
            inner = _unfolded(tree, part, spread)
        if inner is not None:
            stack += reversed(inner)
        elif term.axes:
            tree.factors.append(part)
        else:
            tree.scalings.append(Scaling("mul", part))
    return tree


def _unfolded(tree: Tree, part: Factor, spread: Container[int]) -> list[Factor] | None:
    """The factors of a factor, or None if it is best left whole. Its scales are entered in `tree`."""
    term, indices = part.term, dict(part.indices)
    args = operands(term)
    if not args:
        return None
    match term.op:
        case Dot(axes=axes, precision=precision):
            if tree.contracts and precision != tree.precision:
                return None
            tree.contracts, tree.precision = True, precision
            _sum(tree, indices, axes)
        case Reduce(axes=axes):
            _sum(tree, indices, axes)
        case Rename(old=old, new=new):
            if term.number not in spread:
                return None
            indices[old] = indices.pop(new)
        case Map(name="mul"):
            if term.number not in spread:
                return None
        case Map(name="neg"):
            sign = Scaling("neg")
            if sign in tree.scalings:
                tree.scalings.remove(sign)
            else:
                tree.scalings.append(sign)
        case Map(name="div"):
            divisor = term.args[1]
            by = Factor(divisor, {axis: indices[axis] for axis in divisor.axes})
            if not set(by.indices.values()) <= set(tree.kept):
                return None
            tree.scalings.append(Scaling("div", by))
    return [Factor(arg, {axis: indices[axis] for axis in arg.axes}) for arg in args]


def _sum(tree: Tree, indices: Indices, axes: frozenset[Axis]) -> None:
    """New indices for axes that are summed over."""
    for axis in sorted(axes):
        indices[axis] = len(tree.axes)
        tree.axes.append(axis)


class Rebuilder:
    """Makes terms of trees.

    **Attributes:**

    - `precision`: of contractions in trees that were written without any.
    """

    def __init__(self, program: Program, precision: str | None) -> None:
        self.terms: Terms = program.terms
        self.precision = precision
        self._program = program
        self._spares: dict[int, list[Axis]] = {}
        self._next_axis: int | None = None

    def rebuild(self, tree: Tree, path: Path) -> Term:
        """A term that is equal to the tree's root, with its factors multiplied in that order."""
        axes = self._named(tree)
        lone = tree.lone()
        values = [self._factor(factor, axes, lone) for factor in tree.factors]
        kept = tree.network().values(path)
        scalings = self._placed(tree, kept)
        made: list[Term] = []
        first: list[int] = []
        for number in range(len(kept)):
            if number < len(values):
                value, position = values[number], number
            else:
                one, other = sorted(path[number - len(values)], key=first.__getitem__)
                position = first[one]
                summed = (kept[one] | kept[other]) & ~kept[number]
                value = self._product(tree, made[one], made[other], [axes[i] for i in places(summed)])
            for scaling in reversed(scalings.get(number, [])):
                value = self._scaled(scaling, value, axes)
            made.append(value)
            first.append(position)
        return made[-1]

    def _product(self, tree: Tree, first: Term, second: Term, summed: Sequence[Axis]) -> Term:
        """The product of two values, summed over those axes."""
        dtype = tree.root.dtype
        if not summed:
            return self.terms.make(Map("mul", dtype), (first, second))
        precision = tree.precision if tree.contracts else self.precision
        return self.terms.make(Dot(frozenset(summed), dtype, precision), (first, second))

    def _factor(self, factor: Factor, axes: Sequence[Axis], lone: frozenset[int]) -> Term:
        """A factor on the axes of its indices, summed over its lone ones."""
        term = factor.term
        summed = frozenset(axis for axis, index in factor.indices.items() if index in lone)
        if summed:
            term = self.terms.make(Reduce("sum", summed, term.dtype), (term,))
        return self.renamed(term, {axis: axes[factor.indices[axis]] for axis in term.axes})

    def _placed(self, tree: Tree, kept: Sequence[int]) -> dict[int, list[Scaling]]:
        """The scales of each value. A scale goes to the last of the smallest values that have its indices."""
        sizes = [prod(tree.axes[index].size for index in places(indices)) for indices in kept]
        placed: dict[int, list[Scaling]] = {}
        for scaling in tree.scalings:
            needed = _bit_set(scaling.indices)
            having = [number for number, indices in enumerate(kept) if not needed & ~indices]
            chosen = min(reversed(having), key=sizes.__getitem__, default=len(kept) - 1)
            placed.setdefault(chosen, []).append(scaling)
        return placed

    def _scaled(self, scaling: Scaling, value: Term, axes: Sequence[Axis]) -> Term:
        op = Map(scaling.function, value.dtype)
        if scaling.by is None:
            return self.terms.make(op, (value,))
        return self.terms.make(op, (value, self._factor(scaling.by, axes, frozenset())))

    def _named(self, tree: Tree) -> list[Axis]:
        """An axis for each index: as written, if no index before it has got that one."""
        axes = tree.axes[: len(tree.kept)]
        taken = set(axes)
        for axis in tree.axes[len(axes) :]:
            chosen = axis if axis not in taken else self._spare(axis.size, taken)
            taken.add(chosen)
            axes.append(chosen)
        return axes

    def _spare(self, size: int, taken: Container[Axis]) -> Axis:
        """An axis of that length that is in no term of the program, and not taken."""
        spares = self._spares.setdefault(size, [])
        for axis in spares:
            if axis not in taken:
                return axis
        if self._next_axis is None:
            self._next_axis = 1 + max(axis.id for axis in _all_axes(self._program))
        spares.append(Axis(self._next_axis, size))
        self._next_axis += 1
        return spares[-1]

    def renamed(self, term: Term, target: dict[Axis, Axis]) -> Term:
        """`term` with its axes renamed all at once: `target` says each one's new name, all different."""
        while isinstance(term.op, Rename) and any(axis != new for axis, new in target.items()):
            # From what was renamed before: often it has got the name already.
            target[term.op.old] = target.pop(term.op.new)
            term = term.args[0]
        pending = {axis: new for axis, new in target.items() if axis != new}
        while pending:
            free = (axis for axis, new in pending.items() if new not in term.axes)
            old = next(free, None)
            if old is not None:
                new = pending.pop(old)
            else:
                # A cycle, as in a transposed matrix, goes through a spare axis.
                old = next(iter(pending))
                new = self._spare(old.size, term.axes)
                pending[new] = pending.pop(old)
            term = self.terms.make(Rename(old, new), (term,))
        return term


def _all_axes(program: Program) -> Iterator[Axis]:
    """Every axis that a term, a layout of a call or an output mentions."""
    for term in program.known():
        yield from term.axes
        if isinstance(term.op, Opaque):
            for layout in term.op.call.arg_layouts:
                yield from layout_axes(layout)
    for output in program.outputs:
        yield from layout_axes(output.layout)


def _bit_set(indices: Iterable[int]) -> int:
    return sum(1 << index for index in indices)
