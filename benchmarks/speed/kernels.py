"""Kernel matrices times vectors, and the gradients with respect to the points and the vector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.loops import Function, lengths, loops, pullback
from benchmarks.speed.case import Case, Peer
from examples.comparison import in_double_precision
from examples.programs import squared_distances

Array = Any

GROUP = "kernels"
CHECKED = 10
"""The number of rows that are compared with a reference in float64."""

FUSED = 32
"""The longest sum whose operand XLA computes on the fly."""


def squares_by_products(x: Array, y: Array) -> Array:
    """Returns |x_i - y_j|² as |x_i|² - 2 x_i y_j + |y_j|², but at least 0."""
    squares = jnp.sum(x**2, 1)[:, None] - 2 * x @ y.T + jnp.sum(y**2, 1)
    return jnp.maximum(squares, jnp.finfo(squares.dtype).tiny)


def absolute(x: Array, y: Array) -> Array:
    """Returns sums of absolute differences."""
    return jnp.sum(jnp.abs(x[:, None, :] - y[None, :, :]), axis=-1)


def absolute_by_pieces(x: Array, y: Array) -> Array:
    """Returns sums of absolute differences, by few coordinates at a time, so that none are stored."""
    return sum(
        absolute(x[:, start : start + FUSED], y[:, start : start + FUSED])
        for start in range(0, x.shape[1], FUSED)
    )


def matern(squares: Array) -> Array:
    distances = jnp.sqrt(3 * squares)
    return (1 + distances) * jnp.exp(-distances)


def matvec(
    profile: Callable[[Array], Array],
    distances: Callable[[Array, Array], Array],
    x: Array,
    y: Array,
    v: Array,
) -> Array:
    return profile(distances(x, y)) @ v


# For each kernel: its profile, and its formula in KeOps for x_i and y_j.
SQUARED: dict[str, tuple[Callable[[Array], Array], str]] = {
    "squared exponential": (lambda squares: jnp.exp(-0.5 * squares), "Exp(-SqDist(x,y)/IntCst(2))"),
    "Matérn-3/2": (
        matern,
        "(IntCst(1)+Sqrt(IntCst(3)*SqDist(x,y)))*Exp(-Sqrt(IntCst(3)*SqDist(x,y)))",
    ),
    "inverse multiquadric": (lambda squares: lax.rsqrt(1 + squares), "Rsqrt(IntCst(1)+SqDist(x,y))"),
}
LAPLACIAN = "Laplacian"
KERNELS = {**SQUARED, LAPLACIAN: (lambda distances: jnp.exp(-distances), "Exp(-Sum(Abs(x-y)))")}


def keops(formula: str, gradient: bool) -> Peer:
    """Returns the program in KeOps, which sums over one axis, so a gradient takes three sums."""

    def prepared(x: Array, y: Array, *vectors: Array) -> Function:
        from pykeops.numpy import Genred

        width = x.shape[1]
        names = [f"x=Vi({width})", f"y=Vj({width})", "v=Vj(1)"]
        term = f"{formula}*v"
        if not gradient:
            forward = Genred(term, names, axis=1)
            return lambda x, y, v: forward(*_numpy(x, y, v))[:, 0]
        names = [*names, "e=Vi(1)"]
        at_x = Genred(f"Grad({term},x,e)", names, axis=1)
        at_y = Genred(f"Grad({term},y,e)", names, axis=0)
        at_v = Genred(f"{formula}*e", [*names[:2], "e=Vi(1)"], axis=0)

        def gradients(x: Array, y: Array, v: Array, e: Array) -> tuple[Array, Array, Array]:
            x, y, v, e = _numpy(x, y, v, e)
            return at_x(x, y, v, e), at_y(x, y, v, e), at_v(x, y, e)[:, 0]

        return gradients

    return prepared


def _numpy(*arrays: Array) -> list[Array]:
    return [np.asarray(array).reshape(len(array), -1) for array in arrays]


def data(n: int, width: int, dtype: str, vectors: int) -> tuple[Array, ...]:
    rng = np.random.default_rng(0)
    # In many dimensions, all points are far apart, and without a scale, kernels would be 0.
    x, y = (rng.normal(size=(2, n, width)) / np.sqrt(width)).astype(dtype)
    return x, y, *rng.normal(size=(vectors, n)).astype(dtype)


def case(kernel: str, n: int, width: int, dtype: str = "float32", gradient: bool = False) -> Case:
    """Returns the case of one kernel between n and n points."""
    profile, formula = KERNELS[kernel]
    if kernel in SQUARED:
        ways = {"differences": squared_distances, "products": squares_by_products}
    elif width > FUSED:
        ways = {"all coordinates": absolute, "pieces": absolute_by_pieces}
    else:
        ways = {"differences": absolute}
    first, *_ = (partial(matvec, profile, distances) for distances in ways.values())
    formulas = {name: partial(matvec, profile, distances) for name, distances in ways.items()}
    row = n * np.dtype(dtype).itemsize
    chunks = {*lengths(n // 10, row), *(lengths(n // 10, row * width) if width > FUSED else ())}
    if gradient:
        again = {name: jax.checkpoint(formula) for name, formula in formulas.items()}
        by_hand = {name: pullback(loop) for name, loop in loops(again, (0,), chunks, ("scan",)).items()}
        rows: tuple[int, ...] = (0, 3)
    else:
        by_hand, rows = loops(formulas, (0,), chunks, ("scan", "in place")), (0,)
    function = pullback(first) if gradient else first

    def some(count: int, arguments: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(array[:count] if place in rows else array for place, array in enumerate(arguments))

    def part(result: Any, arguments: tuple[Array, ...]) -> Array:
        return (result[0] if gradient else result)[:CHECKED]

    def reference(*arguments: Array) -> Array:
        return part(in_double_precision(function)(*some(CHECKED, arguments)), arguments)

    return Case(
        GROUP,
        f"{kernel}{', gradient' if gradient else ''}: {n:,}², d = {width}, {dtype}",
        function,
        partial(data, n, width, dtype, 2 if gradient else 1),
        by_hand,
        partial(some, n // 10),
        {"KeOps": keops(formula, gradient)},
        part,
        reference,
        double=dtype == "float64",
        accuracy="cancels",
    )


def cases(quick: bool) -> Iterator[Case]:
    if quick:
        yield case("squared exponential", 10_000, 3)
        yield case(LAPLACIAN, 10_000, 10)
        return
    widths, squared = (1, 3, 10, 100), "squared exponential"
    yield from (case(kernel, 10_000, width) for width in widths for kernel in KERNELS)
    yield from (case(squared, 30_000, width) for width in widths)
    yield from (case(kernel, 30_000, 3) for kernel in KERNELS if kernel != squared)
    yield from (case(squared, 100_000, width) for width in (3, 10))
    yield from (case(squared, 10_000, width, "float64") for width in widths)
    yield case("Matérn-3/2", 10_000, 3, "float64")
    yield from (case(kernel, 10_000, width, gradient=True) for width in (3, 10) for kernel in KERNELS)
    yield from (case(squared, 10_000, width, gradient=True) for width in (1, 100))
    yield case(squared, 30_000, 3, gradient=True)
    yield case(squared, 10_000, 3, "float64", gradient=True)
