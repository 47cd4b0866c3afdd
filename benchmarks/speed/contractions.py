"""Chains of matrices and einsums, as they are written and in the order that opt_einsum finds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.paper.chains import chain, matrices, ordered_chain
from benchmarks.speed.case import Case

Array = Any

GROUP = "contractions"
ORDERED = "opt_einsum"

EINSUMS: dict[str, tuple[str, dict[str, int]]] = {
    "bilinear form": ("bi,ijk,bj->bk", {"b": 1_000, "i": 100, "j": 100, "k": 50}),
    "Tucker decomposition": ("abc,ia,jb,kc->ijk", {"abc": 12, "ijk": 150}),
    "attention without softmax": ("hqd,hkd,hke->hqe", {"h": 4, "qk": 1_500, "de": 64}),
    "tensor train": ("xa,aib,bjc,ckd,dy->xijky", {"xy": 2, "abcd": 30, "ijk": 20}),
    "Kronecker product times vector": ("ai,bj,ck,ijk->abc", {"abcijk": 60}),
}


def sizes(lengths: dict[str, int]) -> dict[str, int]:
    return {letter: length for letters, length in lengths.items() for letter in letters}


def operands(equation: str, lengths: dict[str, int]) -> tuple[Array, ...]:
    rng = np.random.default_rng(0)
    known = sizes(lengths)
    shapes = [[known[letter] for letter in term] for term in equation.split("->")[0].split(",")]
    return tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)


def as_written(equation: str, *arrays: Array) -> Array:
    """Contracts the arrays one after the other, from left to right."""
    return jnp.einsum(equation, *arrays, optimize=False)


def ordered(equation: str, *arrays: Array) -> Array:
    return jnp.einsum(equation, *arrays, optimize="optimal")


def einsum_case(name: str, scale: float = 1.0) -> Case:
    equation, lengths = EINSUMS[name]
    scaled = {letters: max(int(scale * length), 2) for letters, length in lengths.items()}
    return Case(
        GROUP,
        f"{name}, {equation}",
        partial(as_written, equation),
        partial(operands, equation, scaled),
        peers={ORDERED: lambda *_: jax.jit(partial(ordered, equation))},
        tight=None,
    )


def chain_case(count: int, longest: int) -> Case:
    return Case(
        GROUP,
        f"chain of {count} matrices, up to {longest:,} rows",
        chain,
        lambda: tuple(matrices(count, longest)),
        peers={ORDERED: lambda *_: jax.jit(ordered_chain)},
        tight=None,
    )


def cases(quick: bool) -> Iterator[Case]:
    if quick:
        yield chain_case(8, 1_000)
        yield einsum_case("attention without softmax")
        return
    yield from (chain_case(count, 2_000) for count in (4, 8, 16, 36))
    yield from map(einsum_case, EINSUMS)
