"""The storage model: which values a compiler stores, and the memory that an op takes beside them.

A value is stored if it has a buffer: XLA fuses chains of elementwise ops into their consumers, but
contractions, sorts and long reductions read their operands from memory. The sizes of values in a loop are
those on chunk lengths.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from eqsat.engine.convolutions import convolution_work
from eqsat.ir.axis import Axis, layout_axes, layout_shape
from eqsat.ir.control import Scan
from eqsat.ir.depthwise import is_shifted
from eqsat.ir.dtypes import accumulator, itemsize
from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.ir.memory_order import Order, multiplies_as_it_lies
from eqsat.ir.operation_function import core_sizes
from eqsat.ir.ops import Call, Chunk, Concat, Dot, Fold, Map, Op, Opaque, Operation, Reduce, Select
from eqsat.ir.reduction_steps import library_parts, part_length
from eqsat.ir.scan_slices import is_indexed, lies_apart, scanned_axis
from eqsat.ir.selection import block_length, by_blocks
from eqsat.targets.machine import Machine

Axes = frozenset[Axis]


class Valued(Protocol):
    """A value as the cost model needs it: schema, open loops and dtype. A `Term` is one."""

    @property
    def axes(self) -> Axes: ...

    @property
    def open(self) -> Axes: ...

    @property
    def dtype(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Value:
    """A value of which nothing else is known."""

    axes: Axes
    open: Axes
    dtype: str


VIEW_PRIMITIVES = frozenset(
    {
        "slice",
        "dynamic_slice",
        "reshape",
        "rev",
        "gather",
        "split",
        "unstack",
        "squeeze",
        "bitcast_convert_type",
    }
)
"""Primitives that read their operand where they are fused; they need no buffer of their own."""

JOINS = frozenset({"concatenate", "stack", "pad"})
"""Primitives of which the same is true for some compilers."""

SCATTERS = frozenset({"scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max"})
"""Primitives that write updates into their first operand."""

VIEW_OPERATIONS = frozenset({"head", "reverse", "merge", "split", "diagonal", "take"})
"""Operations of which the same is true."""

OVERWRITING = frozenset({"qr", "svd"})
"""Primitives whose routine writes over its operand."""

WHOLE = frozenset({"svd"})
"""Primitives whose routine makes all of its results, whichever are read."""

EXPENSIVE = 3.0
"""The elementwise cost per element from which XLA stores a value rather than compute it twice."""

SORTS = {"sort": 1, "argsort": 2}
"""For operations that sort, how many arrays of indices go along: one keeps equal entries in order."""

INDEX_BYTES = 4
"""Bytes of an index that goes with an entry while it is sorted, or the least or greatest one is found."""


@dataclass(frozen=True)
class StorageModel:
    """Storage on a machine.

    **Attributes:**

    - `chunks`: the chunk length assumed for each axis that may be split.
    """

    machine: Machine
    chunks: Mapping[Axis, int]
    _elements: dict[tuple[Axes, Axes], int] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def length(self, axis: Axis, opened: Axes) -> int:
        return min(self.chunks.get(axis, axis.size), axis.size) if axis in opened else axis.size

    def elements(self, axes: Axes, opened: Axes) -> int:
        """How many elements there are along some axes, inside of these loops."""
        key = (axes, opened)
        found = self._elements.get(key)
        if found is None:
            found = self._elements[key] = math.prod(self.length(axis, opened) for axis in axes)
        return found

    def bytes(self, value: Valued) -> int:
        """Bytes of one buffer of the value, inside the loops it varies with."""
        return self.elements(value.axes, value.open) * itemsize(value.dtype)

    def trips(self, opened: Axes) -> int:
        """How often something that varies with these loops is computed."""
        return math.prod(-(-axis.size // self.length(axis, opened)) for axis in opened)

    def workspace(self, op: Op, operands: Sequence[Valued], orders: Sequence[Order | None] = ()) -> int:
        """Bytes that an op takes while it runs, beside its operands and its result.

        The library of a matrix product takes panels of its right operand. Which one that will be is the
        compiler's choice: it is taken to be the one that needs less. An operand that is no matrix as it lies
        in memory is copied.

        **Arguments:**

        - `orders`: of the axes of each operand, where they are given.
        """
        if isinstance(op, Operation) and op.spec.beside is not None:
            slices = self.elements(operands[0].axes - frozenset(op.axes), operands[0].open)
            return math.ceil(op.spec.beside(core_sizes(op)) * slices) * itemsize(op.dtype)
        if isinstance(op, Select) and self.selects_by_blocks(op, operands[0]):
            return self._maxima(op, operands[0])
        if isinstance(op, (Reduce, Select)):
            return self.first_step(op, operands[0])
        if isinstance(op, Opaque) and op.call.primitive.name == "conv_general_dilated":
            return self._patches(op.call, operands)
        if isinstance(op, Opaque) and isinstance(op.call.control, Scan):
            return self._sequences(op.call, op.call.control, operands, orders)
        if isinstance(op, Opaque) and op.call.primitive.name == "threefry2x32":
            return self.machine.random_copies * self._made(op, operands)
        if isinstance(op, (Operation, Opaque)):
            return self._sorting(op, operands)
        if not isinstance(op, Dot):
            return 0
        return self._panel(op, operands) + self._moved(op, operands, orders) + self._widened(op, operands)

    def copied(self, op: Op, operands: Sequence[Valued]) -> int:
        """Bytes of the copy that a routine takes of its first operand, if that must stay as it is."""
        return self.bytes(operands[0]) if overwrites(op) or solves_batch(op, operands) else 0

    def unread(self, op: Op, operands: Sequence[Valued], read: Collection[int]) -> int:
        """Bytes of the results of a call that are made though they are not among those that are read."""
        if not isinstance(op, Opaque) or op.call.primitive.name not in WHOLE:
            return 0
        return self._made(op, operands, read)

    def _made(self, op: Opaque, operands: Sequence[Valued], read: Collection[int] = ()) -> int:
        """Bytes of the results of a call that are not among those that are read."""
        opened = frozenset[Axis]().union(*(operand.open for operand in operands))
        results = zip(op.call.out_layouts, op.call.out_dtypes, strict=True)
        return sum(
            self.elements(frozenset(layout_axes(layout)), opened) * itemsize(dtype)
            for result, (layout, dtype) in enumerate(results)
            if result not in read
        )

    def _widened(self, op: Dot, operands: Sequence[Valued]) -> int:
        """Bytes of what a product of narrow floats takes in single precision: operands, and its result."""
        dtypes = {operand.dtype for operand in operands}
        narrow = dtypes == {"bfloat16"} and op.dtype in self.machine.narrow_products
        if narrow or not self.machine.widens:
            return 0
        wide = [operand for operand in operands if accumulator(operand.dtype) != operand.dtype]
        count = sum(self.elements(operand.axes, operand.open) for operand in wide)
        if accumulator(op.dtype) != op.dtype:
            axes = frozenset[Axis]().union(*(operand.axes for operand in operands)) - op.axes
            count += self.elements(axes, frozenset[Axis]().union(*(operand.open for operand in operands)))
        return math.ceil(count) * itemsize("float32")

    def _moved(self, op: Dot, operands: Sequence[Valued], orders: Sequence[Order | None]) -> int:
        """Bytes of the operands that a product copies. For other devices than CPUs, nothing was measured."""
        if not self.machine.panel_columns:
            return 0
        shared = operands[0].axes & operands[1].axes
        return sum(
            self.bytes(operand)
            for operand, order in zip(operands, orders, strict=False)
            if order is not None and not multiplies_as_it_lies(order, op.axes, shared)
        )

    def _panel(self, op: Dot, operands: Sequence[Valued]) -> int:
        """Bytes that the library takes for a product."""
        if not self.machine.panel_columns:
            vector = self.multiplies_vectors(op.axes, operands) or any(
                operand.axes == op.axes for operand in operands
            )
            return 0 if vector else self.machine.product_workspace
        shared = operands[0].axes & operands[1].axes
        sizes = []
        for operand in operands:
            columns = self.elements(operand.axes - shared, operand.open)
            if shared == op.axes:
                columns = min(columns, self.machine.panel_columns)
            if columns > 1:
                columns = math.ceil(columns / self.machine.panel_tile) * self.machine.panel_tile
            sizes.append(columns * self.elements(shared, operand.open) * itemsize(operand.dtype))
        return min(sizes) if min(sizes) >= self.machine.least_panel else 0

    def multiplies_vectors(self, contracted: Axes, operands: Sequence[Valued]) -> bool:
        """Whether a contraction multiplies pairs of vectors, or matrices by vectors, number by number.

        An operand that is not stored matrix by matrix is copied first.
        """
        first, second = (operand.axes for operand in operands)
        if first == second:
            return True
        shared = first & second
        batch = self.elements(shared - contracted, operands[0].open | operands[1].open)
        return self.machine.lanes > 0 and batch > 1 and shared in (first, second)

    def first_step(self, op: Reduce | Select, operand: Valued) -> int:
        """Bytes of the results of the first of the two steps in which a long reduction is done.

        It is taken to be along the last axis. Along another one, there are more parts.
        """
        reduced = op.axes if isinstance(op, Reduce) else frozenset({op.axis})
        length = self.elements(reduced, operand.open)
        if not self.machine.split_reduction or length <= self.machine.split_reduction:
            return 0
        if isinstance(op, Select) and op.kind == "top_k":
            return 0
        entry = itemsize(operand.dtype) + (INDEX_BYTES if isinstance(op, Select) else 0)
        kept = self.elements(operand.axes - reduced, operand.open) * entry
        own = part_length(length, self.machine.split_reduction, kept) if self.machine.emits_steps else None
        return kept * (length // own if own else library_parts(length))

    def selects_by_blocks(self, op: Select, operand: Valued) -> bool:
        """Whether a selection of the largest entries computes its operand on the fly.

        The maxima of blocks are a reduction, and the entries of the best blocks are gathered.
        """
        if op.kind != "top_k" or not self.machine.fuses_selections:
            return False
        return by_blocks(op.k, self.length(op.axis, operand.open), operand.dtype)

    def _sequences(
        self, call: Call, scan: Scan, operands: Sequence[Valued], orders: Sequence[Order | None]
    ) -> int:
        """Bytes of the copies that a scan takes of what it slices, for the scanned axis to come first."""
        if not self.machine.indexed_slices:
            return 0
        size = 0
        for place in scan.sliced if orders else ():
            order, axis, operand = orders[place], scanned_axis(call, place), operands[place]
            if order is None or axis is None or not lies_apart(order, axis):
                continue
            length = partial(self.length, opened=operand.open)
            most, line = self.machine.indexed_slices, self.machine.cache_line
            if not is_indexed(order, axis, operand.dtype, length, most, line):
                size += self.bytes(operand)
        return size

    def _patches(self, call: Call, operands: Sequence[Valued]) -> int:
        """Bytes of the patches of a convolution by groups: the library lays out all of them at once.

        Of one that is written as a sum of shifted images, those of the image with what it is padded with.
        """
        opened = frozenset[Axis]().union(*(operand.open for operand in operands))
        if is_shifted(call, self.machine.shifted_taps):
            return self._padded(call, operands[0])
        work = convolution_work(call, lambda axis: self.length(axis, opened))
        if not self.machine.orders_convolutions or work.by_numbers or call.params["feature_group_count"] == 1:
            return 0
        # Others are done in blocks of patches.
        return work.groups * work.rows * work.depth * itemsize("float32") if work.groups > 1 else 0

    def _padded(self, call: Call, image: Valued) -> int:
        """Bytes of a padded image; 0 if it is not padded."""
        _, _, *places = call.params["dimension_numbers"].lhs_spec
        shape = layout_shape(call.arg_layouts[0])
        longer = 1.0
        for place, (low, high) in zip(places, call.params["padding"], strict=True):
            longer *= max(shape[place] + low + high, 0) / shape[place]
        return round(self.bytes(image) * longer) if any(map(any, call.params["padding"])) else 0

    def _maxima(self, op: Select, operand: Valued) -> int:
        """Bytes of the maxima of all blocks, as numbers and as integers in the same order."""
        length = self.length(op.axis, operand.open)
        rows = self.elements(operand.axes - {op.axis}, operand.open)
        return 2 * rows * (length // block_length(op.k, length)) * itemsize(operand.dtype)

    def _sorting(self, op: Operation | Opaque, operands: Sequence[Valued]) -> int:
        """Bytes that a sort takes: all that is sorted goes from one buffer to another and back."""
        if not self.machine.sort_copies:
            return 0
        if isinstance(op, Operation):
            if op.spec.name not in SORTS:
                return 0
            indices, dtype = SORTS[op.spec.name], op.dtype
        elif op.call.primitive.name == "sort":
            indices, dtype = int(op.call.params["is_stable"]), op.call.out_dtypes[op.result]
        else:
            return 0
        entries = max(self.elements(operand.axes, operand.open) for operand in operands)
        entry = sum(itemsize(operand.dtype) for operand in operands) + indices * INDEX_BYTES
        counted = sum(map(self.bytes, operands)) + entries * itemsize(dtype)
        return (1 + self.machine.sort_copies) * entries * entry - counted

    def stores_operands(self, op: Op, operands: Sequence[Valued]) -> bool:
        """Whether the op reads its operands from memory, whatever computed them."""
        match op:
            case Dot():
                pairs = self.machine.sums_pairs and operands[0].axes == operands[1].axes
                return not (self.machine.fuses_products or pairs)
            case Select(kind="top_k"):
                return not self.selects_by_blocks(op, operands[0])
            case Select():
                return not self.machine.fuses_extremes
            case Fold(monoid=Select() | Opaque() | Operation()):
                return True
            case Operation(spec=spec):
                return spec.name not in VIEW_OPERATIONS
            case Reduce(axes=axes):
                return self.elements(axes, operands[0].open) > self.machine.fused_reduction
            case Opaque(call=call):
                return not self._is_view(call)
            case Chunk():
                return True
            case _:
                return False

    def read_operands(self, op: Op, operands: Sequence[Valued]) -> range:
        """The numbers of the operands that the op reads from memory: not always a scatter's updates."""
        if not self.stores_operands(op, operands):
            return range(0)
        fused = self.machine.fuses_joins and isinstance(op, Opaque) and op.call.primitive.name in SCATTERS
        return range(1 if fused else len(operands))

    def stores_result(self, op: Op) -> bool:
        """Whether the op's result has a buffer, whatever consumes it."""
        match op:
            case Dot():
                return not self.machine.fuses_products
            case Reduce(axes=axes):
                return math.prod(axis.size for axis in axes) > self.machine.inlined_reduction
            case Select() | Concat() | Fold():
                return True
            case Operation(spec=spec):
                return spec.name not in VIEW_OPERATIONS
            case Opaque(call=call):
                return not self._is_view(call)
            case _:
                return False

    def is_view(self, op: Op) -> bool:
        """Whether an op reads entries of its operands, at other places, where it is fused."""
        match op:
            case Operation(spec=spec):
                return spec.name in VIEW_OPERATIONS
            case Opaque(call=call):
                return self._is_view(call)
            case _:
                return False

    def _is_view(self, call: Call) -> bool:
        """Whether a call reads its operands where it is fused."""
        name = call.primitive.name
        return name in VIEW_PRIMITIVES or (self.machine.fuses_joins and name in JOINS)


def overwrites(op: Op) -> bool:
    """Whether a routine writes over its first operand: one that is given is copied for it."""
    match op:
        case Operation(spec=spec):
            return spec.overwrites
        case Opaque(call=call):
            return call.primitive.name in OVERWRITING
        case _:
            return False


def solves_batch(op: Op, operands: Sequence[Valued]) -> bool:
    """Whether several triangular matrices are solved with: they are copied, so that each lies by columns."""
    match op:
        case Operation(spec=spec):
            return spec.name in ("solve_lower", "solve_upper") and operands[0].axes > frozenset(op.axes)
        case Opaque(call=call):
            return call.primitive.name == "triangular_solve" and len(call.arg_layouts[0]) > 2
        case _:
            return False


def is_expensive(op: Op, machine: Machine) -> bool:
    """Whether a machine's compiler rather stores a value than computes it twice."""
    match op:
        case Map():
            return ELEMENTWISE[op.name].cost >= EXPENSIVE
        case Reduce():
            return not (is_short(op, machine) and math.isinf(machine.short_uses))
        case Opaque(call=call):
            # To copy an array's parts again for each of many readers is not worth it.
            return machine.fuses_joins and call.primitive.name in JOINS
        case _:
            return isinstance(op, Dot)


def is_short(op: Reduce, machine: Machine) -> bool:
    """Whether a reduction that is computed inside of another kernel costs no more than its operations."""
    return math.prod(axis.size for axis in op.axes) <= machine.short_reduction
