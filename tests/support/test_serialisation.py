"""Records are written as JSON and read back by their types; what does not fit a type is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.support.serialisation import Codec, Special, from_json, to_json


@dataclass(frozen=True)
class Leaf:
    name: str


@dataclass(frozen=True)
class Node:
    children: tuple[Tree, ...]
    weight: float | None = None


Tree = Leaf | Node


@dataclass(frozen=True)
class Record:
    kind: Literal["small", "large"]
    tree: Tree
    numbers: frozenset[int]
    lengths: Mapping[int, str]
    named: Mapping[str, bool]
    pair: tuple[int, str]
    either: int | str | tuple[int, ...] | None


leaves = st.builds(Leaf, st.text())
weights = st.none() | st.floats(allow_nan=False)
trees = st.recursive(leaves, lambda inner: st.builds(Node, st.lists(inner).map(tuple), weights), max_leaves=8)
records = st.builds(
    Record,
    st.sampled_from(["small", "large"]),
    trees,
    st.frozensets(st.integers()),
    st.dictionaries(st.integers(), st.text()),
    st.dictionaries(st.text(), st.booleans()),
    st.tuples(st.integers(), st.text()),
    st.none() | st.integers() | st.text() | st.lists(st.integers()).map(tuple),
)


@given(records)
def test_what_is_read_is_what_was_written(record: Record) -> None:
    text = to_json(record)
    assert from_json(Record, text) == record
    assert to_json(from_json(Record, text)) == text


EXAMPLE = Record("small", Node((Leaf("a"),)), frozenset({1}), {1: "b"}, {"c": True}, (1, "d"), None)

WRONG: dict[str, Any] = {
    "kind": "medium",
    "tree": {"is": "Record"},
    "numbers": [1.5],
    "lengths": {"1": "b"},
    "named": {"c": 1},
    "pair": [1],
    "either": [["1"]],
}


@pytest.mark.parametrize("field", WRONG)
def test_what_does_not_fit_a_field_is_refused(field: str) -> None:
    plain = json.loads(to_json(EXAMPLE))
    plain[field] = WRONG[field]
    with pytest.raises(ValueError, match=r"is no|argument|unpack|zip"):
        from_json(Record, json.dumps(plain))


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValueError, match="a Leaf has no age"):
        from_json(Leaf, '{"name": "a", "age": 3}')


def test_missing_fields_are_refused() -> None:
    with pytest.raises(TypeError, match="name"):
        from_json(Leaf, "{}")


def test_numbers_that_are_not_finite_survive() -> None:
    written = to_json(Node((), math.inf)), to_json(Node((), math.nan))
    assert from_json(Node, written[0]).weight == math.inf
    assert math.isnan(from_json(Node, written[1]).weight or 0.0)


def test_what_json_cannot_say_is_not_written() -> None:
    with pytest.raises(TypeError, match="can't hold"):
        to_json(Leaf(object()))  # type: ignore[arg-type]


def test_special_types_are_written_as_they_say() -> None:
    codec = Codec({Leaf: Special(lambda leaf: leaf.name, lambda plain: Leaf(str(plain)))})
    assert codec.write(Node, Node((Leaf("a"),))) == {"children": ["a"], "weight": None}
    assert codec.read(Node, {"children": ["a"], "weight": None}) == Node((Leaf("a"),))
