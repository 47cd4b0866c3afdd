"""A cache that keeps nothing alive: what was found for an object is forgotten with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

K = TypeVar("K")
V = TypeVar("V")


def weakly_cached(function: Callable[[K], V]) -> Callable[[K], V]:
    """The function, called once for each object while that lives.

    What it returns must not refer to the object, which would then live as long as the cache.

    >>> class Program: pass
    >>> program, seen = Program(), []
    >>> count = weakly_cached(lambda one: seen.append(1) or len(seen))
    >>> count(program), count(program), count(Program())
    (1, 1, 2)
    """
    known: WeakKeyDictionary[K, V] = WeakKeyDictionary()

    @wraps(function)
    def cached(key: K) -> V:
        if key not in known:
            known[key] = function(key)
        return known[key]

    return cached
