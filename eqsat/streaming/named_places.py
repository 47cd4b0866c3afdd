"""Which result goes where: the places that the caller names, by output."""

from __future__ import annotations

import os
from collections.abc import Collection
from os import PathLike
from typing import Any

import numpy as np

from eqsat.errors import EqsatError
from eqsat.frontend.trace import Traced
from eqsat.streaming.sources import Source


def listed_places(out: Any, traced: Traced, title: str) -> list[Any]:
    """By output, what the caller named for it, or None.

    **Arguments:**

    - `out`: a structure such as the function's result, with a place or None for each array of it.
    - `title`: the name of the function.

    **Raises:** `EqsatError` if it is of another structure.
    """
    if out is None:
        return [None] * len(traced.closed.out_avals)
    try:
        places = list(traced.out_tree.flatten_up_to(out))
    except ValueError as error:
        raise EqsatError(
            f"out does not match the results of {title}: name a place or None for each, in a structure like"
            f" that of the results ({error})"
        ) from error
    return [one for number, one in enumerate(places) if number not in traced.shapeless]


def named_places(out: Any, traced: Traced, sources: Collection[Source], title: str) -> list[Any]:
    """The same, of places that can be written to while a call reads.

    **Arguments:**

    - `sources`: what is read while results are written.

    **Raises:** `EqsatError` also if it names a place twice, or one that is read.
    """
    places = listed_places(out, traced, title)
    named = [one for one in places if one is not None]
    for number, one in enumerate(named):
        if any(_may_share(one, other) for other in named[:number]):
            raise EqsatError(f"out names one place for two results of {title}: name another for one of them")
        # A file that is named is written beside what has its name, until it is complete.
        read = [] if _is_path(one) else [each for each in sources if _may_share(one, each.array)]
        if read:
            raise EqsatError(
                f"out names an array that {title} reads as {read[0].name} while it writes: name another place"
            )
    return places


def _is_path(place: Any) -> bool:
    return isinstance(place, (str, PathLike))


def _may_share(one: Any, other: Any) -> bool:
    """Whether two places may be one, or overlap."""
    if _is_path(one) or _is_path(other):
        return _is_path(one) and _is_path(other) and os.path.realpath(one) == os.path.realpath(other)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        mapping = getattr(one, "_mmap", None)
        if mapping is None or mapping is getattr(other, "_mmap", None):
            return np.may_share_memory(one, other)
        return _file(one) is not None and _file(one) == _file(other)
    return one is other or (_file(one) is not None and _file(one) == _file(other))


def _file(array: Any) -> Any:
    """What names the file that an array is; None if nothing does."""
    if isinstance(array, np.memmap):
        return os.path.realpath(array.filename) if array.filename is not None else None
    if hasattr(array, "store_path"):  # zarr
        return str(array.store_path)
    file = getattr(getattr(array, "file", None), "filename", None)  # h5py
    return None if file is None else (os.path.realpath(file), array.name)
