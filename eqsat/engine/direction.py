"""One direction of a rule as one egglog rule, with all choices made.

Names in the generated text: `t_a` a term, `A_a O_a D_a` its axes, open loops and dtype, `x_n` an
axis, `S_K` a set of axes, `f_f` a function variable, `e` what the left side matched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from eqsat.engine.encode import quote
from eqsat.errors import RuleError
from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.language.syntax import (
    Apply,
    ChunkOf,
    ConcatOf,
    Contraction,
    Expression,
    FoldOf,
    IotaOf,
    Number,
    Reduction,
    RenameOf,
    Rule,
    Variable,
)
from eqsat.language.traverse import walk

MAX_NESTING = 2
"""Most loops that one value may be computed inside of."""


@dataclass(frozen=True, slots=True)
class Built:
    """A node of the right side: egglog expressions for it and its analyses."""

    node: str
    axes: str
    open: str
    dtype: str


def _changes_dtype(function: str) -> bool:
    """Whether a function's operands and result may differ in dtype."""
    known = ELEMENTWISE.get(function)
    return function in ("select_n", "convert") or (known is not None and known.boolean)


class Direction:
    """Compiles one direction of one rule, with all choices made."""

    def __init__(self, rule: Rule, left: Expression, right: Expression, number: int, precision: str) -> None:
        self.rule = rule
        self.left = left
        self.right = right
        self.number = number
        self.new_precision = precision
        self.classes = dict(rule.classes)
        self.facts: list[str] = []
        self.actions: list[str] = []
        self.counter = 0
        self.terms: dict[str, Variable] = {}
        self.contractions = [e for e in walk(left) if isinstance(e, Contraction)]
        # Arithmetic holds among values of one dtype, as elementwise operands always are and those of
        # a contraction with a `uniform` precision; moving a chunk or a name does not care.
        moves = (ChunkOf, ConcatOf, FoldOf, RenameOf)
        expressions = [*walk(left), *walk(right)]
        chooses = any(isinstance(e, Apply) and _changes_dtype(e.function) for e in expressions)
        self.uniform = not (rule.classes or chooses or any(isinstance(e, moves) for e in expressions))
        self.single_axes: dict[str, None] = {}
        self.bound_sets: set[str] = set()

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

    # The left side.

    def bind_set(self, name: str) -> str:
        self.bound_sets.add(name)
        if name[0].islower():
            self.facts += [f"(set-contains S_{name} {self.axis(name)})", f"(= 1 (set-length S_{name}))"]
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
                dtype = self.fresh("d")
                self.facts.append(f"(= {this} (Const {quote(repr(expression.value))} {dtype}))")
            case Apply():
                operands = " ".join(self.match(operand) for operand in expression.operands)
                self.facts.append(f"(= {this} {self.application(expression, operands)})")
            case Reduction(kind=kind, axes=axes):
                operand = self.match(expression.operand)
                if len(axes) != 1:
                    raise self.fail("the left side reduces over one set of axes at a time")
                if self.classes.get(kind) == "selections":
                    self.facts.append(f"(= {this} (Select f_{kind} {self.axis(axes[0])} {operand}))")
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
                    self.facts.append(f"(= D_dot (dtype {this}))")
            case IotaOf(axis=axis):
                self.facts.append(f"(= {this} (Iota {self.axis(axis)}))")
            case RenameOf(old=old, new=new):
                operand = self.match(expression.operand)
                self.facts.append(f"(= {this} (Rename {self.axis(old)} {self.axis(new)} {operand}))")
            case ChunkOf(axis=axis):
                operand = self.match(expression.operand)
                self.facts.append(f"(= {this} (Chunk {self.axis(axis)} {operand}))")
            case ConcatOf(axis=axis):
                operand = self.match(expression.operand)
                self.facts.append(f"(= {this} (Concat {self.axis(axis)} {operand}))")
            case FoldOf(axis=axis, monoid=monoid):
                operand = self.match(expression.operand)
                spelled = f"f_{monoid}" if monoid in self.classes else quote(monoid)
                self.facts.append(f"(= {this} (Fold {self.axis(axis)} {spelled} {operand}))")
        return this

    def application(self, expression: Apply, operands: str) -> str:
        """The egglog term of a function applied to operands."""
        count = len(expression.operands)
        if self.classes.get(expression.function) == "calls":
            return f"(Opaque f_{expression.function} result {operands})"
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
        self.facts += [f"(axis x_{name})" for name in self.single_axes]
        # Different letters are different axes.
        self.facts += [f"(!= x_{one} x_{other})" for one, other in combinations(self.single_axes, 2)]

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
                return f"(large {self.axis(operands[0])})"
            case "stored":
                return f"(stored t_{operands[0]})"
            case "passes":
                return f"(passes f_{operands[0]} {self.axis(operands[1])})"
            case "float":
                return f"(float {self.dtype(operands[0])})"
            case "nonempty":
                return f"(< 0 (set-length S_{operands[0]}))"
        raise self.fail(f"there is no guard {name}")

    # The right side.

    def node(self, constructor: str, arguments: str, axes: str, opened: str, dtype: str, root: bool) -> Built:
        name = self.fresh("r")
        self.actions.append(f"(let {name} ({constructor} {arguments}))")
        self.actions.append(f"(set (by-{constructor} {arguments}) {self.number})")
        if root:
            # The class that the left side matched has these already.
            self.actions.append(f"(union e {name})")
        else:
            self.actions += [
                f"(set (axes {name}) {axes})",
                f"(set (open {name}) {opened})",
                f"(set (dtype {name}) {dtype})",
            ]
        return Built(name, axes, opened, dtype)

    def build(
        self,
        expression: Expression,
        absent: frozenset[Expression],
        root: bool = False,
        dtype: str = "D_e",
    ) -> Built:
        """Actions that build the expression.

        **Arguments:**

        - `absent`: chunks and renames whose operand lacks the axis.
        - `dtype`: what a number is to be.
        """
        match expression:
            case Variable(name=name):
                if root:
                    self.actions.append(f"(union e t_{name})")
                return Built(f"t_{name}", f"A_{name}", f"O_{name}", self.dtype(name))
            case Number():
                text = quote(repr(expression.value))
                return self.node("Const", f"{text} {dtype}", "(set-empty)", "(set-empty)", dtype, root)
            case Apply():
                return self.build_application(expression, absent, root)
            case Reduction(kind=kind, axes=names):
                operand = self.build(expression.operand, absent)
                if self.classes.get(kind) == "selections":
                    if not root:
                        raise self.fail("a selection can only be the whole right side")
                    arguments = f"f_{kind} {self.axis(names[0])} {operand.node}"
                    return self.node("Select", arguments, "", "", "", root)
                axes = self.axes(names)
                spelled = f"f_{kind}" if kind in self.classes else quote(kind)
                arguments = f"{spelled} {axes} {operand.node}"
                rest = f"(set-diff {operand.axes} {axes})"
                return self.node("Reduce", arguments, rest, operand.open, operand.dtype, root)
            case Contraction(axes=names):
                left, right = self.build(expression.left, absent), self.build(expression.right, absent)
                axes = self.axes(names)
                precision = "precision" if self.contractions else quote(self.new_precision)
                rest = f"(set-diff (set-union {left.axes} {right.axes}) {axes})"
                product_dtype = "D_dot" if self.contractions else left.dtype
                arguments = f"{precision} {axes} {left.node} {right.node}"
                opened = f"(set-union {left.open} {right.open})"
                return self.node("Dot", arguments, rest, opened, product_dtype, root)
            case IotaOf(axis=axis):
                name = self.axis(axis)
                return self.node("Iota", name, f"(set-of {name})", "(set-empty)", "D_e", root)
            case ChunkOf(axis=axis):
                operand = self.build(expression.operand, absent)
                if expression in absent:
                    return operand
                name = self.axis(axis)
                opened = f"(set-insert {operand.open} {name})"
                return self.node("Chunk", f"{name} {operand.node}", operand.axes, opened, operand.dtype, root)
            case RenameOf(old=old, new=new):
                operand = self.build(expression.operand, absent)
                if expression in absent:
                    return operand
                before, after = self.axis(old), self.axis(new)
                axes = f"(set-insert (set-remove {operand.axes} {before}) {after})"
                arguments = f"{before} {after} {operand.node}"
                return self.node("Rename", arguments, axes, operand.open, operand.dtype, root)
            case ConcatOf(axis=axis):
                operand = self.build(expression.operand, absent)
                name = self.axis(axis)
                opened = f"(set-remove {operand.open} {name})"
                return self.node(
                    "Concat", f"{name} {operand.node}", operand.axes, opened, operand.dtype, root
                )
            case FoldOf(axis=axis, monoid=monoid):
                operand = self.build(expression.operand, absent)
                name = self.axis(axis)
                spelled = f"f_{monoid}" if monoid in self.classes else quote(monoid)
                opened = f"(set-remove {operand.open} {name})"
                arguments = f"{name} {spelled} {operand.node}"
                return self.node("Fold", arguments, operand.axes, opened, operand.dtype, root)

    def build_application(self, expression: Apply, absent: frozenset[Expression], root: bool) -> Built:
        if self.classes.get(expression.function) == "calls":
            (operands,) = expression.operands
            if not (root and isinstance(operands, ChunkOf)):
                raise self.fail("a call's operands can only be taken by chunks")
            arguments = f"f_{expression.function} result (ChunkAll {self.axis(operands.axis)} t_args)"
            return self.node("Opaque", arguments, "", "", "", root)
        # A number takes the dtype of what stands beside it.
        beside = {
            index: self.build(operand, absent)
            for index, operand in enumerate(expression.operands)
            if not isinstance(operand, Number)
        }
        typed = list(beside.values())[-1].dtype if beside else "D_e"
        operands_built = [
            beside[index] if index in beside else self.build(operand, absent, dtype=typed)
            for index, operand in enumerate(expression.operands)
        ]
        axes, opened = operands_built[0].axes, operands_built[0].open
        for operand in operands_built[1:]:
            axes = f"(set-union {axes} {operand.axes})"
            opened = f"(set-union {opened} {operand.open})"
        text = self.application(expression, " ".join(operand.node for operand in operands_built))
        constructor, arguments = text[1:-1].split(" ", 1)
        known = ELEMENTWISE.get(expression.function)
        dtype = '"bool"' if known and known.boolean else operands_built[-1].dtype
        return self.node(constructor, arguments, axes, opened, dtype, root)

    def compile(self, absent: frozenset[Expression], present: frozenset[Expression]) -> str:
        """One egglog rule's body."""
        calls = [f for f, cls in self.classes.items() if cls == "calls"]
        if calls:
            (function,) = calls
            chunk = self.left
            if not isinstance(chunk, ChunkOf):
                raise self.fail("of a call, only chunks can be taken: `chunk[n] f(a..)` on the left")
            self.facts += [
                f"(= e (Chunk {self.axis(chunk.axis)} whole))",
                f"(= whole (Opaque f_{function} result t_args))",
            ]
        else:
            self.match(self.left, root=True)
        self.facts += ["(= O_e (open e))", "(= D_e (dtype e))"]
        for name in self.terms:
            self.facts += [f"(= A_{name} (axes t_{name}))", f"(= O_{name} (open t_{name}))"]
            if not self.uniform:
                self.facts.append(f"(= D_{name} (dtype t_{name}))")
        if self.uniform and self.contractions:
            self.facts.append("(uniform precision)")
        self.constrain()
        for expression, wanted in [(e, False) for e in absent] + [(e, True) for e in present]:
            assert isinstance(expression, (ChunkOf, RenameOf))
            assert isinstance(expression.operand, Variable)
            axis = expression.axis if isinstance(expression, ChunkOf) else expression.old
            test = "set-contains" if wanted else "set-not-contains"
            self.facts.append(f"({test} A_{expression.operand.name} {self.axis(axis)})")
        if any(isinstance(e, Number) for e in walk(self.right)):
            # Numbers are written as floats are.
            self.facts.append(f"(float {next((self.dtype(name) for name in self.terms), 'D_e')})")
        for loop in walk(self.right):
            if isinstance(loop, (FoldOf, ConcatOf)):
                self.facts.append(f"(set-not-contains O_e {self.axis(loop.axis)})")
                self.facts.append(f"(< (set-length O_e) {MAX_NESTING})")
        self.build(self.right, absent, root=True)
        return f"({' '.join(dict.fromkeys(self.facts))}) ({' '.join(self.actions)})"
