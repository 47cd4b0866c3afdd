"""Positions in `.rules` files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a `.rules` file; `line` and `column` count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @classmethod
    def read(cls, text: object) -> Position:
        """Parses the text that `str` makes of a position.

        >>> Position.read("mine.rules:3:1").line
        3
        """
        file, line, column = str(text).rsplit(":", 2)
        return cls(file, int(line), int(column))
