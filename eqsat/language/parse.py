"""From the text of a `.rules` file to its abstract syntax. The notation is in `grammar.lark`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedInput, v_args
from lark.exceptions import VisitError
from lark.tree import Meta

from eqsat.errors import RuleSyntaxError
from eqsat.language.check import check_file
from eqsat.language.diagnostics import alternatives, diagnostic, nearest
from eqsat.language.syntax import (
    ACCURACIES,
    Apply,
    AxisDefinition,
    ChunkOf,
    ConcatOf,
    Contraction,
    Example,
    Expression,
    FoldOf,
    Guard,
    IotaOf,
    Number,
    Position,
    Reduction,
    RenameOf,
    Rule,
    RuleFile,
    Variable,
)
from eqsat.language.syntax_errors import syntax_error


def load_rules(path: str | Path) -> RuleFile:
    """Reads, parses and checks a `.rules` file.

    >>> from eqsat.rules import shipped
    >>> [path.name for path in shipped() if not load_rules(path).rules]
    []
    """
    path = Path(path)
    rule_file = parse_rules(path.read_text(encoding="utf-8"), str(path))
    check_file(rule_file)
    return rule_file


def parse_rules(text: str, file: str) -> RuleFile:
    """Parses the text of a `.rules` file; `file` is what error messages call it.

    >>> [rule] = parse_rules("rule double [exact]  a + a => 2 * a", "my.rules").rules
    >>> rule.name, rule.accuracy, rule.right.function, str(rule.position)
    ('double', 'exact', 'mul', 'my.rules:1:6')

    Raises `RuleSyntaxError`; that names are bound and rules well-formed is for `check_file` to see.
    """
    text = text.replace("\r\n", "\n")
    parser: Any = _parser().parse_interactive(text)  # lark leaves some of its methods untyped
    read: list[Token] = []
    try:
        for token in parser.iter_parse():
            read.append(token)
        tree = parser.feed_eof(read[-1] if read else None)
    except UnexpectedInput as error:
        raise syntax_error(text, file, error, read, parser.accepts()) from None
    try:
        return RuleFile(file, text, _Builder(text, file).transform(tree))
    except VisitError as error:
        raise error.orig_exc from None


@cache
def _parser() -> Lark:
    return Lark.open("grammar.lark", rel_to=__file__, parser="lalr", propagate_positions=True)


_BINARY = {"+": "add", "-": "sub", "*": "mul", "/": "div"}

Conditions = list[Guard | AxisDefinition]
"""The items of a `where` clause."""


@v_args(inline=True)
class _Builder(Transformer[Token, Any]):
    """Makes abstract syntax of lark's trees, from the leaves up."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__()
        self.text = text
        self.file = file

    def _at(self, where: Token | Meta) -> Position:
        assert where.line is not None
        assert where.column is not None
        return Position(self.file, where.line, where.column)

    def _error(self, where: Token, message: str, hint: str) -> RuleSyntaxError:
        return RuleSyntaxError(diagnostic(self.text, self._at(where), message, hint))

    # -------------------------------------------------------------------------- rules and clauses

    def start(self, *rules: Rule) -> tuple[Rule, ...]:
        return rules

    def accuracy(self, name: Token) -> Token:
        if name not in ACCURACIES:
            hint = nearest(name, ACCURACIES) or f"a rule is {alternatives(ACCURACIES)}"
            raise self._error(name, f"there is no accuracy class `{name}`", hint)
        return name

    def equals(self, sign: Token) -> Token:
        return sign

    def rule(self, name: Token, *rest: Any) -> Rule:
        accuracy, rest = (rest[0], rest[1:]) if _is_name(rest[0]) else ("reassociates", rest)
        left, sign, right, *clauses = rest
        items = [item for clause in clauses for item in clause]
        return Rule(
            name=str(name),
            left=left,
            right=right,
            both_ways=sign == "==",
            accuracy=next(known for known in ACCURACIES if known == accuracy),
            classes=tuple(item for item in items if isinstance(item, tuple)),
            guards=tuple(item for item in items if isinstance(item, Guard)),
            definitions=tuple(item for item in items if isinstance(item, AxisDefinition)),
            examples=tuple(item for item in items if isinstance(item, Example)),
            position=self._at(name),
        )

    def classes(self, *members: Guard) -> list[tuple[str, str]]:
        return [(function, family) for function, family in (member.operands for member in members)]

    def conditions(self, *items: Guard | AxisDefinition) -> Conditions:
        return list(items)

    def membership(self, member: Token, whole: Token) -> Guard:
        return Guard("in", (str(member), str(whole)), self._at(member))

    def guard(self, name: Token, *operands: Token) -> Guard:
        return Guard(str(name), tuple(map(str, operands)), self._at(name))

    def definition(self, name: Token, first: Any, *less: Any) -> AxisDefinition:
        return AxisDefinition(str(name), first, less, self._at(name))

    def axes_of_term(self, name: Token) -> tuple[str, str]:
        return ("term", str(name))

    def named_axes(self, name: Token) -> tuple[str, str]:
        return ("axes", str(name))

    def example(self, word: Token, *schemas: tuple[str, tuple[str, ...]]) -> list[Example]:
        return [Example(word == "example", schemas, self._at(word))]

    def schema(self, name: Token, *axes: Token) -> tuple[str, tuple[str, ...]]:
        return (name.removesuffix(":").rstrip(), tuple(map(str, axes)))

    # -------------------------------------------------------------------------------- expressions

    def binary(self, left: Expression, sign: Token, right: Expression) -> Apply:
        return Apply(_BINARY[sign], (left, right), self._at(sign))

    def negation(self, sign: Token, operand: Expression) -> Apply:
        return Apply("neg", (operand,), self._at(sign))

    def power(self, base: Expression, sign: Token, exponent: int) -> Apply:
        if exponent == 2:
            return Apply("square", (base,), self._at(sign))
        return Apply("integer_pow", (base,), self._at(sign), exponent=exponent)

    def exponent(self, *tokens: Token) -> int:
        text = "".join(tokens)
        if not text.removeprefix("-").isdigit():
            raise self._error(tokens[-1], f"the exponent `{text}` is not an integer", "write `pow(a, b)`")
        return int(text)

    def number(self, text: Token) -> Number:
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

    def application(self, function: Token, *operands: Expression) -> Apply:
        return Apply(str(function), operands, self._at(function))

    def variadic_application(self, function: Token, operand: Expression) -> Apply:
        return Apply(str(function), (operand,), self._at(function), variadic=True)

    def reduction(self, kind: Token, axes: tuple[str, ...], operand: Expression) -> Reduction:
        return Reduction(str(kind), axes, operand, self._at(kind))

    @v_args(meta=True, inline=True)
    def contraction(
        self, meta: Meta, axes: tuple[str, ...], left: Expression, right: Expression
    ) -> Contraction:
        return Contraction(axes, left, right, self._at(meta))

    @v_args(meta=True, inline=True)
    def iota(self, meta: Meta, axis: Token) -> IotaOf:
        return IotaOf(str(axis), self._at(meta))

    @v_args(meta=True, inline=True)
    def rename(self, meta: Meta, old: Token, new: Token, operand: Expression) -> RenameOf:
        return RenameOf(str(old), str(new), operand, self._at(meta))

    @v_args(meta=True, inline=True)
    def chunk(self, meta: Meta, axis: Token, operand: Expression) -> ChunkOf:
        return ChunkOf(str(axis), operand, self._at(meta))

    @v_args(meta=True, inline=True)
    def concat(self, meta: Meta, axis: Token, operand: Expression) -> ConcatOf:
        return ConcatOf(str(axis), operand, self._at(meta))

    @v_args(meta=True, inline=True)
    def fold(self, meta: Meta, axis: Token, monoid: Token, operand: Expression) -> FoldOf:
        return FoldOf(str(axis), str(monoid), operand, self._at(meta))


def _is_name(item: Any) -> bool:
    return isinstance(item, Token) and item.type == "NAME"
