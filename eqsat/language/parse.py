"""From the text of a `.rules` file to its abstract syntax. The notation is in `grammar.lark`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, Tree, UnexpectedInput

from eqsat.errors import RuleSyntaxError
from eqsat.ir.operations import REGISTERED, OperationSpec
from eqsat.language.build import build, position_of
from eqsat.language.check import check_file
from eqsat.language.diagnostics import Refusal, diagnostic
from eqsat.language.syntax import Fact, MonoidDeclaration, OperationDeclaration, Rule, RuleFile
from eqsat.language.syntax_errors import syntax_error
from eqsat.language.vocabulary import Vocabulary, all_files, vocabulary_of


def load_rules(path: str | Path, known: Sequence[RuleFile] = ()) -> RuleFile:
    """Reads, parses and checks a `.rules` file and all that it includes; registers their operations.

    >>> from eqsat.rules import shipped
    >>> [loaded] = [load_rules(path) for path in shipped() if path.stem == "distance"]
    >>> loaded.rules[0].space
    'distance'

    **Arguments:**

    - `known`: files whose operations and monoids can be named here as well.

    **Raises:** `RuleSyntaxError`, `RuleError`; `OSError` if the file can't be read.
    """
    try:
        text = _read(path)
    except ValueError as error:
        raise RuleSyntaxError(f"{path}: {error}") from None
    return load_text(text, str(path), known)


def load_text(text: str, file: str, known: Sequence[RuleFile] = ()) -> RuleFile:
    """What `load_rules` does, for a text; `file` is what error messages call it.

    **Raises:** `RuleSyntaxError`, `RuleError`.
    """
    rule_file = parse_rules(text, file, known)
    check_file(rule_file, known)
    register_operations([rule_file])
    return rule_file


def register_operations(files: Iterable[RuleFile]) -> None:
    """Make the operations known that files, and those that they include, declare."""
    for part in all_files(files):
        for operation in part.operations:
            REGISTERED.setdefault(operation.signature.name, OperationSpec(operation.signature))


def parse_rules(text: str, file: str, known: Sequence[RuleFile] = ()) -> RuleFile:
    """Parses the text of a `.rules` file; `file` is what error messages call it, and where includes start.

    >>> [rule] = parse_rules("rule double [exact]  a + a => 2 * a", "my.rules").rules
    >>> rule.name, rule.accuracy, rule.right.function, str(rule.position)
    ('double', 'exact', 'mul', 'my.rules:1:6')

    Raises `RuleSyntaxError`; that names are bound and rules well-formed is for `check_file` to see.
    """
    return _Reader(known).parse(text, file)


class _Reader:
    """Reads a file and those that it includes, each once."""

    def __init__(self, known: Sequence[RuleFile]) -> None:
        self.known = known
        self.finished: dict[str, RuleFile] = {}
        self.begun: list[str] = []

    def parse(self, text: str, file: str) -> RuleFile:
        text = text.replace("\r\n", "\n")
        self.begun.append(_identity(file))
        try:
            found = self.statements(_tree(text, file), RuleFile(file, text, ()))
        except Refusal as refusal:
            shown = diagnostic(text, refusal.position, refusal.message, refusal.hint)
            raise RuleSyntaxError(shown) from None
        self.begun.pop()
        return found

    def statements(self, tree: Tree[Token], empty: RuleFile) -> RuleFile:
        """The file that has the statements of a tree."""
        statements = [child for child in tree.children if isinstance(child, Tree)]

        def built(kind: str, vocabulary: Vocabulary | None = None) -> tuple[Any, ...]:
            chosen = [statement for statement in statements if statement.data == kind]
            return tuple(build(statement, empty.file, vocabulary) for statement in chosen)

        includes = [self.include(child, empty.file) for child in statements if child.data == "include"]
        # What a file declares is known in all of it, so declarations come first.
        operations: tuple[OperationDeclaration, ...] = built("operation")
        monoids: tuple[MonoidDeclaration, ...] = built("monoid")
        found = replace(empty, monoids=monoids, operations=operations, includes=tuple(includes))
        vocabulary = vocabulary_of([*self.known, found])
        rules: tuple[Rule, ...] = built("rule", vocabulary)
        facts: tuple[Fact, ...] = built("fact", vocabulary)
        return replace(found, rules=rules, facts=facts)

    def include(self, statement: Tree[Token], file: str) -> RuleFile:
        """The file that an `include` names, read unless it has been already."""
        [name] = statement.children
        assert isinstance(name, Token)
        path = os.path.normpath(Path(file).parent / name[1:-1])
        identity = _identity(path)
        if identity in self.begun:
            chain = [*self.begun[self.begun.index(identity) :], identity]
            message = (
                f"this file includes itself: {' includes '.join(f'`{Path(link).name}`' for link in chain)}"
            )
            raise Refusal(position_of(file, name), message, "move what both need to a file of its own")
        if identity not in self.finished:
            try:
                text = _read(path)
            except OSError:
                hint = f"a name is relative to the folder of `{Path(file).name}`"
                raise Refusal(position_of(file, name), f"there is no file `{path}`", hint) from None
            except ValueError as error:
                hint = "include `.rules` files only"
                raise Refusal(position_of(file, name), f"`{path}`: {error}", hint) from None
            self.finished[identity] = self.parse(text, path)
        return self.finished[identity]


def _read(path: str | Path) -> str:
    """The text of a file; `ValueError` if it is no text."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("this is no text in UTF-8") from None


def _identity(file: str) -> str:
    """The same for all names of a file."""
    return os.path.realpath(file)


def _tree(text: str, file: str) -> Tree[Token]:
    try:
        return _parser().parse(text)
    except UnexpectedInput:
        raise _explained(text, file) from None


def _explained(text: str, file: str) -> RuleSyntaxError:
    """What is wrong with a text that does not parse: read again token by token, to see what could follow."""
    parser: Any = _parser().parse_interactive(text)  # lark leaves some of its methods untyped
    read: list[Token] = []
    try:
        for token in parser.iter_parse():
            read.append(token)
        parser.feed_eof(read[-1] if read else None)
    except UnexpectedInput as error:
        return syntax_error(text, file, error, read, parser.accepts())
    raise AssertionError("a text that did not parse does")


@cache
def _parser() -> Lark:
    return Lark.open("grammar.lark", rel_to=__file__, parser="lalr")
