"""Value numbering: values that are computed alike get one number, wherever and however they are written.

Two jaxprs compute the same if their results get the same numbers when their inputs do. Names of
variables, the nesting of calls, unused results and rules for derivatives make no difference.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from eqsat.ir.dtypes import is_extended

CALLS = frozenset(
    {
        "jit",
        "call",
        "closed_call",
        "eval_jaxpr",
        "composite",
        "custom_vmap_call",
        "linear_call",
        "remat2",
        "custom_jvp_call",
        "custom_vjp_call",
    }
)
"""Primitives that do nothing but call a jaxpr."""

LARGE = 1 << 20
"""Bytes. Larger constants are compared by identity, not by their elements."""

TRANSPARENT = frozenset({"stop_gradient", "copy", "name"})
"""Primitives of one operand that return it."""


def called(equation: Any) -> ClosedJaxpr | None:
    """The jaxpr that an equation calls, if that is all it does."""
    if equation.primitive.name not in CALLS:
        return None
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr", "call", "callee"):
        inner = equation.params.get(key)
        if inner is not None:
            return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
    return None


def primitives(closed: ClosedJaxpr) -> Iterator[str]:
    """The names of all primitives in a jaxpr and in those inside it, as they occur."""
    for equation in closed.jaxpr.eqns:
        yield equation.primitive.name
        for inner in _jaxprs(list(equation.params.values())):
            yield from primitives(inner)


def _jaxprs(value: Any) -> Iterator[ClosedJaxpr]:
    if isinstance(value, ClosedJaxpr):
        yield value
    elif isinstance(value, Jaxpr):
        yield ClosedJaxpr(value, ())
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _jaxprs(part)


class Numbering:
    """Numbers for values: one for each way to compute something from other numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._alive: list[Any] = []  # an object that is known by its id must not make way for another

    def number(self, key: Hashable) -> int:
        """The number of what `key` identifies: another one for every other key."""
        return self._numbers.setdefault(key, len(self._numbers))

    def results(self, closed: ClosedJaxpr, inputs: Sequence[int]) -> list[int]:
        """The numbers of a jaxpr's results, given those of its inputs."""
        jaxpr = closed.jaxpr
        numbers: dict[Any, int] = dict(zip(jaxpr.invars, inputs, strict=True))
        for variable, value in zip(jaxpr.constvars, closed.consts, strict=True):
            numbers[variable] = self.number(("constant", self.parameter(value)))

        def read(atom: Any) -> int:
            if isinstance(atom, Literal):
                aval: Any = atom.aval
                value = np.asarray(atom.val, aval.dtype)
                return self.number(("constant", self.parameter(value)))
            return numbers[atom]

        for equation in jaxpr.eqns:
            operands = [read(atom) for atom in equation.invars]
            numbers.update(zip(equation.outvars, self._equation(equation, operands), strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _equation(self, equation: Any, operands: list[int]) -> list[int]:
        inner = called(equation)
        if inner is not None and len(inner.jaxpr.invars) == len(operands):
            return self.results(inner, operands)
        if equation.primitive.name in TRANSPARENT and len(operands) == 1:
            return operands
        key: Hashable = (equation.primitive.name, self.parameter(equation.params), tuple(operands))
        if equation.effects:
            # What has effects is never the same twice.
            key = ("effect", len(self._alive))
            self._alive.append(equation)
        return [self.number((key, position)) for position in range(len(equation.outvars))]

    def _function(self, closed: ClosedJaxpr) -> Hashable:
        """The key of a jaxpr as a function."""
        avals = tuple((tuple(aval.shape), str(aval.dtype)) for aval in closed.in_avals)
        inputs = [self.number(("parameter", position, aval)) for position, aval in enumerate(avals)]
        return ("function", avals, tuple(self.results(closed, inputs)))

    def parameter(self, value: Any) -> Hashable:
        """The key of a primitive's parameter. 1, 1.0 and True are equal in Python but differ here."""
        match value:
            case ClosedJaxpr():
                return self._function(value)
            case Jaxpr():
                return self._function(ClosedJaxpr(value, ()))
            case tuple() | list():
                return tuple(self.parameter(part) for part in value)
            case Mapping():
                return tuple(sorted((str(key), self.parameter(part)) for key, part in value.items()))
            case bool() | np.bool_():
                return ("bool", bool(value))
            case Integral():
                return ("int", int(value))
            case Real():
                return ("real", repr(float(value)))
            case np.ndarray() | np.generic() if value.nbytes <= LARGE:
                return ("array", value.shape, str(value.dtype), np.asarray(value).tobytes())
            case jax.Array() if _readable(value):
                return self.parameter(np.asarray(value))
        try:
            hash(value)
        except TypeError:
            value = id(self._kept(value))
        return ("object", value)

    def _kept(self, value: Any) -> Any:
        self._alive.append(value)
        return value


def _readable(value: jax.Array) -> bool:
    return (
        not isinstance(value, jax.core.Tracer) and not is_extended(str(value.dtype)) and value.nbytes <= LARGE
    )
