"""JAX's public functions by family, as expressions over the arrays in `ARRAYS`, one per line of a file.

An expression stands for the function of the arrays that it names.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
from jax import lax

_rng = np.random.default_rng(0)


def _normal(*shape: int) -> Any:
    return _rng.normal(size=shape).astype(np.float32)


_square = _normal(13, 13)

ARRAYS: dict[str, Any] = {
    "x": _normal(37, 24),
    "y": _normal(37, 24),
    "p": np.abs(_normal(37, 24)) + 0.5,  # positive
    "u": _rng.uniform(0.05, 0.95, (37, 24)).astype(np.float32),  # in (0, 1)
    "t": _normal(7, 5, 6),
    "v": _normal(24),
    "w": _normal(37),
    "s": np.float32(0.7),
    "M": _square,
    "A": _square @ _square.T + 13 * np.eye(13, dtype=np.float32),
    "T": _normal(5, 6, 6),
    "B": _normal(13, 4),
    "L": np.tril(_square) + 4 * np.eye(13, dtype=np.float32),
    "i": _rng.integers(-9, 9, (37, 24)).astype(np.int32),
    "n": _rng.integers(1, 9, (37, 24)).astype(np.int32),
    "j": _rng.integers(0, 37, 29).astype(np.int32),
    "m": _rng.integers(0, 2, (37, 24)).astype(bool),
    "c": (_normal(11, 16) + 1j * _normal(11, 16)).astype(np.complex64),
    "h": _normal(37, 24).astype(jnp.bfloat16),
    "q": _normal(2, 9, 3, 8),
    "k": _normal(2, 11, 3, 8),
    "im": _normal(2, 12, 13, 3),
    "ker": _normal(3, 3, 3, 4),
    "key": jax.random.key(3),
    "empty": np.zeros((0, 24), np.float32),
    "one": _normal(1, 24),
    "deep": _normal(2, 3, 1, 2, 3, 2, 1, 5),
}

FAMILIES: dict[str, list[str]] = {
    path.stem: path.read_text().splitlines()
    for path in sorted((Path(__file__).parent / "families").iterdir())
}
"""The expressions of each family, which come from one file."""

_SCOPE = {"jax": jax, "jnp": jnp, "jsp": jsp, "lax": lax, "np": np}


def function_of(expression: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Returns the function of the arrays that an expression names, and these arrays by name."""
    tree = ast.parse(expression.strip(), mode="eval")
    bound = {a.arg for node in ast.walk(tree) if isinstance(node, ast.Lambda) for a in node.args.args}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - bound
    names = [name for name in ARRAYS if name in used]
    code = f"lambda {', '.join(names)}: {expression}"
    return eval(code, _SCOPE), {name: jnp.asarray(ARRAYS[name]) for name in names}


def expressions() -> dict[str, str]:
    """Maps every expression to its family."""
    return {line: family for family, lines in FAMILIES.items() for line in lines}
