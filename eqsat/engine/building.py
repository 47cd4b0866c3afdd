"""The right side of one direction of a rule, as actions of an egglog rule."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from eqsat.engine.conditions import changes_dtype
from eqsat.engine.encode import core_list, operand_list, quote
from eqsat.engine.matching import CALL_LISTS, Matching, place_key
from eqsat.engine.schema import AXES_OF, type_text
from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.ir.operations import Signature, known_operation
from eqsat.language.functions import PLACES
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
    Rule,
    SelectionOf,
    Variable,
)
from eqsat.language.traverse import walk


@dataclass(frozen=True, slots=True)
class Built:
    """A node of the right side: egglog expressions for it and its analyses."""

    node: str
    axes: str
    open: str
    dtype: str


class Building(Matching):
    """The right side of a rule, built from the terms that the left side matched."""

    def __init__(
        self, rule: Rule | Fact, left: Expression, right: Expression, number: int, precision: str
    ) -> None:
        super().__init__(rule, left, right, number, precision)
        self.built: dict[tuple[Expression, str], Built] = {}
        """What has been built already, by expression and by the dtype that its numbers are to be."""
        self.sets: dict[str, str] = {}
        """The names of sets of axes, by how they are computed."""

    def named(self, value: str) -> str:
        """A name for a computed set, so that expressions over it need not repeat it."""
        if not value.startswith("(") or value == "(set-empty)":
            return value
        if value not in self.sets:
            name = self.fresh("s")
            short = value
            for known in sorted(self.sets, key=len, reverse=True):
                short = short.replace(known, self.sets[known])
            self.actions.append(f"(let {name} {short})")
            self.sets[value] = name
        return self.sets[value]

    def node(self, constructor: str, arguments: str, axes: str, opened: str, dtype: str, root: bool) -> Built:
        name = self.fresh("r")
        self.actions.append(f"(let {name} ({constructor} {arguments}))")
        self.actions.append(f"(set (by-{constructor} {arguments}) {self.number})")
        if root:
            # The class that the left side matched has these already: a contraction of narrow numbers in wide
            # ones is not equal to anything narrow.
            self.same_dtype("D_e", dtype)
            self.actions.append(f"(union e {name})")
        else:
            kind = type_text(self.named(axes), self.named(opened), dtype)
            self.actions.append(f"(set (type {name}) {kind})")
        return Built(name, axes, opened, dtype)

    def build(
        self,
        expression: Expression,
        absent: Collection[Expression],
        root: bool = False,
        dtype: str = "D_e",
    ) -> Built:
        """Actions that build the expression.

        **Arguments:**

        - `absent`: chunks and renames whose operand lacks the axis.
        - `dtype`: what a number is to be.
        """
        if root:
            return self.build_new(expression, absent, root, dtype)
        # What stands on the right side several times is built once.
        key = (expression, dtype)
        if key not in self.built:
            self.built[key] = self.build_new(expression, absent, root, dtype)
        return self.built[key]

    def build_new(
        self, expression: Expression, absent: Collection[Expression], root: bool, dtype: str
    ) -> Built:
        """As `build`, of what has not been built."""
        match expression:
            case Variable(name=name):
                if root:
                    self.same_dtype("D_e", self.dtype(name))
                    self.actions += [f"(union e t_{name})", f"(simplified {self.number} e)"]
                return Built(f"t_{name}", f"A_{name}", f"O_{name}", self.dtype(name))
            case Number(value=value):
                # The number may have no such constant, as 0.5 has none among integers: then no match.
                text = self.fresh("n")
                self.facts.append(f"(= {text} (number {quote(repr(value))} {dtype}))")
                built = self.node("Const", f"{text} {dtype}", "(set-empty)", "(set-empty)", dtype, root)
                self.actions.append(f"(set (value {built.node}) {value!r})")
                return built
            case Apply():
                return self.build_application(expression, absent, root, dtype)
            case DeltaOf(first=first, second=second):
                arguments = f"{self.axis(first)} {self.axis(second)}"
                return self.node("Delta", arguments, f"(set-of {arguments})", "(set-empty)", '"bool"', root)
            case OperationOf():
                return self.build_operation(expression, absent, root)
            case SelectionOf(axis=axis, out_axis=out_axis, result=result):
                operand = self.build(expression.operand, absent, dtype=dtype)
                best, along = self.axis(out_axis), self.axis(axis)
                self.keep_whole(expression, (axis,))
                key = f'(+ "top_k:" (to-string {best}) ":{result}:" {operand.dtype})'
                kept = operand.dtype
                if result == "indices":
                    key, kept = f'(+ "top_k:" (to-string {best}) ":indices:int32")', '"int32"'
                axes = f"(set-insert (set-remove {operand.axes} {along}) {best})"
                return self.node("Select", f"{key} {along} {operand.node}", axes, operand.open, kept, root)
            case Reduction(kind=kind, axes=names):
                operand = self.build(expression.operand, absent, dtype=dtype)
                if self.classes.get(kind) == "selections":
                    if not root:
                        raise self.fail("a selection can only be the whole right side")
                    arguments = f"f_{kind} {self.axis(names[0])} {operand.node}"
                    return self.node("Select", arguments, "", "", "", root)
                if kind in PLACES:
                    # The left side knows by which integers JAX was asked to index.
                    kept, along = "D_e" if root else '"int32"', self.axis(names[0])
                    self.keep_whole(expression, (names[0],))
                    arguments = f"{place_key(kind, kept)} {along} {operand.node}"
                    rest = f"(set-remove {operand.axes} {along})"
                    return self.node("Select", arguments, rest, operand.open, kept, root)
                axes = self.axes(names)
                spelled = f"f_{kind}" if kind in self.classes else quote(kind)
                arguments = f"{spelled} {axes} {operand.node}"
                rest = f"(set-diff {operand.axes} {axes})"
                return self.node("Reduce", arguments, rest, operand.open, operand.dtype, root)
            case Contraction(axes=names):
                left = self.build(expression.left, absent, dtype=dtype)
                right = self.build(expression.right, absent, dtype=dtype)
                axes = self.axes(names)
                precision = "precision" if self.contractions else quote(self.new_precision)
                rest = f"(set-diff (set-union {left.axes} {right.axes}) {axes})"
                product_dtype = "D_dot" if self.contractions else left.dtype
                arguments = f"{precision} {axes} {left.node} {right.node}"
                opened = f"(set-union {left.open} {right.open})"
                return self.node("Dot", arguments, rest, opened, product_dtype, root)
            case IotaOf(axis=axis):
                name = self.axis(axis)
                return self.node("Iota", f"{name} {dtype}", f"(set-of {name})", "(set-empty)", dtype, root)
            case ChunkOf(axis=axis):
                operand = self.build(expression.operand, absent, dtype=dtype)
                if expression in absent:
                    return operand
                name = self.axis(axis)
                self.demand(expression.operand, operand, name)
                opened = f"(set-insert {operand.open} {name})"
                return self.node("Chunk", f"{name} {operand.node}", operand.axes, opened, operand.dtype, root)
            case RenameOf(old=old, new=new):
                operand = self.build(expression.operand, absent, dtype=dtype)
                if expression in absent:
                    return operand
                before, after = self.axis(old), self.axis(new)
                self.demand(expression.operand, operand, before)
                axes = f"(set-insert (set-remove {operand.axes} {before}) {after})"
                arguments = f"{before} {after} {operand.node}"
                return self.node("Rename", arguments, axes, operand.open, operand.dtype, root)
            case ConcatOf(axis=axis):
                operand = self.build(expression.operand, absent, dtype=dtype)
                name = self.axis(axis)
                opened = f"(set-remove {operand.open} {name})"
                return self.node(
                    "Concat", f"{name} {operand.node}", operand.axes, opened, operand.dtype, root
                )
            case FoldOf(monoid=monoid) if self.classes.get(monoid) == "calls":
                return self.build_accumulation(expression, root)
            case FoldOf(axis=axis, operands=(OperationOf() as body,)) if body.name == expression.monoid:
                arguments, built = self.operation_arguments(body, absent)
                opened = f"(set-remove {built.open} {self.axis(axis)})"
                arguments = f"{self.axis(axis)} {arguments}"
                return self.node("FoldOperation", arguments, built.axes, opened, built.dtype, root)
            case FoldOf(axis=axis, monoid=monoid):
                operands = [self.build(operand, absent, dtype=dtype) for operand in expression.operands]
                name = self.axis(axis)
                axes, opened = _together(operands)
                opened = f"(set-remove {opened} {name})"
                arguments = f"{name} {self.monoid(monoid)} "
                if not self.declares(monoid):
                    arguments += operands[0].node
                    # What a selection finds may be indices.
                    kept = "" if root and self.classes.get(monoid) == "selections" else operands[0].dtype
                    return self.node("Fold", arguments, axes, opened, kept, root)
                arguments += operand_list([operand.node for operand in operands])
                return self.node("FoldMany", arguments, axes, opened, operands[-1].dtype, root)

    def same_dtype(self, *dtypes: str) -> None:
        """A condition that dtypes are the same, as of elementwise operands; "" is what it must be."""
        first, *others = dict.fromkeys(dtype for dtype in dtypes if dtype)
        self.facts += [f"(= {first} {other})" for other in others]

    def demand(self, operand: Expression, built: Built, axis: str) -> None:
        """What is a chunk along an axis, or gets another name for it, has the axis.

        For a variable that lacks it there is a variant of the rule; of anything else, there is no match.
        """
        if not isinstance(operand, Variable):
            self.facts.append(f"(set-contains {built.axes} {axis})")

    def build_operation(self, expression: OperationOf, absent: Collection[Expression], root: bool) -> Built:
        arguments, built = self.operation_arguments(expression, absent)
        return self.node("Operation", arguments, built.axes, built.open, built.dtype, root)

    def operation_arguments(
        self, expression: OperationOf, absent: Collection[Expression]
    ) -> tuple[str, Built]:
        """The name, core axes and operands of an operation, and what its result is like."""
        signature = self.signature(expression.name)
        spec = known_operation(expression.name)
        operands = [self.build(expression.operands[0], absent)]
        beside = operands[0].dtype if spec and spec.uniform else "D_e"
        operands += [self.build(operand, absent, dtype=beside) for operand in expression.operands[1:]]
        if spec and spec.uniform:
            self.same_dtype(*(operand.dtype for operand in operands))
        names = dict(zip(signature.axes, expression.axes, strict=True))
        core = core_list([self.axis(axis) for axis in expression.axes])
        whole = f"(set-of {' '.join(self.axis(axis) for axis in expression.axes)})"
        axes, opened = _together(operands)
        axes = f"(set-diff {axes} {whole})"
        for letter in signature.result:
            axes = f"(set-insert {axes} {self.axis(names[letter])})"
        dtype = quote(spec.dtype) if spec and spec.dtype else operands[0].dtype
        self.keep_whole(expression, expression.axes)
        self.actions.append(f"(set (core-axes {core}) {whole})")
        arguments = f"{quote(expression.name)} {core} {operand_list([o.node for o in operands])}"
        return arguments, Built("", axes, opened, dtype)

    def signature(self, name: str) -> Signature:
        spec = known_operation(name)
        if spec is None:
            raise self.fail(f"there is no operation {name}")
        return spec.signature

    def keep_whole(self, expression: Expression, axes: Sequence[str]) -> None:
        """An axis that an operation needs whole is not chunked."""
        for variable in dict.fromkeys(e.name for e in walk(expression) if isinstance(e, Variable)):
            self.facts += [f"(set-not-contains O_{variable} {self.axis(axis)})" for axis in axes]

    def build_application(
        self, expression: Apply, absent: Collection[Expression], root: bool, dtype: str
    ) -> Built:
        if self.classes.get(expression.function) in ("calls", "operations"):
            return self.build_call(expression, root)
        # A number takes the dtype of what stands beside it.
        function = expression.function
        known = ELEMENTWISE.get(function)
        beside = {
            index: self.build(operand, absent, dtype=dtype)
            for index, operand in enumerate(expression.operands)
            if not _undecided(operand)
        }
        like = [built.dtype for index, built in beside.items() if function != "select_n" or index > 0]
        if like and function not in self.classes:
            self.same_dtype(*like)
        typed = like[-1] if like else quote("int32") if known and known.boolean else dtype
        operands = [
            beside[index] if index in beside else self.build(operand, absent, dtype=typed)
            for index, operand in enumerate(expression.operands)
        ]
        axes, opened = _together(operands)
        if function == "convert":
            name = f'(+ "convert:" {dtype})'
            self.actions.append(f"(conversion {name} {dtype})")
            return self.node("Map1", f"{name} {operands[0].node}", axes, opened, dtype, root)
        text = self.application(expression, " ".join(operand.node for operand in operands))
        constructor, arguments = text[1:-1].split(" ", 1)
        result = '"bool"' if known and known.boolean else operands[-1].dtype
        if function in self.classes:
            result = f"D_of_{function}"  # a comparison's, or that of a complex number's part, is another one
        return self.node(constructor, arguments, axes, opened, result, root)

    def build_call(self, expression: Apply, root: bool) -> Built:
        """A call, or a named operation, of the operands of the one that was matched, by chunks or renamed."""
        (operands,) = expression.operands
        if not isinstance(operands, (ChunkOf, RenameOf)):
            raise self.fail("a call's operands can only be taken by chunks, or renamed")
        calls = self.classes[expression.function] == "calls"
        lists: Sequence[str] = CALL_LISTS if calls else ("core",)
        if isinstance(operands, ChunkOf):
            listed = f"(ChunkAll {self.axis(operands.axis)} t_args)"
        else:
            old, new = self.axis(operands.old), self.axis(operands.new)
            listed = f"(RenameAll {old} {new} t_args)"
            self.facts += [f"(set-not-contains {core}-set {new})" for core in lists]
            lists = [f"(RenameCore {old} {new} {core})" for core in lists]
        constructor, result = ("Opaque", "result ") if calls else ("Operation", "")
        arguments = f"f_{expression.function} {result}{' '.join(lists)} {listed}"
        if root:
            return self.node(constructor, arguments, "", "", "", root)
        if not (calls and isinstance(operands, ChunkOf)):
            raise self.fail("inside something else, a call can only be one on chunks")
        self.name_part("A_e", AXES_OF, "e")
        opened = f"(set-insert O_e {self.axis(operands.axis)})"
        return self.node(constructor, arguments, "A_e", opened, "D_e", root)

    def build_accumulation(self, expression: FoldOf, root: bool) -> Built:
        """The call that was matched, done for one chunk of its operands after another."""
        match expression:
            case FoldOf(
                axis=axis, monoid=monoid, operands=(Apply(function=function, operands=(ChunkOf(axis=cut),)),)
            ) if root and (function, cut) == (monoid, axis):
                name = self.axis(axis)
                arguments = f"{name} f_{function} result {' '.join(CALL_LISTS)} (ChunkAll {name} t_args)"
                return self.node("FoldCall", arguments, "", "", "", root)
        raise self.fail("what is folded with a call is that call, on chunks: `fold[n, f] f(chunk[n] a..)`")


def _undecided(expression: Expression) -> bool:
    """Whether an expression takes the dtype of what stands beside it: one of numbers and indices."""
    match expression:
        case Number() | IotaOf():
            return True
        case ChunkOf(operand=operand) | RenameOf(operand=operand):
            return _undecided(operand)
        case Reduction(kind=kind, operand=operand):
            return kind not in PLACES and _undecided(operand)
        case Apply(function=function, operands=operands):
            return not changes_dtype(function) and all(_undecided(operand) for operand in operands)
        case _:
            return False


def _together(operands: Sequence[Built]) -> tuple[str, str]:
    """The axes and the open loops of operands that broadcast over each other."""
    axes, opened = operands[0].axes, operands[0].open
    for operand in operands[1:]:
        axes = f"(set-union {axes} {operand.axes})"
        opened = f"(set-union {opened} {operand.open})"
    return axes, opened
