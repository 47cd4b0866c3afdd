"""How an error in a `.rules` file is shown: position, source line, caret, hint."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from eqsat.language.syntax import Position


def diagnostic(text: str, position: Position, message: str, hint: str = "") -> str:
    """`file:line:column: message`, the line of `text` that it is about, a caret, and a hint.

    >>> print(diagnostic("rule x\\n  a => ", Position("my.rules", 2, 8), "unexpected end of file", "go on"))
    my.rules:2:8: unexpected end of file
      2 |   a =>
        |        ^
      hint: go on
    """
    lines = text.split("\n")
    source = lines[position.line - 1] if position.line <= len(lines) else ""
    number = str(position.line)
    margin = " " * len(number)
    shown = source.expandtabs(1).rstrip()  # one column per character, so that the caret fits
    parts = [
        f"{position}: {message}",
        f"  {number} | {shown}".rstrip(),
        f"  {margin} | {' ' * (position.column - 1)}^",
    ]
    if hint:
        parts.append("  hint: " + hint.replace("\n", "\n        "))
    return "\n".join(parts)


def alternatives(items: Iterable[str], last: str = "or") -> str:
    """The items as a sentence lists them.

    >>> alternatives(["sum", "max", "min"])
    'sum, max or min'
    """
    listed = list(items)
    if len(listed) < 2:
        return "".join(listed)
    return f"{', '.join(listed[:-1])} {last} {listed[-1]}"


def counted(number: int, what: str) -> str:
    """
    >>> counted(1, "operand"), counted(2, "axis")
    ('1 operand', '2 axes')
    """
    return (
        f"{number} {what}" if number == 1 else f"{number} {what.removesuffix('is')}{'e' * (what == 'axis')}s"
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean ...?` for the known name most like `name`, or nothing.

    >>> nearest("exq", ["exp", "log"])
    'did you mean `exp`?'
    """
    close = get_close_matches(name, sorted(known), n=1)
    return f"did you mean `{close[0]}`?" if close else ""


class Refusal(Exception):
    """What a check finds wrong with a rule, and where; `check_file` makes a `RuleError` of it."""

    def __init__(self, position: Position, message: str, hint: str) -> None:
        super().__init__(message)
        self.position = position
        self.message = message
        self.hint = hint
