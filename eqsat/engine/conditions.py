"""The names and conditions of a rule, as facts of an egglog rule.

Names in the generated text: `t_a` a term, `Y_t_a` its type, `A_a O_a D_a` its axes, open loops and dtype,
`v_a` its value, `x_n` an axis, `S_K` a set of axes, `z_K` its size, `f_f` a function variable, `e` what the
left side matched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from eqsat.engine.schema import AXES_OF, DTYPE_OF, FAMILIES, NEW_AXES
from eqsat.errors import RuleError
from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.language.functions import PLACES
from eqsat.language.syntax import (
    Apply,
    Arithmetic,
    ChunkOf,
    ConcatOf,
    ConstantValue,
    Contraction,
    CopyDefinition,
    DeltaOf,
    Expression,
    Fact,
    FoldOf,
    IotaOf,
    Number,
    OperationOf,
    Quantity,
    Reduction,
    RenameOf,
    Rule,
    SelectionOf,
    SizeOf,
    Variable,
)
from eqsat.language.traverse import is_set, walk

CHANGING = frozenset({"select_n", "convert", "abs", "real", "imag", "complex"})
"""Functions whose operands and result may differ in dtype, as do those of comparisons."""


def changes_dtype(function: str) -> bool:
    """Whether a function's operands and result may differ in dtype."""
    known = ELEMENTWISE.get(function)
    return function in CHANGING or (known is not None and known.boolean)


def numbered_copies(rule: Rule | Fact) -> list[tuple[CopyDefinition, int]]:
    """The copies that a rule makes of axes; each with the how many-eth it is of one axis and one length."""
    counts: Counter[tuple[str, int]] = Counter()
    found = []
    for copy in rule.copies if isinstance(rule, Rule) else ():
        found.append((copy, counts[copy.original, copy.longer]))
        counts[copy.original, copy.longer] += 1
    return found


class Conditions:
    """The names of a rule's egglog text, and the facts that its conditions make."""

    def __init__(
        self, rule: Rule | Fact, left: Expression, right: Expression, number: int, precision: str
    ) -> None:
        self.rule = rule
        self.left = left
        self.right = right
        self.number = number
        self.new_precision = precision
        self.classes = dict(rule.classes) if isinstance(rule, Rule) else {}
        lengths = rule.lengths if isinstance(rule, Rule) else ()
        self.new_lengths = {new.name: new.length for new in lengths}
        self.facts: list[str] = []
        self.actions: list[str] = []
        self.counter = 0
        self.terms: dict[str, Variable] = {}
        self.matched: dict[Expression, str] = {}
        self.contractions = [e for e in walk(left) if isinstance(e, Contraction)]
        # Arithmetic holds among values of one dtype, as elementwise operands always are and those of
        # a contraction with a `uniform` precision; moving a chunk or a name does not care.
        moves = (ChunkOf, ConcatOf, FoldOf, RenameOf)
        expressions = [*walk(left), *walk(right)]
        chooses = any(isinstance(e, Apply) and changes_dtype(e.function) for e in expressions)
        moved = any(isinstance(e, moves) for e in expressions)
        mixed = any(isinstance(e, (OperationOf, SelectionOf, IotaOf, DeltaOf)) for e in expressions)
        mixed |= any(isinstance(e, Reduction) and e.kind in PLACES for e in expressions)
        self.uniform = not (self.classes or chooses or moved or mixed)
        self.comparisons: list[str] = []
        self.needed_sizes: dict[str, None] = {}
        self.single_axes: dict[str, None] = {}
        self.bound_sets: set[str] = set()
        # Of the axes, those that a table tells, so that there is no need to go through all there are.
        self.bound_axes: set[str] = set()
        # What chunks, renamings and concatenations are of: their dtype is the same.
        self.moved: dict[str, str] = {}

    def fail(self, message: str) -> RuleError:
        return RuleError(f"{self.rule.position}: rule {self.rule.name}: {message}")

    def fresh(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    # Names.

    def axis(self, name: str) -> str:
        if not name[0].islower():
            raise self.fail(f"{name} is a set of axes; one axis is needed here (lower case)")
        self.single_axes[name] = None
        return f"x_{name}"

    def bound_axis(self, name: str) -> str:
        """An axis that stands in a fact which is looked up in a table."""
        self.bound_axes.add(name)
        return self.axis(name)

    def axes(self, names: Sequence[str]) -> str:
        for name in names:
            if name[0].islower() and name not in self.bound_sets:
                self.bound_sets.add(name)
                self.facts.append(f"(= S_{name} (set-of {self.axis(name)}))")
        sets = [f"S_{name}" for name in names]
        joined = sets[0]
        for other in sets[1:]:
            joined = f"(set-union {joined} {other})"
        return joined

    def dtype(self, term: str) -> str:
        return "D_e" if self.uniform else f"D_{term}"

    def name_part(self, name: str, part: str, node: str) -> None:
        """Give a name to a part of the type of what was matched."""
        self.facts += [f"(= Y_{node} (type {node}))", f"(= {name} {part.format(f'Y_{node}')})"]

    def name_dtype(self, name: str, node: str) -> None:
        """Give a name to the dtype of what was matched."""
        while node in self.moved:
            node = self.moved[node]
        self.name_part(name, DTYPE_OF, node)

    def bind_axes(self, names: Sequence[str], what: str) -> str:
        """The set of axes that a reduction or contraction is over: one set, or single axes."""
        if len(names) == 1:
            return self.bind_set(names[0])
        if any(map(is_set, names)):
            raise self.fail(f"the left side {what} one set of axes at a time")
        found = self.fresh("S")
        self.facts.append(f"(= {len(names)} (set-length {found}))")
        for name in names:  # each of them in turn: they are told apart by what else the rule says
            self.facts.append(f"(set-contains {found} {self.axis(name)})")
        return found

    def bind_set(self, name: str) -> str:
        self.bound_sets.add(name)
        if name[0].islower():
            axis = self.bound_axis(name)
            self.facts += [f"(= 1 (set-length S_{name}))", f"(= {axis} (set-get S_{name} 0))"]
        return f"S_{name}"

    def constrain(self) -> None:
        """Facts for the patterns' axes, the guards and the definitions."""
        patterns = [e for side in (self.left, self.right) for e in walk(side) if isinstance(e, Variable)]
        for definition in self.rule.definitions:
            value = self.set_of(definition.first)
            for item in definition.less:
                value = f"(set-diff {value} {self.set_of(item)})"
            self.facts.append(f"(= S_{definition.name} {value})")
        for pattern in dict.fromkeys(patterns):
            self.single_axes.update((name, None) for name in pattern.has + pattern.lacks if name[0].islower())
            for name in pattern.has:
                self.facts.append(self.has(f"A_{pattern.name}", name))
            for name in pattern.lacks:
                self.facts.append(
                    f"(set-not-contains A_{pattern.name} x_{name})"
                    if name[0].islower()
                    else f"(= 0 (set-length (set-intersect A_{pattern.name} S_{name})))"
                )
        for guard in self.rule.guards:
            self.facts.append(self.guard(guard.name, guard.operands))
            self.single_axes.update((name, None) for name in guard.operands if f"x_{name}" in self.facts[-1])
        for function, family in self.classes.items():
            if family in FAMILIES:
                self.facts.append(f'(member "{family}" f_{function})')
        for known in self.rule.properties:
            axes = "".join(f" {self.bound_axis(axis)}" for axis in known.axes)
            self.facts.append(f"(is-{known.name} t_{known.term}{axes})")
        for copy, which in numbered_copies(self.rule):
            fresh = self.bound_axis(copy.name)
            self.facts.append(f"(copy {self.bound_axis(copy.original)} {copy.longer} {which} {fresh})")
            self.is_fresh(fresh)
        for which, (name, wanted) in enumerate(self.new_lengths.items(), 1):
            # Such an axis is a number that says how long it is (`encode.Axes`).
            fresh, length = self.bound_axis(name), self.quantity(wanted)
            whole = f"l_{name}"
            self.facts += [
                f"(= {whole} (to-i64 {length}))",
                f"(= {length} (to-f64 {whole}))",
                f"(< 1 {whole})",
            ]
            self.facts.append(f"(= {fresh} (+ {which * NEW_AXES} {whole}))")
            self.actions.append(f"(axis {fresh}) (set (size {fresh}) {length})")
            self.is_fresh(fresh)
        for comparison in self.rule.comparisons:
            left, right = self.quantity(comparison.left), self.quantity(comparison.right)
            self.comparisons.append(f"({comparison.relation} {left} {right})")
        self.facts += [f"(axis x_{name})" for name in self.single_axes if name not in self.bound_axes]
        # Different letters are different axes.
        self.facts += [f"(!= x_{one} x_{other})" for one, other in combinations(self.single_axes, 2)]

    def is_fresh(self, axis: str) -> None:
        """A new axis is in nothing that was matched."""
        self.name_part("A_e", AXES_OF, "e")
        self.facts += [f"(set-not-contains A_{name} {axis})" for name in ("e", *self.terms)]

    def quantity(self, quantity: Quantity) -> str:
        """A number that is known when the rule is matched. Sizes are those of whole axes."""
        match quantity:
            case Number(value=value):
                return repr(value)
            case ConstantValue(name=name):
                self.facts.append(f"(= v_{name} (value t_{name}))")
                return f"v_{name}"
            case SizeOf(name=name) if name in self.new_lengths:
                return self.quantity(self.new_lengths[name])
            case SizeOf(name=name) if name[0].islower():
                axis = self.bound_axis(name)
                self.facts += [f"(= z_{name} (size {axis}))", f"(set-not-contains O_e {axis})"]
                return f"z_{name}"
            case SizeOf(name=name):
                self.needed_sizes[name] = None
                self.facts.append(f"(= 0 (set-length (set-intersect O_e S_{name})))")
                return f"z_{name}"
            case Arithmetic(operator=operator, left=left, right=right):
                return f"({operator} {self.quantity(left)} {self.quantity(right)})"

    def has(self, axes: str, name: str) -> str:
        if name[0].islower():
            return f"(set-contains {axes} x_{name})"
        return f"(= S_{name} (set-intersect {axes} S_{name}))"

    def set_of(self, item: tuple[str, str]) -> str:
        kind, name = item
        if kind == "term":
            return f"A_{name}"
        return f"(set-of x_{name})" if name[0].islower() else f"S_{name}"

    def guard(self, name: str, operands: Sequence[str]) -> str:
        match name:
            case "in":
                inner, outer = operands
                return self.has(f"A_{outer}" if outer in self.terms else f"S_{outer}", inner)
            case "large" | "tiled":
                return f"({name} {self.bound_axis(operands[0])})"
            case "stored" | "called":
                return f"({name} t_{operands[0]})"
            case "passes" if self.classes[operands[0]] == "operations":
                return f"(set-not-contains core-set {self.axis(operands[1])})"
            case "passes" | "accumulates" | "sums":
                return f"(set-contains c_{name}-set {self.axis(operands[1])})"
            case "float" | "real" | "integer" | "complex" | "boolean" | "wide":
                return f"({name} {self.dtype(operands[0])})"
            case "constant":
                return f"(= v_{operands[0]} (value t_{operands[0]}))"
            case "nonempty":
                return f"(< 0 (set-length S_{operands[0]}))"
        raise self.fail(f"there is no guard {name}")
