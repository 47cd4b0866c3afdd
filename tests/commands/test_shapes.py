"""Arguments as a text: what it means, and what is said of one that makes no sense."""

from __future__ import annotations

from typing import Any

import pytest

from eqsat.commands.shapes import ArrayType, parse_arguments
from eqsat.errors import EqsatError

VECTOR = ArrayType("float32", (3,))
SCALAR = ArrayType("int32", ())


@pytest.mark.parametrize(
    ("text", "positional", "named", "static"),
    [
        ("", [], {}, []),
        ("f32[3]", [VECTOR], {}, []),
        (" float32[ 3 ], i32[] ", [VECTOR, SCALAR], {}, []),
        ("f32[1_000,3]", [ArrayType("float32", (1000, 3))], {}, []),
        ("(f32[3], i32[])", [(VECTOR, SCALAR)], {}, []),
        ("(f32[3],)", [(VECTOR,)], {}, []),
        ("[f32[3]], ()", [[VECTOR], ()], {}, []),
        ("{w: {'b.c': f32[3]}}, n=i32[]", [{"w": {"b.c": VECTOR}}], {"n": SCALAR}, []),
        ("f32[3], 2, power=-1.5e3, mode='full', flag=True", [VECTOR, 2], {}, [1, "power", "mode", "flag"]),
        ("None, f32[3]", [None, VECTOR], {}, []),
    ],
)
def test_what_is_written(text: str, positional: list[Any], named: dict[str, Any], static: list[Any]) -> None:
    found = parse_arguments(text)
    assert found.positional == positional
    assert found.static == static
    assert {name: value for name, value in found.named.items() if name not in static} == named
    assert not found.wide


def test_numbers_are_what_they_are() -> None:
    found = parse_arguments("1_000, power=-1.5e3, mode='full'")
    assert (found.positional, found.named) == ([1000], {"power": -1500.0, "mode": "full"})
    assert parse_arguments("f64[3]").wide


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("f32[3], g32[3]", 9, "there is no dtype 'g32'"),
        ("f32[3", 6, "there should be ',' after a length, not the end"),
        ("f32[3,x]", 7, "a length is a whole number"),
        ("f32[3] i32[]", 8, "there should be ',' after an argument, not 'i32'"),
        ("f32", 1, "an array is f32[...]"),
        ("full", 1, "a text is in quotes"),
        ("n=f32[3], f32[3]", 11, "arguments by position come before"),
        ("n=f32[3], n=f32[3]", 11, "'n' is given twice"),
        ("(f32[3], 2)", 10, "there are arrays only"),
        ("{2: f32[3]}", 2, "the key of a dict is a name"),
        ("f32[3], ?", 9, "'?' makes no sense here"),
        ("n=", 3, "something is missing here"),
    ],
)
def test_what_makes_no_sense(text: str, column: int, message: str) -> None:
    with pytest.raises(EqsatError) as caught:
        parse_arguments(text)
    first, shown, caret, *_ = str(caught.value).split("\n")
    assert first.startswith(f"in the shapes, column {column}: ")
    assert message in first
    assert (shown, caret) == (f"  {text}", " " * (column + 1) + "^")
