"""Turns lark's parse trees of a file into the abstract syntax of `eqsat.language.syntax`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lark import Token, Tree

from eqsat.ir.operations import Signature
from eqsat.ir.properties import PROPERTIES
from eqsat.language.accuracies import ACCURACIES
from eqsat.language.check_functions import reserved
from eqsat.language.conditions import Condition, condition_of
from eqsat.language.diagnostics import Rejection, alternatives, nearest
from eqsat.language.functions import ENTRIES
from eqsat.language.guards import GuardClause, GuardComparison, data_guard_of
from eqsat.language.lengths import with_lengths
from eqsat.language.limits import MOST_DIGITS
from eqsat.language.listed import class_of
from eqsat.language.monoids import StatePart, monoid_of
from eqsat.language.syntax import (
    Apply,
    AxisDefinition,
    ChunkOf,
    Comparison,
    ConcatOf,
    Contraction,
    CopyDefinition,
    DeltaOf,
    Example,
    Expression,
    Fact,
    FoldOf,
    Guard,
    IotaOf,
    LengthDefinition,
    MonoidDeclaration,
    Number,
    OperationDeclaration,
    OperationOf,
    Position,
    PropertyGuard,
    Reduction,
    RenameOf,
    Rule,
    SelectionOf,
    Variable,
)
from eqsat.language.traverse import named, walk
from eqsat.language.vocabulary import Vocabulary

_BINARY = {"+": "add", "-": "sub", "*": "mul", "/": "div"}

_Item = TypeVar("_Item")


def build(statement: Tree[Token], file: str, vocabulary: Vocabulary | None = None) -> Any:
    """Returns the abstract syntax of one statement.

    **Arguments:**

    - `statement`: the parse tree of a rule, a fact, or the declaration of a monoid or an operation.
    - `file`: the path that positions in the result refer to.
    - `vocabulary`: the operations and monoids that the statement may name; none if omitted.

    **Raises:** `Rejection` if the statement parses but makes no sense.
    """
    # A name that `for` declares is a function variable in this rule, even if it also names an operation.
    bound = frozenset(
        str(ranging.children[0])
        for clause in statement.children
        if isinstance(clause, Tree) and clause.data == "classes"
        for ranging in clause.children
        if isinstance(ranging, Tree)
    )
    return _Builder(file, vocabulary or Vocabulary({}, {}), bound).built(statement)


def position_of(file: str, where: Token) -> Position:
    """Returns the position of a token in `file`."""
    assert where.line is not None
    assert where.column is not None
    return Position(file, where.line, where.column)


class _Builder:
    """Builds abstract syntax bottom-up, with one method for each kind of tree in the grammar."""

    def __init__(self, file: str, vocabulary: Vocabulary, bound: Collection[str]) -> None:
        self.file = file
        self.vocabulary = vocabulary
        self.bound = bound
        self.groups: dict[int, Expression] = {}
        """The expressions that have parentheses around them, by their `id`."""

    def built(self, part: Tree[Token] | Token) -> Any:
        """Returns the abstract syntax of a tree; a token is returned unchanged."""
        if isinstance(part, Token):
            return part
        return getattr(self, part.data)(*map(self.built, part.children))

    def _at(self, where: Token) -> Position:
        return position_of(self.file, where)

    # --------------------------------------------------------------------------------- statements

    def rule(self, name: Token, *rest: Any) -> Rule:
        self._refuse_function_as_name("rule", "left => right", name, rest)
        accuracy = self._accuracy(rest[0]) if isinstance(rest[0], Token) else "reassociates"
        left, sign, right, *clauses = rest[isinstance(rest[0], Token) :]
        items = [item for clause in clauses for item in clause]
        folds = {node.monoid for side in (left, right) for node in walk(side) if isinstance(node, FoldOf)}
        named_class = next(known for known in ACCURACIES if known == accuracy)
        return Rule(
            name=str(name),
            left=left,
            right=with_lengths(right, (left, right) if sign == "==" else (left,)),
            both_ways=sign == "==",
            accuracy=named_class,
            classes=_those(items, tuple),
            guards=_those(items, Guard),
            properties=_those(items, PropertyGuard),
            comparisons=_those(items, Comparison),
            definitions=_those(items, AxisDefinition),
            copies=_those(items, CopyDefinition),
            lengths=_those(items, LengthDefinition),
            examples=_those(items, Example),
            source=self._source(items),
            space=Path(self.file).stem,
            monoids=tuple(
                (monoid, declared)
                for monoid, declared in self.vocabulary.monoids.items()
                if monoid in folds and monoid not in self.bound
            ),
            data_guard=data_guard_of(_those(items, GuardClause), named_class, left, sign == "=="),
            position=self._at(name),
        )

    def fact(self, name: Token, statement: Expression, *clauses: Any) -> Fact:
        self._refuse_function_as_name("fact", "symmetric[i, j](a)", name, [statement])
        items = [item for clause in clauses for item in clause]
        for item in items:
            if isinstance(item, tuple):
                raise Rejection(
                    self._at(name),
                    "a fact cannot have function variables",
                    "write one fact for each function",
                )
            if isinstance(item, GuardClause):
                raise Rejection(item.position, "a fact cannot have a guard", "only rules have guards")
            if isinstance(item, CopyDefinition | LengthDefinition):
                raise Rejection(
                    item.position,
                    "a fact cannot make axes",
                    "only the right side of a rule can have new axes",
                )
        property_name, axes, operands = named(statement)
        if property_name not in PROPERTIES:
            what = f"there is no property `{property_name}`" if property_name else "this is not a property"
            hint = nearest(property_name, PROPERTIES)
            hint = hint or f"a fact states a property, as in `symmetric[i, j](a)`: {alternatives(PROPERTIES)}"
            raise Rejection(statement.position, what, hint)
        if len(operands) != 1:
            message = f"`{property_name}` is a property of one term"
            raise Rejection(statement.position, message, f"write `{property_name}(a)`")
        if axes:
            self._refuse_swallowing(property_name, axes, operands[0], statement.position)
        return Fact(
            name=str(name),
            property=property_name,
            axes=axes,
            term=operands[0],
            guards=_those(items, Guard),
            properties=_those(items, PropertyGuard),
            comparisons=_those(items, Comparison),
            definitions=_those(items, AxisDefinition),
            examples=_those(items, Example),
            source=self._source(items),
            space=Path(self.file).stem,
            position=self._at(name),
        )

    def _source(self, items: list[Any]) -> str:
        sources = [item for item in items if isinstance(item, Token)]
        if len(sources) > 1:
            raise Rejection(
                self._at(sources[1]), "there is already a source", "write everything in one `source`"
            )
        return str(sources[0])[1:-1] if sources else ""

    def operation(self, name: Token, axes: tuple[str, ...], *rest: Any) -> OperationDeclaration:
        function = rest[-1] if isinstance(rest[-1], Token) else None
        *parameters, result = rest[:-1] if function else rest
        text = function[1:-1] if function else ""
        if function and (text.count(":") != 1 or not all(text.split(":"))):
            message = f"`{text}` does not say where a function is"
            raise Rejection(self._at(function), message, 'write `from "module:function"`')
        signature = Signature(str(name), axes, tuple(parameters), result)
        return OperationDeclaration(signature, text, self._at(name))

    def parameter(self, name: Token, axes: tuple[str, ...] = ()) -> tuple[str, tuple[str, ...]]:
        return (name.removesuffix(":").rstrip(), axes)

    def axes(self, *names: Token) -> tuple[str, ...]:
        return tuple(map(str, names))

    def monoid(
        self, name: Token, state: list[StatePart], merge: list[StatePart], finish: Expression | None = None
    ) -> MonoidDeclaration:
        position = self._at(name)
        return MonoidDeclaration(monoid_of(str(name), position, state, merge, finish), position)

    def parts(self, *parts: StatePart) -> list[StatePart]:
        return list(parts)

    def part(self, name: Token, value: Expression) -> StatePart:
        return StatePart(str(name), value, self._at(name))

    def accuracy(self, name: Token) -> Token:
        return name

    def _accuracy(self, name: Token) -> str:
        if name not in ACCURACIES:
            hint = nearest(name, ACCURACIES) or f"a rule is {alternatives(ACCURACIES)}"
            raise Rejection(self._at(name), f"there is no accuracy class `{name}`", hint)
        return str(name)

    def _refuse_function_as_name(self, what: str, form: str, name: Token, rest: Sequence[Any]) -> None:
        """Raises `Rejection` if a rule or fact has no name, so that a function of its term was read as one.

        `rule exp(log(a)) => a` parses as a rule called `exp` whose left side is `(log(a))`, which
        is hardly what the author meant.
        """
        known = reserved(name) or name in self.vocabulary.operations or name in PROPERTIES
        if isinstance(rest[0], Token):
            called = rest[0] not in ACCURACIES  # `sum[K] a => ...`
        else:
            nodes = list(walk(rest[0]))
            line, column = min((node.position.line, node.position.column) for node in nodes)
            grouped = any(id(node) in self.groups for node in nodes)
            called = grouped and (line, column - 1) == (name.line, name.end_column)
        if known and called:
            hint = f"`{name}` stands in the place of the name: write `{what} name  {form}`"
            raise Rejection(self._at(name), f"this {what} has no name", hint)

    # ------------------------------------------------------------------------------------ clauses

    def classes(self, *ranging: tuple[str, str]) -> list[tuple[str, str]]:
        return list(ranging)

    def ranging(self, function: Token, family: Token | tuple[str, ...]) -> tuple[str, str]:
        return (str(function), class_of(family) if isinstance(family, tuple) else str(family))

    def conditions(self, *items: Condition) -> list[Condition]:
        return list(items)

    def membership(self, member: Token, whole: Token) -> Guard:
        return Guard("in", (str(member), str(whole)), self._at(member))

    def condition(
        self, left: Expression, relation: Token | None = None, right: Expression | None = None
    ) -> Condition:
        return condition_of(left, str(relation or ""), right)

    def data_guard(self, word: Token, *items: Any) -> list[GuardClause]:
        tests = tuple(item for item in items if isinstance(item, GuardComparison))
        named = next((self._accuracy(item) for item in items if isinstance(item, Token)), "reassociates")
        accuracy = next(known for known in ACCURACIES if known == named)
        return [GuardClause(accuracy, tests, self._at(word))]

    def test(self, left: Expression, relation: Token, right: Expression) -> GuardComparison:
        return GuardComparison(left, str(relation), right, left.position)

    def example(self, word: Token, *schemas: tuple[str, tuple[str, ...]]) -> list[Example]:
        return [Example(word == "example", schemas, self._at(word))]

    def schema(self, name: Token, axes: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        return (name.removesuffix(":").rstrip(), axes)

    def source(self, text: Token) -> list[Token]:
        if not text[1:-1].strip():
            raise Rejection(
                self._at(text), "the source is empty", "say where the identity comes from, or leave it out"
            )
        return [text]

    # -------------------------------------------------------------------------------- expressions

    def binary(self, left: Expression, sign: Token, right: Expression) -> Apply:
        return Apply(_BINARY[sign], (left, right), self._at(sign))

    def negation(self, sign: Token, operand: Expression) -> Expression:
        if isinstance(operand, Number) and not operand.text.startswith("-"):
            return Number(f"-{operand.text}", self._at(sign))  # programs hold -2 as a constant, not as neg(2)
        return Apply("neg", (operand,), self._at(sign))

    def power(self, base: Expression, sign: Token, exponent: int) -> Apply:
        if exponent == 2:
            return Apply("square", (base,), self._at(sign))
        return Apply("integer_pow", (base,), self._at(sign), exponent=exponent)

    def exponent(self, *tokens: Token) -> int:
        text = "".join(tokens)
        if len(text.removeprefix("-").lstrip("0")) > MOST_DIGITS and "." not in text:
            message = f"this exponent has more than {MOST_DIGITS} digits"
            raise Rejection(self._at(tokens[-1]), message, "write `pow(a, b)`")
        if not text.removeprefix("-").isdigit():
            message = f"the exponent `{text}` is not an integer"
            raise Rejection(self._at(tokens[-1]), message, "write `pow(a, b)`")
        return int(text)

    def number(self, text: Token) -> Number:
        if text != "inf" and float(text) == float("inf"):
            message = "this number is too large for double precision"
            raise Rejection(self._at(text), message, "infinity is written `inf`")
        return Number(str(text), self._at(text))

    def variable(self, name: Token, pattern: list[tuple[bool, str]] | None = None) -> Variable:
        has = tuple(axis for present, axis in pattern or [] if present)
        lacks = tuple(axis for present, axis in pattern or [] if not present)
        return Variable(str(name), has, lacks, self._at(name))

    def pattern(self, *items: tuple[bool, str]) -> list[tuple[bool, str]]:
        return list(items)

    def has(self, name: Token) -> tuple[bool, str]:
        return (True, str(name))

    def lacks(self, name: Token) -> tuple[bool, str]:
        return (False, str(name))

    def names(self, *names: Token) -> tuple[str, ...]:
        return tuple(map(str, names))

    def group(self, expression: Expression) -> Expression:
        self.groups[id(expression)] = expression
        return expression

    def application(self, function: Token, *operands: Expression) -> Apply:
        return Apply(str(function), operands, self._at(function))

    def variadic_application(self, function: Token, operand: Expression) -> Apply:
        return Apply(str(function), (operand,), self._at(function), variadic=True)

    def bracketed(self, name: Token, axes: tuple[str, ...], operand: Expression) -> Expression:
        at = self._at(name)
        if name in self.bound:
            return Reduction(str(name), axes, operand, at)
        if name == "diag" or name in ENTRIES:
            if len(axes) != 2:
                form, what = (
                    ("diag[i, j] a", "two axes")
                    if name == "diag"
                    else (f"{name}[n, m] a", "the axis that it is along, and the axis of its entries")
                )
                raise Rejection(at, f"`{name}` needs {what}", f"write `{form}`")
            self._refuse_swallowing(name, axes, operand, at)
            if name == "diag":
                return Apply("select_n", (DeltaOf(*axes, at), Number("0", at), operand), at)
            return SelectionOf(axes[0], axes[1], ENTRIES[name], operand, at)
        if name in self.vocabulary.operations:
            self._refuse_swallowing(name, axes, operand, at)
            return OperationOf(str(name), axes, (operand,), at)
        return Reduction(str(name), axes, operand, at)

    def operation_of_several(self, name: Token, axes: tuple[str, ...], *operands: Expression) -> OperationOf:
        return OperationOf(str(name), axes, operands, self._at(name))

    def _refuse_swallowing(
        self, name: str, axes: tuple[str, ...], operand: Expression, position: Position
    ) -> None:
        """Raises `Rejection` for `logdet[i, j](A) * 2` and the like, which does not mean what it looks
        like.

        A prefix operator applies to the whole product that follows it, so this is the logarithm of
        the determinant of `A * 2`.
        """
        first = operand
        while id(first) not in self.groups:
            if not isinstance(first, Apply) or first.function not in ("mul", "div", "square", "integer_pow"):
                return
            first = first.operands[0]
        if first is not operand:
            written = f"{name}[{', '.join(axes)}]"
            raise Rejection(
                position,
                f"`{written}` takes the whole product that follows it, not only what is in the parentheses",
                f"write `({written} (...)) * ...`, or `{written} ((...) * ...)` if the product is meant",
            )

    def contraction(
        self, word: Token, axes: tuple[str, ...], left: Expression, right: Expression
    ) -> Contraction:
        return Contraction(axes, left, right, self._at(word))

    def iota(self, word: Token, axis: Token) -> IotaOf:
        return IotaOf(str(axis), self._at(word))

    def delta(self, word: Token, first: Token, second: Token) -> DeltaOf:
        return DeltaOf(str(first), str(second), self._at(word))

    def rename(self, word: Token, old: Token, new: Token, operand: Expression) -> RenameOf:
        return RenameOf(str(old), str(new), operand, self._at(word))

    def chunk(self, word: Token, axis: Token, operand: Expression) -> ChunkOf:
        return ChunkOf(str(axis), operand, self._at(word))

    def concat(self, word: Token, axis: Token, operand: Expression) -> ConcatOf:
        return ConcatOf(str(axis), operand, self._at(word))

    def fold(self, word: Token, axis: Token, monoid: Token, *operands: Expression) -> FoldOf:
        return FoldOf(str(axis), str(monoid), operands, self._at(word))


def _those(items: list[Any], kind: type[_Item]) -> tuple[_Item, ...]:
    return tuple(item for item in items if isinstance(item, kind))
