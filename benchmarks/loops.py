"""Loops over chunks as one writes them by hand, and the choice of the fastest of several functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import eqsat
from eqsat.targets.compiler_profile import HONEST, OWN
from examples.measure import seconds_of

Function = Callable[..., Any]

OPTIONS: dict[str, dict[str, Any] | None] = {OWN: None, HONEST: eqsat.compiler_options()}
"""The sets of compiler options that are tried, so that timings compare programs and not compiler options."""


# Loops for functions whose results have a row for every row of one or more of their arguments.


def by_map(function: Function, rows: Sequence[int], length: int, *arguments: Any) -> Any:
    """Calls a function by `lax.map` over chunks of the rows.

    **Arguments:**

    - `rows`: the positions of the arguments that are split into chunks of rows.
    - `length`: the length of a chunk, which divides the number of rows.
    """
    some = [jnp.asarray(arguments[position]) for position in rows]
    pieces = [x.reshape(-1, length, *x.shape[1:]) for x in some]
    results = lax.map(lambda piece: function(*_with(arguments, rows, piece)), pieces)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), results)


def by_scan(function: Function, rows: Sequence[int], length: int, *arguments: Any) -> Any:
    """Calls a function by `lax.scan` over the starts of chunks, which the body slices."""
    some = [jnp.asarray(arguments[position]) for position in rows]

    def body(carry: None, start: jax.Array) -> tuple[None, Any]:
        piece = [lax.dynamic_slice_in_dim(x, start, length) for x in some]
        return carry, function(*_with(arguments, rows, piece))

    _, results = lax.scan(body, None, jnp.arange(0, len(some[0]), length))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), results)


def in_place(function: Function, rows: Sequence[int], length: int, *arguments: Any) -> Any:
    """Calls a function by a `lax.fori_loop` that slices the rows, and writes each result in its place."""
    some = [jnp.asarray(arguments[position]) for position in rows]
    shapes = jax.eval_shape(function, *arguments)
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def body(number: jax.Array, whole: Any) -> Any:
        start = number * length
        piece = [lax.dynamic_slice_in_dim(x, start, length) for x in some]
        results = function(*_with(arguments, rows, piece))
        return jax.tree.map(lambda w, p: lax.dynamic_update_slice_in_dim(w, p, start, 0), whole, results)

    return lax.fori_loop(0, len(some[0]) // length, body, empty)


def _with(arguments: Sequence[Any], positions: Sequence[int], values: Sequence[Any]) -> list[Any]:
    replaced = dict(zip(positions, values, strict=True))
    return [replaced.get(position, argument) for position, argument in enumerate(arguments)]


BLOCKS = (1 << 20, 4 << 20, 16 << 20)
"""The bytes of the block that an iteration computes; one of these sizes is the best on most machines."""


def lengths(rows: int, row_bytes: int) -> list[int]:
    """Returns lengths of chunks: for each of `BLOCKS`, the longest one that fits it and divides the rows."""
    divisors = [length for length in range(1, rows + 1) if rows % length == 0]
    return sorted({max(d for d in divisors if d <= max(block // row_bytes, 1)) for block in BLOCKS})


FORMS = {"map": by_map, "scan": by_scan, "in place": in_place}


def loops(
    formulas: Mapping[str, Function],
    rows: Sequence[int],
    lengths: Iterable[int],
    forms: Sequence[str] = tuple(FORMS),
) -> dict[str, Function]:
    """Returns every formula in every form of a loop, over chunks of every length, by name."""
    return {
        ", ".join(filter(None, (name, f"{form} of {length:,}"))): partial(FORMS[form], formula, rows, length)
        for name, formula in formulas.items()
        for form in forms
        for length in lengths
    }


def pullback(function: Function) -> Function:
    """Returns the pullback of a function: it takes the arguments and a cotangent of the result."""

    def pulled(*arguments: Any) -> Any:
        *primals, cotangent = arguments
        return jax.vjp(function, *primals)[1](cotangent)

    return pulled


@dataclass(frozen=True)
class Best:
    """The fastest of several functions, with its name, its compiled form, and the compiler options."""

    name: str
    function: Function
    compiled: Function
    options: str


def fastest(candidates: Mapping[str, Function], arguments: Sequence[Any]) -> Best:
    """Returns the fastest of several functions on these arguments, under XLA's own options or ours.

    Each is called three times. The first call compiles it, and the shorter of the other two counts.
    """
    ways = [
        Best(name, function, jax.jit(function, compiler_options=OPTIONS[options]), options)
        for name, function in candidates.items()
        for options in OPTIONS
    ]
    seconds = [min([seconds_of(way.compiled, arguments) for _ in range(3)][1:]) for way in ways]
    return ways[seconds.index(min(seconds))]
