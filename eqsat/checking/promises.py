"""What an accuracy class promises of a rule's two sides, judged on one instance.

- exact: the same bits.
- reassociates: where the left side is a number, so is the right, the same but for a few times the error that
  the left side itself may have, whatever the order of its sums; where it is infinite or NaN, so is the right;
  zeros keep their signs. Elements whose left side depends on the order of its sums are not judged.
- rescales: where the left side is finite, the right is the same but for a few times that error.

The error that the left side may have is measured by Monte Carlo arithmetic: every result of every op gets
relative errors of one unit in the last place, at random.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.checking.arithmetic import Arithmetic
from eqsat.checking.instance import Instance
from eqsat.language.accuracies import Accuracy

Array = np.ndarray[Any, np.dtype[Any]]

SAMPLES = 6
"""How often a left side is computed with noise."""

MOST = 50.0
"""How many times the error of the left side that of the right may be. Other orders of summation make a factor
of a few, one lost digit makes ten."""

EDGE = 0.98
"""Numbers so close to the largest one are rounded to infinity in one way of computing and not in another."""


def broken_promise(instance: Instance, accuracy: Accuracy) -> tuple[Array, Array] | None:
    """The values of both sides, if the right one is not what its class promises; None if it is."""
    width = instance.width
    left, right = instance.sides.run(Arithmetic(width))
    if left.shape != right.shape:
        return _widened(left), _widened(right)
    if left.dtype.kind == "c":
        return None
    kept = _same_bits(left, right)
    if accuracy != "exact" and not np.all(kept):
        kept = _kept(instance, left, right, accuracy == "reassociates")
    return None if bool(np.all(kept)) else (_widened(left), _widened(right))


def _same_bits(left: Array, right: Array) -> Array:
    same = left == right
    if left.dtype.kind == "f":
        same = (same & (np.signbit(left) == np.signbit(right))) | (np.isnan(left) & np.isnan(right))
    return np.asarray(same)


def _kept(instance: Instance, left: Array, right: Array, everywhere: bool) -> Array:
    """By element, whether the right side is as good as the left, or the left side settles nothing."""
    sides, width = instance.sides, instance.width
    true = sides.run_left(Arithmetic(width, rounds=False, bounded=False))
    bounded = sides.run_left(Arithmetic(width, rounds=False))
    noisy = [sides.run_left(Arithmetic(width, rounds=False, noise=seed)) for seed in range(SAMPLES)]
    others = [
        sides.run_left(Arithmetic(width, order="ascending")),
        sides.run_left(Arithmetic(width, order="descending")),
    ]
    if left.dtype.kind != "f":
        settled = np.logical_and.reduce([value == left for value in (bounded, *others, *noisy)])
        return np.asarray(~settled | (left == right))
    with np.errstate(all="ignore"):
        kinds = _kinds(left)
        settled = np.logical_and.reduce([_kinds(value) == kinds for value in (bounded, *others, *noisy)])
        limits = Arithmetic(width).limits
        largest = float(limits.max)
        settled &= ~((np.abs(true) > EDGE * largest) & (np.abs(true) < largest / EDGE))
        finite = np.isfinite(left) & np.isfinite(true)
        found = left.astype(np.float64)
        spread = np.max([np.abs(value - bounded) for value in (*noisy, found)], axis=0)
        # XLA has no subnormal numbers of single precision: what is less than the least normal one may be 0.
        least = limits.smallest_subnormal if width == "half" else limits.tiny / MOST
        scale = float(limits.eps) * np.minimum(np.abs(bounded), np.abs(true)) + float(least)
        error = np.minimum(np.abs(right - bounded), np.abs(right - true))
        close = error <= MOST * (spread + scale)
        certain = (spread == 0) & (bounded == 0) & (left == 0)
        # What is 0 for certain, has a sign.
        close &= ~certain | ((right == 0) & (np.signbit(right) == np.signbit(left)))
        if not everywhere:
            return np.asarray(~settled | ~finite | (np.abs(right - true) <= MOST * (spread + scale)) | close)
        same = _kinds(right) == kinds
        return np.asarray(~settled | np.where(np.isfinite(left), close & np.isfinite(right), same))


def _widened(value: Array) -> Array:
    """Numbers as they are shown: what formats halves overflows."""
    return value.astype(np.float64) if value.dtype == np.float16 else value


def _kinds(value: Array) -> Array:
    """By element: NaN, either infinity, or a finite number."""
    return np.where(np.isnan(value), 3, np.where(np.isposinf(value), 1, np.where(np.isneginf(value), 2, 0)))
