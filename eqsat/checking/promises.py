"""What an accuracy class promises of a rule's two sides, judged on one instance.

- exact: the same bits.
- reassociates: where the left side is a number, so is the right, the same but for a few times the error that
  the left side itself may have, whatever the order of its sums; where it is infinite or NaN, so is the right;
  zeros keep their signs. The parts of complex numbers are judged one by one; what is 0 there because it
  underflows, or in a product along an axis, may have either sign. Elements whose left side depends on the
  order of its sums are not judged.
- rescales: where the left side is finite, the right is the same but for a few times that error.

The error that the left side may have is measured by Monte Carlo arithmetic: every result of every op gets
relative errors of one unit in the last place, at random. Where that makes a number infinite or NaN, or the
other way round, any order of sums may, and nothing is settled; unless the data is of small whole numbers, and
the left side is what it is without rounding: then every order is exact.
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
"""How often a left side is computed with noise."""

MOST = 50.0
"""How many times the error of the left side that of the right may be. Other orders of summation make a factor
of a few, one lost digit makes ten."""

WHOLE = 8
"""Whole numbers up to here are small."""

EDGE = 0.98
"""Numbers so close to the largest one are rounded to infinity in one way of computing and not in another."""


def broken_promise(instance: Instance, accuracy: Accuracy) -> tuple[Array, Array] | None:
    """The values of both sides, if the right one is not what its class promises; None if it is."""
    left, right = instance.sides.run(DtypeArithmetic())
    if left.shape != right.shape:
        return _widened(left), _widened(right)
    kept = _same_bits(_real(left), _real(right))
    if accuracy != "exact" and not np.all(kept):
        kept = _kept(instance, _real(left), _real(right), accuracy == "reassociates")
    return None if bool(np.all(kept)) else (_widened(left), _widened(right))


def _real(value: Array) -> Array:
    """Complex numbers as real ones, along a last dimension; what is real as it is."""
    return np.stack([value.real, value.imag], axis=-1) if value.dtype.kind == "c" else value


def _same_bits(left: Array, right: Array) -> Array:
    same = left == right
    if left.dtype.kind == "f":
        same = (same & (np.signbit(left) == np.signbit(right))) | (np.isnan(left) & np.isnan(right))
    return np.asarray(same)


def _kept(instance: Instance, left: Array, right: Array, everywhere: bool) -> Array:
    """By element, whether the right side is as good as the left, or the left side settles nothing."""

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
        # XLA has no subnormal numbers but of halves: what is less than the least normal one may be 0.
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
            # The parts of a product are sums: the sign of a zero depends on what is multiplied first.
            certain &= (true == 0) & (not _multiplies_all(instance))
        # What is 0 for certain, has a sign.
        close &= ~certain | ((right == 0) & (np.signbit(right) == np.signbit(left)))
        if not everywhere:
            return np.asarray(~settled | ~finite | (np.abs(right - true) <= MOST * (spread + scale)) | close)
        same = _kinds(right) == kinds
        return np.asarray(~settled | np.where(np.isfinite(left), close & np.isfinite(right), same))


def _multiplies_all(instance: Instance) -> bool:
    """Whether there are products of all along an axis, which may be taken in any order."""
    terms = instance.sides.program.reachable()
    return any(isinstance(term.op, Reduce) and term.op.kind == "prod" for term in terms)


def _is_whole(instance: Instance) -> bool:
    """Whether all data is of small whole numbers, with which many a computation makes no rounding error."""
    return all(
        np.all((np.abs(value) <= WHOLE) & (value.real == np.rint(value.real)) & (value.imag == 0))
        for value in instance.values.values()
    )


def _widened(value: Array) -> Array:
    """Numbers as they are shown: what formats halves overflows."""
    return value.astype(np.float64) if value.dtype == np.float16 else value


def _kinds(value: Array) -> Array:
    """By element: NaN, either infinity, or a finite number."""
    return np.where(np.isnan(value), 3, np.where(np.isposinf(value), 1, np.where(np.isneginf(value), 2, 0)))
