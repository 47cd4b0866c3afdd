"""Control flow as source: a nested function per body, and the JAX loop or choice that calls it.

A body refers to loop-invariant values as variables of the enclosing function. Only values that change from
iteration to iteration are passed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from eqsat.backend.calls_registry import call as call_text
from eqsat.backend.layout import Emitted, Lengths, by_axes, realised, tuple_text
from eqsat.backend.slicing import BY_BITS
from eqsat.ir.axis import Axis, Layout, layout_axes
from eqsat.ir.control import Body, Scan, Switch, While
from eqsat.ir.memory_order import memory_order
from eqsat.ir.ops import Call, Leaf, Opaque
from eqsat.ir.scan_slices import is_indexed, lies_apart, scanned_axis
from eqsat.ir.substitution import chunk_of
from eqsat.planning.blocks import Block, Compute

if TYPE_CHECKING:
    from eqsat.backend.emit import Emitter
    from eqsat.backend.scope import Scope


class ControlEmitter:
    """Writes one call of control flow."""

    def __init__(self, emitter: Emitter, step: Compute, scope: Scope) -> None:
        assert isinstance(step.term.op, Opaque)
        self.emitter = emitter
        self.step = step
        self.scope = scope
        self.call: Call = step.term.op.call
        self.lengths: Lengths = scope.lengths_of(step.term)
        self.values = [emitter.value(arg, scope) for arg in step.term.args]
        self.operands = [
            realised(value, layout, self.lengths)
            for value, layout in zip(self.values, self.call.arg_layouts, strict=True)
        ]

    def emit(self) -> list[str]:
        """Write the call; the texts of its results."""
        match self.call.control:
            case Scan() as scan:
                return self.scan(scan)
            case While() as loop:
                return self.while_loop(loop)
            case Switch():
                return self.choice()
        raise AssertionError(f"{self.call.primitive} is no control flow")

    def scan(self, scan: Scan) -> list[str]:
        iteration = self.emitter.local("iteration")
        count = len(scan.carried)
        groups = {"carry": scan.carried, "slices": scan.sliced}
        self.body(iteration, groups, self.call.bodies[0], self.step.bodies[0], count)
        carry, entries = self.emitter.local("carried"), self.emitter.local("stacked")
        options = {"length": str(scan.length)}
        if scan.reverse:
            options["reverse"] = "True"
        if scan.unroll != 1:
            options["unroll"] = str(scan.unroll)
        first = [self.of_operands(scan.carried), self.of_operands(scan.sliced, self.by_number)]
        self.line(f"{carry}, {entries} = {call_text('lax.scan', iteration, *first, **options)}")
        results = len(self.call.out_layouts)
        return [
            *(f"{carry}[{number}]" for number in range(count)),
            *(f"{entries}[{number}]" for number in range(results - count)),
        ]

    def while_loop(self, loop: While) -> list[str]:
        names = [self.emitter.local(hint) for hint in ("unfinished", "iteration")]
        groups = {"carry": loop.carried}
        self.body(names[0], groups, self.call.bodies[0], self.step.bodies[0], None)
        self.body(names[1], groups, self.call.bodies[1], self.step.bodies[1], len(loop.carried))
        last = self.emitter.local("last")
        self.line(f"{last} = {call_text('lax.while_loop', *names, self.of_operands(loop.carried))}")
        return [f"{last}[{number}]" for number in range(len(loop.carried))]

    def choice(self) -> list[str]:
        names = []
        guarded = self.step.term.args[0].dtype == "bool"
        hints = ("on_any_data", "where_guards_hold") if guarded else ("branch",) * len(self.call.bodies)
        for hint, body, block in zip(hints, self.call.bodies, self.step.bodies, strict=True):
            names.append(self.emitter.local(hint))
            self.body(names[-1], {}, body, block, len(self.call.out_layouts))
        chosen = self.emitter.local("chosen")
        text = call_text("lax.switch", self.operands[0], tuple_text(names))
        if guarded:
            text = call_text("lax.cond", self.operands[0], *reversed(names))
        self.line(f"{chosen} = {text}")
        return [f"{chosen}[{number}]" for number in range(len(self.call.out_layouts))]

    def line(self, text: str) -> None:
        self.emitter.line(self.scope, text)

    def of_operands(self, places: Sequence[int], by_number: Collection[int] = ()) -> str:
        texts = [
            f"lax.iota(jnp.int32, {self.length_of_scan})" if place in by_number else self.operands[place]
            for place in places
        ]
        return tuple_text(texts) if places else "()"

    @cached_property
    def by_bits(self) -> frozenset[int]:
        """The operands that a scan takes slices of by their bits, where floats would all be widened."""
        if not isinstance(self.call.control, Scan) or not self.emitter.codegen.slices_bits:
            return frozenset()
        dtypes = [arg.dtype for arg in self.step.term.args]
        return frozenset(place for place in self.call.control.sliced if dtypes[place] == "bfloat16")

    @cached_property
    def indexed(self) -> Mapping[int, int]:
        """The operands that lie in memory with another axis first, each with the place of the scanned one.

        Of these, a scan takes slices by their number (`eqsat.ir.scan_slices`).
        """
        found: dict[int, int] = {}
        scan, most = self.call.control, self.emitter.codegen.indexed_slices
        for place in scan.sliced if isinstance(scan, Scan) and most else ():
            axis, order = scanned_axis(self.call, place), self.values[place].order
            term = self.step.term.args[place]
            if axis is None or memory_order(term) != order or not lies_apart(order, axis):
                continue
            line = self.emitter.codegen.cache_line
            if place not in self.by_bits and is_indexed(order, axis, term.dtype, self.length, most, line):
                found[place] = order.index(axis)
        return found

    def length(self, axis: Axis) -> int:
        """How long an axis is: its chunks, where there is a loop over it."""
        return self.emitter.length(axis) if axis in self.lengths else axis.size

    @cached_property
    def by_number(self) -> frozenset[int]:
        """The operands of which a scan takes slices by their number."""
        return self.by_bits | self.indexed.keys()

    def slice_of(self, place: int, number: str, layout: Layout) -> Emitted:
        """A slice of such an operand, as the body sees it, which has a layout for it."""
        axis, value = self.indexed[place], self.values[place]
        given = layout_axes(self.call.arg_layouts[place])[1:]
        names = dict(zip(given, layout_axes(layout), strict=True))
        text = call_text("lax.dynamic_index_in_dim", value.text, number, str(axis), keepdims="False")
        return Emitted(text, tuple(names[one] for one in value.order if one in names))

    @property
    def length_of_scan(self) -> int:
        assert isinstance(self.call.control, Scan)
        return self.call.control.length

    def body(
        self, name: str, groups: dict[str, tuple[int, ...]], body: Body, block: Block, carried: int | None
    ) -> None:
        """Write a function that does what a body does.

        **Arguments:**

        - `groups`: its parameters, each a tuple, and for which operands they stand.
        - `carried`: how many results are carried on; the others, of a scan, are a second tuple. With None
          there is one result, and no tuple.
        """
        emitter = self.emitter
        parameters = {group: emitter.local(group) for group, places in groups.items()}
        self.line(f"def {name}({', '.join(parameters.values())}):")
        inner = self.scope.of_body()
        used = {term.number for term in body.program.reachable()}
        for leaf, source in zip(body.program.inputs, body.sources, strict=True):
            assert isinstance(leaf.op, Leaf)
            if leaf.number not in used:
                continue
            value, text = self.given(source, leaf.op.layout)
            for group, places in groups.items():
                if source in places:
                    text = f"{parameters[group]}[{places.index(source)}]"
                    if source in self.by_bits:
                        text = f"{call_text(BY_BITS, self.operands[source], text, '1', '0')}[0]"
                    if source in self.indexed:
                        value = self.slice_of(source, text, leaf.op.layout)
                    else:
                        value = by_axes(text, leaf.op.layout, self.lengths)
            if value.text != text or not text.isidentifier():
                variable = emitter.local("given")
                emitter.line(inner, f"{variable} = {value.text}")
                value = Emitted(variable, value.order)
            inner.values[leaf.number] = value
            # Of an axis that is being chunked, the loop around has given it a chunk.
            chunk = chunk_of(leaf, frozenset(self.lengths), body.program.terms)
            inner.values[chunk.number] = value
        emitter.block(block, inner)
        results = [
            realised(emitter.value(output.term, inner), output.layout, self.lengths)
            for output in body.program.outputs
        ]
        if carried is None:
            text = results[0]
        elif isinstance(self.call.control, Scan):
            text = f"{_tuple(results[:carried])}, {_tuple(results[carried:])}"
        else:
            text = _tuple(results)
        emitter.line(inner, f"return {text}")

    def given(self, place: int, layout: Layout) -> tuple[Emitted, str]:
        """An operand that is the same in every iteration, as a body sees it, and its text.

        It is taken in the order that it has: a product with its transpose is fast, one with what was
        transposed in the body takes XLA on CPU 17 times as long.
        """
        value = self.values[place]
        if layout == self.call.arg_layouts[place] and set(value.order) == set(layout_axes(layout)):
            return value, value.text
        text = self.operands[place]
        return by_axes(text, layout, self.lengths), text


def _tuple(items: Sequence[str]) -> str:
    return tuple_text(items) if items else "()"
