"""Array programs as source text, which serve as functions under test and as their own reference.

Executed with `jnp` bound to `jax.numpy`, a text is the function under test. Executed with `jnp` bound to
NumPy and every float dtype to float64, it is the reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

EXACT_BOUND = {"float32": 2.0**21, "bfloat16": 2.0**8, "int32": 2.0**21}
"""The magnitude up to which integers are computed exactly in any order, with some room."""
TAME_BOUND = 4.0


def power_of_two(value: float) -> float:
    """Returns the largest power of two up to `value`, a factor that every float dtype holds exactly.

    >>> power_of_two(0.3)
    0.25
    """
    return 2.0 ** math.floor(math.log2(value))


@dataclass(frozen=True)
class Value:
    """A variable of a program.

    **Attributes:**

    - `bound`: the largest magnitude that an element can have.
    - `exact`: whether every order of evaluation gives the same value. It holds for integers, truth values,
      and floats that hold integers.
    - `terms`: how many terms were added up for an element, since their rounding errors add up, too.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bound: float
    exact: bool
    terms: int = 1

    @property
    def is_float(self) -> bool:
        return self.dtype in ("float32", "bfloat16")

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def tame(self, limit: float = TAME_BOUND) -> str:
        """Returns an expression for this value in float32, scaled to a magnitude of at most `limit`."""
        name = self.name if self.dtype == "float32" else f"{self.name}.astype(float32)"
        return name if self.bound <= limit else f"({name} * {power_of_two(limit / self.bound)})"

    def stays_exact(self, bound: float) -> bool:
        """Returns whether a result of this value's dtype and of magnitude up to `bound` is exact."""
        return self.exact and self.dtype != "bool" and bound <= EXACT_BOUND[self.dtype]

    def tame_bound(self, limit: float = TAME_BOUND) -> float:
        return min(self.bound, limit)


@dataclass
class ProgramText:
    """A program as text: inputs, one assignment per line, and outputs."""

    inputs: list[Value] = field(default_factory=list)
    lines: list[tuple[Value, str]] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)

    @property
    def values(self) -> list[Value]:
        """All variables, from the latest to the first."""
        return [value for value, _ in reversed(self.lines)] + self.inputs[::-1]

    def add(
        self, expression: str, shape: tuple[int, ...], dtype: str, bound: float, exact: bool, terms: int = 1
    ) -> None:
        """Adds a line. Integers and truth values count as exact whatever `exact` says."""
        exact = exact or dtype in ("int32", "bool")
        name = f"v{len(self.inputs) + len(self.lines)}"
        self.lines.append((Value(name, shape, dtype, bound, exact, terms), expression))

    @property
    def source(self) -> str:
        """The program as a Python function of its inputs."""
        arguments = ", ".join(value.name for value in self.inputs)
        body = "".join(f"    {value.name} = {expression}\n" for value, expression in self.lines)
        results = ", ".join(value.name for value in self.outputs)
        shapes = ", ".join(f"{value.dtype}{list(value.shape)}" for value in self.inputs)
        return f"def f({arguments}):  # {shapes}\n{body}    return ({results},)\n"

    def __repr__(self) -> str:
        return "\n" + self.source

    def function(self) -> Callable[..., tuple[jax.Array, ...]]:
        """The program as a JAX function."""
        namespace = dict(_JAX_NAMES)
        exec(self.source, namespace)
        return namespace["f"]

    def arrays(self, seed: int = 0) -> list[np.ndarray]:
        """Draws arrays for the inputs."""
        rng = np.random.default_rng(seed)
        arrays = []
        for value in self.inputs:
            if value.exact:
                array = rng.integers(-value.bound, value.bound, value.shape, endpoint=True)
            else:
                array = rng.uniform(-value.bound, value.bound, value.shape)
            arrays.append(np.asarray(array).astype(value.dtype))
        return arrays

    def reference(
        self, arrays: list[np.ndarray], noise: np.random.Generator | None = None
    ) -> list[np.ndarray]:
        """Computes the outputs in double precision.

        With `noise`, every inexact variable is perturbed by about as much as rounding may change it: by an
        eps of its dtype, times its largest element, times the square root of the number of terms added up in
        it. The change of the outputs then estimates their rounding errors.
        """
        names: dict[str, Any] = dict(_NUMPY_NAMES)
        for value, array in zip(self.inputs, arrays, strict=True):
            names[value.name] = array.astype(np.float64) if value.is_float else array
        with np.errstate(all="ignore"):
            for value, expression in self.lines:
                result = np.asarray(eval(expression, names))
                if noise is not None and not value.exact:
                    scale = _EPS[value.dtype] * np.max(np.abs(result)) * math.sqrt(value.terms)
                    result = result + scale * noise.uniform(-1, 1, result.shape)
                names[value.name] = result
        return [names[value.name] for value in self.outputs]

    def tolerances(self, arrays: list[np.ndarray]) -> list[float]:
        """Returns for each output the largest error that an equally accurate program may have."""
        exact = self.reference(arrays)
        worst = [
            0.0 if value.exact else 2 * _EPS[value.dtype] * np.max(np.abs(result))
            for value, result in zip(self.outputs, exact, strict=True)
        ]
        for seed in range(2):
            noisy = self.reference(arrays, np.random.default_rng(seed))
            for position, (result, reference) in enumerate(zip(noisy, exact, strict=True)):
                if not self.outputs[position].exact:
                    worst[position] += 4 * float(np.max(np.abs(result - reference)))
        return worst


_EPS = {"float32": 2.0**-23, "bfloat16": 2.0**-8}

_JAX_NAMES: dict[str, Any] = {
    "jnp": jax.numpy,
    "float32": jax.numpy.float32,
    "bfloat16": jax.numpy.bfloat16,
    "int32": jax.numpy.int32,
    "top_k": lambda x, k: jax.lax.top_k(x, k)[0],
    "top_k_indices": lambda x, k: jax.lax.top_k(x, k)[1],
    "softmax": lambda x, axis: jax.nn.softmax(x, axis),
    "logistic": jax.nn.sigmoid,
    "clamp": lambda low, x, high: jax.lax.clamp(low, x, high),
    "repeat": lambda count, iteration, c: jax.lax.fori_loop(0, count, lambda _, c: iteration(c), c),
    "scan": lambda iteration, c, xs, reverse: jax.lax.scan(iteration, c, xs, reverse=reverse),
    "each": jax.lax.map,
    "branch": jax.lax.cond,
}


def _numpy_top_k_indices(x: np.ndarray, k: int) -> np.ndarray:
    # This is XLA's order of numbers, in which the negative zero is smaller than the positive one.
    return np.lexsort((np.signbit(x), -x), axis=-1)[..., :k]


def _numpy_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    exponentials = np.exp(x - np.max(x, axis, keepdims=True))
    return exponentials / np.sum(exponentials, axis, keepdims=True)


def _numpy_repeat(count: int, iteration: Callable[..., Any], c: Any) -> Any:
    for _ in range(count):
        c = iteration(c)
    return c


def _numpy_scan(
    iteration: Callable[..., Any], c: Any, xs: np.ndarray, reverse: bool
) -> tuple[Any, np.ndarray]:
    stacked = np.zeros(xs.shape)
    for index in reversed(range(len(xs))) if reverse else range(len(xs)):
        c, stacked[index] = iteration(c, xs[index])
    return c, stacked


_NUMPY_NAMES: dict[str, Any] = {
    "jnp": np,
    "float32": np.float64,
    "bfloat16": np.float64,
    "int32": np.int32,
    "top_k": lambda x, k: np.take_along_axis(x, _numpy_top_k_indices(x, k), -1),
    "top_k_indices": lambda x, k: _numpy_top_k_indices(x, k).astype(np.int32),
    "softmax": _numpy_softmax,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "clamp": lambda low, x, high: np.clip(x, low, high),
    "repeat": _numpy_repeat,
    "scan": _numpy_scan,
    "each": lambda function, xs: np.stack([function(x) for x in xs]),
    "branch": lambda condition, first, second: first() if condition else second(),
}
