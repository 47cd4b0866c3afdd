"""The best entries of a row, by the maxima of blocks: a function in the emitted program.

It gives what `lax.top_k` gives, in the same order. Blocks are contiguous, so of equal maxima the first one's
block has the first entry; and what is in the chosen blocks is looked through as it stands in the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.backend.contractions import BLOCKS
from eqsat.backend.elementwise import dtype_text
from eqsat.backend.layout import Emitted, transposed
from eqsat.backend.pieces import Pieces
from eqsat.backend.reduction_steps import parts
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import itemsize
from eqsat.ir.ops import Select
from eqsat.ir.selection import (
    LIBRARY_DTYPE,
    LIBRARY_ROW,
    LONGEST_BLOCK,
    MOST_SUCCESSIVE,
    SORTED_ROW,
    leaves_to_library,
)
from eqsat.ir.term import Term

if TYPE_CHECKING:
    from eqsat.backend.emit import Emitter
    from eqsat.backend.scope import Scope

NAMES = ("top_k", "top_k_successively", "ordered", "from_order", "arg_in_parts")
"""The names that the text takes in the emitted program."""


def select(emitter: Emitter, term: Term, op: Select, scope: Scope) -> Emitted:
    """Emit a selection; the values and the indices of a top_k come from one call."""
    (operand,) = term.args
    value = emitter.value(operand, scope)
    rest = tuple(axis for axis in value.order if axis != op.axis)
    if op.kind != "top_k":
        text = extreme_text(emitter, op, operand, value, scope)
        return emitter.assign(scope, term, op.kind, Emitted(text, rest))
    key = (op.kind, op.axis, op.k, operand.number)
    if key not in scope.calls:
        moved = transposed(value, (*rest, op.axis))
        top_k = function(emitter, op.k, op.axis.size, operand.dtype)
        scope.calls[key] = emitter.local(f"best_{term.number}")
        emitter.line(scope, f"{scope.calls[key]} = {top_k}({moved.text}, {op.k})")
    return best(scope.calls[key], op, rest)


def extreme_text(emitter: Emitter, op: Select, operand: Term, value: Emitted, scope: Scope) -> str:
    """The place of the greatest or least entry; of a long row, in two steps."""
    pieces = {a: emitter.pieces[a] if a in operand.open else Pieces.of(a) for a in operand.axes}
    kept = itemsize(operand.dtype) + itemsize(op.dtype)
    divided = parts(value, {op.axis}, kept, emitter.codegen, pieces, scope.lengths_of(operand))
    if divided is None or operand.dtype == "bool":
        return f"lax.{op.kind}({value.text}, {value.order.index(op.axis)}, {dtype_text(op.dtype)})"
    emitter.divides = True
    better = "lax.gt" if op.kind == "argmax" else "lax.lt"
    # Where the parts are is not where the axis was: few columns are transposed.
    return f"arg_in_parts({better}, {divided.text}, {divided.order.index(BLOCKS)}, {dtype_text(op.dtype)})"


def function(emitter: Emitter, k: int, length: int, dtype: str) -> str:
    """The name of what finds the k best entries of rows of that length, which the module will have."""
    if leaves_to_library(k, length, dtype):
        return "lax.top_k"
    emitter.selects = True
    return "top_k"


def best(pair: str, op: Select, rest: tuple[Axis, ...]) -> Emitted:
    """The values or the indices out of a pair of both."""
    text = f"{pair}[{0 if op.result == 'values' else 1}]"
    if op.out_axis is None:
        return Emitted(f"lax.squeeze({text}, ({len(rest)},))", rest)
    return Emitted(text, (*rest, op.out_axis))


FUNCTIONS = f'''\
def top_k(a, k):
    """`lax.top_k(a, k)`, faster: the best entries are in the blocks of a row that have the best maxima."""
    *rows, length = a.shape
    library = a.dtype == jnp.{LIBRARY_DTYPE}
    least, each = {LIBRARY_ROW} if library else {SORTED_ROW}
    if length < max(least, each * k):
        return lax.top_k(a, k) if library or k > {MOST_SUCCESSIVE} else top_k_successively(a, k)
    block = min({LONGEST_BLOCK}, int((length // k) ** 0.5))
    whole = length // block * block
    maxima = jnp.max(jnp.reshape(ordered(a[..., :whole]), (*rows, -1, block)), axis=-1)
    chosen = jnp.sort(top_k(from_order(maxima, a.dtype), k)[1], axis=-1)
    places = jnp.reshape(block * chosen[..., None] + lax.iota(jnp.int32, block), (*rows, -1))
    rest = jnp.broadcast_to(jnp.arange(whole, length, dtype=jnp.int32), (*rows, length - whole))
    places = jnp.concatenate([places, rest], axis=-1)
    values, best = top_k(jnp.take_along_axis(a, places, axis=-1, mode="promise_in_bounds"), k)
    return values, jnp.take_along_axis(places, best, axis=-1, mode="promise_in_bounds")


def top_k_successively(a, k):
    """`lax.top_k(a, k)`, faster where XLA would sort: the best entry, the best of the others, and so on."""
    last, length = a.ndim - 1, a.shape[-1]
    keys = ordered(a)
    least = jnp.array(jnp.iinfo(keys.dtype).min, keys.dtype)

    def better(one, other):
        first = (one[0] > other[0]) | ((one[0] == other[0]) & (one[1] < other[1]))
        return jnp.where(first, one[0], other[0]), jnp.where(first, one[1], other[1])

    def iteration(carry, _):
        number, left, best = carry
        entries = (jnp.where(left == length, least, keys), left)
        place = lax.reduce(entries, (least, jnp.int32(length)), better, (last,))[1][..., None]
        best = lax.dynamic_update_slice_in_dim(best, place, number, last)
        return (number + 1, jnp.where(left == place, length, left), best), None

    places = lax.broadcasted_iota(jnp.int32, a.shape, last)
    best = jnp.zeros((*a.shape[:-1], k), jnp.int32)
    (_, _, best), _ = lax.scan(iteration, (0, places, best), length=k)
    return jnp.take_along_axis(a, best, axis=-1, mode="promise_in_bounds"), best


def ordered(a):
    """Integers that are in the order of `lax.top_k`: -0 is less than 0, and NaN is beyond infinity."""
    if not jnp.issubdtype(a.dtype, jnp.floating):
        return a
    bits = lax.bitcast_convert_type(a, f"int{{8 * a.dtype.itemsize}}")
    return jnp.where(bits < 0, bits ^ jnp.iinfo(bits.dtype).max, bits)


def from_order(keys, dtype):
    """The entries that `ordered` made integers of."""
    if keys.dtype == dtype:
        return keys
    return lax.bitcast_convert_type(jnp.where(keys < 0, keys ^ jnp.iinfo(keys.dtype).max, keys), dtype)
'''
"""In the emitted program, before the function itself."""
