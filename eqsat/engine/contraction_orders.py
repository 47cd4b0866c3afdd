"""Contractions of many factors in better orders, as equalities of a program.

That `(A B) v = A (B v)` is a rule, but all orders of many factors are too many for an e-graph. So a
path solver finds the winners, and they are entered beside the order that was written. From there, the
rules go on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import prod

from eqsat.engine.contraction_paths import Effort, Expense, Network, Path, best_paths
from eqsat.engine.contraction_trees import Rebuilder, Tree, flatten, operands
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import is_extended, is_inexact, numpy_dtype
from eqsat.ir.ops import Dot, Map, Reduce, Rename
from eqsat.ir.program import Program
from eqsat.ir.term import Term

MOST_PAIRS = 300_000
"""How many pairs of parts the searches for one program may look at: a third of a second's work."""

GROWTH = 2
"""How many terms may be entered for each term of the program..."""

ALWAYS = 200
"""...and how many more."""


@dataclass(frozen=True)
class Order:
    """A tree of contractions and a better order for it.

    **Attributes:**

    - `root`: the tree as written.
    - `winner`: the better tree, which equals it.
    - `leaves`: the numbers of the terms that both consist of.
    """

    root: Term
    winner: Term
    leaves: frozenset[int]

    def is_factor(self, term: Term) -> bool:
        """Whether both trees end at a term, whatever its axes are called."""
        return term.number in self.leaves and not isinstance(term.op, Rename)

    def values(self) -> Iterator[Term]:
        """The products that each of the two trees computes, each once."""
        inside = [*_inside(self.root, self.leaves), *_inside(self.winner, self.leaves)]
        yield from dict.fromkeys(term for term in inside if not isinstance(term.op, Rename))

    def factors(self) -> Iterator[Term]:
        """The terms that both trees are made of, each once."""
        found = []
        for arg in (arg for value in self.values() for arg in value.args):
            while isinstance(arg.op, Rename) and not self.is_factor(arg):
                arg = arg.args[0]
            if self.is_factor(arg):
                found.append(arg)
        yield from dict.fromkeys(found)


def with_contraction_orders(
    program: Program, reassociate: bool = True, precision: str | None = None, cap: int | None = None
) -> Program:
    """The same program, which also knows better orders for its contractions of many factors.

    For the arguments, see `better_orders`.
    """
    found = better_orders(program, reassociate, precision, cap)
    if not found:
        return program
    pairs = ((order.root, order.winner) for order in found)
    return replace(program, equalities=(*program.equalities, *pairs))


def better_orders(
    program: Program, reassociate: bool = True, precision: str | None = None, cap: int | None = None
) -> list[Order]:
    """Better orders for a program's contractions of many factors.

    Every tree of contractions gets up to three orders: with the fewest flops, with the smallest
    intermediates, and with the fewest flops among those whose intermediates are within the cap. A product
    with several uses is one factor in one search and taken apart in another.

    **Arguments:**

    - `reassociate`: whether the rounding of floats may change. If not, only integers are reordered.
    - `precision`: the precision of contractions made from sums of products. Others keep theirs.
    - `cap`: the largest number of elements that an intermediate should have.
    """
    known = list(program.known())
    if not any(isinstance(term.op, (Dot, Reduce)) for term in known):
        return []
    room = GROWTH * len(known) + ALWAYS
    entered = {term.number for term in known}
    found: dict[tuple[Term, Term], Order] = {}
    for order in _Orders(program, known, reassociate, precision, cap).winners():
        new = {term.number for term in _inside(order.winner, entered)}
        if len(new) <= room:
            room -= len(new)
            entered |= new
            found[order.root, order.winner] = order
    return list(found.values())


class _Orders:
    """Finds the trees of contractions of a program, and better ones.

    **Attributes:**

    - `contracting`: the numbers of terms that are trees with a contraction or a sum in them.
    - `spread`: those that are worth taking apart: not products without broadcasting.
    - `shared`: those of `contracting` that are needed more than once.
    """

    def __init__(
        self, program: Program, known: list[Term], reassociate: bool, precision: str | None, cap: int | None
    ) -> None:
        self.reassociate = reassociate
        self.cap = cap
        self.rebuilder = Rebuilder(program, precision)
        self.effort = Effort(MOST_PAIRS)
        self.paths: dict[Network, list[Path]] = {}
        self.contracting: set[int] = set()
        self.spread: set[int] = set()
        roots = [output.term for output in program.outputs]
        roots += [term for pair in program.equalities for term in pair]
        roots += [fact.term for fact in program.facts]
        uses = Counter(term.number for term in roots)
        for term in known:
            self._classify(term)
            inner = operands(term) if term.number in self.contracting else ()
            uses.update(arg.number for arg in term.args)
            roots += [arg for arg in term.args if arg not in inner]
        self.shared = {number for number in self.contracting if uses[number] > 1}
        # What no tree takes apart comes first: it is needed whatever is chosen.
        self.roots = deque([*roots, *(term for term in known if term.number in self.shared)])

    def _classify(self, term: Term) -> None:
        inner = operands(term)
        if not inner or not _arithmetic(term.dtype, self.reassociate):
            return
        contracts = isinstance(term.op, (Dot, Reduce))
        broadcasts = term.op == Map("mul", term.dtype) and inner[0].axes != inner[1].axes
        if contracts or any(arg.number in self.contracting for arg in inner):
            self.contracting.add(term.number)
        if contracts or broadcasts or any(arg.number in self.spread for arg in inner):
            self.spread.add(term.number)

    def winners(self) -> Iterator[Order]:
        """Trees and better orders for them."""
        done: set[int] = set()
        while self.roots:
            root = self.roots.popleft()
            while isinstance(root.op, Rename):
                root = root.args[0]
            if root.number in done or root.number not in self.contracting:
                continue
            done.add(root.number)
            tree = flatten(root, self.shared, self.spread)
            inner = [factor.term for factor in tree.factors if factor.term.number in self.contracting]
            # What is cut off, contracted in another precision, or divided by what is summed over.
            self.roots += [term for term in inner if term.number not in self.shared]
            found = self._better(tree)
            if any(term.number in self.shared for term in inner):
                whole = flatten(root, (), self.spread)
                found += [] if whole.cut else self._better(whole)
            yield from dict.fromkeys(found)

    def _better(self, tree: Tree) -> list[Order]:
        """Orders that are better than the tree as it was written."""
        array_factors = len(tree.factors)
        if array_factors < 2 or (array_factors == 2 and not tree.lone()):
            return []
        if not (tree.contracts or is_inexact(tree.root.dtype)) or any(axis.size == 0 for axis in tree.axes):
            return []
        network = tree.network()
        if network not in self.paths:
            self.paths[network] = best_paths(network, self.cap, self.effort)
        leaves = _leaves(tree)
        written = _expense(tree.root, leaves)
        winners = [self.rebuilder.rebuild(tree, path) for path in self.paths[network]]
        better = (winner for winner in winners if _improves(_expense(winner, leaves), written))
        return [Order(tree.root, winner, leaves) for winner in better]


@cache
def _arithmetic(dtype: str, reassociate: bool) -> bool:
    """Whether sums and products of that dtype may be reordered."""
    if is_inexact(dtype):
        return reassociate
    return not is_extended(dtype) and numpy_dtype(dtype).kind in "iu"


def _leaves(tree: Tree) -> frozenset[int]:
    """The numbers of the terms that a tree is made of, as they are and under their first names."""
    leaves: set[int] = set()
    scaled = (scaling.by.term for scaling in tree.scalings if scaling.by is not None)
    for term in (*(factor.term for factor in tree.factors), *scaled):
        leaves.add(term.number)
        while isinstance(term.op, Rename):
            term = term.args[0]
            leaves.add(term.number)
    return frozenset(leaves)


def _inside(root: Term, leaves: Container[int]) -> Iterator[Term]:
    """The terms that `root` is made of, down to the leaves."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        term = stack.pop()
        if term.number not in seen and term.number not in leaves:
            seen.add(term.number)
            stack += term.args
            yield term


def _expense(root: Term, leaves: Container[int]) -> Expense:
    """The cost of computing a term from its leaves, with shared parts counted once."""
    flops, peak = 0, 0
    for term in _inside(root, leaves):
        match term.op:
            case Dot(axes=axes):
                flops += 2 * term.elements * _elements(axes)
            case Reduce(axes=axes):
                flops += term.elements * _elements(axes)
            case Map():
                flops += term.elements
            case _:
                continue
        peak = max(peak, term.elements)
    return Expense(flops, peak)


def _elements(axes: frozenset[Axis]) -> int:
    return prod(axis.size for axis in axes)


def _improves(new: Expense, old: Expense) -> bool:
    return new.flops < old.flops or new.peak < old.peak
