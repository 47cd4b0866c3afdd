"""Loops over chunks as source: a function of a chunk's start and length, called for every start.

A body runs on chunks of one length. A remainder at the end is one more call of the same function with a
shorter length, so axes of any length work and nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from eqsat.backend import selection
from eqsat.backend.chunk_bar import bar_text
from eqsat.backend.declared_folds import Carried, DeclaredFolds
from eqsat.backend.elementwise import dtype_text
from eqsat.backend.layout import (
    Emitted,
    by_axes,
    realised,
    shape_text,
    transposed,
)
from eqsat.backend.loop_begin import begin_text
from eqsat.backend.monoids import identity_text, merge_text
from eqsat.backend.relayout import copy_ahead
from eqsat.backend.tall_factors import TallFactors
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import accumulator
from eqsat.ir.formula import Monoid
from eqsat.ir.ops import Call, Concat, Fold, Opaque, Operation, Select
from eqsat.ir.term import Term
from eqsat.planning.blocks import Loop, bodies_of, combination

if TYPE_CHECKING:
    from eqsat.backend.emit import Emitter
    from eqsat.backend.scope import Scope


Reader = Callable[[], Emitted]
"""The text of a loop's result, known once the loop has been emitted."""

Update = tuple[Carried, list[str], Reader]
"""A carried variable, the lines that update it, and the text of its result."""


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
        copy_ahead(emitter, loop, scope)
        size, chunk = loop.axis.size, self.chunk
        kinds = ", ".join(dict.fromkeys(combination(result) for result in loop.results))
        label = emitter.labels.get(loop.axis)
        over = f"{loop.axis.name} ({label})" if label else loop.axis.name
        emitter.line(scope, f"# {kinds} over {over}: {size} in chunks of {chunk}")
        tell = self._bar()
        position = len(emitter.lines)
        states, readers, inner_lines = self._body()
        del emitter.lines[position:]
        carried = ", ".join(state.name for state in states)
        emitter.line(scope, f"def {self.function}(carry, _, {self.length}={chunk}):")
        indent = "    " * (scope.depth + 1)
        emitter.lines.append(f"{indent}{self.start}, {carried} = carry")
        if tell:
            emitter.lines.append(f"{indent}{tell}({self.start})")
        emitter.lines += inner_lines
        initial = ", ".join(state.initial or "None" for state in states)
        self._chunks(initial, carried, any(state.initial is None for state in states))
        for result, read in readers:
            scope.values[result.number] = read()

    def _chunks(self, initial: str, carried: str, first_apart: bool) -> None:
        """Write the calls for all chunks: the first, if it is apart, then a loop, then a shorter one.

        The start of a chunk is carried along: an array of starts to scan over is as long as there are chunks.
        """
        emitter, scope, function, chunk = self.emitter, self.scope, self.function, self.chunk
        carry = emitter.local(f"carry_{self.loop.axis.name}")
        loops, rest = divmod(self.loop.axis.size, chunk)
        place = loops * chunk
        calls = []
        if first_apart or loops == 1:
            calls.append(f"{function}({carry}, None)")
            loops -= 1
        if loops:
            calls.append(f"lax.scan({function}, {carry}, length={loops})")
        elif rest:
            calls.append(f"{function}({carry}, None, {rest})")
        waits = loops > 0 and rest > 0
        end = emitter.local(f"end_{self.loop.axis.name}") if loops > 0 else "_"
        awaited = emitter.comes_after.get(self.loop.id, ())
        begin = begin_text([scope.values[number].text for number in awaited if number in scope.values])
        emitter.line(scope, f"{carry} = ({begin}, {initial})")
        for call in calls[:-1]:
            emitter.line(scope, f"{carry}, _ = {call}")
        emitter.line(scope, f"({end}, {carried}), _ = {calls[-1]}")
        scope.ended = end if loops > 0 else scope.ended
        if waits:
            # XLA would compute what it can of it ahead of the loop, and hold that in the meantime.
            emitter.line(scope, "# XLA can't tell that the loop ran, so the last chunk waits for it.")
            last = f"{function}(({place}, *carry), None, {rest})[0][1:]"
            branches = f"lambda *carry: {last}, lambda *carry: carry"
            assigned = carried if "," in carried else f"{carried},"
            emitter.line(scope, f"{assigned} = lax.cond({end} > 0, {branches}, {carried})")

    def _bar(self) -> str | None:
        """Write the loop's bar, if it is to have one; what to call with the start of each chunk."""
        emitter, axis = self.emitter, self.loop.axis
        if not emitter.updates or self.scope.depth > 1:
            return None
        emitter.bars += 1
        count = len(emitter.schedule.block.own_loops)
        tell = emitter.local(f"tell_{axis.name}")
        text = bar_text(emitter.bars, count, axis.name, axis.size, self.chunk, emitter.updates)
        emitter.line(self.scope, f"{tell} = {text}")
        return tell

    def _body(self) -> tuple[list[Carried], list[tuple[Term, Reader]], list[str]]:
        """Emit the body; the carried variables, how to read each result, and the body's lines."""
        emitter, loop = self.emitter, self.loop
        inner = self.scope.inner(loop.axis, self.start, self.length, emitter.open_in)
        position = len(emitter.lines)
        names = {
            result.number: emitter.local(f"out_{result.number}")
            for result in loop.results
            if isinstance(result.op, Concat)
        }
        for number, name in names.items():
            if number in emitter.overwritten:
                leaf = emitter.overwritten[number]
                inner.values[leaf.number] = Emitted(name, inner.values[leaf.number].order)
        emitter.block(loop.body, inner)
        states: list[Carried] = []
        readers: list[tuple[Term, Reader]] = []
        updates: list[str] = []
        selections: dict[tuple[object, ...], Carried] = {}
        factorised: dict[tuple[int, Axis], list[tuple[Term, list[Emitted]]]] = {}
        folds = DeclaredFolds(emitter, self.scope)
        for result in loop.results:
            values = [emitter.value(body, inner) for body in bodies_of(result)]
            match result.op:
                case Fold(monoid=Monoid()):
                    states += folds.merge(result, values, inner)
                    readers.append((result, partial(folds.finished, result)))
                    continue
                case Fold(monoid=Select() as select):
                    key = (select.kind, select.k, select.axis, bodies_of(result)[0].number)
                    if key in selections:
                        readers.append((result, partial(self._selected, selections[key], select)))
                        continue
                    state, lines, read = self._selection(result, select, values[0])
                    selections[key] = state
                case Fold(monoid=Opaque(call=call)):
                    state, lines, read = self._successive_calls(result, call, inner)
                case Fold(monoid=Operation(axes=axes)):
                    factorised.setdefault((result.args[0].number, axes[0]), []).append((result, values))
                    continue
                case Fold(monoid=str(kind)):
                    state, lines, read = self._accumulation(result, kind, values[0])
                case _:
                    state, lines, read = self._placement(result, names[result.number], values[0])
            states.append(state)
            readers.append((result, read))
            updates += lines
        for folded in factorised.values():
            state, lines, read_all = self._factors(folded)
            states.append(state)
            readers += read_all
            updates += lines
        # Values first used by an update have been emitted just now.
        body = emitter.lines[position:]
        indent = "    " * inner.depth
        after = ", ".join(state.after for state in states)
        updates.append(f"return ({self.start} + {self.length}, {after}), None")
        return states, readers, body + [indent + line for line in updates]

    def _accumulation(self, result: Term, kind: str, value: Emitted) -> Update:
        """A fold with a reduction's monoid: partial sums of half floats are kept in float32."""
        dtype = accumulator(result.dtype)
        name = self.emitter.local(f"{kind}_{result.number}")
        shape = shape_text(value.order, self.scope.lengths_of(result))
        initial = self.scope.initial_array(shape, identity_text(kind, dtype), dtype_text(dtype))
        piece, total = value.text, name
        if dtype != result.dtype:
            piece = f"lax.convert_element_type({piece}, {dtype_text(dtype)})"
            total = f"lax.convert_element_type({name}, {dtype_text(result.dtype)})"
        state = Carried(name, initial, value.order, name)
        return state, [f"{name} = {merge_text(kind, name, piece)}"], lambda: Emitted(total, value.order)

    def _successive_calls(self, result: Term, call: Call, inner: Scope) -> Update:
        """A call that accumulates: each chunk of its operands into what came of those before."""
        start, *others = result.args
        layout = call.arg_layouts[0]
        name = self.emitter.local(f"{call.primitive.name}_{result.number}".replace("-", "_"))
        # A copy: it is updated in place.
        initial = realised(self.emitter.value(start, self.scope), layout, self.scope.lengths_of(result))
        opened = frozenset[Axis]().union(*(arg.open for arg in result.args))
        lengths = {axis: text for axis, text in inner.lengths.items() if axis in opened}
        operands = [
            self.emitter.operand(arg, other, lengths, inner)
            for arg, other in zip(others, call.arg_layouts[1:], strict=True)
        ]
        update = f"{name} = {self.emitter.call_text(call, [name, *operands], lengths)}"
        whole = by_axes(name, layout, self.scope.lengths_of(result))
        return Carried(name, initial, whole.order, name), [update], lambda: whole

    def _factors(
        self, folded: list[tuple[Term, list[Emitted]]]
    ) -> tuple[Carried, list[str], list[tuple[Term, Reader]]]:
        """All that is folded of one tall matrix's factors."""
        name = self.emitter.local(f"state_{folded[0][0].number}")
        lengths: dict[Axis, str] = {}
        for result, _ in folded:
            lengths.update(self.scope.lengths_of(result))
        factors = TallFactors(folded, name, lengths)
        state = factors.carried(-(-self.loop.axis.size // self.chunk))
        update = factors.update(self.start, self.length, self.chunk)
        return state, [update], factors.readers(partial(self.emitter.line, self.scope))

    def _placement(self, result: Term, name: str, value: Emitted) -> Update:
        """A concatenation: each chunk's piece is written into its place, which may be an input's."""
        axis = self.loop.axis
        order = self.emitter.outer_order(result) or value.order
        if result.number in self.emitter.overwritten:
            initial = self.emitter.value(self.emitter.overwritten[result.number], self.scope).text
        else:
            shape = shape_text(order, self.scope.lengths_of(result))
            initial = self.scope.initial_array(shape, None, dtype_text(result.dtype))
        piece = transposed(value, order).text
        where = f"{self.start}, axis={order.index(axis)}"
        update = f"{name} = lax.dynamic_update_slice_in_dim({name}, {piece}, {where})"
        return Carried(name, initial, order, name), [update], lambda: Emitted(name, order)

    def _selection(self, result: Term, op: Select, value: Emitted) -> Update:
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
            (operand,) = bodies_of(result)
            top_k = selection.function(self.emitter, op.k, self.chunk, operand.dtype)
            lines = [
                f"values, indices = {top_k}({moved}, min({op.k}, {self.length}))",
                f"indices = indices + lax.convert_element_type({self.start}, indices.dtype)",
                f"if {name} is not None:",
                f"    values = lax.concatenate(({name}[0], values), {last})",
                f"    indices = lax.concatenate(({name}[1], indices), {last})",
                f"    values, kept = {top_k}(values, {op.k})",
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
        state = Carried(name, None, rest, name)
        return state, lines, partial(self._selected, state, op)

    def _selected(self, state: Carried, op: Select) -> Emitted:
        """One of a selection's results out of the pair of them."""
        if op.kind == "top_k":
            return selection.best(state.name, op, state.order)
        return Emitted(f"{state.name}[1]", state.order)
