"""The test programs of eXLA, each with a budget that most exceed as written, and its best form.

The programs are from Artemev, An, Roeder and van der Wilk, "Memory Safe Computations with XLA Compiler",
2022. `L` is a large length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular

Array = Any
L = 3001


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


def lower(n: int) -> np.ndarray:
    """Returns a well-conditioned lower triangular matrix."""
    return np.asarray(np.tril(normal(n, n)) / n + np.eye(n), np.float32)


# The programs.


def gram(a: Array, b: Array) -> Array:
    e = jnp.exp(a @ b.T)
    return e.T @ e


def chain(*factors: Array) -> Array:
    return reduce(jnp.matmul, factors)


def shared_product(a: Array, b: Array, v: Array) -> tuple[Array, Array]:
    product = a @ b
    return product @ v, v @ product


def solved_gram(triangle: Array, a: Array, b: Array) -> Array:
    s = solve_triangular(triangle, a @ b.T, lower=True)
    return s @ s.T


def mean_of_solved(triangle: Array, b: Array, m: Array, a: Array, c: Array) -> Array:
    return jnp.mean(solve_triangular(triangle, b - m, lower=True) @ (a + c))


def index_along(dimension: int, length: int) -> Array:
    return lax.broadcasted_iota(jnp.float32, (length, length), dimension)


@dataclass(frozen=True)
class Program:
    """A program and its best form.

    **Attributes:**

    - `best`: the best form, in words.
    - `budget`: the budget in bytes.
    - `largest`: the most elements that an array of the best form may have, except for inputs and results.
    - `multiplications`: the most multiplications that its contractions may do, over all iterations of loops.
    - `over`: the lengths of the axes that are looped over.
    - `fits`: whether the program fits the budget as written, so that only the work counts.
    """

    name: str
    function: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    best: str
    budget: int
    largest: float
    multiplications: float = math.inf
    over: tuple[int, ...] = ()
    fits: bool = False


POINTS = (L, 2)

PROGRAMS = [
    Program(
        "exp(A B') v",
        lambda a, b, v: jnp.exp(a @ b.T) @ v,
        lambda: (normal(*POINTS), normal(L, 2) / 2, normal(L)),
        "a loop over rows or columns of the matrix",
        2_000_000,
        L * L / 8,
        3 * L * L,
        (L,),
    ),
    Program(
        "v' exp(A B')",
        lambda a, b, v: v @ jnp.exp(a @ b.T),
        lambda: (normal(*POINTS), normal(L, 2) / 2, normal(L)),
        "a loop over rows or columns of the matrix",
        2_000_000,
        L * L / 8,
        3 * L * L,
        (L,),
    ),
    Program(
        "E' E, E = exp(A B') with a short second axis",
        gram,
        lambda: (normal(40 * L, 2), normal(7, 2)),
        "a loop over the long axis that adds up short products",
        2_500_000,
        40 * L * 7 / 2,
        40 * L * 7 * (2 + 2 + 7),
        (40 * L,),
    ),
    Program(
        "full((L, L), p) v",
        lambda p, v: jnp.full((L, L), p) @ v,
        lambda: (np.float32(0.7), normal(L)),
        "p times the sum of v",
        200_000,
        L,
        0,
    ),
    Program(
        "p along rows, contracted",
        lambda p, v: jnp.broadcast_to(p[:, None], (L, L)) @ v,
        lambda: (normal(L), normal(L)),
        "p times the sum of v",
        200_000,
        L,
        0,
    ),
    Program(
        "p along columns, contracted",
        lambda p, v: jnp.broadcast_to(p, (L, L)) @ v,
        lambda: (normal(L), normal(L)),
        "one number, L times",
        200_000,
        L,
        L,
    ),
    Program(
        "row numbers, contracted",
        lambda v: index_along(0, L) @ v,
        lambda: (normal(L),),
        "the index times the sum of v",
        200_000,
        L,
        0,
    ),
    Program(
        "column numbers, contracted",
        lambda v: index_along(1, L) @ v,
        lambda: (normal(L),),
        "one number, L times",
        200_000,
        L,
        L,
    ),
    # This length is smaller, since plain JAX folds these constants at compile time, which may take a minute.
    Program(
        "maximum of row numbers over rows",
        lambda v: v + jnp.max(index_along(0, 301), 0),
        lambda: (normal(301),),
        "nothing of two axes",
        10_000,
        301,
        fits=True,
    ),
    Program(
        "maximum of row numbers over columns",
        lambda v: v + jnp.max(index_along(0, 301), 1),
        lambda: (normal(301),),
        "nothing of two axes",
        10_000,
        301,
        fits=True,
    ),
    Program(
        "argmax of pairwise differences",
        lambda x, y: jnp.argmax(jnp.abs(x[:, None] - y), axis=1),
        lambda: (normal(L), normal(L)),
        "differences are compared as they are made",
        1_000_000,
        L * L,
        fits=True,
    ),
    Program(
        "argmax of pairwise differences, sorted",
        lambda x, y: jnp.argmax(jnp.sort(jnp.abs(x[:, None] - y), axis=0), axis=1),
        lambda: (normal(L), normal(401)),
        "a loop over what is not sorted, keeping the best",
        1_000_000,
        L * 401 / 8,
        over=(401,),
    ),
    Program(
        "exp(-sum (x - y)^2) V",
        lambda x, y, v: jnp.exp(-jnp.sum((x[:, None] - y) ** 2, axis=-1)) @ v,
        lambda: (normal(*POINTS), normal(L, 2) / 2, normal(*POINTS)),
        "a loop, in which differences are summed as they are made",
        2_000_000,
        L * L / 4,
        2 * L * L,
        (L,),
    ),
    Program(
        "(A B') C, C thin",
        lambda a, b, c: (a @ b.T) @ c,
        lambda: (normal(L, 10), normal(L, 10), normal(L, 3)),
        "A (B' C)",
        600_000,
        30,
        2 * L * 10 * 3,
    ),
    Program(
        "ABCD, best as ((AB)C)D",
        chain,
        lambda: (normal(100, 200), normal(200, 300), normal(300, 400), normal(400, 300)),
        "((AB)C)D: as written",
        10_000_000,
        100 * 400,
        100 * 200 * 300 + 100 * 300 * 400 + 100 * 400 * 300,
        fits=True,
    ),
    Program(
        "ABCD, best as (A(BC))D",
        chain,
        lambda: (normal(400, 200), normal(200, 300), normal(300, 100), normal(100, 300)),
        "(A(BC))D",
        10_000_000,
        400 * 100,
        200 * 300 * 100 + 400 * 200 * 100 + 400 * 100 * 300,
        fits=True,
    ),
    Program(
        "ABCv",
        chain,
        lambda: (normal(400, 200), normal(200, 300), normal(300, 100), normal(100)),
        "A(B(Cv))",
        10_000_000,
        400,
        300 * 100 + 200 * 300 + 400 * 200,
        fits=True,
    ),
    Program(
        "(AB) v and v' (AB), AB shared",
        shared_product,
        lambda: (normal(L, 20), normal(20, L), normal(L)),
        "A(Bv) and (v'A)B: nothing shared",
        800_000,
        L,
        4 * L * 20,
    ),
    Program(
        "A A v, a factor repeated",
        lambda a, v: a @ a @ v,
        lambda: (normal(1000, 1000) / 30, normal(1000)),
        "A(Av)",
        5_000_000,
        1000,
        2 * 1000 * 1000,
    ),
    Program(
        "(AB)' v",
        lambda a, b, v: (a @ b).T @ v,
        lambda: (normal(L, 20), normal(20, L), normal(L)),
        "B'(A'v)",
        800_000,
        L,
        2 * L * 20,
    ),
    Program(
        "((AB)' C)'",
        lambda a, b, c: ((a @ b).T @ c).T,
        lambda: (normal(L, 20), normal(20, L), normal(L, 3)),
        "(B'(A'C))'",
        800_000,
        3 * L,
        2 * L * 20 * 3,
    ),
    Program(
        "(D C')(A b)",
        lambda d, c, a, b: (d @ c.T) @ (a @ b),
        lambda: (normal(L, 20), normal(L, 20), normal(L, 30), normal(30)),
        "D(C'(Ab))",
        1_200_000,
        L,
        L * 30 + 2 * L * 20,
    ),
    Program(
        "S S', S = T^-1 (A B')",
        solved_gram,
        lambda: (lower(30), normal(30, 4), normal(10 * L, 4)),
        "T^-1 A first, which is small; a loop over the rows of the result",
        1_500_000,
        10 * L * 30 / 4,
        2 * 10 * L * 4 * 30 + 30 * 30 * 4,
        (10 * L,),
    ),
    Program(
        "mean(T^-1 (b - m) (a + c)), n = 1,000,753",
        mean_of_solved,
        lambda: (lower(4), normal(4, 1_000_753), normal(4, 1), normal(1_000_753, 1), normal(1_000_753, 1)),
        "a loop over n with a shorter last chunk, solving for the columns of a chunk",
        32_000_000,
        1_000_753,
        4 * 1_000_753,
        (1_000_753,),
    ),
    Program(
        "sum exp(.1 A B' + .1)",
        lambda a, b: jnp.sum(jnp.exp(0.1 * a @ b.T + 0.1)),
        lambda: (normal(*POINTS), normal(L, 2) / 2),
        "a loop that adds up sums",
        1_000_000,
        L * L / 8,
        2 * L * L,
        (L,),
    ),
    Program(
        "identity times x",
        lambda x: jnp.eye(L) @ x,
        lambda: (normal(L, 3),),
        "x",
        200_000,
        3 * L,
        0,
    ),
    Program(
        "(A B' + diag(d)) v",
        lambda a, b, d, v: (a @ b.T + jnp.diag(d)) @ v,
        lambda: (normal(*POINTS), normal(L, 2) / 2, normal(L), normal(L)),
        "A(B'v) + d v",
        200_000,
        L,
        4 * L,
    ),
    Program(
        "(exp(A B') + diag(d)) v",
        lambda a, b, d, v: (jnp.exp(a @ b.T) + jnp.diag(d)) @ v,
        lambda: (normal(*POINTS), normal(L, 2) / 2, normal(L), normal(L)),
        "exp(A B') v in a loop, + d v",
        2_000_000,
        L * L / 8,
        3 * L * L + L,
        (L,),
    ),
    Program(
        "sin(sin(A B') A') C",
        lambda a, b, a2, c: jnp.sin(jnp.sin(a @ b.T) @ a2) @ c,
        lambda: (normal(*POINTS), normal(*POINTS), normal(L, 20), normal(20, 2)),
        "one loop for both",
        2_000_000,
        L * L / 8,
        L * L * (2 + 20) + L * 20 * 2,
        (L,),
    ),
    Program(
        "gradient of sin(X Y') Z",
        jax.grad(lambda x, y, z: jnp.sum(jnp.sin(x @ y.T) @ z), (0, 1, 2)),
        lambda: (normal(*POINTS), normal(*POINTS), normal(*POINTS)),
        "one loop for all three",
        2_000_000,
        L * L / 8,
        8 * L * L,
        (L,),
    ),
    Program(
        "outer(a, b) v",
        lambda a, b, v: jnp.outer(a, b) @ v,
        lambda: (normal(L), normal(L), normal(L)),
        "a times one number",
        200_000,
        L,
        2 * L,
    ),
]
