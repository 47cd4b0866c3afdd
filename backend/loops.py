"""Loops over chunks as source: a function of a chunk's start and length, and a scan over the starts.

A body runs on chunks of one length; what is left over at the end is one more call of the same
function with a shorter length, so any length of axis comes out right and nothing is computed twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eqsat.backend.elementwise import dtype_text
from eqsat.backend.layout import Emitted, shape_text, transposed, tuple_text
from eqsat.backend.monoids import identity_text, merge_text
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import accumulator
from eqsat.ir.ops import Concat, Fold, Select
from eqsat.ir.term import Term
from eqsat.planning.blocks import Loop, bodies_of

if TYPE_CHECKING:
    from eqsat.backend.emit import Emitter, Scope


@dataclass
class _State:
    """One variable that a loop carries: what it starts as, what it becomes, what is read from it.

    **Attributes:**

    - `results`: the loop's results that it holds (values and indices of a top-k share one).
    - `initial`: its first value, or None if the first chunk makes it.
    - `order`: its dimensions.
    """

    name: str
    results: list[Term]
    initial: str | None
    order: tuple[Axis, ...]


class LoopEmitter:
    """Writes one loop."""

    def __init__(self, emitter: Emitter, loop: Loop, chunk: int, scope: Scope) -> None:
        self.emitter = emitter
        self.loop = loop
        self.chunk = chunk
        self.scope = scope
        axis = loop.axis
        self.start = emitter.local(f"start_{axis.name}")
        self.length = emitter.local(f"size_{axis.name}")
        self.function = emitter.local(f"chunk_of_{axis.name}")

    def emit(self) -> None:
        """Write the body's function and the calls of it; results go into the scope."""
        emitter, scope, loop = self.emitter, self.scope, self.loop
        for term in loop.imports:
            emitter.value(term, scope)
        size, chunk = loop.axis.size, self.chunk
        whole = size // chunk
        kinds = ", ".join(dict.fromkeys(_describe(result) for result in loop.results))
        emitter.line(scope, f"# {kinds} over {loop.axis.name}: {size} in chunks of {chunk}")
        position = len(emitter.lines)
        states, merges, inner_lines = self._body()
        del emitter.lines[position:]
        carried = [state.name for state in states]
        emitter.line(scope, f"def {self.function}({self.start}, {self.length}, {', '.join(carried)}):")
        emitter.lines += inner_lines + merges
        first = [state.initial or "None" for state in states]
        initials = ", ".join(first)
        assigned = ", ".join(carried) + ("," if len(carried) == 1 else "")
        done = 0
        if any(state.initial is None for state in states) or whole == 1:
            emitter.line(scope, f"{assigned} = {self.function}(0, {chunk}, {initials})")
            done = 1
        else:
            emitter.line(scope, f"{assigned} = {tuple_text(first)}")
        if whole > done:
            turn = f"lambda carry, start: ({self.function}(start, {chunk}, *carry), None)"
            starts = f"jnp.arange({done * chunk}, {whole * chunk}, {chunk})"
            emitter.line(scope, f"({assigned}), _ = lax.scan({turn}, {tuple_text(carried)}, {starts})")
        if whole * chunk < size:
            rest = f"{self.function}({whole * chunk}, {size - whole * chunk}, {', '.join(carried)})"
            emitter.line(scope, f"{assigned} = {rest}")
        for state in states:
            self._read(state)

    def _body(self) -> tuple[list[_State], list[str], list[str]]:
        """Emit the body; the carried variables, the lines that update them, and the body's lines."""
        emitter, loop = self.emitter, self.loop
        inner = self.scope.inner(loop.axis, self.start, self.length, emitter.open_in)
        position = len(emitter.lines)
        emitter.block(loop.body, inner)
        body = emitter.lines[position:]
        states: list[_State] = []
        updates: list[str] = []
        shared: dict[tuple[object, ...], _State] = {}
        position = len(emitter.lines)
        for result in loop.results:
            value = emitter.value(bodies_of(result)[0], inner)
            op = result.op
            if isinstance(op, Fold) and isinstance(op.monoid, Select):
                key = (op.monoid.kind, op.monoid.k, op.monoid.axis, bodies_of(result)[0].number)
                if key in shared:
                    shared[key].results.append(result)
                    continue
                state, update = self._selection(result, op.monoid, value, inner)
                shared[key] = state
            elif isinstance(op, Fold):
                assert isinstance(op.monoid, str)
                state, update = self._accumulation(result, op.monoid, value)
            else:
                state, update = self._placement(result, value, inner)
            states.append(state)
            updates += update
        # Values first used by an update may have been emitted just now.
        body += emitter.lines[position:]
        indent = "    " * inner.depth
        updates.append(f"return {tuple_text([state.name for state in states])}")
        return states, [indent + line for line in updates], body

    def _accumulation(self, result: Term, kind: str, value: Emitted) -> tuple[_State, list[str]]:
        """A fold with a reduction's monoid: partial sums of half floats are kept in float32."""
        carried = accumulator(result.dtype)
        name = self.emitter.local(f"{kind}_{result.number}")
        shape = shape_text(value.order, self.scope.lengths)
        initial = f"jnp.full({shape}, {identity_text(kind, carried)}, {dtype_text(carried)})"
        piece = value.text
        if carried != result.dtype:
            piece = f"lax.convert_element_type({piece}, {dtype_text(carried)})"
        return _State(name, [result], initial, value.order), [f"{name} = {merge_text(kind, name, piece)}"]

    def _placement(self, result: Term, value: Emitted, inner: Scope) -> tuple[_State, list[str]]:
        """A concatenation: each chunk's piece is written into its place."""
        axis = self.loop.axis
        order = self.emitter.output_order(result) or value.order
        name = self.emitter.local(f"out_{result.number}")
        shape = shape_text(order, self.scope.lengths)
        initial = f"jnp.zeros({shape}, {dtype_text(result.dtype)})"
        piece = transposed(value, order).text
        where = f"{self.start}, axis={order.index(axis)}"
        update = f"{name} = lax.dynamic_update_slice_in_dim({name}, {piece}, {where})"
        return _State(name, [result], initial, order), [update]

    def _selection(self, result: Term, op: Select, value: Emitted, inner: Scope) -> tuple[_State, list[str]]:
        """The best entries of the chunks so far, as a pair of values and indices.

        Entries seen earlier come first, so ties fall to the lower index as in JAX. The first chunk
        makes the first state: no made-up entry can win a tie.
        """
        rest = tuple(axis for axis in value.order if axis != op.axis)
        moved = transposed(value, (*rest, op.axis)).text
        name = self.emitter.local(f"best_{result.number}")
        last = len(rest)
        index = dtype_text(op.dtype if op.result == "indices" else "int32")
        if op.kind == "top_k":
            lines = [
                f"values, indices = lax.top_k({moved}, min({op.k}, {self.length}))",
                f"indices = indices + lax.convert_element_type({self.start}, indices.dtype)",
                f"if {name} is not None:",
                f"    values = lax.concatenate(({name}[0], values), {last})",
                f"    indices = lax.concatenate(({name}[1], indices), {last})",
                f"    values, kept = lax.top_k(values, {op.k})",
                f"    indices = jnp.take_along_axis(indices, kept, axis={last})",
                f"{name} = (values, indices)",
            ]
        else:
            better = ">" if op.kind == "argmax" else "<"
            lines = [
                f"indices = lax.{op.kind}({moved}, {last}, {index})",
                f"values = jnp.take_along_axis({moved}, indices[..., None], axis={last})[..., 0]",
                f"indices = indices + lax.convert_element_type({self.start}, {index})",
                f"if {name} is not None:",
                f"    better = (values {better} {name}[0]) | ((values != values) & ({name}[0] == {name}[0]))",
                f"    values = jnp.where(better, values, {name}[0])",
                f"    indices = jnp.where(better, indices, {name}[1])",
                f"{name} = (values, indices)",
            ]
        return _State(name, [result], None, rest), lines

    def _read(self, state: _State) -> None:
        """Put the loop's results into the scope."""
        for result in state.results:
            op = result.op
            if isinstance(op, Fold) and isinstance(op.monoid, Select):
                if op.monoid.kind == "top_k":
                    value = self.emitter.best(state.name, op.monoid, state.order)
                else:
                    value = Emitted(f"{state.name}[1]", state.order)
            else:
                value = Emitted(state.name, state.order)
                if isinstance(op, Fold) and accumulator(result.dtype) != result.dtype:
                    text = f"lax.convert_element_type({state.name}, {dtype_text(result.dtype)})"
                    value = Emitted(text, state.order)
            self.scope.values[result.number] = value


def _describe(result: Term) -> str:
    match result.op:
        case Concat():
            return "concatenation"
        case Fold(monoid=Select(kind=kind)):
            return kind
        case Fold(monoid=kind):
            return str(kind)
    raise AssertionError(result)
