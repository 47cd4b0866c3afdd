"""The left side of one direction of a rule, as facts of an egglog rule.

Names in the generated text: `t_a` a term, `Y_t_a` its type, `A_a O_a D_a` its axes, open loops and dtype,
`v_a` its value, `x_n` an axis, `S_K` a set of axes, `z_K` its size, `f_f` a function variable, `e` what the
left side matched.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations

from eqsat.engine.encode import core_list, monoid_key, operand_list, quote
from eqsat.engine.schema import AXES_OF, DTYPE_OF, FAMILIES, OPEN_OF
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
from eqsat.language.traverse import walk

MAX_NESTING = 2
"""Most loops that one value may be computed inside of."""

CALL_LISTS = ("c_passes", "c_accumulates", "c_sums", "c_whole")
"""What the lists of a call's axes are called; `X-set` is the set of those in list X."""

CHANGING = frozenset({"select_n", "convert", "abs", "real", "imag", "complex"})
"""Functions whose operands and result may differ in dtype, as do those of comparisons."""


def changes_dtype(function: str) -> bool:
    """Whether a function's operands and result may differ in dtype."""
    known = ELEMENTWISE.get(function)
    return function in CHANGING or (known is not None and known.boolean)


def place_key(kind: str, dtype: str) -> str:
    """The egglog expression of an argmax's or argmin's name, given that of its dtype; as `select_key`."""
    return f'(+ "{kind}:-1:indices:" {dtype})'


class Matching:
    """What must hold for a rule to match."""

    def __init__(
        self, rule: Rule | Fact, left: Expression, right: Expression, number: int, precision: str
    ) -> None:
        self.rule = rule
        self.left = left
        self.right = right
        self.number = number
        self.new_precision = precision
        self.classes = dict(rule.classes) if isinstance(rule, Rule) else {}
        self.facts: list[str] = []
        self.actions: list[str] = []
        self.counter = 0
        self.terms: dict[str, Variable] = {}
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

    # The left side.

    def bind_set(self, name: str) -> str:
        self.bound_sets.add(name)
        if name[0].islower():
            axis = self.bound_axis(name)
            self.facts += [f"(= 1 (set-length S_{name}))", f"(= {axis} (set-get S_{name} 0))"]
        return f"S_{name}"

    def match(self, expression: Expression, root: bool = False) -> str:
        """Facts that match the expression; the egglog variable of what it matched."""
        if isinstance(expression, Variable):
            self.terms.setdefault(expression.name, expression)
            name = f"t_{expression.name}"
            if root:
                self.facts.append(f"(= e {name})")
            return name
        this = "e" if root else self.fresh("m")
        match expression:
            case Number():
                self.facts.append(f"(= {expression.value!r} (value {this}))")
            case Apply(function="convert"):
                operand = self.match(expression.operands[0])
                name = self.fresh("c")
                self.facts += [
                    f"(= {this} (Map1 {name} {operand}))",
                    f"(conversion {name} {self.fresh('d')})",
                ]
            case Apply():
                operands = " ".join(self.match(operand) for operand in expression.operands)
                self.facts.append(f"(= {this} {self.application(expression, operands)})")
                if expression.function in self.classes:
                    self.name_dtype(f"D_of_{expression.function}", this)
            case Reduction(kind=kind, axes=axes):
                operand = self.match(expression.operand)
                if len(axes) != 1:
                    raise self.fail("the left side reduces over one set of axes at a time")
                if self.classes.get(kind) == "selections":
                    self.facts.append(f"(= {this} (Select f_{kind} {self.bound_axis(axes[0])} {operand}))")
                elif kind in PLACES:
                    dtype = self.fresh("d")
                    self.name_dtype(dtype, this)
                    along = self.bound_axis(axes[0])
                    self.facts.append(f"(= {this} (Select {place_key(kind, dtype)} {along} {operand}))")
                else:
                    spelled = f"f_{kind}" if kind in self.classes else quote(kind)
                    self.facts.append(f"(= {this} (Reduce {spelled} {self.bind_set(axes[0])} {operand}))")
                    if self.classes.get(kind) == "monoids":
                        self.facts.append(f'(!= f_{kind} "mean")')
            case Contraction(axes=axes):
                left, right = self.match(expression.left), self.match(expression.right)
                if len(axes) != 1:
                    raise self.fail("the left side contracts over one set of axes at a time")
                self.facts.append(f"(= {this} (Dot precision {self.bind_set(axes[0])} {left} {right}))")
                if expression is self.contractions[0]:
                    self.name_dtype("D_dot", this)
            case IotaOf(axis=axis):
                self.facts.append(f"(= {this} (Iota {self.bound_axis(axis)} {self.fresh('d')}))")
            case DeltaOf(first=first, second=second):
                self.facts.append(f"(= {this} (Delta {self.bound_axis(first)} {self.bound_axis(second)}))")
            case OperationOf(name=name, axes=axes):
                listed = operand_list([self.match(operand) for operand in expression.operands])
                core = core_list([self.bound_axis(axis) for axis in axes])
                self.facts.append(f"(= {this} (Operation {quote(name)} {core} {listed}))")
            case SelectionOf(axis=axis, out_axis=out_axis, result=result):
                operand = self.match(expression.operand)
                dtype = self.fresh("d")
                key = f'(+ "top_k:" (to-string {self.axis(out_axis)}) ":{result}:" {dtype})'
                self.name_dtype(dtype, this)
                self.facts.append(f"(= {this} (Select {key} {self.bound_axis(axis)} {operand}))")
            case RenameOf(old=old, new=new):
                operand = self.match(expression.operand)
                self.moved[this] = operand
                before, after = self.bound_axis(old), self.bound_axis(new)
                self.facts.append(f"(= {this} (Rename {before} {after} {operand}))")
            case ChunkOf(axis=axis):
                operand = self.match(expression.operand)
                self.moved[this] = operand
                self.facts.append(f"(= {this} (Chunk {self.bound_axis(axis)} {operand}))")
            case ConcatOf(axis=axis):
                operand = self.match(expression.operand)
                self.moved[this] = operand
                self.facts.append(f"(= {this} (Concat {self.bound_axis(axis)} {operand}))")
            case FoldOf(axis=axis, monoid=monoid):
                bodies = [self.match(operand) for operand in expression.operands]
                arguments = f"{self.bound_axis(axis)} {self.monoid(monoid)} "
                if self.declares(monoid):
                    self.facts.append(f"(= {this} (FoldMany {arguments}{operand_list(bodies)}))")
                else:
                    self.facts.append(f"(= {this} (Fold {arguments}{bodies[0]}))")
        return this

    def monoid(self, name: str) -> str:
        return f"f_{name}" if name in self.classes else quote(self.declared().get(name, name))

    def declares(self, name: str) -> bool:
        return name in self.declared()

    def declared(self) -> dict[str, str]:
        """The declared monoids that the rule folds with: what the e-graph calls them."""
        if isinstance(self.rule, Fact):
            return {}
        return {name: monoid_key(monoid) for name, monoid in self.rule.monoids}

    def application(self, expression: Apply, operands: str) -> str:
        """The egglog term of a function applied to operands."""
        count = len(expression.operands)
        if expression.function in self.classes:
            return f"(Map{count} f_{expression.function} {operands})"
        if expression.function not in ELEMENTWISE or ELEMENTWISE[expression.function].arity != count:
            raise self.fail(f"there is no elementwise function {expression.function} of {count} operands")
        name = expression.function
        if expression.exponent is not None:
            name = f"integer_pow[{expression.exponent}]"
        return f"(Map{count} {quote(name)} {operands})"

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
        for copy in self.rule.copies if isinstance(self.rule, Rule) else ():
            self.name_part("A_e", AXES_OF, "e")
            fresh = self.bound_axis(copy.name)
            self.facts.append(f"(copy {self.bound_axis(copy.original)} {copy.longer} {fresh})")
            self.facts += [f"(set-not-contains A_{name} {fresh})" for name in ("e", *self.terms)]
        for comparison in self.rule.comparisons:
            left, right = self.quantity(comparison.left), self.quantity(comparison.right)
            self.comparisons.append(f"({comparison.relation} {left} {right})")
        self.facts += [f"(axis x_{name})" for name in self.single_axes if name not in self.bound_axes]
        # Different letters are different axes.
        self.facts += [f"(!= x_{one} x_{other})" for one, other in combinations(self.single_axes, 2)]

    def quantity(self, quantity: Quantity) -> str:
        """A number that is known when the rule is matched. Sizes are those of whole axes."""
        match quantity:
            case Number(value=value):
                return repr(value)
            case ConstantValue(name=name):
                self.facts.append(f"(= v_{name} (value t_{name}))")
                return f"v_{name}"
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
            case "large":
                return f"(large {self.bound_axis(operands[0])})"
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

    def match_call(self) -> None:
        """Facts that match a call or a named operation, a chunk of one, or a renaming."""
        (function, family), outer = next(iter(self.classes.items())), self.left
        match outer:
            case ChunkOf():
                self.moved["e"] = "whole"
                self.facts.append(f"(= e (Chunk {self.bound_axis(outer.axis)} whole))")
            case RenameOf():
                self.moved["e"] = "whole"
                before, after = self.bound_axis(outer.old), self.bound_axis(outer.new)
                self.facts.append(f"(= e (Rename {before} {after} whole))")
            case Apply():
                self.facts.append("(= e whole)")
            case _:
                raise self.fail("of calls and operations, only chunks and renamings can be taken")
        if family == "calls":
            lists = " ".join(CALL_LISTS)
            self.facts.append(f"(= whole (Opaque f_{function} result {lists} t_args))")
            self.facts += [f"(= {listed}-set (core-axes {listed}))" for listed in CALL_LISTS]
        else:
            self.facts += [
                f"(= whole (Operation f_{function} core t_args))",
                "(= core-set (core-axes core))",
            ]

    def collect(self, absent: Collection[Expression], present: Collection[Expression]) -> None:
        """Facts for everything that has to hold but for the comparisons."""
        if any(family in ("calls", "operations") for family in self.classes.values()):
            self.match_call()
        else:
            self.match(self.left, root=True)
        self.name_part("O_e", OPEN_OF, "e")
        self.name_dtype("D_e", "e")
        for name in self.terms:
            node = f"t_{name}"
            self.name_part(f"A_{name}", AXES_OF, node)
            self.name_part(f"O_{name}", OPEN_OF, node)
            self.name_dtype(f"D_{name}", node)
        if self.uniform and self.contractions:
            self.facts.append("(uniform precision)")
        self.constrain()
        for expression, wanted in [(e, False) for e in absent] + [(e, True) for e in present]:
            assert isinstance(expression, (ChunkOf, RenameOf))
            assert isinstance(expression.operand, Variable)
            axis = expression.axis if isinstance(expression, ChunkOf) else expression.old
            test = "set-contains" if wanted else "set-not-contains"
            self.facts.append(f"({test} A_{expression.operand.name} {self.axis(axis)})")
        for loop in walk(self.right):
            if isinstance(loop, (FoldOf, ConcatOf)):
                self.facts.append(f"(set-not-contains O_e {self.axis(loop.axis)})")
                self.facts.append(f"(< (set-length O_e) {MAX_NESTING})")
