"""Draws the lengths of axes, and the constants that conditions compare with sizes.

Axes that nothing forces to be equally long get different lengths where possible, so that the check finds
rules that confuse two axes.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from math import prod

from eqsat.checking.conditions import Condition
from eqsat.checking.kinds import words
from eqsat.checking.memberships import has_entries
from eqsat.checking.placement import Placement
from eqsat.checking.statement import ENTRIES, PRIMITIVES, SELECTIONS, Statement, operation_called
from eqsat.language.syntax import (
    Arithmetic,
    Comparison,
    ConstantValue,
    DeltaOf,
    Number,
    OperationOf,
    PropertyGuard,
    Quantity,
    Reduction,
    RenameOf,
    SelectionOf,
    SizeOf,
)
from eqsat.language.traverse import walk

SQUARE = frozenset(words("inv solve det logdet cholesky solve_lower solve_upper eigenvalues diagonal"))
"""Operations whose first two core axes are equally long."""

FACTORISATIONS = frozenset(words("qr_r qr_r_beside_q qr_qt svd_u svd_s svd_v svd_v_beside_u"))
"""Operations on matrices along their first and last axes, whose factors have as many columns as are fewer."""

SQUARE_PROPERTIES = frozenset({"symmetric", "spd", "diagonal", "lower", "upper"})

LENGTHS = (2, 3, 4, 5, 6)
MORE_LENGTHS = (2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16, 20, 33)
FEWER_LENGTHS = (2, 3, 2, 3, 4)
"""Lengths for statements with many axes."""

SHORT_LENGTHS = (1, 2, 1)
"""Lengths for rules about short axes."""

TRIED_LENGTHS = (LENGTHS, FEWER_LENGTHS, MORE_LENGTHS, MORE_LENGTHS, SHORT_LENGTHS)
"""The pools of lengths, in the order in which they are tried."""

LARGE_LENGTHS = (5, 7, 8)
"""Lengths for axes that are split into chunks. Neither 2 nor 3 divides the first two."""

CONSTANTS = (2.0, 0.5, -1.5, 3.0, 1.0, 0.25, -2.0, 0.0)

MOST_TRIES = 200
MOST_ELEMENTS = 30_000

_RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda x, y: x / y if y else float("nan"),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """The length of each axis, and the value of each variable that is a constant."""

    lengths: Mapping[str, int]
    constants: Mapping[str, float]


@dataclass
class SizeRules:
    """What a statement requires of lengths: equal ones, products, sums, and upper bounds.

    **Attributes:**

    - `axes`: the axes of the placement.
    - `square`: whether all core axes of a user's operation are to be equally long.
    - `alike`: by axis, the representative of all axes that are as long.
    - `products`: an axis, and the two axes whose lengths multiply to its own.
    - `sums`: an axis, a shorter axis, and by how much that is shorter.
    - `computed`: an axis, and the arithmetic that gives its length.
    - `ordered`: an axis, and one that is at least as long.
    - `needed`: axes and sets of axes of operations, selections and properties, which can't be empty.
    - `large`: axes that are split into chunks.
    """

    statement: Statement
    axes: tuple[str, ...]
    square: bool = False
    alike: dict[str, str] = field(default_factory=dict)
    products: list[tuple[str, tuple[str, str]]] = field(default_factory=list)
    sums: list[tuple[str, str, int]] = field(default_factory=list)
    computed: list[tuple[str, Quantity]] = field(default_factory=list)
    ordered: list[tuple[str, str]] = field(default_factory=list)
    needed: set[str] = field(default_factory=set)
    large: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.alike = {axis: axis for axis in self.axes}
        rule = self.statement.rule
        for node in walk(rule.left):
            match node:
                case RenameOf(old=old, new=new):
                    self.unite(old, new)
                case DeltaOf(first=first, second=second):
                    self.unite(first, second)
                case OperationOf():
                    self.operation(node)
                case SelectionOf(axis=axis, out_axis=entries):
                    self.ordered.append((entries, axis))
                case Reduction(axes=axes) if has_entries(node):
                    self.ordered.append((ENTRIES, axes[0]))
        for node in (*walk(rule.left), *walk(rule.right)):
            match node:
                case OperationOf(axes=axes):
                    self.needed.update(axes)
                case SelectionOf(axis=axis, out_axis=entries):
                    self.needed.update((entries, axis))
                case Reduction(kind=kind, axes=axes) if kind in SELECTIONS:
                    self.needed.update((*axes, ENTRIES))
        for copy in rule.copies:
            if copy.longer:
                self.sums.append((copy.name, copy.original, copy.longer))
            else:
                self.unite(copy.name, copy.original)
        self.computed = [(new.name, new.length) for new in rule.lengths]
        for known in rule.properties:
            self.property(known)
        for comparison in rule.comparisons:
            match comparison:
                case Comparison(relation="=", left=SizeOf(name=one), right=SizeOf(name=other)):
                    if one in self.alike and other in self.alike:
                        self.unite(one, other)
        for _ in self.products:
            self.unite_factors()
        self.large = {guard.operands[0] for guard in rule.guards if guard.name in ("large", "tiled")}

    def unite_factors(self) -> None:
        """Unites the other factors of two equal products that share a factor."""
        for (whole, parts), (same, others) in combinations(self.products, 2):
            if self.alike[whole] == self.alike[same]:
                for place, other in product((0, 1), repeat=2):
                    if self.alike[parts[place]] == self.alike[others[other]]:
                        self.unite(parts[1 - place], others[1 - other])

    def unite(self, one: str, other: str) -> None:
        """Makes two axes equally long, and all that are as long as either."""
        root, gone = self.alike[one], self.alike[other]
        self.alike = {axis: root if found == gone else found for axis, found in self.alike.items()}

    def property(self, known: PropertyGuard) -> None:
        if known.name in SQUARE_PROPERTIES:
            self.unite(*known.axes)
        elif known.name == "orthogonal":
            self.ordered.append((known.axes[1], known.axes[0]))
        if known.axes:
            self.needed.update(known.axes)

    def operation(self, node: OperationOf) -> None:
        axes = node.axes
        if node.name in SQUARE or node.name.endswith("triangular_solve"):
            self.unite(axes[0], axes[1])
        elif node.name == "qr_q":
            self.ordered.append((axes[1], axes[0]))
        elif node.name == "merge":
            self.products.append((axes[2], (axes[0], axes[1])))
        elif node.name == "split":
            self.products.append((axes[0], (axes[1], axes[2])))
        elif node.name == "kron":
            self.products += [(axes[4], (axes[0], axes[2])), (axes[5], (axes[1], axes[3]))]
        elif node.name == "head":
            self.ordered.append((axes[1], axes[0]))
        elif node.name in FACTORISATIONS:
            self.ordered.append((axes[1], axes[0]))
            self.unite(axes[1], axes[2])
        elif node.name == "append":
            self.sums.append((axes[1], axes[0], 1))
        elif self.square and node.name not in PRIMITIVES:
            spec = operation_called(node.name)
            if spec.function is not None:
                for axis in axes[1:]:
                    self.unite(axes[0], axis)

    def lengths_from(self, chosen: Mapping[str, int]) -> dict[str, int] | None:
        """Returns the lengths of all axes, given those of the representatives; None if they don't fit."""
        lengths = {axis: chosen[self.alike[axis]] for axis in self.axes}
        # Each round may settle one more length, as for a product of products.
        for _ in (*self.products, *self.sums, *self.computed):
            for whole, length in self.derived(lengths):
                root = self.alike[whole]
                lengths.update((axis, length) for axis in self.axes if self.alike[axis] == root)
        if min(lengths.values(), default=0) < 0:  # a computed length that is not a positive integer
            return None
        fits = all(lengths[short] <= lengths[long] for short, long in self.ordered)
        fits = fits and all(lengths[whole] == length for whole, length in self.derived(lengths))
        return lengths if fits else None

    def derived(self, lengths: Mapping[str, int]) -> Iterator[tuple[str, int]]:
        """Yields the axes whose lengths follow from those of other axes, with the lengths that follow."""
        yield from ((whole, lengths[one] * lengths[other]) for whole, (one, other) in self.products)
        yield from ((whole, lengths[shorter] + more) for whole, shorter, more in self.sums)
        for new, quantity in self.computed:
            length = value_of(quantity, lengths, {})
            yield new, int(length) if length.is_integer() and length > 0 else -1

    def draw(
        self,
        rng: random.Random,
        placement: Placement,
        special: int | None = None,
        violated: Condition | None = None,
        kinds: str = "f",
        names: tuple[str, ...] = (),
        lengths_of: Sequence[Sequence[int]] = TRIED_LENGTHS,
        most: float = MOST_ELEMENTS,
    ) -> Sizes | None:
        """Draws lengths and constants for which the comparisons hold; None if none are found.

        **Arguments:**

        - `special`: a length that one axis gets, among those that may have it.
        - `violated`: a comparison that must not hold.
        - `kinds`: the kinds of the constants.
        - `names`: the variables that are constants.
        - `lengths_of`: the pools of lengths, in the order in which they are tried.
        - `most`: how many elements all axes together may span.
        """
        if not self.can_hold(placement, special):
            return None
        roots = sorted(set(self.alike.values()))
        large = {self.alike[axis] for axis in self.large}
        for attempt in range(MOST_TRIES):
            pool = list(lengths_of[len(lengths_of) * attempt // MOST_TRIES])
            rng.shuffle(pool)
            pool = pool * (1 + len(roots) // len(pool))
            chosen = dict(zip(roots, pool, strict=False))
            if attempt % 2 == 0 and lengths_of[0] is LENGTHS:
                chosen.update((root, rng.choice(LARGE_LENGTHS)) for root in sorted(large))
            if special is not None and attempt < MOST_TRIES // 2:
                free = [root for root in roots if special != 0 or self.may_be_empty(root, placement)]
                if not free:
                    return None
                chosen[rng.choice(free)] = special
            lengths = self.lengths_from(chosen)
            if lengths is not None and attempt % 2:
                lengths = self.stretched(lengths, placement, violated)
            if lengths is None or self.elements(lengths) > most:
                continue
            constants = self.constants(rng, lengths, placement, names, kinds)
            if self.hold(lengths, constants, placement, violated):
                return Sizes(lengths, constants)
        return None

    def stretched(
        self,
        lengths: dict[str, int],
        placement: Placement,
        violated: Condition | None,
    ) -> dict[str, int] | None:
        """Makes axes longer where a comparison such as `20 * size(k) < size(n)` requires it.

        Returns None if the lengths of other axes do not fit those.
        """
        comparisons = self.statement.rule.comparisons
        if isinstance(violated, Comparison):
            comparisons = (violated, *comparisons)
        for comparison in comparisons:
            shorter, longer = comparison.left, comparison.right
            if (comparison.relation[0] == ">") != (comparison is violated):
                shorter, longer = longer, shorter
            if comparison.relation[0] not in "<>" or not isinstance(longer, SizeOf):
                continue
            least = value_of(shorter, lengths, {}, placement)
            axes = placement.of(longer.name)
            if len(axes) == 1 and least >= value_of(longer, lengths, {}, placement):
                longest = self.lengths_from({**lengths, self.alike[next(iter(axes))]: int(least) + 1})
                if longest is None:
                    return None
                lengths = longest
        return lengths

    def elements(self, lengths: Mapping[str, int]) -> int:
        """Returns about how many elements the largest term has."""
        wholes = {whole for whole, *_ in (*self.products, *self.sums, *self.computed)}
        return prod(length for axis, length in lengths.items() if axis not in wholes)

    def may_be_empty(self, root: str, placement: Placement) -> bool:
        """Returns whether the axes that `root` stands for may have length 0."""
        needed = set(self.large)
        for name in self.needed - {ENTRIES}:
            needed |= placement.of(name)
        needed |= {ENTRIES} & set(self.alike)
        return not any(self.alike[axis] == root for axis in needed)

    def constants(
        self,
        rng: random.Random,
        lengths: Mapping[str, int],
        placement: Placement,
        names: tuple[str, ...],
        kinds: str,
    ) -> dict[str, float]:
        """Draws the constants; one that must be equal to another quantity gets its value."""
        pool = [value for value in CONSTANTS if not set(kinds) & set("iu") or value.is_integer()]
        pool = [value for value in pool if "u" not in kinds or value >= 0]
        found = {name: rng.choice(pool) for name in names}
        for comparison in self.statement.rule.comparisons:
            for one, other in (
                (comparison.left, comparison.right),
                (comparison.right, comparison.left),
            ):
                if comparison.relation == "=" and isinstance(one, ConstantValue):
                    found[one.name] = value_of(other, lengths, found, placement)
                    break
        return found

    def can_hold(self, placement: Placement, special: int | None) -> bool:
        """Returns whether bounds allow all comparisons to hold: an empty set of axes, for one, has size 1."""
        shortest = 0.0 if special == 0 else 1.0
        for comparison in self.statement.rule.comparisons:
            if comparison.relation in ("<", "<=", ">", ">="):
                low, high = (
                    bounds_of(side, placement, shortest) for side in (comparison.left, comparison.right)
                )
                smaller, larger = (low, high) if comparison.relation[0] == "<" else (high, low)
                if not _RELATIONS[comparison.relation.replace(">", "<")](smaller[0], larger[1]):
                    return False
        return True

    def hold(
        self,
        lengths: Mapping[str, int],
        constants: Mapping[str, float],
        placement: Placement,
        violated: Condition | None = None,
    ) -> bool:
        """Returns whether all comparisons of the rule hold, and the violated one does not."""

        def holds(comparison: Comparison) -> bool:
            left, right = (
                value_of(side, lengths, constants, placement) for side in (comparison.left, comparison.right)
            )
            return _RELATIONS[comparison.relation](left, right)

        if isinstance(violated, Comparison) and holds(violated):
            return False
        return all(map(holds, self.statement.rule.comparisons))


def fits_operation(node: OperationOf, lengths: Mapping[str, int]) -> bool:
    """Returns whether an operation accepts the lengths of its core axes."""
    size = [lengths[axis] for axis in node.axes]
    match node.name:
        case "qr_q":
            return size[1] <= size[0]
        case name if name in FACTORISATIONS:
            return size[1] == min(size[0], size[2])
        case "merge":
            return size[2] == size[0] * size[1]
        case "split":
            return size[0] == size[1] * size[2]
        case "kron":
            return size[4] == size[0] * size[2] and size[5] == size[1] * size[3]
        case "head":
            return size[1] <= size[0]
        case "append":
            return size[1] == size[0] + 1
        case name:
            return name not in SQUARE or size[0] == size[1]


def bounds_of(quantity: Quantity, placement: Placement, shortest: float) -> tuple[float, float]:
    """Returns a lower and an upper bound of a quantity over all choices of lengths.

    **Arguments:**

    - `shortest`: the least length that an axis may have.
    """
    everything = (float("-inf"), float("inf"))
    match quantity:
        case Number(value=value):
            return value, value
        case SizeOf(name=name):
            count = len(placement.of(name))
            return (min(shortest, 1.0), float("inf")) if count else (1.0, 1.0)
        case Arithmetic(operator="*", left=Number(value=factor), right=SizeOf() as size) if factor > 0:
            low, high = bounds_of(size, placement, shortest)
            return factor * low, factor * high
        case _:
            return everything


def value_of(
    quantity: Quantity,
    lengths: Mapping[str, int],
    constants: Mapping[str, float],
    placement: Placement | None = None,
) -> float:
    """Returns the value of a quantity. Unknown constants, and divisions by 0, give NaN.

    **Arguments:**

    - `placement`: says which axes a set has; None if the quantity is only about single axes.
    """
    match quantity:
        case Number(value=value):
            return value
        case ConstantValue(name=name):
            return constants.get(name, float("nan"))
        case SizeOf(name=name):
            return float(prod(lengths[axis] for axis in (placement.of(name) if placement else (name,))))
        case Arithmetic(operator=sign, left=left, right=right):
            one, other = (value_of(side, lengths, constants, placement) for side in (left, right))
            return _ARITHMETIC[sign](one, other)
