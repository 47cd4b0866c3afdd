"""Reads the text of `.rules` files into abstract syntax. The grammar is in `grammar.lark`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, Tree, UnexpectedInput

from eqsat.errors import RuleSyntaxError
from eqsat.language.build import build, position_of
from eqsat.language.check import problems_in
from eqsat.language.diagnostics import Problem, Rejection, raise_problems
from eqsat.language.limits import MOST_CHARACTERS, MOST_INCLUDED, MOST_NESTED, MOST_PROBLEMS
from eqsat.language.statements import declared_in, parts_of
from eqsat.language.syntax import Fact, MonoidDeclaration, OperationDeclaration, Position, Rule, RuleFile
from eqsat.language.syntax_errors import syntax_error
from eqsat.language.vocabulary import Vocabulary, vocabulary_of


def load_rules(path: str | Path, known: Sequence[RuleFile] = ()) -> RuleFile:
    """Reads, parses and checks a `.rules` file and all that it includes.

    >>> from eqsat.rules import shipped
    >>> [loaded] = [load_rules(path) for path in shipped() if path.stem == "distance"]
    >>> loaded.rules[0].space
    'distance'

    **Arguments:**

    - `known`: other files whose operations and monoids the file may name.

    **Raises:** `RuleSyntaxError` or `RuleError` if something in a file is wrong; `OSError` if the
    file can't be read.
    """
    try:
        text = _read(path)
    except ValueError as error:
        raise RuleSyntaxError(f"{path}: {error}") from None
    return load_text(text, str(path), known)


def load_text(text: str, file: str, known: Sequence[RuleFile] = ()) -> RuleFile:
    """Parses and checks a text as `load_rules` does a file; error messages call it `file`.

    **Raises:** `RuleSyntaxError` or `RuleError`, with the first problem of each statement.
    """
    reader = _Reader(known)
    rule_file = reader.parse(text, file)
    raise_problems([*reader.problems, *problems_in(rule_file, known, reader.unread, reader.partial)])
    return rule_file


def parse_rules(text: str, file: str, known: Sequence[RuleFile] = ()) -> RuleFile:
    """Parses the text of a `.rules` file, without the checks of `check_file`.

    Error messages call the text `file`, and paths of includes are relative to its folder.

    >>> [rule] = parse_rules("rule double [exact]  a + a => 2 * a", "my.rules").rules
    >>> rule.name, rule.accuracy, rule.right.function, str(rule.position)
    ('double', 'exact', 'mul', 'my.rules:1:6')

    **Raises:** `RuleSyntaxError`.
    """
    reader = _Reader(known)
    found = reader.parse(text, file)
    raise_problems(reader.problems)
    return found


class _Reader:
    """Reads a file and those that it includes, each once; an error in a statement does not stop it.

    **Attributes:**

    - `problems`: the statements that do not parse or make no sense.
    - `unread`: the names of operations and monoids whose declarations are among the problems.
    - `partial`: the files that miss declarations, because they or their includes could not be read
      in full.
    """

    def __init__(self, known: Sequence[RuleFile]) -> None:
        self.known = known
        self.problems: list[Problem] = []
        self.unread: set[str] = set()
        self.partial: set[str] = set()
        self.finished: dict[str, RuleFile] = {}
        self.begun: list[str] = []
        self.size = 0

    def parse(self, text: str, file: str) -> RuleFile:
        """Returns the statements of a text, without those that have problems."""
        text = text.replace("\r\n", "\n")
        self.size += len(text)
        if self.size > MOST_CHARACTERS:
            message = f"this is more than {MOST_CHARACTERS:,} characters of rules, including included files"
            self.refuse(text, Rejection(Position(file, 1, 1), message, "include only the rules that you use"))
            self.partial.add(file)
            return RuleFile(file, "", ())
        self.begun.append(_identity(file))
        try:
            return self.statements(self.trees(text, file), RuleFile(file, text, ()))
        finally:
            self.begun.pop()

    def refuse(self, text: str, refusal: Rejection) -> None:
        self.problems.append(Problem(text, refusal, parsed=False))

    def trees(self, text: str, file: str) -> list[Tree[Token]]:
        """Returns the trees of the statements that parse and are not nested too deeply."""
        found: list[Tree[Token]] = []
        try:
            found += _statements(_parser().parse(text))
        except UnexpectedInput:
            for part in parts_of(text):
                try:
                    found += _statements(_parser().parse(part))
                except UnexpectedInput:
                    self.refuse(text, _explained(part, file))
                    self.unread.add(declared_in(part))
                if len(self.problems) > MOST_PROBLEMS:
                    self.partial.add(file)
                    break
        return [tree for tree in found if self.is_flat(tree, text, file)]

    def is_flat(self, tree: Tree[Token], text: str, file: str) -> bool:
        """Returns whether the terms of a statement are nested no deeper than allowed.

        If they are nested deeper, the problem is recorded.
        """
        token = _too_deep(tree, MOST_NESTED)
        if token is None:
            return True
        message = f"terms are nested more than {MOST_NESTED} deep here"
        hint = "a sum of n terms is n - 1 nested sums; a rule should match only a few operators"
        self.refuse(text, Rejection(position_of(file, token), message, hint))
        self.unread.update(map(str, tree.children[:1]))
        return False

    def statements(self, statements: Sequence[Tree[Token]], empty: RuleFile) -> RuleFile:
        """Returns the file with the abstract syntax of these statements, without those that make no sense."""

        def built(kind: str, vocabulary: Vocabulary | None = None) -> tuple[Any, ...]:
            found = []
            for statement in statements:
                if statement.data == kind:
                    try:
                        found.append(build(statement, empty.file, vocabulary))
                    except Rejection as refusal:
                        self.refuse(empty.text, refusal)
                        self.unread.update(map(str, statement.children[:1]))
            return tuple(found)

        includes = []
        for child in statements:
            if child.data == "include":
                try:
                    includes.append(self.include(child, empty.file))
                except Rejection as refusal:
                    self.refuse(empty.text, refusal)
                    self.partial.add(empty.file)
        if any(included.file in self.partial for included in includes):
            self.partial.add(empty.file)
        # A declaration holds in the whole file, so declarations are built first.
        operations: tuple[OperationDeclaration, ...] = built("operation")
        monoids: tuple[MonoidDeclaration, ...] = built("monoid")
        found = replace(empty, monoids=monoids, operations=operations, includes=tuple(includes))
        vocabulary = vocabulary_of([*self.known, found])
        if empty.file in self.partial:
            return found
        rules: tuple[Rule, ...] = built("rule", vocabulary)
        facts: tuple[Fact, ...] = built("fact", vocabulary)
        return replace(found, rules=rules, facts=facts)

    def include(self, statement: Tree[Token], file: str) -> RuleFile:
        """Returns the file that an `include` names, and reads it if it has not been read yet."""
        [name] = statement.children
        assert isinstance(name, Token)
        position = position_of(file, name)
        path = os.path.normpath(Path(file).parent / name[1:-1])
        identity = _identity(path)
        if identity in self.begun:
            chain = [*self.begun[self.begun.index(identity) :], identity]
            message = (
                f"this file includes itself: {' includes '.join(f'`{Path(link).name}`' for link in chain)}"
            )
            raise Rejection(position, message, "move what both need to a file of its own")
        if len(self.begun) == MOST_INCLUDED:
            message = f"more than {MOST_INCLUDED} files include one another in a chain"
            raise Rejection(position, message, "include files directly where they are needed")
        if identity not in self.finished:
            try:
                text = _read(path)
            except OSError:
                hint = f"the path is relative to the folder of `{Path(file).name}`"
                raise Rejection(position, f"there is no file `{path}`", hint) from None
            except ValueError as error:
                hint = "include `.rules` files only"
                raise Rejection(position, f"`{path}`: {error}", hint) from None
            self.finished[identity] = self.parse(text, path)
        return self.finished[identity]


def _read(path: str | Path) -> str:
    """Returns the text of a file.

    **Raises:** `ValueError` if it is not UTF-8 text, or too long; `OSError` if it can't be read.
    """
    if Path(path).exists() and not Path(path).is_file():
        raise ValueError("this is not a text file")  # a device may never end
    with Path(path).open("rb") as file:
        found = file.read(4 * MOST_CHARACTERS + 1)
    if len(found) > 4 * MOST_CHARACTERS:
        raise ValueError(f"this is more than {MOST_CHARACTERS:,} characters")
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("this is not UTF-8 text") from None


def _identity(file: str) -> str:
    """Returns a path that is the same for all names of a file."""
    return os.path.realpath(file)


def _statements(tree: Tree[Token]) -> list[Tree[Token]]:
    return [child for child in tree.children if isinstance(child, Tree)]


def _too_deep(tree: Tree[Token], most: int) -> Token | None:
    """Returns a token that is inside more than `most` nested trees, if there is one.

    It uses a stack of its own, because recursion could overflow Python's.
    """
    ahead: list[tuple[Tree[Token] | Token, int]] = [(tree, 0)]
    while ahead:
        node, depth = ahead.pop()
        if isinstance(node, Tree):
            ahead.extend((child, depth + 1) for child in node.children)
        elif depth > most:
            return node
    return None


def _explained(text: str, file: str) -> Rejection:
    """Returns the error of a text that does not parse.

    It parses the text again token by token, to find which tokens could follow.
    """
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
