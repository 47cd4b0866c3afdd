"""Formats an error in a `.rules` file: its position, the line with a caret, and a hint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from eqsat.errors import RuleError, RuleSyntaxError
from eqsat.language.limits import MOST_PROBLEMS
from eqsat.language.syntax import Position

LONG_LINE = 120
"""If a line is longer than this many characters, only the part around the caret is shown."""


def diagnostic(text: str, position: Position, message: str, hint: str = "") -> str:
    """Formats an error: `file:line:column: message`, the line of `text`, a caret below it, and a hint.

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
    first = max(0, position.column - LONG_LINE) if len(shown) > LONG_LINE else 0
    shown = "..." * (first > 0) + shown[first + 3 * (first > 0) : first + LONG_LINE + 20]
    parts = [
        f"{position}: {message}",
        f"  {number} | {shown}".rstrip(),
        f"  {margin} | {' ' * (position.column - 1 - first)}^",
    ]
    if hint:
        parts.append("  hint: " + hint.replace("\n", "\n        "))
    return "\n".join(parts)


def alternatives(items: Iterable[str], last: str = "or") -> str:
    """Lists the items as a sentence does, with `last` before the last one.

    >>> alternatives(["sum", "max", "min"])
    'sum, max or min'
    """
    listed = list(items)
    if len(listed) < 2:
        return "".join(listed)
    return f"{', '.join(listed[:-1])} {last} {listed[-1]}"


def counted(number: int, what: str) -> str:
    """Returns the number with the noun `what`, in the plural unless the number is 1.

    >>> counted(1, "operand"), counted(2, "axis")
    ('1 operand', '2 axes')
    """
    return (
        f"{number} {what}" if number == 1 else f"{number} {what.removesuffix('is')}{'e' * (what == 'axis')}s"
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns "did you mean ...?" with the known name closest to `name`, or "" if none is close.

    >>> nearest("exq", ["exp", "log"])
    'did you mean `exp`?'
    """
    close = get_close_matches(name, sorted(known), n=1)
    return f"did you mean `{close[0]}`?" if close else ""


class Rejection(Exception):
    """An error in a statement, with its position and a hint; `raise_problems` turns it into a `RuleError`."""

    def __init__(self, position: Position, message: str, hint: str) -> None:
        super().__init__(message)
        self.position = position
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Problem:
    """An error in a file.

    **Attributes:**

    - `text`: the text of the file.
    - `refusal`: the error.
    - `parsed`: whether the statement with the error parses.
    """

    text: str
    refusal: Rejection
    parsed: bool

    def __str__(self) -> str:
        refusal = self.refusal
        return diagnostic(self.text, refusal.position, refusal.message, refusal.hint)


def raise_problems(problems: Sequence[Problem]) -> None:
    """Raises all problems as one error, sorted by file and position; returns if there are none.

    At most `MOST_PROBLEMS` are shown.

    **Raises:** `RuleSyntaxError` if a statement does not parse, otherwise `RuleError`.
    """
    if not problems:
        return
    files = list(dict.fromkeys(problem.refusal.position.file for problem in problems))

    def place(problem: Problem) -> tuple[int, int, int]:
        position = problem.refusal.position
        return files.index(position.file), position.line, position.column

    first = sorted(problems, key=place)[:MOST_PROBLEMS]
    shown = [str(problem) for problem in first]
    if len(problems) > MOST_PROBLEMS:
        shown.append(f"... and {len(problems) - MOST_PROBLEMS} more")
    kind = RuleError if all(problem.parsed for problem in problems) else RuleSyntaxError
    raise kind("\n\n".join(shown)) from None
