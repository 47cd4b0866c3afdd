"""A random program as text: inputs, one assignment per line, and outputs.

JAX itself finds the dtypes and the shapes, so a line may be any expression that JAX accepts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

MOST_ELEMENTS = 40_000
"""The most elements that a value may have."""


def _repeat(count: int, step: Callable[[Any], Any], c: Any) -> Any:
    return lax.fori_loop(0, count, lambda _, c: step(c), c)


def _until(condition: Callable[[Any], Any], step: Callable[[Any], Any], c: Any) -> Any:
    return lax.while_loop(
        lambda both: (both[0] < 5) & condition(both[1]), lambda both: (both[0] + 1, step(both[1])), (0, c)
    )[1]


NAMES: dict[str, Any] = {"jax": jax, "jnp": jnp, "lax": lax, "repeat": _repeat, "until": _until}
"""The names that the lines of a program may use."""


@dataclass(frozen=True)
class Value:
    """A variable of a program."""

    name: str
    shape: tuple[int, ...]
    dtype: Any

    @property
    def kind(self) -> str:
        """ "float", "int", "bool", "complex" or "key"."""
        if jnp.issubdtype(self.dtype, jax.dtypes.prng_key):
            return "key"
        for kind, parent in (("float", jnp.floating), ("int", jnp.integer), ("complex", jnp.complexfloating)):
            if jnp.issubdtype(self.dtype, parent):
                return kind
        return "bool"

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def aval(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(self.shape, self.dtype)


@dataclass
class Text:
    """A program that is being built.

    **Attributes:**

    - `double`: whether it has 64-bit numbers.
    - `inputs`: the parameters.
    - `lines`: each variable with the expression that it is assigned.
    - `outputs`: the variables that are returned.
    - `wrap`: "", or a last line that replaces the function by the gradient of its sum.
    """

    double: bool = False
    inputs: list[Value] = field(default_factory=list)
    lines: list[tuple[Value, str]] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    wrap: str = ""

    @property
    def values(self) -> list[Value]:
        """All variables, from the latest to the first."""
        return [value for value, _ in reversed(self.lines)] + self.inputs[::-1]

    def add(self, expression: str) -> Value | None:
        """Adds a line if JAX accepts it and the value is not too large; returns its value, or else None."""
        known = self.values

        def line(*arrays: Any) -> Any:
            return eval(expression, {**NAMES, **dict(zip((v.name for v in known), arrays, strict=True))})

        try:
            found = jax.eval_shape(line, *(value.aval for value in known))
        except Exception:  # JAX refuses the line
            return None
        if (
            not hasattr(found, "shape")
            or not 0 < math.prod(found.shape) <= MOST_ELEMENTS
            or len(found.shape) > 4
        ):
            return None
        value = Value(f"v{len(self.inputs) + len(self.lines)}", found.shape, found.dtype)
        self.lines.append((value, expression))
        return value

    @property
    def source(self) -> str:
        """The program as a Python function of its inputs."""
        arguments = ", ".join(value.name for value in self.inputs)
        body = "".join(
            f"    {value.name} = {expression}  # {value.dtype}{list(value.shape)}\n"
            for value, expression in self.lines
        )
        results = ", ".join(value.name for value in self.outputs)
        shapes = ", ".join(f"{value.dtype}{list(value.shape)}" for value in self.inputs)
        return f"def f({arguments}):  # {shapes}\n{body}    return ({results},)\n{self.wrap}"

    def function(self) -> Callable[..., Any]:
        """The program as a JAX function."""
        namespace = dict(NAMES)
        exec(self.source, namespace)
        found: Callable[..., Any] = namespace["f"]
        return found
