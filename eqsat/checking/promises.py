"""Judges on one instance whether both sides of a rule agree as its accuracy class promises.

- exact: both sides have the same bits. All NaNs count as the same.
- reassociates: where the left side is finite, so is the right side, and they differ by at most `MOST` times
  the error that the left side itself may have in any order of its sums. Where the left side is infinite or
  NaN, so is the right side. Zeros keep their signs. The real and imaginary parts of complex numbers are
  judged separately; a part that is 0 because it underflows, or in a product along an axis, may have either
  sign. If an order of sums may turn a finite element of the left side into an infinity or NaN, or the
  reverse, that element is not judged.
- rescales: where the left side is finite, the sides differ by at most `MOST` times that error.

Monte Carlo arithmetic measures the error that the left side may have: each result of each op gets a random
relative error of up to one unit in the last place. If that turns a finite element into an infinity or NaN, or
the reverse, some order of sums may do so too. There is one exception: if the data consists of small whole
numbers, and the left side comes out the same without rounding, then every order of sums is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.checking.arithmetic import DtypeArithmetic
from eqsat.checking.instance import Instance
from eqsat.ir.dtypes import limits_of, numpy_dtype
from eqsat.ir.ops import Reduce
from eqsat.language.accuracies import Accuracy

Array = np.ndarray[Any, np.dtype[Any]]

SAMPLES = 6
"""How many times a left side is computed with noise."""

MOST = 50.0
"""By which factor the error of the right side may exceed that of the left side.

Another order of summation may make the error a few times larger, a lost digit makes it ten times larger.
"""

WHOLE = 8
"""The largest magnitude of small whole numbers."""

EDGE = 0.98
"""Elements whose ratio to the largest finite number is between this and its inverse are not judged.

One way to compute such a number may round it to infinity, and another may not.
"""


def broken_promise(instance: Instance, accuracy: Accuracy) -> tuple[Array, Array] | None:
    """Returns the values of both sides if they don't agree as the class promises; None if they do."""
    left, right = instance.sides.run(DtypeArithmetic())
    if left.shape != right.shape:
        return _widened(left), _widened(right)
    kept = _same_bits(_real(left), _real(right))
    if accuracy != "exact" and not np.all(kept):
        kept = _kept(instance, _real(left), _real(right), accuracy == "reassociates")
    return None if bool(np.all(kept)) else (_widened(left), _widened(right))


def _real(value: Array) -> Array:
    """Returns complex numbers as real ones, with the parts along a new last dimension; others unchanged."""
    return np.stack([value.real, value.imag], axis=-1) if value.dtype.kind == "c" else value


def _same_bits(left: Array, right: Array) -> Array:
    same = left == right
    if left.dtype.kind == "f":
        same = (same & (np.signbit(left) == np.signbit(right))) | (np.isnan(left) & np.isnan(right))
    return np.asarray(same)


def _kept(instance: Instance, left: Array, right: Array, everywhere: bool) -> Array:
    """Returns for each element whether the right side is as good as the left side, or can't be judged.

    **Arguments:**

    - `everywhere`: whether infinities and NaN must be the same, too, as the class reassociates promises.
    """

    def run(arithmetic: DtypeArithmetic) -> Array:
        return _real(instance.sides.run_left(arithmetic))

    dtype = instance.sides.left.dtype
    true = run(DtypeArithmetic(rounds=False, bounded=False))
    bounded = run(DtypeArithmetic(rounds=False))
    noisy = [run(DtypeArithmetic(rounds=False, noise=seed)) for seed in range(SAMPLES)]
    others = [run(DtypeArithmetic(order="ascending")), run(DtypeArithmetic(order="descending"))]
    if left.dtype.kind != "f":
        settled = np.logical_and.reduce([value == left for value in (bounded, *others)])
        for value in [true] if _is_whole(instance) else noisy:
            settled &= value == left
        return np.asarray(~settled | (left == right))
    with np.errstate(all="ignore"):
        kinds = _kinds(left)
        settled = np.logical_and.reduce([_kinds(value) == kinds for value in (bounded, *others, *noisy)])
        if _is_whole(instance):
            exactly = [
                (value == left) | (np.isnan(value) & np.isnan(left)) for value in (true, bounded, *others)
            ]
            settled |= np.logical_and.reduce(exactly)
            noisy = [np.where(np.isfinite(value), value, bounded) for value in noisy]
        limits = limits_of(dtype)
        largest = np.longdouble(limits.max)
        settled &= ~((np.abs(true) > EDGE * largest) & (np.abs(true) < largest / EDGE))
        finite = np.isfinite(left) & np.isfinite(true)
        found = left.astype(true.dtype)
        spread = np.max([np.abs(value - bounded) for value in (*noisy, found)], axis=0)
        # XLA flushes subnormal numbers to 0, except those of float16.
        least = limits.smallest_subnormal if dtype == "float16" else limits.tiny / MOST
        size = np.minimum(np.abs(bounded), np.abs(true))
        if numpy_dtype(dtype).kind == "c":
            modulus = np.hypot(size[..., :1], size[..., 1:])
            size = np.where(np.isfinite(modulus), modulus, size)
        scale = float(limits.eps) * size + float(least)
        error = np.minimum(np.abs(right - bounded), np.abs(right - true))
        close = error <= MOST * (spread + scale)
        certain = (spread == 0) & (bounded == 0) & (left == 0)
        if numpy_dtype(dtype).kind == "c":
            # The parts of a complex product are sums: the sign of a zero depends on the order of the factors.
            certain &= (true == 0) & (not _multiplies_all(instance))
        # An element that is certainly 0 must keep its sign.
        close &= ~certain | ((right == 0) & (np.signbit(right) == np.signbit(left)))
        if not everywhere:
            return np.asarray(~settled | ~finite | (np.abs(right - true) <= MOST * (spread + scale)) | close)
        same = _kinds(right) == kinds
        return np.asarray(~settled | np.where(np.isfinite(left), close & np.isfinite(right), same))


def _multiplies_all(instance: Instance) -> bool:
    """Returns whether the program takes products along an axis, whose factors may come in any order."""
    terms = instance.sides.program.reachable()
    return any(isinstance(term.op, Reduce) and term.op.kind == "prod" for term in terms)


def _is_whole(instance: Instance) -> bool:
    """Returns whether all data consists of small whole numbers, with which many computations are exact."""
    return all(
        np.all((np.abs(value) <= WHOLE) & (value.real == np.rint(value.real)) & (value.imag == 0))
        for value in instance.values.values()
    )


def _widened(value: Array) -> Array:
    """Returns float16 numbers as doubles, since formatting them as they are overflows; others unchanged."""
    return value.astype(np.float64) if value.dtype == np.float16 else value


def _kinds(value: Array) -> Array:
    """Returns for each element 3 for NaN, 1 for infinity, 2 for minus infinity, and 0 if it is finite."""
    return np.where(np.isnan(value), 3, np.where(np.isposinf(value), 1, np.where(np.isneginf(value), 2, 0)))
