"""Entries of sorted arrays without sorting, by counting how many entries are smaller.

The entry of rank k is the largest number that has at most k entries before it. Its bits are found two at a
time: in each pass over the array, the entries that are less than each of three numbers are counted, and these
numbers lie between what the passes before have left (Munro and Paterson, "Selection and sorting with
limited storage", 1980). With four bits at a time, there are half as many passes, each with fifteen numbers.
All that is stored is a few counters, so an array that does not fit can be computed again in each pass.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr

from eqsat.ir.dtypes import is_real_float, limits_of

DTYPES = frozenset(
    {"float16", "bfloat16", "float32", "float64"}
    | {f"{kind}{n}" for kind in ("int", "uint") for n in (8, 16, 32, 64)}
)
"""The dtypes whose entries can be found."""

MOST_ENTRIES = 2**32 - 1
"""The most entries that can be counted."""

DIGIT = 2
"""How many bits a pass finds. With every further bit, there are fewer passes of twice the work.

On a CPU, where each comparison is stored before it is counted, passes of four bits took up to twice as long.
"""

STREAMED_DIGIT = 4
"""The same where each pass reads the array from a file."""

Array = Any


def entries_by_rank(
    shape: Sequence[int], dtype: str, ranks: Sequence[tuple[Sequence[int], str]], digit: int = DIGIT
) -> ClosedJaxpr:
    """The program that finds entries by their rank along the last dimension of an array.

    It is a function of the array and of arrays of ranks, which count from 0. Ranks have the dimensions of
    the array but for the last one, of which some may have length 1, and then further ones. There is a
    result for each array of ranks, with its dimensions broadcast over those of the array. It is the entry
    that a stable sort by JAX has at that place, bit for bit but for the payload of a NaN; where there is no
    such place, it is 0.

    **Arguments:**

    - `shape`, `dtype`: of the array. The dtype is one of `DTYPES`, and the last dimension has between 1 and
      `MOST_ENTRIES` entries.
    - `ranks`: the shape and the integer dtype of each array of ranks.
    - `digit`: how many bits a pass finds: a divisor of 8.
    """
    arrays = [jax.ShapeDtypeStruct(tuple(size), jnp.dtype(kind)) for size, kind in ((shape, dtype), *ranks)]
    find = functools.partial(_floats if is_real_float(dtype) else _integers, digit)
    # Every dtype below is explicit, so that programs without 64-bit numbers stay so.
    with jax.enable_x64(True):
        return jax.make_jaxpr(functools.partial(_in_range, find))(*arrays)


def _in_range(find: Any, array: Array, *ranks: Array) -> list[Array]:
    last = array.shape[-1] - 1
    wanted = [lax.convert_element_type(rank, np.uint32) for rank in ranks]
    results = []
    for rank, found in zip(ranks, _together(find, array, wanted), strict=True):
        inside = rank >= jnp.zeros((), rank.dtype)
        if last <= np.iinfo(rank.dtype).max:
            inside &= rank <= jnp.full((), last, rank.dtype)
        results.append(jnp.where(inside, found, jnp.zeros((), array.dtype)))
    return results


def _together(find: Any, array: Array, ranks: Sequence[Array]) -> list[Array]:
    """The entries of those ranks. Ranks of one shape are one array, as the two of a median are."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, rank in enumerate(ranks):
        groups.setdefault(rank.shape, []).append(number)
    stacked = [jnp.stack([ranks[number] for number in group], axis=-1) for group in groups.values()]
    found: dict[int, Array] = {}
    for group, entries in zip(groups.values(), find(array, stacked), strict=True):
        found.update(
            (number, lax.index_in_dim(entries, place, axis=-1, keepdims=False))
            for place, number in enumerate(group)
        )
    return [found[number] for number in range(len(ranks))]


def _integers(digit: int, array: Array, ranks: Sequence[Array]) -> list[Array]:
    return [_value(key, array.dtype) for key in _keys(digit, array, ranks)]


def _floats(digit: int, array: Array, ranks: Sequence[Array]) -> list[Array]:
    """As `_integers`, with what is equal in the order of a stable sort, and NaNs last.

    Zeros of either sign are equal, and where the compiler takes subnormal numbers for 0, all of these. So if
    what was found equals other bits, one more loop counts those.
    """
    found = [_value(key, array.dtype) for key in _keys(digit, array, ranks)]
    bits = _bits(array)
    numbers = _total(array == array)
    zeros, tiny = (_Small.among(bits, limit) for limit in _limits(array.dtype))
    asked = []
    for rank, value in zip(ranks, found, strict=True):
        before, after = _fewer(array, value), _total(_along(array, value.ndim) > value[..., None])
        equal = _spread(numbers, value.ndim) - before - after
        among = jnp.broadcast_to(rank, value.shape) - before
        asked.append(_Asked.of(_bits(value), equal, among, zeros, tiny))
    read = _bits_of_small(digit, bits, asked)
    results = []
    for rank, one, other in zip(ranks, asked, read, strict=True):
        value = lax.bitcast_convert_type(jnp.where(one.mixed, other, one.bits), array.dtype)
        nan = jnp.full((), jnp.nan, array.dtype)
        results.append(jnp.where(_spread(numbers, value.ndim) <= rank, nan, value))
    return results


class _Small(NamedTuple):
    """The entries of an array whose magnitudes are small.

    **Attributes:**

    - `limit`: their magnitudes, as bits, are less.
    - `count`: how many there are along the last dimension.
    - `least`, `most`: of their bits.
    """

    limit: Array
    count: Array
    least: Array
    most: Array

    @staticmethod
    def among(bits: Array, limit: Array) -> _Small:
        small = _magnitude(bits) < limit
        none = jnp.zeros((), bits.dtype)
        least = jnp.min(jnp.where(small, bits, ~none), axis=-1)
        return _Small(limit, _total(small), least, jnp.max(jnp.where(small, bits, none), axis=-1))


class _Asked(NamedTuple):
    """Entries of which all equal ones are known.

    **Attributes:**

    - `bits`: theirs, unless they are `mixed`.
    - `mixed`: whether entries with other bits are equal: those with magnitudes below `limit`.
    - `among`: how many of these come before.
    """

    bits: Array
    mixed: Array
    limit: Array
    among: Array

    @staticmethod
    def of(bits: Array, equal: Array, among: Array, zeros: _Small, tiny: _Small) -> _Asked:
        """If as many entries are equal as are subnormal or 0, it is these."""
        magnitude = _magnitude(bits)
        coarse = (magnitude < tiny.limit) & (equal == _spread(tiny.count, bits.ndim))
        small = coarse | (magnitude < zeros.limit)
        limit, least, most = (
            jnp.where(coarse, _spread(one, bits.ndim), _spread(other, bits.ndim))
            for one, other in ((tiny.limit, zeros.limit), (tiny.least, zeros.least), (tiny.most, zeros.most))
        )
        return _Asked(jnp.where(small, least, bits), small & (most > least), limit, among)


def _keys(digit: int, array: Array, ranks: Sequence[Array]) -> list[Array]:
    """The keys of the entries of those ranks: of the largest numbers with so few before them, never NaN."""
    kind = _unsigned(array.dtype)
    width = 8 * kind.itemsize
    steps = jnp.arange(1, 1 << digit, dtype=kind)
    shapes = [
        (*np.broadcast_shapes(rank.shape[: array.ndim - 1], array.shape[:-1]), *rank.shape[array.ndim - 1 :])
        for rank in ranks
    ]

    def refined(keys: list[Array], shift: Array) -> tuple[list[Array], None]:
        better = []
        for key, rank in zip(keys, ranks, strict=True):
            limits = key[..., None] + lax.shift_left(steps, jnp.broadcast_to(shift, steps.shape))
            bits = _total(_fewer(array, _value(limits, array.dtype)) <= rank[..., None])
            better.append(key + lax.shift_left(bits.astype(kind), jnp.broadcast_to(shift, bits.shape)))
        return better, None

    shifts = jnp.arange(0, width, digit, dtype=kind)
    keys, _ = lax.scan(refined, [jnp.zeros(shape, kind) for shape in shapes], shifts, reverse=True)
    return keys


def _bits_of_small(digit: int, bits: Array, asked: Sequence[_Asked]) -> list[Array]:
    """The bits of those that are mixed, if there are any.

    Their places are found like their values: each is the largest with no more of the equal ones before it. In
    a last pass the places are known, and the bits are read.
    """
    passes = math.ceil(bits.shape[-1].bit_length() / digit)
    steps = jnp.arange(1, 1 << digit, dtype=np.uint32)
    place = lax.broadcasted_iota(np.uint32, bits.shape, bits.ndim - 1)
    none = jnp.zeros((), bits.dtype)
    some = functools.reduce(jnp.logical_or, [jnp.any(one.mixed) for one in asked])
    stop = jnp.where(some, jnp.int32(passes + 1), jnp.int32(0))

    def refined(state: tuple[Array, list[Array], list[Array]]) -> tuple[Array, list[Array], list[Array]]:
        done, places, _ = state
        left = jnp.maximum(jnp.int32(passes - 1) - done, jnp.int32(0))
        shift = (left * jnp.int32(digit)).astype(np.uint32)
        better, read = [], []
        for known, one in zip(places, asked, strict=True):
            at = _along(place, known.ndim)
            read.append(jnp.max(jnp.where(at == known[..., None], _along(bits, known.ndim), none), axis=-1))
            limits = known[..., None] + lax.shift_left(steps, jnp.broadcast_to(shift, steps.shape))
            equal = _along(_magnitude(bits), limits.ndim) < one.limit[..., None, None]
            before = _total(equal & (_along(place, limits.ndim) < limits[..., None]))
            more = _total(before <= one.among[..., None])
            better.append(known + lax.shift_left(more, jnp.broadcast_to(shift, more.shape)))
        return done + jnp.int32(1), better, read

    first = [jnp.zeros(one.among.shape, np.uint32) for one in asked]
    unread = [jnp.zeros(one.among.shape, bits.dtype) for one in asked]
    *_, read = lax.while_loop(lambda state: state[0] < stop, refined, (jnp.int32(0), first, unread))
    return read


# Counting.


def _total(truths: Array) -> Array:
    """How many are true along the last dimension."""
    return jnp.sum(lax.convert_element_type(truths, np.uint32), axis=-1, dtype=np.uint32)


def _fewer(array: Array, limits: Array) -> Array:
    """How many entries along an array's last dimension are less than each limit; a NaN is less than none.

    Limits have the array's other dimensions, and then further ones.
    """
    return _total(_along(array, limits.ndim) < limits[..., None])


def _along(array: Array, rank: int) -> Array:
    """The array with its last dimension behind `rank` others."""
    return jnp.expand_dims(array, tuple(range(array.ndim - 1, rank)))


def _spread(array: Array, rank: int) -> Array:
    """The array with further dimensions, so that there are `rank`."""
    return jnp.expand_dims(array, tuple(range(array.ndim, rank)))


# Keys: unsigned integers in the order of the numbers. Of floats, flipping all bits of negative numbers and
# the sign of the others does that; of signed integers, flipping the sign.


def _unsigned(dtype: Any) -> np.dtype[Any]:
    return np.dtype(f"uint{8 * jnp.dtype(dtype).itemsize}")


def _bits(value: Array) -> Array:
    return lax.bitcast_convert_type(value, _unsigned(value.dtype))


def _magnitude(bits: Array) -> Array:
    """The bits of a float without its sign."""
    return bits & np.array(np.iinfo(bits.dtype).max >> 1, bits.dtype)


def _limits(dtype: Any) -> tuple[Array, Array]:
    """The bits of the smallest positive numbers: the one next to 0, and the one that is not subnormal."""
    normal = np.array(limits_of(str(jnp.dtype(dtype))).tiny, dtype).view(_unsigned(dtype))
    return jnp.ones((), normal.dtype), jnp.asarray(normal)


def _value(key: Array, dtype: Any) -> Array:
    """The number of a key. Beyond the infinities, where NaNs would be, it is the nearest of these."""
    kind = _unsigned(dtype)
    sign = np.array(1, kind) << np.array(8 * kind.itemsize - 1, kind)
    if kind == jnp.dtype(dtype):
        return key
    if not is_real_float(str(jnp.dtype(dtype))):
        return lax.bitcast_convert_type(key ^ sign, dtype)
    infinity = np.array(np.inf, jnp.dtype(dtype)).view(kind)
    key = jnp.clip(key, ~(infinity | sign), infinity | sign)
    return lax.bitcast_convert_type(jnp.where(key >= sign, key ^ sign, ~key), dtype)
