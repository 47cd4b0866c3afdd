"""Arrays that are not in the device's memory: what can be one, and how slices of it are read.

Anything with `shape`, `dtype` and slicing will do: `np.memmap`, datasets of h5py, arrays of zarr, handles of
tensorstore, arrays of JAX in the memory of the host. None of these libraries is imported here.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import jax
import numpy as np

from eqsat.errors import EqsatError
from eqsat.ir.moved_arrays import Moved, Whole
from eqsat.streaming.block_cache import BlockCache
from eqsat.streaming.storage_blocks import Block, storage_block

SAMPLES = 64
"""How many slices of an array its fingerprint reads."""

NO_NUMBERS = "OSUMm"
"""The kinds of NumPy's dtypes that JAX has no arrays of: objects, texts, dates."""

Slices = tuple[slice, ...]


@dataclass(frozen=True)
class OnHost:
    """An array that stays where it is, marked by `on_host`.

    **Attributes:**

    - `array`: anything with `shape`, `dtype` and slicing; or its type, to plan for it.
    - `finite`: whether infinities and NaN in it are an error.
    """

    array: Any
    finite: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        found: np.dtype[Any] = np.dtype(self.array.dtype)
        return found


def on_host(array: Any, finite: bool = False) -> OnHost:
    """Marks an array as one that an optimised function reads by chunks, and does not move to the device.

    Files need no mark: `np.memmap`, h5py, zarr and tensorstore are read by chunks as they are.

    **Arguments:**

    - `array`: a NumPy array, or anything else with `shape`, `dtype` and slicing.
    - `finite`: whether infinities and NaN in it are an error, which names the slice.

    >>> import numpy as np, eqsat
    >>> data = eqsat.on_host(np.arange(6.0, dtype=np.float32).reshape(3, 2))
    >>> data.shape, data.dtype
    ((3, 2), dtype('float32'))
    """
    if not is_array(array):
        raise TypeError(f"on_host takes an array with shape, dtype and slicing, not {array!r}")
    return OnHost(array, finite)


def is_stream(value: Any) -> bool:
    """Whether an argument is read by chunks because of its type."""
    if isinstance(value, (OnHost, np.memmap)):
        return True
    if isinstance(
        value, (np.ndarray, np.generic, jax.ShapeDtypeStruct, jax.core.Tracer, int, float, complex)
    ):
        return False
    if isinstance(value, jax.Array):
        return _in_host_memory(value)
    return is_array(value) and not hasattr(type(value), "__jax_array__")


def streamed_positions(leaves: Sequence[Any], marked: Sequence[bool] = ()) -> tuple[int, ...]:
    """Which of the leaves of a call's arguments are read by chunks.

    **Arguments:**

    - `marked`: by leaf, whether the caller says so; empty if none is. Numbers of Python have no chunks.
    """
    marks = marked or (False,) * len(leaves)
    return tuple(
        number
        for number, (leaf, mark) in enumerate(zip(leaves, marks, strict=True))
        if (mark and is_array(leaf) and not isinstance(leaf, jax.core.Tracer)) or is_stream(leaf)
    )


def is_array(value: Any) -> bool:
    """Whether it has `shape`, `dtype` and slicing, or is the type of an array."""
    return (
        hasattr(value, "shape")
        and hasattr(value, "dtype")
        and (hasattr(value, "__getitem__") or isinstance(value, jax.ShapeDtypeStruct))
    )


def _in_host_memory(array: jax.Array) -> bool:
    try:
        kind = array.sharding.memory_kind
        device: Any = next(iter(array.sharding.device_set))
        return kind is not None and kind != device.default_memory().kind
    except Exception:  # not every platform knows kinds of memory
        return False


class Source:
    """An argument that is read by chunks.

    **Attributes:**

    - `name`: of the argument.
    - `shape`: its dimensions; `dtype`: what JAX makes of its dtype.

    **Raises:** `EqsatError` if it is of a dtype that JAX has not.
    """

    def __init__(self, value: Any, name: str) -> None:
        self.finite = isinstance(value, OnHost) and value.finite
        self.array: Any = value.array if isinstance(value, OnHost) else value
        self._cache: BlockCache | None = None
        self.name = name
        try:
            self.shape = tuple(int(length) for length in self.array.shape)
        except Exception as error:  # a dataset of h5py that is empty, or whose file is closed
            raise EqsatError(f"{name} has no shape that can be read: {error}") from error
        try:
            own = own_dtype(self.array)
            if own.kind in NO_NUMBERS:
                raise TypeError
            self.dtype = np.dtype(jax.dtypes.canonicalize_dtype(own.newbyteorder("=")))
        except TypeError as error:
            raise EqsatError(
                f"{name} has entries of {self.array.dtype}, which JAX has no arrays of"
            ) from error

    def keep_pieces(self, capacity: int) -> None:
        """Keep pieces of a chunked dataset that were read last, in so many bytes of the host's memory."""
        block = self.block
        if block.chunked and not self.absent:
            self._cache = BlockCache(self.shape, block.lengths, own_dtype(self.array).itemsize, capacity)

    @property
    def block(self) -> Block:
        """The pieces that it lies in, each of which is read as a whole."""
        return storage_block(self.array, self.shape, self.dtype.itemsize)

    @property
    def absent(self) -> bool:
        """Whether there is only its type."""
        return isinstance(self.array, jax.ShapeDtypeStruct)

    def read(self, slices: Slices, into: np.ndarray[Any, Any]) -> None:
        """Read a slice.

        **Arguments:**

        - `slices`: with a start and a stop for each dimension.
        - `into`: where to, an array of the slice's shape and of `dtype`.

        **Raises:** `EqsatError` that names the array and the slice if it can't be read, or is not finite.
        """
        if self.absent:
            raise EqsatError(f"{self.name} is the type of an array: a call needs the array, a plan does not")
        try:
            whole = partial(sliced, self.array)
            found = whole(slices) if self._cache is None else self._cache.read(slices, whole)
            if found.shape != into.shape:
                raise EOFError(f"it has shape {found.shape} and not {into.shape}")
            np.copyto(into, found, casting="unsafe")
        except Exception as error:
            raise EqsatError(f"{self.name}{slices_text(slices)} could not be read: {error}") from error
        let_go(found)
        if (first := self._first_infinite(into)) is not None:
            where = [one.start + place * (one.step or 1) for one, place in zip(slices, first, strict=True)]
            self._refuse_infinite(slices_text(slices), where)

    def read_points(
        self,
        dimensions: Sequence[int],
        points: np.ndarray[Any, Any],
        around: Slices,
        into: np.ndarray[Any, Any],
    ) -> bool:
        """Read entries of an array of NumPy, and return True; other arrays are read by slices.

        **Arguments:**

        - `points`: a column for each of `dimensions`, along which single entries are read.
        - `around`: by dimension, what is read along the others.
        - `into`: where to: an entry for each point, and then the other dimensions.

        **Raises:** `EqsatError` as `read` does.
        """
        if not isinstance(self.array, np.ndarray) or not dimensions:
            return False
        others = [number for number in range(len(self.shape)) if number not in dimensions]
        array = self.array.transpose([*dimensions, *others])
        try:
            found = array[(*points.T, *(around[number] for number in others))]
            if found.shape != into.shape:
                raise EOFError(f"it has shape {found.shape} and not {into.shape}")
            np.copyto(into, found, casting="unsafe")
        except Exception as error:
            raise EqsatError(f"entries of {self.name} could not be read: {error}") from error
        let_go(self.array)
        if (first := self._first_infinite(into)) is not None:
            point = dict(zip(dimensions, points[first[0]], strict=True))
            inner = dict(zip(others, first[1:], strict=True))
            where = [
                point[number] if number in point else around[number].start + inner[number]
                for number in range(len(self.shape))
            ]
            self._refuse_infinite("", where)
        return True

    def _first_infinite(self, values: np.ndarray[Any, Any]) -> list[int] | None:
        """Where the first infinity or NaN is, if that is an error; None if there is none."""
        if not self.finite or values.dtype.kind not in "fc" or np.isfinite(values).all():
            return None
        return [int(place) for place in np.argwhere(~np.isfinite(values))[0]]

    def _refuse_infinite(self, slices: str, where: Sequence[int]) -> NoReturn:
        at = ", ".join(map(str, where))
        raise EqsatError(f"{self.name}{slices} is not finite: its entry at [{at}] is one of others")

    def rate(self, most: int) -> float | None:
        """Bytes per second at which a slice of its middle was read; None if there is nothing to read.

        **Arguments:**

        - `most`: bytes of the slice, at most.
        """
        count = math.prod(self.shape) * self.dtype.itemsize
        if self.absent or not count:
            return None
        longest = max(range(len(self.shape)), key=lambda number: self.shape[number])
        length = max(1, min(self.shape[longest], self.shape[longest] * most // count))
        start = (self.shape[longest] - length) // 2
        slices = [slice(0, size) for size in self.shape]
        slices[longest] = slice(start, start + length)
        into = np.empty([one.stop - one.start for one in slices], self.dtype)
        began = time.perf_counter()
        self.read(tuple(slices), into)
        return into.nbytes / max(time.perf_counter() - began, 1e-9)

    def fingerprint(self) -> str:
        """A digest of its type and of slices of it, spread evenly. Other data most likely has another."""
        digest = hashlib.sha256(repr((self.shape, str(self.dtype))).encode())
        if 0 not in self.shape and self.shape:
            length = self.shape[0]
            for place in sorted({number * (length - 1) // SAMPLES for number in range(SAMPLES + 1)}):
                slices = (slice(place, place + 1), *(slice(0, min(size, 4096)) for size in self.shape[1:]))
                shape = tuple(one.stop - one.start for one in slices)
                entry = np.empty(shape, self.dtype)
                Source(self.array, self.name).read(slices, entry)
                digest.update(entry.tobytes())
        return digest.hexdigest()


def own_dtype(array: Any) -> np.dtype[Any]:
    """The dtype of an array as NumPy has it; tensorstore has dtypes of its own."""
    found: np.dtype[Any] = np.dtype(getattr(array.dtype, "numpy_dtype", array.dtype))
    return found


class MovedSource:
    """What is moved of arguments that are read by chunks: slices, flips, joins.

    **Attributes:**

    - `shape`: its dimensions.
    """

    def __init__(self, moved: Moved, sources: Mapping[int, Source]) -> None:
        self.moved = moved
        self.sources = sources
        self.shape = moved.shape

    def read(self, slices: Slices, into: np.ndarray[Any, Any]) -> None:
        """Read a slice of it, as `Source.read` does."""
        if into.size:
            self.moved.read(tuple(range(one.start, one.stop) for one in slices), into, self.sources)


def sliced(array: Any, slices: Slices) -> np.ndarray[Any, Any]:
    """A slice as an array of NumPy."""
    found = array[slices]
    if isinstance(found, np.ndarray):
        return found
    return np.asarray(found.read().result() if hasattr(found, "read") else found)


def mapping_of(array: Any) -> mmap.mmap | None:
    """The mapped file that holds an array; None if none does, as of a private mapping, which is memory."""
    base: Any = array
    while isinstance(getattr(base, "base", None), np.ndarray):
        base = base.base
    mapping = getattr(base, "_mmap", None)
    shared = isinstance(mapping, mmap.mmap) and getattr(base, "mode", "c") != "c"
    return mapping if shared else None


def let_go(array: Any) -> None:
    """Let the process's pages of a mapped file go, of which an array is a slice.

    They stay in the system's cache, so what was written to them is not lost.
    """
    mapping = mapping_of(array)
    if mapping is not None:
        mapping.madvise(mmap.MADV_DONTNEED)


def moved_sources(
    moved: Mapping[int, Moved], sources: Mapping[int, Source]
) -> dict[int, Source | MovedSource]:
    """What is moved of arguments, as sources; what is just one of them is that."""
    return {
        position: sources[one.source] if isinstance(one, Whole) else MovedSource(one, sources)
        for position, one in moved.items()
    }


def slices_text(slices: Sequence[slice]) -> str:
    """Slices as they are written: [2:5, 0:8:2]."""
    steps = (f":{one.step}" if one.step not in (None, 1) else "" for one in slices)
    return (
        "["
        + ", ".join(f"{one.start}:{one.stop}{step}" for one, step in zip(slices, steps, strict=True))
        + "]"
    )
