"""From a schedule to JAX source text: one assignment per op, one nested function per loop."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

from eqsat.backend import (
    chunk_bar,
    column_order,
    convolutions,
    loop_begin,
    packing,
    reduction_steps,
    selection,
    slicing,
    stored_values,
)
from eqsat.backend.calls import call_source
from eqsat.backend.codegen_options import CodegenOptions
from eqsat.backend.contractions import contraction_text
from eqsat.backend.control import ControlEmitter
from eqsat.backend.convolutions import in_library_order, shifted_source
from eqsat.backend.elementwise import (
    constant_text,
    dtype_text,
    map_text,
    operand_text,
    takes_bare_numbers,
)
from eqsat.backend.horizontal_fusion import emit_fused_products
from eqsat.backend.in_place import overwritten
from eqsat.backend.layout import (
    Emitted,
    Lengths,
    by_axes,
    realised,
    sizes_of,
    tuple_text,
)
from eqsat.backend.layout_assignment import comes_backwards, elementwise_order, read_by_calls, wanted_orders
from eqsat.backend.loops import LoopEmitter
from eqsat.backend.magnitudes import FUNCTION, MAGNITUDES, PLACES
from eqsat.backend.module import Module
from eqsat.backend.namespace import LOCAL, Namespace
from eqsat.backend.operations import operation_text
from eqsat.backend.packing import packing_little
from eqsat.backend.pieces import Pieces
from eqsat.backend.product_parts import terms_of_part
from eqsat.backend.reductions import reduction_text
from eqsat.backend.relayout import COPY, COPYING, copied
from eqsat.backend.rounding import ROUNDED, ROUNDING, rounded_products
from eqsat.backend.scope import Scope
from eqsat.ir import row_factors
from eqsat.ir.axis import Axis, Layout, is_flat, layout_axes
from eqsat.ir.depthwise import is_shifted
from eqsat.ir.labels import axis_labels
from eqsat.ir.ops import (
    Call,
    Chunk,
    Concat,
    Const,
    Delta,
    Dot,
    Fold,
    Iota,
    Leaf,
    Map,
    Opaque,
    Operation,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.term import Term
from eqsat.planning.blocks import Block, Compute, FusedProducts, Loop, Relayout, Schedule

INDENT = "    "

HELPERS = (
    COPY,
    ROUNDED,
    MAGNITUDES,
    packing.BY_COLUMNS,
    slicing.BY_BITS,
    convolutions.SHIFTED,
    column_order.COLUMNS,
    loop_begin.BEGIN,
    stored_values.STORED,
    *selection.NAMES,
    *row_factors.NAMES,
)
"""Functions that the emitted text may define."""

RESERVED = ("optimized", "bar", "values", "indices", "better", "kept", "carry", *HELPERS)
"""Names that the emitted text uses by itself; no input may be called so."""


class Emitter:
    """Writes one module."""

    def __init__(
        self,
        schedule: Schedule,
        names: Sequence[str],
        makers: Mapping[int, str],
        pairs: Mapping[int, int],
        updates: int,
        codegen: CodegenOptions,
        relayouts: Mapping[int, Relayout],
        fused_products: Mapping[Block, Sequence[FusedProducts]],
        read_repeatedly: Mapping[Block, frozenset[int]],
        comes_after: Mapping[int, tuple[int, ...]],
    ) -> None:
        self.schedule = schedule
        self.makers = makers
        self.overwritten = overwritten(schedule, pairs)
        self.updates = updates
        self.relayouts = relayouts
        self.relayout_of = {
            member: relayout for relayout in relayouts.values() for member in relayout.members
        }
        self.fused_products = fused_products
        self.read_repeatedly = read_repeatedly
        self.comes_after = comes_after
        self.codegen = codegen
        self.pieces: dict[Axis, Pieces] = {}
        for loop in schedule.block.loops:
            length = schedule.chunks[loop.id]
            self.pieces[loop.axis] = self.pieces.get(loop.axis, Pieces.of(loop.axis)).with_chunks(length)
        self.bars = 0
        self.selects = self.divides = False
        self.copies = False
        self.rounds = False
        self.tests_magnitudes = False
        self.rounded: set[int] = set()
        self.lines: list[str] = []
        self.names = Namespace(RESERVED)
        self._short: set[str] = set()
        self._indices: dict[int, bool] = {}
        self.inputs = [self.local(name) for name in names]
        self.labels = axis_labels(schedule.program, self.inputs)
        self.wanted: dict[int, tuple[Axis, ...]] = {}
        self.open_in: dict[int, frozenset[Axis]] = {}
        self._outputs: dict[int, Layout] = {}
        self._read_by_calls: dict[int, tuple[Axis, ...]] = {}
        for program in schedule.program.inside():
            self.rounded |= rounded_products(program)
            self.wanted |= wanted_orders(program, self.length, codegen.transposes_slowly)
            self._read_by_calls |= read_by_calls(program)
            self.open_in |= {term.number: term.open for term in (*program.inputs, *program.reachable())}
            for output in program.outputs:
                self._outputs.setdefault(output.term.number, output.layout)

    def length(self, axis: Axis) -> int:
        """How long an axis is: its chunks, where there is a loop over it."""
        return self.pieces[axis].shortest if axis in self.pieces else axis.size

    # Lines and names.

    def line(self, scope: Scope, text: str, comment: str = "") -> None:
        self.lines.append(INDENT * scope.depth + text + (f"  # {comment}" if comment else ""))

    def local(self, hint: str) -> str:
        """A variable's name, unique in the module."""
        if LOCAL.fullmatch(hint) and hint not in self._short:
            # No global name looks like this, so it is free inside the function.
            self._short.add(hint)
            return hint
        return self.names.fresh(hint)

    def assign(self, scope: Scope, term: Term, hint: str, value: Emitted) -> Emitted:
        """Assign an expression to a new variable."""
        name = self.local(f"{hint}_{term.number}")
        self.line(scope, f"{name} = {value.text}", self.makers.get(term.number, ""))
        return Emitted(name, value.order)

    # The module.

    def module(self) -> str:
        """The text of the module; its function is called `optimized`."""
        scope = Scope({}, {}, {}, 1)
        used = set(self.schedule.program.reachable())
        for term, name in zip(self.schedule.program.inputs, self.inputs, strict=True):
            assert isinstance(term.op, Leaf)
            if term in used:
                scope.values[term.number] = self.input(name, term.op.layout, scope)
        self.block(self.schedule.block, scope)
        results = [
            realised(self.value(output.term, scope), output.layout, {})
            for output in self.schedule.program.outputs
        ]
        results = [text if text not in self.inputs else f"jnp.asarray({text})" for text in results]
        self.line(scope, f"return {tuple_text(results) if results else '()'}")
        body = "\n".join(self.lines)
        imports = ["import jax.numpy as jnp", "from jax import lax", *self.names.imports]
        wanted = {selection.FUNCTIONS: self.selects, COPYING: self.copies, ROUNDING: self.rounds}
        wanted[reduction_steps.EXTREMES] = self.divides
        wanted[row_factors.FUNCTIONS] = " = add_rows(" in body
        wanted |= {FUNCTION: self.tests_magnitudes, packing.FUNCTION: f"{packing.BY_COLUMNS}(" in body}
        wanted[slicing.FUNCTION] = f"{slicing.BY_BITS}(" in body
        ordered = f"{column_order.COLUMNS}(" in body or wanted[row_factors.FUNCTIONS]
        wanted[column_order.FUNCTION] = ordered
        wanted[loop_begin.FUNCTION] = f"({loop_begin.BEGIN}(" in body
        wanted[stored_values.FUNCTION] = f" = {stored_values.STORED}(" in body
        wanted[convolutions.FUNCTION] = f"{convolutions.SHIFTED}(" in body
        helpers = "".join(f"\n\n{text}" for text, is_wanted in wanted.items() if is_wanted)
        if wanted[convolutions.FUNCTION]:
            imports = ["import itertools", "", *imports]
        if self.bars:
            imports = [*chunk_bar.IMPORTS, *imports]
            helpers += f"\n\n{chunk_bar.FUNCTION}"
        elif re.search(r"\bjax\.(?!numpy)", helpers + body):
            imports = ["import jax", *imports]
        objects = ""
        if self.names.objects:
            listed = ", ".join(self.names.objects)
            objects = f"\n# Python objects of the original program that have no text: {listed}\n"
        signature = ", ".join(self.inputs)
        return "\n".join(imports) + f"\n{objects}{helpers}\n\ndef optimized({signature}):\n{body}\n"

    def input(self, name: str, layout: Layout, scope: Scope) -> Emitted:
        """An input as a value. To give it a dimension for each of its axes costs nothing at run time."""
        value = by_axes(name, layout, {})
        if is_flat(layout):
            return value
        reshaped = self.local(f"{name}_by_axes")
        self.line(scope, f"{reshaped} = {value.text}")
        return Emitted(reshaped, value.order)

    def block(self, block: Block, scope: Scope) -> None:
        """Emit the steps of a block."""
        stored = self.read_repeatedly.get(block, frozenset())
        fused_products = {group.products[0].number: group for group in self.fused_products.get(block, ())}
        for step in block.steps:
            if isinstance(step, Loop):
                LoopEmitter(self, step, self.schedule.chunks[step.id], scope).emit()
            elif step.term.number in fused_products:
                emit_fused_products(self, fused_products[step.term.number], scope)
            elif step.term.number not in scope.values:
                value = self.control(step, scope) if step.bodies else self.term(step.term, scope)
                if step.term.number in stored and value.text.isidentifier():
                    self.line(scope, f"{value.text} = {stored_values.STORED}({value.text})")
                scope.values[step.term.number] = value

    def value(self, term: Term, scope: Scope) -> Emitted:
        """The emitted value of a term; constants and indices are written where they are used."""
        found = scope.values.get(term.number)
        if found is None:
            found = self.term(term, scope)
            scope.values[term.number] = found
        return found

    # Ops.

    def term(self, term: Term, scope: Scope) -> Emitted:
        """Emit the assignment for one term, whose operands have been emitted."""
        args = term.args
        match term.op:
            case Const():
                return Emitted(constant_text(term.op), ())
            case Iota(axis=axis, dtype=dtype):
                return Emitted(f"lax.iota({dtype_text(dtype)}, {axis.size})", (axis,))
            case Delta(first=first, second=second):
                value = Emitted(f"jnp.eye({first.size}, dtype=jnp.bool_)", (first, second))
                return self.assign(scope, term, "delta", value)
            case Rename(old=old, new=new):
                value = self.value(args[0], scope)
                return Emitted(value.text, tuple(new if axis == old else axis for axis in value.order))
            case Chunk():
                return slicing.chunk(self, term, scope)
            case Map():
                return self.map(term, term.op, scope)
            case Reduce():
                return self.reduce(term, term.op, scope)
            case Dot():
                return self.dot(term, term.op, scope)
            case Select():
                return selection.select(self, term, term.op, scope)
            case Operation():
                values = [self.value(arg, scope) for arg in args]
                operands = column_order.operands_of(term.op, args, values)
                self.tests_magnitudes |= term.op.spec.name in PLACES
                value = operation_text(term.op, operands, scope.lengths_of(term), self.names)
                return self.assign(scope, term, term.op.spec.name, value)
            case Opaque():
                return self.call(term, term.op, scope)
            case Leaf() | Fold() | Concat():
                raise AssertionError(f"{term.op} is not a step of its own")

    def map(self, term: Term, op: Map, scope: Scope) -> Emitted:
        relayout = self.relayout_of.get(term.number)
        operands = [
            copied(self, arg, relayout, scope)
            if relayout is not None and arg.number in relayout.sources
            else self.value(arg, scope)
            for arg in term.args
        ]
        if scope.starts and len(term.axes) > 1:
            operands = [
                slicing.stored_indices(value) if isinstance(arg.op, Iota) else value
                for arg, value in zip(term.args, operands, strict=True)
            ]
        value = self.mapped(term, op, operands, scope.lengths_of(term))
        if term.number in self.rounded:
            self.rounds = True
            value = Emitted(f"{ROUNDED}({value.text})", value.order)
        return self.assign(scope, term, op.name, value)

    def mapped(self, term: Term, op: Map, values: Sequence[Emitted], lengths: Lengths) -> Emitted:
        """An elementwise function of the operands' values; constants become bare numbers where they may."""
        varying = [arg.dtype for arg in term.args if not isinstance(arg.op, Const)]
        dtypes = [arg.dtype for arg in term.args]
        bare = takes_bare_numbers(op, dtypes)
        operands = []
        for arg, value in zip(term.args, values, strict=True):
            if bare and isinstance(arg.op, Const) and arg.dtype in varying:
                operands.append(Emitted(operand_text(arg.op, arg.dtype), ()))
            else:
                operands.append(value)
        # A mask can be computed in any order, where what it masks would have to be transposed.
        data = [value for arg, value in zip(term.args, operands, strict=True) if not self.is_index(arg)]
        order = elementwise_order([*data, *operands], self.wanted.get(term.number), self.length)
        return map_text(op, operands, dtypes, lengths, order)

    def is_index(self, term: Term) -> bool:
        """Whether a term depends on indices only, and on no input."""
        found = self._indices.get(term.number)
        if found is None:
            given = isinstance(term.op, (Iota, Const, Delta))
            passed_on = isinstance(term.op, (Map, Rename, Chunk)) and all(map(self.is_index, term.args))
            found = self._indices[term.number] = given or passed_on
        return found

    def reduce(self, term: Term, op: Reduce, scope: Scope) -> Emitted:
        (operand,) = term.args
        value = reduction_text(
            op,
            operand,
            self.value(operand, scope),
            self.codegen,
            self.pieces,
            scope.lengths_of(operand),
        )
        return self.assign(scope, term, op.kind, value)

    def dot(self, term: Term, op: Dot, scope: Scope) -> Emitted:
        left, right = (self.value(arg, scope) for arg in term.args)
        wish = self.wanted.get(term.number)
        if comes_backwards(op, left, right, wish, self.length, self.codegen.transposes_slowly):
            left, right = right, left
        chunked = self.pieces if self.codegen.adds_rows else None
        lengths = {**scope.lengths_of(term.args[0]), **scope.lengths_of(term.args[1])}
        dtypes = [arg.dtype for arg in term.args]
        product = partial(contraction_text, op, dtypes=dtypes, chunked=chunked)
        if self.codegen.tiles is not None:
            product = partial(product, part=terms_of_part(op, left, right, self.pieces, self.codegen.tiles))
        if self.codegen.panel is not None:
            chunks = {axis: self.length(axis) for axis in lengths}
            product = partial(packing_little, op, product=product, chunks=chunks, panel=self.codegen.panel)
        return self.assign(scope, term, "dot", product(left, right, lengths=lengths))

    def control(self, step: Compute, scope: Scope) -> Emitted:
        """A result of control flow; the call is written with the first one."""
        op = step.term.op
        assert isinstance(op, Opaque)
        key = (op.call, tuple(arg.number for arg in step.term.args))
        if key not in scope.results:
            scope.results[key] = ControlEmitter(self, step, scope).emit()
        return self.result(step.term, op, scope.results[key][op.result], scope)

    def call(self, term: Term, op: Opaque, scope: Scope) -> Emitted:
        orders = self.codegen.orders_bodies if scope.in_body else self.codegen.orders_convolutions
        shifts = is_shifted(op.call, self.codegen.shifted_taps)
        call = in_library_order(op.call) if orders or shifts else op.call
        key = (call, tuple(arg.number for arg in term.args))
        if key not in scope.calls:
            lengths = scope.lengths_of(term)
            operands = [
                column_order.operand_of_call(self.operand(arg, layout, lengths, scope), call, arg, layout)
                for arg, layout in zip(term.args, call.arg_layouts, strict=True)
            ]
            source = shifted_source(call, operands) if shifts else self.call_text(call, operands, lengths)
            name = self.local(f"{call.primitive.name}_{term.number}".replace("-", "_"))
            self.line(scope, f"{name} = {source}")
            scope.calls[key] = name
        text = scope.calls[key]
        if call.primitive.multiple_results:
            text = f"{text}[{op.result}]"
        return self.result(term, Opaque(call, op.result), text, scope)

    def result(self, term: Term, op: Opaque, text: str, scope: Scope) -> Emitted:
        """A result of a call as a variable."""
        value = by_axes(text, op.call.out_layouts[op.result], scope.lengths_of(term))
        if value.text.isidentifier():
            return value
        name = self.local(f"result_{term.number}")
        self.line(scope, f"{name} = {value.text}")
        return Emitted(name, value.order)

    def operand(self, arg: Term, layout: Layout, lengths: Lengths, scope: Scope) -> str:
        """The name of a call's operand, laid out as the call wants it."""
        text = realised(self.value(arg, scope), layout, lengths)
        if not text.isidentifier():
            name = self.local("operand")
            self.line(scope, f"{name} = {text}")
            text = name
        return text

    def call_text(self, call: Call, operands: Sequence[str], lengths: Lengths) -> str:
        """A call of a primitive as an expression."""
        return call_source(
            call.primitive,
            call.params,
            operands,
            [sizes_of(layout, lengths) for layout in call.arg_layouts],
            [sizes_of(layout, lengths) for layout in call.out_layouts],
            self.names,
        )

    def outer_order(self, term: Term) -> tuple[Axis, ...] | None:
        """The order in which the program returns a loop's result, or calls alone read it; None if neither."""
        layout = self._outputs.get(term.number)
        if layout is None:
            return self._read_by_calls.get(term.number)
        return tuple(axis for axis in layout_axes(layout) if axis in term.axes)


def emit(
    schedule: Schedule,
    names: Sequence[str],
    makers: Mapping[int, str] | None = None,
    pairs: Mapping[int, int] | None = None,
    updates: int = 0,
    codegen: CodegenOptions | None = None,
    relayouts: Mapping[int, Relayout] | None = None,
    fused_products: Mapping[Block, Sequence[FusedProducts]] | None = None,
    read_repeatedly: Mapping[Block, frozenset[int]] | None = None,
    comes_after: Mapping[int, tuple[int, ...]] | None = None,
) -> Module:
    """The module of a schedule.

    **Arguments:**

    - `names`: what to call the inputs.
    - `makers`: for terms that a rule made, by number, the rule's name; they become comments.
    - `pairs`: by output, which input's place it may take.
    - `updates`: how often each loop says where it is; not at all if 0.
    - `codegen`: the forms that are fast and round well where it runs; the plain ones if None.
    - `relayouts`: by the number of a reduction, the operands that are copied for it.
    - `fused_products`: by block, the products that are taken as one.
    - `read_repeatedly`: by block, the values that are stored where XLA would compute them again.
    - `comes_after`: by loop, the values that are there before it begins.
    """
    emitter = Emitter(
        schedule,
        names,
        makers or {},
        pairs or {},
        updates,
        codegen or CodegenOptions(),
        relayouts or {},
        fused_products or {},
        read_repeatedly or {},
        comes_after or {},
    )
    source = emitter.module()
    return Module(source, dict(emitter.names.objects))
