"""Taking a sequence apart by a mask, and putting it together again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")

Mask = tuple[bool, ...]


def chosen(mask: Mask, values: Iterable[T]) -> list[T]:
    """The values that the mask marks."""
    return [value for mark, value in zip(mask, values, strict=True) if mark]


def merged(mask: Mask, marked: Iterable[T], others: Iterable[T]) -> list[T]:
    """One sequence of the values at the marked places and those at the others.

    >>> merged((True, False, True), "ac", "b")
    ['a', 'b', 'c']
    """
    yes, no = iter(marked), iter(others)
    return [next(yes) if mark else next(no) for mark in mask]


def inverted(mask: Mask) -> Mask:
    return tuple(not mark for mark in mask)


def spread(mask: Mask, marked: Sequence[T]) -> list[T | None]:
    """The values at the marked places, None at the others."""
    return merged(mask, marked, [None] * (len(mask) - len(marked)))
