"""Attention, forward and backward, beside `jax.nn.dot_product_attention`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.beyond.attention import tiled, tiled_gradient, with_cotangent
from benchmarks.loops import Function, loops, pullback
from benchmarks.speed.case import Case, Peer
from examples.comparison import in_double_precision
from examples.programs import attention_data

Array = Any
Changed = Callable[[Array, Array], Array]
"""A function from scores [n, m] and the positions of their rows [n] to changed scores."""

GROUP = "attention"
CHECKED = 10
"""The number of rows that are compared with a reference in float64."""

LENGTHS = (64, 128, 256)
WINDOW = 0.75
"""The share of the keys that are present; the rest is padding."""

SLOPE = 0.01
"""The amount by which a score falls with every position of distance to the key."""


def _as_they_are(scores: Array, positions: Array) -> Array:
    return scores


def _causal(scores: Array, positions: Array) -> Array:
    return jnp.where(jnp.arange(scores.shape[1]) <= positions[:, None], scores, -jnp.inf)


def _present(keys: int) -> Array:
    return jnp.arange(keys) < WINDOW * keys


def _masked(scores: Array, positions: Array) -> Array:
    return jnp.where(_present(scores.shape[1]), scores, -jnp.inf)


def _bias(positions: Array, keys: int, dtype: Any) -> Array:
    return -jnp.asarray(SLOPE, dtype) * jnp.abs(positions[:, None] - jnp.arange(keys))


def _biased(scores: Array, positions: Array) -> Array:
    return scores + _bias(positions, scores.shape[1], scores.dtype)


KINDS: dict[str, Changed] = {"full": _as_they_are, "causal": _causal, "masked": _masked, "biased": _biased}


def rows_of(change: Changed, q: Array, k: Array, v: Array, positions: Array) -> Array:
    scores = q @ k.T / math.sqrt(q.shape[-1])
    return jax.nn.softmax(change(scores, positions), axis=-1) @ v


def attention(change: Changed, q: Array, k: Array, v: Array) -> Array:
    """Computes one head of attention, from q [n, d], k [m, d] and v [m, d] to [n, d]."""
    return rows_of(change, q, k, v, jnp.arange(len(q)))


def by_rows(loop: Function, q: Array, k: Array, v: Array) -> Array:
    return loop(q, k, v, jnp.arange(len(q)))


def of_jax(kind: str) -> Peer:
    """Returns `jax.nn.dot_product_attention` for one batch and one head."""

    def function(q: Array, k: Array, v: Array) -> Array:
        options: dict[str, Any] = {
            "full": {},
            "causal": {"is_causal": True},
            "masked": {"mask": _present(len(k))[None, None, None]},
            "biased": {"bias": _bias(jnp.arange(len(q)), len(k), q.dtype)[None, None]},
        }[kind]
        q, k, v = (x[None, :, None] for x in (q, k, v))
        return jax.nn.dot_product_attention(q, k, v, **options)[0, :, 0]

    return lambda *arguments: jax.jit(function if len(arguments) == 3 else pullback(function))


def case(kind: str, positions: int, gradient: bool) -> Case:
    rows = partial(rows_of, KINDS[kind])
    function = partial(attention, KINDS[kind])
    data: Callable[[], tuple[Array, ...]]
    if gradient:
        found = loops({"": jax.checkpoint(rows)}, (0, 3), LENGTHS, ("scan",))
        by_hand = {name: pullback(partial(by_rows, loop)) for name, loop in found.items()}
        function, data, tiles = pullback(function), partial(with_cotangent, positions), tiled_gradient
        reads: tuple[int, ...] = (0, 3)
    else:
        found = loops({"": rows}, (0, 3), LENGTHS, ("scan", "in place"))
        by_hand = {name: partial(by_rows, loop) for name, loop in found.items()}
        data, tiles, reads = partial(attention_data, positions), tiled, (0,)
    if kind == "full":
        by_hand |= {f"tiles of {length}": partial(tiles, length=length) for length in (256, 512)}

    def part(result: Any, arguments: tuple[Array, ...]) -> Array:
        return (result[0] if gradient else result)[:CHECKED]

    def reference(*arguments: Array) -> Array:
        some = [array[:CHECKED] if place in reads else array for place, array in enumerate(arguments)]
        return part(in_double_precision(function)(*some), arguments)

    return Case(
        GROUP,
        f"{kind}{', gradient' if gradient else ''}: {positions:,} positions",
        function,
        data,
        by_hand,
        peers={"jax.nn.dot_product_attention": of_jax(kind)},
        part=part,
        reference=reference,
    )


def cases(quick: bool) -> Iterator[Case]:
    if quick:
        yield case("full", 2_048, False)
        yield case("causal", 2_048, True)
        return
    for positions in (1_024, 4_096, 16_384):
        for gradient in (False, True):
            yield from (case(kind, positions, gradient) for kind in KINDS)
