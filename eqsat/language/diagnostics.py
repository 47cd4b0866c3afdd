"""How an error in a `.rules` file is shown: position, source line, caret, hint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from eqsat.errors import RuleError, RuleSyntaxError
from eqsat.language.limits import MOST_PROBLEMS
from eqsat.language.syntax import Position

LONG_LINE = 120
"""Of a line that is longer, only what is about the caret is shown."""


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


class Rejection(Exception):
    """What is wrong with a statement, and where; `raise_problems` makes a `RuleError` of it."""

    def __init__(self, position: Position, message: str, hint: str) -> None:
        super().__init__(message)
        self.position = position
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with a file.

    **Attributes:**

    - `text`: the file's.
    - `parsed`: whether what is wrong parses.
    """

    text: str
    refusal: Rejection
    parsed: bool

    def __str__(self) -> str:
        refusal = self.refusal
        return diagnostic(self.text, refusal.position, refusal.message, refusal.hint)


def raise_problems(problems: Sequence[Problem]) -> None:
    """Raises all problems as one error, file by file and by their places; nothing if there are none.

    **Raises:** `RuleSyntaxError` if anything does not parse, otherwise `RuleError`.
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
