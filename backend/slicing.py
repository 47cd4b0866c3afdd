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


def chunk(emitter: Emitter, term: Term, scope: Scope) -> Emitted:
    """The chunk that a loop is at."""
    assert isinstance(term.op, Chunk)
    axis = term.op.axis
    (operand,) = term.args
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
    text = f"lax.dynamic_slice_in_dim({value.text}, {place})"
    return emitter.assign(scope, term, "chunk", Emitted(text, value.order))


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
