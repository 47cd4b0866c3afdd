"""What is said about text that does not parse: what was found, what was expected, what to do."""

from __future__ import annotations

import re

from lark import Token, UnexpectedInput, UnexpectedToken

from eqsat.errors import RuleSyntaxError
from eqsat.language.diagnostics import alternatives, diagnostic
from eqsat.language.functions import REDUCTIONS
from eqsat.language.syntax import Position

KEYWORDS = frozenset(
    {"rule", "for", "where", "in", "example", "reject"}
    | {"chunk", "concat", "fold", "rename", "dot", "iota", "axes"}
)
"""Words of the language, which no variable, axis or function may be called."""

_LEXEME = re.compile(r"[A-Za-z_]\w*|[0-9]+(\.[0-9]+)?|=>|==|->|<=|>=|\*\*|\.\.|.", re.DOTALL)

_CLAUSES = {"_FOR", "_WHERE", "EXAMPLE", "_SOURCE"}

_IN_WORDS = {
    "RULE_NAME": "the rule's name",
    "NAME": "a name",
    "NUMBER": "an integer",
    "SCHEMA_NAME": "a term variable and a colon, as in `a: i k`",
    "ARROW": "`=>`",
    "BOTH_WAYS": "`==`",
    "_RULE": "`rule`",
    "_IN": "`in`",
    "_TO": "`->`",
    "_DOTS": "`..`",
    "_AXES": "`axes(...)`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "COMMA": "`,`",
    "BANG": "`!`",
    "EQUAL": "`=`",
    "MINUS": "`-`",
}
"""What the grammar's tokens are called in error messages."""

_HABITS = {
    "=": "`=>` rewrites one way, `==` both ways",
    "->": "`=>` rewrites one way, `==` both ways",
    "**": "a power is written `a^2`",
    "@": "a matrix product is a contraction over a named axis: `dot[k](a, b)`",
    ";": "a rule ends where the next `rule` begins, its items are separated by `,`",
    "|": "conditions follow the equation: `where large(n), n in K`",
}
"""What people write out of habit from other notations, and what to write here."""

_FORMS = {
    "_CHUNK": "`chunk[n] a`",
    "_CONCAT": "`concat[n] a`",
    "_FOLD": "`fold[n, sum] a`",
    "_RENAME": "`rename[j->k] a`",
    "_DOT": "`dot[k](a, b)`",
    "_IOTA": "`iota[n]`",
}
"""The operators of the language as they are written."""


def syntax_error(
    text: str, file: str, error: UnexpectedInput, read: list[Token], accepts: set[str]
) -> RuleSyntaxError:
    """The error in human words: what was found after the tokens `read`, and what was expected."""
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        line, column = (read[-1].end_line or 1, read[-1].end_column or 1) if read else (1, 1)
        found, message = "", "the rule is not finished"
    else:
        line, column = error.line, error.column
        lexeme = _LEXEME.match(text.split("\n")[line - 1], column - 1)
        found = lexeme.group() if lexeme else ""
        message = f"unexpected `{found}`"
    hints = [_expectation(accepts), _advice(found, read, accepts)]
    hint = "\n".join(part for part in hints if part)
    return RuleSyntaxError(diagnostic(text, Position(file, line, column), message, hint))


def _expectation(accepts: set[str]) -> str:
    """What the parser accepts, without the names of the grammar's tokens."""
    if {"NAME", "NUMBER", "LPAR"} <= accepts:
        return "expected a term, such as `a`, `2`, `exp(a)` or `sum[k] a`"
    after_term = "PLUS" in accepts
    # After a term, an operator and a clause can follow nearly always: the brackets are noise there.
    noise = {"MINUS", "LPAR", "LSQB", "LBRACE"} if after_term else set()
    words = [phrase for token, phrase in _IN_WORDS.items() if token in accepts - noise]
    if after_term:
        words.append("an operator")
    if accepts >= _CLAUSES:
        words.append("a clause (`for`, `where`, `example`, `reject`)")
    return f"expected {alternatives(words)}" if words else ""


def _advice(found: str, read: list[Token], accepts: set[str]) -> str:
    """What to do about it, where we can guess what was meant."""
    before = read[-1].type if read else ""
    if found == "*" and before == "STAR":
        return _HABITS["**"]
    if found in _HABITS and "_TO" not in accepts:
        return _HABITS[found]
    if before == "RULE_NAME":
        return "a rule has a name: `rule name  left => right`"
    if found == ")" and "PLUS" in accepts and "RPAR" not in accepts:
        return "it closes nothing"
    if "RPAR" in accepts and (found in KEYWORDS or found in ("=>", "==", "")):
        return "a parenthesis is not closed"
    if "STAR" in accepts and (found.isidentifier() or found == "("):
        if read[-1] in REDUCTIONS:
            return f"a reduction names its axes: `{read[-1]}[k] a`"
        return "a product is written with `*`"
    forms = [_FORMS[token.type] for token in read[-6:] if token.type in _FORMS]
    if forms:
        return f"the operator is written {forms[-1]}"
    if found in KEYWORDS and "NAME" in accepts and not {"NUMBER"} & accepts:
        return f"`{found}` is a word of the language and can't be a name"
    return ""
