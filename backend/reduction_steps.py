"""Long reductions as source in two steps, where XLA would store much between its own (GPUs)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from eqsat.backend.codegen_options import CodegenOptions
from eqsat.backend.contractions import BLOCKS, in_blocks
from eqsat.backend.layout import Emitted, Lengths, transposed, tuple_text
from eqsat.backend.pieces import Pieces
from eqsat.ir.axis import Axis
from eqsat.ir.reduction_steps import part_length


def parts(
    value: Emitted,
    axes: Collection[Axis],
    itemsize: int,
    codegen: CodegenOptions,
    pieces: Mapping[Axis, Pieces],
    lengths: Lengths,
) -> Emitted | None:
    """A value with the parts of a reduction over `axes` as a dimension `BLOCKS`; None if there is one step.

    **Arguments:**

    - `itemsize`: bytes of an entry of the result.
    - `pieces`: the lengths in which axes are gone through.
    - `lengths`: as text, those that axes have here.
    """
    last = set(value.order[-len(axes) :]) == set(axes)
    longest = codegen.split_reduction if last else codegen.split_columns
    axis = max(axes, key=lambda axis: (pieces[axis].shortest, axis.id))
    longest //= math.prod(pieces[other].shortest for other in axes if other != axis)
    if not longest:
        return None
    rows = math.prod(pieces[other].shortest for other in value.order if other not in axes)
    length = part_length(pieces[axis].shortest, longest, rows * itemsize, pieces[axis].divisor)
    if length is None:
        return None
    behind = value.order[max(map(value.order.index, axes)) + 1 :]
    if behind and math.prod(pieces[other].shortest for other in behind) < codegen.few_columns:
        # XLA reduces along the last axis then, but not where a reshape is in between.
        rest = [other for other in value.order if other not in axes]
        value = transposed(value, (*rest, *(other for other in value.order if other in axes)))
    return in_blocks(value, {axis}, length, lengths)


def reduced_in_steps(kind: str, axes: Collection[Axis], divided: Emitted) -> Emitted:
    """The reduction of a value in parts: of each part, and of their results."""
    first = reduced(kind, axes, divided)
    # XLA would make one reduction of both, and take it apart in its own way.
    return reduced(kind, {BLOCKS}, Emitted(f"lax.optimization_barrier({first.text})", first.order))


def reduced(kind: str, axes: Collection[Axis], value: Emitted) -> Emitted:
    """The reduction of a value in one step."""
    dimensions = [str(d) for d, axis in enumerate(value.order) if axis in axes]
    order = tuple(axis for axis in value.order if axis not in axes)
    if kind == "mean":
        return Emitted(f"jnp.mean({value.text}, axis={tuple_text(dimensions)})", order)
    return Emitted(f"lax.reduce_{kind}({value.text}, axes={tuple_text(dimensions)})", order)


EXTREMES = '''\
def arg_in_parts(is_better, a, axis, dtype):
    """The place of the best entry in parts along `axis`, the entries of a part being along the next axis."""

    def better(one, other):
        nan, same = (one[0] != one[0], one[0] == other[0])
        first = is_better(one[0], other[0]) | (nan & (other[0] == other[0]))
        first |= (same | (nan & (other[0] != other[0]))) & (one[1] < other[1])
        return jnp.where(first, one[0], other[0]), jnp.where(first, one[1], other[1])

    part, entry = (lax.broadcasted_iota(dtype, a.shape, axis + place) for place in (0, 1))
    if jnp.issubdtype(a.dtype, jnp.floating):
        least, most = -jnp.inf, jnp.inf
    else:
        least, most = jnp.iinfo(a.dtype).min, jnp.iinfo(a.dtype).max
    worst = jnp.array(most if is_better is lax.lt else least, a.dtype), jnp.array(jnp.iinfo(dtype).max, dtype)
    best = lax.reduce((a, part * a.shape[axis + 1] + entry), worst, better, (axis + 1,))
    return lax.reduce(best, worst, better, (axis,))[1]
'''
"""In the emitted program, before the function itself: argmin and argmax of a value in parts."""
