"""Chunks of values as source. Of what is known without its entries, as indices are, only a chunk is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.backend.elementwise import dtype_text
from eqsat.backend.layout import Emitted
from eqsat.ir.ops import Chunk, Delta, Iota
from eqsat.ir.term import Term

if TYPE_CHECKING:
    from eqsat.backend.emit import Emitter
    from eqsat.backend.scope import Scope


BY_BITS = "slice_by_bits"
"""The name of the function in the emitted program that takes slices of bfloat16 arrays."""

FUNCTION = """def slice_by_bits(a, start, length, axis):
    # Of bfloat16, XLA for CPUs would convert all of the array to single precision first.
    @jax.custom_jvp
    def taken(a, start):
        bits = lax.bitcast_convert_type(a, jnp.uint16)
        bits = lax.dynamic_slice_in_dim(bits, start, length, axis)
        return lax.bitcast_convert_type(bits, jnp.bfloat16)

    @taken.defjvp
    def tangent(arguments, tangents):
        return taken(*arguments), lax.dynamic_slice_in_dim(tangents[0], arguments[1], length, axis)

    return taken(a, start)
"""


def chunk(emitter: Emitter, term: Term, scope: Scope) -> Emitted:
    """The chunk that a loop is at."""
    assert isinstance(term.op, Chunk)
    axis = term.op.axis
    (operand,) = term.args
    if axis not in operand.axes:
        return _read_anew(emitter, term, operand, scope)
    start, length = scope.starts[axis], scope.lengths[axis]
    if isinstance(operand.op, Iota):
        text = _indices(start, length, operand.dtype)
        return emitter.assign(scope, term, "index", Emitted(text, (axis,)))
    if isinstance(operand.op, Delta):
        other = operand.op.first if axis == operand.op.second else operand.op.second
        rows = f"({_indices(start, length, 'int32')})[:, None]"
        columns = stored_indices(Emitted(f"lax.iota(jnp.int32, {other.size})", (other,)))
        text = f"{rows} == {columns.text}"
        return emitter.assign(scope, term, "delta", Emitted(text, (axis, other)))
    return sliced(emitter, term, emitter.value(operand, scope), scope)


def sliced(emitter: Emitter, term: Term, value: Emitted, scope: Scope) -> Emitted:
    """A chunk of a value, in the value's order of axes."""
    assert isinstance(term.op, Chunk)
    axis = term.op.axis
    place = f"{scope.starts[axis]}, {scope.lengths[axis]}, axis={value.order.index(axis)}"
    by_bits = emitter.codegen.slices_bits and term.dtype == "bfloat16"
    text = f"{BY_BITS if by_bits else 'lax.dynamic_slice_in_dim'}({value.text}, {place})"
    return emitter.assign(scope, term, "chunk", Emitted(text, value.order))


def _read_anew(emitter: Emitter, term: Term, operand: Term, scope: Scope) -> Emitted:
    """A value that lacks the axis of a loop, in a form that XLA doesn't know to be the same for all chunks.

    Otherwise it would compute what depends on the value alone before the loop, and hold it.
    """
    assert isinstance(term.op, Chunk)
    start = scope.starts[term.op.axis]
    value = emitter.value(operand, scope)
    name = emitter.local(f"anew_{term.number}")
    emitter.line(scope, f"{name}, {start} = lax.optimization_barrier(({value.text}, {start}))")
    return Emitted(name, value.order)


def stored_indices(indices: Emitted) -> Emitted:
    """The indices of a whole axis, stored for the loop that compares them with those of a chunk.

    In some loops, XLA on CPU takes longer for what it fuses with a comparison of two `iota`s: conjugate
    gradients with K + I took 2.4 times as long (jaxlib 0.10). The reason is not known
    (docs/log/elementwise.md).
    """
    return Emitted(f"lax.optimization_barrier({indices.text})", indices.order)


def _indices(start: str, length: str, dtype: str) -> str:
    """The indices of a chunk."""
    return f"lax.convert_element_type({start}, {dtype_text(dtype)}) + lax.iota({dtype_text(dtype)}, {length})"
