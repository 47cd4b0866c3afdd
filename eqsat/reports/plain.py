"""Records as JSON and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

R = TypeVar("R")

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]
"""What JSON can say."""


def to_json(record: Any, leave_out: frozenset[str] = frozenset()) -> str:
    """A record as JSON: dataclasses of numbers, texts, tuples, dicts by name, and further ones.

    **Arguments:**

    - `leave_out`: fields of the record itself that are not kept.
    """
    names = [field.name for field in fields(record) if field.name not in leave_out]
    return json.dumps({name: _plain(getattr(record, name)) for name in names})


def from_json(kind: type[R], text: str) -> R:
    """The record of that kind that `to_json` made the text of.

    **Raises:** `ValueError` or `TypeError` for any other text.

    >>> from eqsat.records import AxisRecord
    >>> from_json(AxisRecord, to_json(AxisRecord("a", 3, "x.0")))
    AxisRecord(name='a', size=3, label='x.0', chunk=None)
    """
    record: R = _restored(kind, json.loads(text))
    return record


def _plain(value: Any) -> Plain:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"a record can't hold {value!r}")


def _restored(kind: Any, value: Plain) -> Any:
    if is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, dict):
            raise ValueError(f"{value!r} is no {kind.__name__}")
        hints = get_type_hints(kind)
        if strange := value.keys() - hints.keys():
            raise ValueError(f"a {kind.__name__} has no {', '.join(sorted(strange))}")
        return kind(**{name: _restored(hints[name], part) for name, part in value.items()})
    origin, parts = get_origin(kind), get_args(kind)
    if origin is UnionType:
        if value is None:
            return None
        (other,) = (part for part in parts if part is not NoneType)
        return _restored(other, value)
    if origin is tuple and isinstance(value, list):
        if parts[1:] == (...,):
            return tuple(_restored(parts[0], part) for part in value)
        return tuple(_restored(part, entry) for part, entry in zip(parts, value, strict=True))
    if origin is dict and isinstance(value, dict):
        return {name: _restored(parts[1], part) for name, part in value.items()}
    if kind is Any or type(value) is kind or (kind is float and type(value) is int):
        return value
    raise ValueError(f"{value!r} is no {kind}")
