"""Calls that only move entries: slices, flips, joins, tiles, pads with a constant, reshapes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eqsat.ir.axis import Layout, layout_axes, layout_shape
from eqsat.ir.moved_arrays import Filled, Joined, Moved, repeated, reshaped, taken, transposed
from eqsat.ir.ops import Const, Opaque
from eqsat.ir.term import Term

Made = Callable[[Mapping[str, Any], int, Sequence[Moved], Sequence[Const]], Moved | None]


def moved_operands(term: Term) -> tuple[Term, ...]:
    """The operands whose entries a call moves; none for calls that do something else."""
    if not isinstance(term.op, Opaque) or term.op.call.primitive.name not in MOVING:
        return ()
    return term.args[:1] if term.op.call.primitive.name == "pad" else term.args


def moved_by(term: Term, arrays: Sequence[Moved]) -> Moved | None:
    """What a call makes of arrays by moving their entries; None for what needs more than that.

    **Arguments:**

    - `arrays`: in the place of its `moved_operands`, in their layouts.
    """
    assert isinstance(term.op, Opaque)
    call = term.op.call
    rest = [arg.op for arg in term.args[len(arrays) :] if isinstance(arg.op, Const)]
    shape = layout_shape(call.out_layouts[term.op.result])
    if 0 in shape:
        return Filled("0", call.out_dtypes[term.op.result], shape)
    if len(rest) < len(term.args) - len(arrays):
        return None
    return MOVING[call.primitive.name](call.params, term.op.result, arrays, rest)


def arranged(moved: Moved, layout: Layout, wanted: Layout) -> Moved | None:
    """An array of one layout in another, which may have further axes; None if that lacks some."""
    if layout == wanted:
        return moved
    own, others = layout_axes(layout), layout_axes(wanted)
    if 0 in moved.shape or repeats(layout) or repeats(wanted) or not set(own) <= set(others):
        return None
    missing = [axis for axis in others if axis not in own]
    found = reshaped(moved, (*(axis.size for axis in own), *(1 for _ in missing)))
    found = transposed(found, [[*own, *missing].index(axis) for axis in others])
    return reshaped(repeated(found, tuple(axis.size for axis in others)), layout_shape(wanted))


def repeats(layout: Layout) -> bool:
    """Whether a layout has an axis twice, as that of a diagonal matrix does."""
    axes = layout_axes(layout)
    return len(set(axes)) != len(axes)


def _slice(params: Mapping[str, Any], result: int, arrays: Sequence[Moved], rest: Sequence[Const]) -> Moved:
    (array,) = arrays
    steps = params["strides"] or (1,) * len(array.shape)
    places = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
    return taken(array, tuple(range(int(start), int(stop), int(step)) for start, stop, step in places))


def _rev(params: Mapping[str, Any], result: int, arrays: Sequence[Moved], rest: Sequence[Const]) -> Moved:
    (array,) = arrays
    flipped = params["dimensions"]
    places = (range(length) for length in array.shape)
    return taken(array, tuple(one[::-1] if number in flipped else one for number, one in enumerate(places)))


def _concatenate(
    params: Mapping[str, Any], result: int, arrays: Sequence[Moved], rest: Sequence[Const]
) -> Moved:
    return Joined(tuple(arrays), int(params["dimension"]))


def placed(array: Moved, dimension: int, places: range, outside: tuple[int, int], dtype: str) -> Moved:
    """Some entries of a dimension, with so many zeros before and after them."""
    ranges = [range(length) for length in array.shape]
    ranges[dimension] = places
    found = taken(array, tuple(ranges))
    zero = {"bool": "False"}.get(dtype, "0")
    return _with_ends(found, dimension, outside, Const(zero, dtype))


def tiled(array: Moved, dimension: int, count: int) -> Moved:
    """An array so many times one after the other along a dimension."""
    return array if count == 1 else Joined((array,) * count, dimension)


def _with_ends(array: Moved, dimension: int, counts: Sequence[int], value: Const) -> Moved:
    """An array with so many entries of a value before and after it along a dimension."""
    ends = []
    for count in counts:
        shape = list(array.shape)
        shape[dimension] = max(0, int(count))
        ends.append(Filled(value.text, value.dtype, tuple(shape)))
    joined = [one for one in (ends[0], array, ends[1]) if one.shape[dimension]]
    return Joined(tuple(joined), dimension) if len(joined) > 1 else array


def _pad(
    params: Mapping[str, Any], result: int, arrays: Sequence[Moved], rest: Sequence[Const]
) -> Moved | None:
    (found,), (value,) = arrays, rest
    for dimension, (low, high, inner) in enumerate(params["padding_config"]):
        if inner and found.shape[dimension] > 1:
            return None
        length = found.shape[dimension]
        start, stop = max(0, -low), length - max(0, -high)
        if start >= stop:
            return None
        places = [range(each) for each in found.shape]
        places[dimension] = range(start, stop)
        found = taken(found, tuple(places))
        found = _with_ends(found, dimension, (low, high), value)
    return found


def _reshape(
    params: Mapping[str, Any], result: int, arrays: Sequence[Moved], rest: Sequence[Const]
) -> Moved | None:
    (array,) = arrays
    return None if params.get("dimensions") is not None else reshaped(array, tuple(params["new_sizes"]))


def _split(params: Mapping[str, Any], result: int, arrays: Sequence[Moved], rest: Sequence[Const]) -> Moved:
    (array,) = arrays
    ends = list(itertools.accumulate(params["sizes"], initial=0))
    places = [range(length) for length in array.shape]
    places[params["axis"]] = range(ends[result], ends[result + 1])
    return taken(array, tuple(places))


def _tile(params: Mapping[str, Any], result: int, arrays: Sequence[Moved], rest: Sequence[Const]) -> Moved:
    (array,) = arrays
    for dimension, count in enumerate(params["reps"]):
        array = tiled(array, dimension, int(count))
    return array


MOVING: Mapping[str, Made] = {
    "slice": _slice,
    "rev": _rev,
    "concatenate": _concatenate,
    "pad": _pad,
    "reshape": _reshape,
    "split": _split,
    "tile": _tile,
}
"""By the name of a primitive, what it makes of arrays."""
