"""The arguments of a call: which are static, what a plan depends on of the others, and their names."""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import jax


@dataclass(frozen=True)
class Marked:
    """Some arguments of a function, by position and by name."""

    positions: tuple[int, ...]
    names: tuple[str, ...]

    @classmethod
    def of(
        cls,
        fn: Callable[..., Any],
        kind: str,
        argnums: int | Iterable[int] | None,
        argnames: str | Iterable[str] | None,
    ) -> Self:
        """Those that are named either way: a parameter of which only one is given is marked in both.

        **Arguments:**

        - `kind`: "static", "donate" or "stream": what the caller's keywords begin with.
        """
        numbers = _numbers(f"{kind}_argnums", argnums)
        names = _names(f"{kind}_argnames", argnames)
        try:
            parameters = list(inspect.signature(fn).parameters.values())
        except (TypeError, ValueError):
            return cls(numbers, names)
        positional = [
            parameter.name
            for parameter in parameters
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
        numbers = tuple(number % len(positional) if number < 0 else number for number in numbers)
        if argnames is None:
            names = tuple(positional[number] for number in numbers if number < len(positional))
        elif argnums is None:
            numbers = tuple(positional.index(name) for name in names if name in positional)
        return cls(numbers, names)

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, ...]:
        """For each leaf of a call's arguments whether it is marked."""
        by_position = tuple(
            jax.tree.map(lambda _, n=n: n in self.positions, arg) for n, arg in enumerate(args)
        )
        by_name = {
            name: jax.tree.map(lambda _, name=name: name in self.names, arg) for name, arg in kwargs.items()
        }
        return tuple(jax.tree.leaves((by_position, by_name)))


class Donated(Marked):
    """Which arguments of a function its callers donate, as for `jax.jit`."""


class Streamed(Marked):
    """Which arguments of a function stay outside the device's memory, and are read by chunks."""


NOT_STREAMED = Streamed((), ())


class Statics(Marked):
    """Which arguments of a function are static, as for `jax.jit`."""

    def split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], dict[int | str, Any]]:
        """The arguments with None for the static ones; and those, by position or name."""
        if not self.positions and not self.names:
            return args, kwargs, {}
        static: dict[int | str, Any] = {n: args[n] for n in self.positions if n < len(args)}
        static |= {name: kwargs[name] for name in self.names if name in kwargs}
        for where, value in static.items():
            _check_hashable(where, value)
        dynamic = tuple(None if n in static else value for n, value in enumerate(args))
        return dynamic, {name: None if name in static else v for name, v in kwargs.items()}, static

    def left_out(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments without the static ones."""
        dynamic, named, static = self.split(args, kwargs)
        positional = tuple(value for n, value in enumerate(dynamic) if n not in static)
        return positional, {name: value for name, value in named.items() if name not in static}


def _numbers(keyword: str, given: int | Iterable[int] | None) -> tuple[int, ...]:
    try:
        each: Any = () if given is None else (given,) if isinstance(given, Integral) else given
        return tuple(map(operator.index, each))
    except TypeError:
        raise TypeError(f"{keyword} takes the numbers of arguments, not {given!r}") from None


def _names(keyword: str, given: str | Iterable[str] | None) -> tuple[str, ...]:
    each: Any = () if given is None else (given,) if isinstance(given, str) else given
    names = tuple(each) if isinstance(each, Iterable) else (each,)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"{keyword} takes the names of arguments, not {given!r}")
    return names


def joined(
    args: tuple[Any, ...], kwargs: dict[str, Any], static: dict[int | str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call of which `Statics.split` took the static ones."""
    every = tuple(static.get(n, value) for n, value in enumerate(args))
    return every, {name: static.get(name, value) for name, value in kwargs.items()}


def _check_hashable(where: int | str, value: Any) -> None:
    try:
        hash(value)
    except TypeError as error:
        which = f"number {where}" if isinstance(where, int) else repr(where)
        raise ValueError(
            f"the static argument {which} is {value!r} of type {type(value).__name__}, which has no hash:"
            f" plans are kept by the values of static arguments, so these must be hashable ({error})"
        ) from error


def signature(leaf: Any) -> Hashable:
    """The properties of an argument that a plan depends on.

    **Raises:** `TypeError` for a value that is not an array.
    """
    return _signature(_aval(leaf))


@functools.lru_cache(maxsize=4096)
def _signature(aval: Any) -> Hashable:
    where = True if _is_plain(aval) else getattr(aval, "sharding", None)
    varying: Hashable = getattr(getattr(aval, "manual_axis_type", None), "varying", frozenset())
    return (tuple(aval.shape), aval.dtype, bool(getattr(aval, "weak_type", False)), where, varying)


def abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    """The type of an argument by itself, on no mesh."""
    aval = _aval(leaf)
    weak = bool(getattr(aval, "weak_type", False))
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=weak)


def is_symbolic(leaf: Any) -> bool:
    """Whether lengths of an argument are symbols, as they are for `jax.export`."""
    return not all(isinstance(length, int) for length in _aval(leaf).shape)


def is_plain(leaf: Any) -> bool:
    """Whether an argument's type is no more than a dtype and lengths that are known.

    Where its sharding is part of it, the types of results depend on that; and lengths may be symbols.
    """
    return _is_plain(_aval(leaf))


def _is_plain(aval: Any) -> bool:
    mesh = getattr(getattr(aval, "sharding", None), "mesh", None)
    explicit = mesh is not None and jax.sharding.AxisType.Explicit in mesh.axis_types
    return not explicit and all(isinstance(length, int) for length in aval.shape)


def _aval(leaf: Any) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    try:
        return jax.typeof(leaf)
    except TypeError as error:
        raise TypeError(
            f"{error}; an argument that is no array has to be named in static_argnums or static_argnames"
        ) from None


def argument_names(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """A name for every flat argument: its parameter's, with the path of a leaf inside it."""
    try:
        bound = inspect.signature(fn).bind(*args, **kwargs)
        parameters = list(bound.arguments)
    except (TypeError, ValueError):
        parameters = []
    leaves, _ = jax.tree_util.tree_flatten_with_path((args, kwargs))
    names = []
    for path, _ in leaves:
        first = path[1]
        if isinstance(first, jax.tree_util.SequenceKey):
            head = parameters[first.idx] if first.idx < len(parameters) else f"argument_{first.idx}"
        else:
            head = str(getattr(first, "key", first))
        tail = [str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in path[2:]]
        names.append("_".join([head, *tail]))
    return names


def posing_as(fn: Callable[..., Any], flat: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """`flat`, a function of the leaves of `fn`'s arguments, under the name of `fn`, for errors in tracing."""
    functools.update_wrapper(flat, fn)
    with contextlib.suppress(ValueError):  # a key of a dictionary need be no name
        leaves = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names]
        flat.__signature__ = inspect.Signature(leaves)  # type: ignore[attr-defined]
    return flat
