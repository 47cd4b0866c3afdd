"""Where something stands in a file of rules."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """Where something stands: 1-based line and column."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @classmethod
    def read(cls, text: object) -> Position:
        """The position that `str` wrote.

        >>> Position.read("mine.rules:3:1").line
        3
        """
        file, line, column = str(text).rsplit(":", 2)
        return cls(file, int(line), int(column))
