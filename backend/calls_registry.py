"""The registry of printers of calls, and what to do with a primitive that has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.backend.literals import NotLiteral, literal, public_primitives
from eqsat.backend.namespace import Namespace

Unprintable = NotLiteral
"""Raised by a printer that cannot print a call; the primitive is bound instead."""


class Params:
    """A primitive's parameters, which remembers those that were looked at."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return self._values[name]

    def get(self, name: str) -> Any:
        """The parameter, or None if this version of JAX does not have it."""
        self._read.add(name)
        return self._values.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def skip(self, *names: str) -> None:
        """Says that these parameters make no difference to the call."""
        self._read.update(names)

    def unread(self) -> list[str]:
        """The parameters that nobody looked at, and that say something."""
        return [name for name, value in self._values.items() if name not in self._read and not silent(value)]


def silent(value: Any) -> bool:
    """Whether a parameter says nothing: it is None, or a sharding over no devices."""
    return value is None or bool(getattr(getattr(value, "mesh", None), "empty", False))


@dataclass(frozen=True, slots=True)
class CallSite:
    """A call to print."""

    primitive: Any
    params: Params
    args: tuple[str, ...]
    arg_shapes: Sequence[tuple[str, ...]]
    out_shapes: Sequence[tuple[str, ...]]
    names: Namespace

    def given(self, **defaults: Any) -> dict[str, str]:
        """The texts of those of the named parameters that are not at their defaults."""
        return {
            name: literal(self.params[name])
            for name, default in defaults.items()
            if name in self.params and self.params[name] != default
        }


Printer = Callable[[CallSite], str]

PRINTERS: dict[str, Printer] = {}
"""By primitive name."""


def prints(*names: str) -> Callable[[Printer], Printer]:
    """Registers the printer of the primitives of those names."""

    def register(printer: Printer) -> Printer:
        for name in names:
            assert name not in PRINTERS, name
            PRINTERS[name] = printer
        return printer

    return register


def call(function: str, *args: str, **options: str) -> str:
    """The text of a call.

    >>> call("lax.cumsum", "x", axis="1")
    'lax.cumsum(x, axis=1)'
    """
    return f"{function}({', '.join([*args, *(f'{name}={text}' for name, text in options.items())])})"


@dataclass(frozen=True, eq=False)
class BoundCall:
    """A primitive with its parameters, as a function: for parameters that have no text."""

    primitive: Any
    params: dict[str, Any]

    def __call__(self, *args: Any) -> Any:
        result = self.primitive.bind(*args, **self.primitive.get_bind_params(self.params))
        return tuple(result) if self.primitive.multiple_results else result


def bind_source(primitive: Any, params: dict[str, Any], args: Sequence[str], names: Namespace) -> str:
    """A call of the primitive with just these parameters."""
    name = public_primitives().get(primitive)
    try:
        if name is None:
            raise NotLiteral(f"{primitive.name} has no public name")
        options = {key: literal(value) for key, value in params.items()}
    except NotLiteral:
        return call(names.bind(BoundCall(primitive, params), primitive.name), *args)
    if name.startswith("primitives."):
        names.imported("from jax.extend.core import primitives")
    text = call(f"{name}.bind", *args, **options)
    return f"tuple({text})" if primitive.multiple_results else text
