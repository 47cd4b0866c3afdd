"""Jaxprs as Python functions: one assignment per equation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from eqsat.backend.literals import NotLiteral, array, element
from eqsat.backend.namespace import Namespace

BARE = {
    "add",
    "sub",
    "mul",
    "div",
    "rem",
    "max",
    "min",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
    "and",
    "or",
    "xor",
}
"""Primitives of two operands, one of which may be a plain Python number: it takes the other's dtype."""

INDENT = "    "


def constant(value: Any, names: Namespace) -> str:
    """A constant array: written out if it is small, else an object of the module."""
    try:
        return array(value if hasattr(value, "dtype") else np.asarray(value))
    except NotLiteral:
        return names.bind(value, "constant")


class Writer:
    """Prints the jaxprs of one helper function, which may be nested, without a name used twice."""

    def __init__(self, names: Namespace) -> None:
        self.names = names
        self._count = 0

    def local(self) -> str:
        """A new variable: a, b, ..., z, a1, b1, ..."""
        count, letter = divmod(self._count, 26)
        self._count += 1
        return chr(ord("a") + letter) + (str(count) if count else "")

    def locals(self, count: int) -> list[str]:
        return [self.local() for _ in range(count)]

    def body(self, closed: Any, inputs: Sequence[str]) -> tuple[list[str], list[str]]:
        """The statements of a closed jaxpr on the given inputs, and the texts of its results."""
        # Late, since printing a call may print a jaxpr.
        from eqsat.backend.calls import call_source

        jaxpr = closed.jaxpr
        texts = {
            var: constant(value, self.names)
            for var, value in zip(jaxpr.constvars, closed.consts, strict=True)
        }
        texts.update(zip(jaxpr.invars, inputs, strict=True))
        lines = []
        for eqn in jaxpr.eqns:
            args = [self._operand(eqn, number, texts) for number in range(len(eqn.invars))]
            shapes = [[str(length) for length in atom.aval.shape] for atom in eqn.invars]
            out_shapes = [[str(length) for length in getattr(v.aval, "shape", ())] for v in eqn.outvars]
            if eqn.primitive.name == "div" and jnp.issubdtype(eqn.outvars[0].aval.dtype, np.inexact):
                text = f"{args[0]} / {args[1]}"
            else:
                text = call_source(eqn.primitive, eqn.params, args, shapes, out_shapes, self.names)
            targets = []
            for var in eqn.outvars:
                dropped = type(var).__name__ == "DropVar"
                targets.append("_" if dropped else self.local())
                texts[var] = targets[-1]
            if not eqn.primitive.multiple_results:
                lines.append(f"{targets[0]} = {text}")
            elif targets:
                lines.append(f"{unpacked(targets)} = {text}")
            else:
                lines.append(text)
        return lines, [self._atom(atom, texts) for atom in jaxpr.outvars]

    def _atom(self, atom: Any, texts: dict[Any, str]) -> str:
        if not isinstance(atom, core.Literal):
            return texts[atom]
        aval: Any = atom.aval
        return constant(np.asarray(atom.val, aval.dtype), self.names)

    def _operand(self, eqn: Any, number: int, texts: dict[Any, str]) -> str:
        atom = eqn.invars[number]
        if isinstance(atom, core.Literal) and eqn.primitive.name in BARE:
            aval: Any = atom.aval
            other = eqn.invars[1 - number]
            simple = jnp.issubdtype(aval.dtype, np.floating) or jnp.issubdtype(aval.dtype, np.signedinteger)
            if simple and not aval.shape and not isinstance(other, core.Literal):
                text = element(atom.val, aval.dtype)
                # A Python int is an int32 before it is anything else.
                if jnp.issubdtype(aval.dtype, np.floating) or abs(int(text)) < 2**31:
                    return text
        return self._atom(atom, texts)


def unpacked(targets: Sequence[str]) -> str:
    """The left side of an assignment that takes a tuple apart."""
    return f"({targets[0]},)" if len(targets) == 1 else ", ".join(targets)


def returned(results: Sequence[str]) -> str:
    """A tuple of results, as one returns it."""
    return f"({results[0]},)" if len(results) == 1 else f"({', '.join(results)})"


def function(name: str, params: Sequence[str], lines: Sequence[str]) -> list[str]:
    """A function definition of these lines."""
    return [f"def {name}({', '.join(params)}):", *(INDENT + line if line else line for line in lines)]


def helper(
    names: Namespace, hint: str, key: tuple[Any, ...], alive: Any, build: Callable[[str], list[str]]
) -> str:
    """The name of the helper for `key`, which `build` gives the lines of if it is a new one."""
    known = names.helper(key)
    if known is not None:
        return known
    name = names.fresh(hint)
    names.define(name, "\n".join(build(name)) + "\n", key, alive)
    return name


def jaxpr_function(closed: Any, hint: str, names: Namespace) -> str:
    """The name of a helper function that does what a closed jaxpr does; its result is a tuple."""

    def build(name: str) -> list[str]:
        writer = Writer(names)
        params = writer.locals(len(closed.jaxpr.invars))
        lines, results = writer.body(closed, params)
        return function(name, params, [*lines, f"return {returned(results)}"])

    key = ("jaxpr", id(closed.jaxpr), *map(id, closed.consts))
    return helper(names, hint, key, closed, build)
