"""Converts records to JSON and back, by the types of their fields.

Reading is safe: it creates only types that the requested type names, from values that match them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

R = TypeVar("R")

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]
"""The values that JSON can represent."""

Write = Callable[[Any], Plain]
Read = Callable[[Plain], Any]

TAG = "is"
"""The key in an object that names its dataclass, if a field may be one of several."""

PLAIN = (bool, int, float, str)


@dataclass(frozen=True)
class Special:
    """How to write and read values of one type in a custom form.

    **Attributes:**

    - `read`: raises `ValueError`, `TypeError` or `LookupError` for data that is no such value.
    """

    write: Write
    read: Read


class Codec:
    """Writes and reads records: dataclasses of numbers, texts, tuples, sets, mappings and other dataclasses.

    **Arguments:**

    - `special`: types that are written in a custom form.
    - `names`: types that annotations name but their modules do not import at run time.
    """

    def __init__(
        self, special: Mapping[Any, Special] | None = None, names: Mapping[str, Any] | None = None
    ) -> None:
        self._special = dict(special or {})
        self._names = dict(names or {})
        self._writers: dict[Any, Write] = {}
        self._readers: dict[Any, Read] = {}

    def write(self, kind: Any, value: Any) -> Plain:
        """A value of a type, as data for JSON.

        **Raises:** `TypeError` if it contains anything that JSON cannot represent.
        """
        return self._writer(kind)(value)

    def read(self, kind: Any, plain: Plain) -> Any:
        """The value of a type in data by `write`.

        **Raises:** `ValueError`, `TypeError` or `LookupError` for any other data.
        """
        return self._reader(kind)(plain)

    # Writing.

    def _writer(self, kind: Any) -> Write:
        if kind not in self._writers:
            # A recursive type finds this placeholder while its own writer is being made.
            self._writers[kind] = lambda value: self._writers[kind](value)
            self._writers[kind] = self._made_writer(kind)
        return self._writers[kind]

    def _made_writer(self, kind: Any) -> Write:
        if kind in self._special:
            special: Special = self._special[kind]
            return special.write
        origin, parts = get_origin(kind), get_args(kind)
        if isinstance(kind, type) and is_dataclass(kind):
            return self._record_writer(kind)
        if origin in (UnionType, Union):
            return self._union_writer(parts)
        if origin is tuple and parts[1:] == (...,):
            each = self._writer(parts[0])
            return lambda value: [each(part) for part in value]
        if origin is tuple:
            writers = [self._writer(part) for part in parts]
            return lambda value: [write(part) for write, part in zip(writers, value, strict=True)]
        if origin is frozenset:
            each = self._writer(parts[0])
            return lambda value: sorted((each(part) for part in value), key=json.dumps)
        if _is_mapping(origin):
            name, each = self._writer(parts[0]), self._writer(parts[1])
            if parts[0] is str:
                return lambda value: {key: each(part) for key, part in value.items()}
            return lambda value: [[name(key), each(part)] for key, part in value.items()]
        return _written

    def _record_writer(self, kind: type[Any]) -> Write:
        hints = self._hints(kind)
        writers = [(field.name, self._writer(hints[field.name])) for field in fields(kind)]
        return lambda value: {name: write(getattr(value, name)) for name, write in writers}

    def _union_writer(self, members: tuple[Any, ...]) -> Write:
        tagged = self._tagged(members)
        records = {kind: self._writer(kind) for kind in tagged.values()}
        others = [member for member in members if member is not NoneType and member not in records]

        def write(value: Any) -> Plain:
            kind = type(value)
            if kind in records:
                plain = records[kind](value)
                assert isinstance(plain, dict)
                return {TAG: kind.__name__, **plain}
            if value is None and NoneType in members:
                return None
            for other in others:
                if isinstance(value, get_origin(other) or other):
                    return self._writer(other)(value)
            return _written(value)

        return write

    # Reading.

    def _reader(self, kind: Any) -> Read:
        if kind not in self._readers:
            self._readers[kind] = lambda plain: self._readers[kind](plain)
            self._readers[kind] = self._made_reader(kind)
        return self._readers[kind]

    def _made_reader(self, kind: Any) -> Read:
        if kind in self._special:
            special: Special = self._special[kind]
            return special.read
        origin, parts = get_origin(kind), get_args(kind)
        if isinstance(kind, type) and is_dataclass(kind):
            return self._record_reader(kind)
        if origin in (UnionType, Union):
            return self._union_reader(parts)
        if origin is Literal:
            return lambda plain: plain if plain in parts else _strange(plain, kind)
        if origin is tuple and parts[1:] == (...,):
            each = self._reader(parts[0])
            return lambda plain: tuple([each(part) for part in _list(plain, kind)])
        if origin is tuple:
            readers = [self._reader(part) for part in parts]
            return lambda plain: tuple(
                [read(part) for read, part in zip(readers, _list(plain, kind), strict=True)]
            )
        if origin is frozenset:
            each = self._reader(parts[0])
            return lambda plain: frozenset(map(each, _list(plain, kind)))
        if _is_mapping(origin):
            return self._mapping_reader(kind, parts)
        return lambda plain: _value(plain, kind)

    def _mapping_reader(self, kind: Any, parts: tuple[Any, ...]) -> Read:
        name, each = self._reader(parts[0]), self._reader(parts[1])

        def read(plain: Plain) -> Any:
            if parts[0] is not str:
                pairs = [_list(pair, kind) for pair in _list(plain, kind)]
                return {name(key): each(part) for key, part in pairs}
            if not isinstance(plain, dict):
                return _strange(plain, kind)
            return {key: each(part) for key, part in plain.items()}

        return read

    def _record_reader(self, kind: type[Any]) -> Read:
        hints = self._hints(kind)
        readers = {field.name: self._reader(hints[field.name]) for field in fields(kind)}

        def read(plain: Plain) -> Any:
            if not isinstance(plain, dict):
                return _strange(plain, kind)
            if unknown := plain.keys() - readers.keys():
                raise ValueError(f"a {kind.__name__} has no {', '.join(sorted(unknown))}")
            return kind(**{name: readers[name](part) for name, part in plain.items()})

        return read

    def _union_reader(self, members: tuple[Any, ...]) -> Read:
        tagged = self._tagged(members)
        records = {name: self._reader(kind) for name, kind in tagged.items()}
        others = [member for member in members if member is not NoneType and member not in tagged.values()]

        def read(plain: Plain) -> Any:
            if isinstance(plain, dict) and plain.get(TAG) in records:
                return records[str(plain[TAG])]({key: part for key, part in plain.items() if key != TAG})
            if plain is None and NoneType in members:
                return None
            for other in others:
                if _may_be(plain, other):
                    return self._reader(other)(plain)
            return _strange(plain, " | ".join(map(str, members)))

        return read

    def _tagged(self, members: tuple[Any, ...]) -> dict[str, type[Any]]:
        """By name, the dataclasses in a union that need a tag: all, if there are several."""
        found = {
            kind.__name__: kind
            for kind in members
            if isinstance(kind, type) and is_dataclass(kind) and kind not in self._special
        }
        return found if len(found) > 1 else {}

    def _hints(self, kind: type[Any]) -> dict[str, Any]:
        return get_type_hints(kind, localns=self._names)


def to_json(record: Any, leave_out: frozenset[str] = frozenset()) -> str:
    """A record as JSON.

    **Arguments:**

    - `leave_out`: fields of the record itself that are left out.
    """
    hints = get_type_hints(type(record))
    names = [field.name for field in fields(record) if field.name not in leave_out]
    return json.dumps({name: RECORDS.write(hints[name], getattr(record, name)) for name in names})


def from_json(kind: type[R], text: str | bytes) -> R:
    """The record of a given kind in a text by `to_json`.

    **Raises:** `ValueError` or `TypeError` for any other text.

    >>> from eqsat.support.records import AxisRecord
    >>> from_json(AxisRecord, to_json(AxisRecord("a", 3, "x.0")))
    AxisRecord(name='a', size=3, label='x.0', chunk=None)
    """
    record: R = RECORDS.read(kind, json.loads(text))
    return record


RECORDS = Codec()
"""The codec of plain records."""


def _is_mapping(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _written(value: Any) -> Plain:
    if value is None or type(value) in PLAIN:
        plain: Plain = value
        return plain
    raise TypeError(f"a record can't hold {value!r}")


def _value(plain: Plain, kind: Any) -> Any:
    """A number, text or truth value of exactly the given type, or of any of these for `Any`.

    An int is accepted for a float.
    """
    if kind is Any and (plain is None or type(plain) in PLAIN):
        return plain
    if type(plain) is kind and kind in PLAIN:
        return plain
    if kind is float and type(plain) is int:
        return plain
    return _strange(plain, kind)


def _list(plain: Plain, kind: Any) -> list[Plain]:
    if not isinstance(plain, list):
        raise ValueError(f"{plain!r} is no {kind}")
    return plain


def _may_be(plain: Plain, kind: Any) -> bool:
    """Whether data may represent a given member of a union."""
    match plain:
        case list():
            return get_origin(kind) is not None
        case dict():
            return _is_mapping(get_origin(kind)) or is_dataclass(kind)
        case _ if kind in PLAIN:
            return type(plain) is kind or (kind is float and type(plain) is int)
        case _:
            return get_origin(kind) in (None, Literal)


def _strange(plain: Plain, kind: Any) -> Any:
    raise ValueError(f"{plain!r} is no {kind}")
