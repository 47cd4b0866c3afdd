"""Parses the text form of a function's arguments: `f32[1000,3], (f32[3], i32[]), power=2`.

An array is written as its dtype and shape. Tuples, lists and dicts may hold arrays, as the function takes
them. A number, a text in quotes, `True` or `False` stands for itself and is a static argument.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from eqsat.errors import EqsatError

SHORT = {
    "bool": "bool",
    "pred": "bool",
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "bf16": "bfloat16",
    "c64": "complex64",
    "c128": "complex128",
}
"""Maps the short names of dtypes to the full names, which may be written as well.

The short names are those of jaxprs, and `pred` and `s8` to `s64` of HLO.
"""

WIDE = frozenset({"int64", "uint64", "float64", "complex128"})
"""The dtypes that JAX supports only if 64-bit numbers are enabled."""

TOKEN = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<number>[+-]?(?:\d[\d_]*\.?[\d_]*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<text>"[^"]*"|'[^']*')|(?P<mark>[][(){},:=]))""",
    re.VERBOSE,
)

CONSTANTS: dict[str, object] = {"True": True, "False": False, "None": None}


@dataclass(frozen=True)
class ArrayType:
    """An array's dtype and shape."""

    dtype: str
    shape: tuple[int, ...]


@dataclass
class Arguments:
    """The arguments of a call, with an `ArrayType` for every array.

    **Attributes:**

    - `positional`: the arguments that are given by position.
    - `named`: the arguments that are given by name.
    - `static`: the positions and the names of the arguments that are not arrays.
    - `wide`: whether any array needs 64-bit numbers to be enabled.
    """

    positional: list[Any] = field(default_factory=list)
    named: dict[str, Any] = field(default_factory=dict)
    static: list[int | str] = field(default_factory=list)
    wide: bool = False


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    column: int


def parse_arguments(text: str) -> Arguments:
    """Parses a text into the arguments of a call.

    **Raises:** `EqsatError`, which shows the column of the text that can't be parsed.

    >>> parse_arguments("f32[1_000, 3], {w: f32[3], b: i32[]}, power=2").named
    {'power': 2}
    """
    return _Parser(text).arguments()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._tokens())
        self.place = 0
        self.found = Arguments()

    def _tokens(self) -> Iterator[Token]:
        place = 0
        while self.text[place:].strip():
            found = TOKEN.match(self.text, place)
            if found is None:
                place += len(self.text[place:]) - len(self.text[place:].lstrip())
                raise self.error(f"{self.text[place]!r} makes no sense here", place)
            kind = found.lastgroup or ""
            yield Token(kind, found[kind], found.start(kind))
            place = found.end()
        yield Token("end", "", len(self.text.rstrip()))

    def error(self, message: str, column: int | None = None) -> EqsatError:
        where = self.tokens[self.place].column if column is None else column
        return EqsatError(
            f"in the shapes, column {where + 1}: {message}\n  {self.text}\n  {' ' * where}^\n"
            'write them like "f32[1000,3], (f32[3], i32[]), power=2"'
        )

    # Tokens.

    @property
    def next(self) -> Token:
        return self.tokens[self.place]

    def take(self, *texts: str) -> bool:
        """Returns whether the next token is one of these marks, and moves past it if it is."""
        taken = self.next.kind == "mark" and self.next.text in texts
        self.place += taken
        return taken

    def expect(self, text: str, after: str) -> None:
        if not self.take(text):
            found = repr(self.next.text) if self.next.kind != "end" else "the end"
            raise self.error(f"there should be {text!r} after {after}, not {found}")

    # The grammar.

    def arguments(self) -> Arguments:
        while self.next.kind != "end":
            self.argument()
            if self.next.kind != "end":
                self.expect(",", "an argument")
        return self.found

    def argument(self) -> None:
        first = self.next
        if first.kind == "name" and self.tokens[self.place + 1].text == "=":
            if first.text in self.found.named:
                raise self.error(f"{first.text!r} is given twice")
            self.place += 2
            self.found.named[first.text] = self.value(first.text)
        elif self.found.named:
            raise self.error("arguments by position come before those by name")
        else:
            self.found.positional.append(self.value(len(self.found.positional)))

    def value(self, static: int | str | None = None) -> Any:
        """Parses a value.

        `static` is the position or the name of the argument that the value is. It is None for a part of an
        argument; such a part must be an array, or a tuple, list or dict of arrays.
        """
        token = self.next
        if token.kind == "name" and self.tokens[self.place + 1].text == "[":
            return self.array()
        if self.take("("):
            return self.parts(")", "a tuple")
        if self.take("["):
            return list(self.parts("]", "a list"))
        if self.take("{"):
            return self.entries()
        constant = self.constant()
        if constant is not None:
            if static is None:
                self.place -= 1
                raise self.error("inside of an argument, there are arrays only")
            self.found.static.append(static)
        return constant

    def constant(self) -> Any:
        token = self.next
        if token.kind == "name" and token.text in CONSTANTS:
            self.place += 1
            return CONSTANTS[token.text]
        if token.kind in ("number", "text"):
            self.place += 1
            try:
                return ast.literal_eval(token.text)
            except (SyntaxError, ValueError):
                raise self.error(f"{token.text} is no number", token.column) from None
        if token.kind == "name":
            hint = f"an array is {token.text}[...]" if token.text in SHORT else "a text is in quotes"
            raise self.error(f"{token.text!r} alone makes no sense: {hint}")
        raise self.error("an argument should be here" if token.text else "something is missing here")

    def array(self) -> ArrayType:
        dtype = SHORT.get(self.next.text, self.next.text)
        if dtype not in SHORT.values():
            known = ", ".join(SHORT)
            raise self.error(f"there is no dtype {self.next.text!r}; there are {known}")
        self.found.wide |= dtype in WIDE
        self.place += 2
        shape: list[int] = []
        while not self.take("]"):
            if shape:
                self.expect(",", "a length")
            length = self.next
            if not re.fullmatch(r"\d[\d_]*", length.text):
                raise self.error("a length is a whole number")
            shape.append(int(length.text))
            self.place += 1
        return ArrayType(dtype, tuple(shape))

    def parts(self, end: str, what: str) -> tuple[Any, ...]:
        parts: list[Any] = []
        while not self.take(end):
            if parts:
                self.expect(",", f"a part of {what}")
                if self.take(end):
                    break
            parts.append(self.value())
        return tuple(parts)

    def entries(self) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while not self.take("}"):
            if entries:
                self.expect(",", "an entry of a dict")
            key = self.next
            if key.kind not in ("name", "text"):
                raise self.error("the key of a dict is a name, or a text in quotes")
            self.place += 1
            self.expect(":", "a key")
            entries[key.text.strip("\"'")] = self.value()
        return entries
