"""The left side of one direction of a rule, as facts of an egglog rule."""

from __future__ import annotations

from collections.abc import Collection

from eqsat.engine.conditions import Conditions
from eqsat.engine.encode import core_list, monoid_key, operand_list, quote
from eqsat.engine.schema import AXES_OF, OPEN_OF
from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.language.functions import PLACES
from eqsat.language.rewriting import bare
from eqsat.language.syntax import (
    Apply,
    ChunkOf,
    ConcatOf,
    Contraction,
    DeltaOf,
    Expression,
    Fact,
    FoldOf,
    IotaOf,
    Number,
    OperationOf,
    Reduction,
    RenameOf,
    SelectionOf,
    Variable,
)
from eqsat.language.traverse import walk

MAX_NESTING = 2
"""Most loops that one value may be computed inside of."""

CALL_LISTS = ("c_passes", "c_accumulates", "c_sums", "c_whole")
"""The names of the lists of a call's axes. `X-set` is the set of the axes in list X."""


def place_key(kind: str, dtype: str) -> str:
    """The egglog expression for the name of an argmax or argmin, given its dtype's, as in `select_key`."""
    return f'(+ "{kind}:-1:indices:" {dtype})'


class Matching(Conditions):
    """The facts that must hold for a rule to match."""

    def match(self, expression: Expression, root: bool = False) -> str:
        """Facts that match the expression; the egglog variable of what it matched.

        Equal expressions match one e-class, and are matched once. Only constants may differ in dtype.
        """
        key = bare(expression)
        if root or isinstance(expression, (Number, Variable)) or key not in self.matched:
            self.matched[key] = self._match(expression, root)
        return self.matched[key]

    def _match(self, expression: Expression, root: bool) -> str:
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
                if self.classes.get(kind) == "selections":
                    self.facts.append(f"(= {this} (Select f_{kind} {self.bound_axis(axes[0])} {operand}))")
                elif kind in PLACES:
                    dtype = self.fresh("d")
                    self.name_dtype(dtype, this)
                    along = self.bound_axis(axes[0])
                    self.facts.append(f"(= {this} (Select {place_key(kind, dtype)} {along} {operand}))")
                else:
                    spelled = f"f_{kind}" if kind in self.classes else quote(kind)
                    self.facts.append(
                        f"(= {this} (Reduce {spelled} {self.bind_axes(axes, 'reduces over')} {operand}))"
                    )
                    if self.classes.get(kind) == "monoids":
                        self.facts.append(f'(!= f_{kind} "mean")')
            case Contraction(axes=axes):
                left, right = self.match(expression.left), self.match(expression.right)
                self.facts.append(
                    f"(= {this} (Dot precision {self.bind_axes(axes, 'contracts over')} {left} {right}))"
                )
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
