"""The cost model: the predicted time of an op.

Time is predicted from operation counts, bytes, and the rates of a machine. A value inside a loop is computed
once per chunk, on chunk lengths. Which values are read from memory is up to the storage model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from eqsat.engine.convolutions import convolution_work
from eqsat.engine.storage_model import JOINS, SCATTERS, SORTS, Axes, StorageModel, Valued, is_short
from eqsat.ir.axis import layout_shape, parts
from eqsat.ir.depthwise import is_shifted
from eqsat.ir.dtypes import is_inexact, itemsize
from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.ir.formula import Monoid
from eqsat.ir.memory_order import is_same_array
from eqsat.ir.operation_function import core_sizes
from eqsat.ir.ops import (
    Chunk,
    Concat,
    Const,
    Delta,
    Dot,
    Fold,
    Iota,
    Leaf,
    Map,
    Op,
    Opaque,
    Operation,
    Reduce,
    Select,
)
from eqsat.ir.picked_entries import pick_p
from eqsat.ir.selection import LIBRARY_DTYPE, block_length, by_blocks, leaves_to_library
from eqsat.ir.streams import read_p

SHORT_ROW = 256
"""The cost of starting a row of a selection, in elements."""

MAXIMUM_WORK = 1.2
"""The cost of comparing an element with the maximum of its block, in additions."""

CHOSEN_WORK = 4.0
"""The cost of copying an element of a chosen block, in additions."""

SUCCESSIVE_WORK = 4.5
"""The cost of another look at an element, for each selected entry, in additions."""

SORTING_WORK = 1000.0
"""The cost of an element where XLA sorts in order to select, in additions."""

MERGE_WORK = 10.0
"""The cost of merging an element of a declared monoid's state, in additions."""

CALL_WORK = 2.0
"""The cost of an element for a primitive of unknown cost, in additions."""

VIEW_WORK = 0.25
"""The cost of an element of a slice or a flip, which is read where it is used, in additions."""

LOOKUP_WORK = 6.0
"""The cost of an element that is read at a place that an index says, or added to one, in additions.

Measured with jaxlib 0.10: 1.5 to 2.0 ns in a gather from arrays of 40 kB to 4 MB, 1.1 to 3.1 ns in a scatter.
"""

JOIN_WORK = 0.5
"""The cost of an element of a concatenation, beside writing it, in additions (the same measurements)."""

WORK = {"threefry2x32": 80.0, "select_and_scatter_add": 40.0}
"""The cost of an element for primitives of known cost, in additions.

The gradient of a maximum over windows takes 10 ns for each entry (jaxlib 0.10): XLA finds four indices of
every maximum, and scatters.
"""

NUMBER_WORK = 2.0
"""The cost of a multiplication or addition of a convolution without a library, in additions."""

WINDOWS = frozenset({"reduce_window_max", "reduce_window_min", "reduce_window_sum"})
"""Primitives that read a window for each element."""

DEPTH = 50
"""Fewest terms that a matrix product adds up near full speed."""

IDLE_DEPTH = 0.1
"""What a product takes besides, whatever the terms, as a part of what so many take (docs/log/products.md)."""

PACKING_ROWS = 0.25
"""To pack an operand takes as long as to multiply it by this part of the rows that run near full speed."""

UPDATES = {"dynamic_update_slice": 1} | dict.fromkeys(SCATTERS, 2)
"""Primitives that write an operand into their first one, which XLA leaves in its place, and that operand."""

LOOKUPS = frozenset({"gather", "take", "dynamic_slice"})
"""Views at places that are only known when they are read."""

LEAST_FILLING = 0.2
"""The share of the rate that a product with a vector reaches, if memory is fast enough."""

SOLVES = {"triangular_solve": 1.0, "cholesky": 1 / 3, "eigh": 9.0, "svd": 20.0, "qr": 4.0, "lu": 2 / 3}
"""Primitives of cubic cost: flops per (longest core axis) x (elements of the result)."""


@dataclass(frozen=True)
class CostModel(StorageModel):
    """Time on a machine, beside storage.

    **Attributes:**

    - `library`: whether selections are left to XLA, as in a function that is compiled as it is.
    """

    library: bool = field(default=False, kw_only=True)

    def traffic(self, value: Valued) -> float:
        """Seconds to write or read the value once."""
        size = self.bytes(value)
        rate = self.machine.cached_bytes if size <= self.machine.cache else self.machine.bytes
        return size / rate

    def seconds(self, op: Op, result: Valued, operands: Sequence[Valued]) -> float:
        """Predicted time of one op, over all the chunks it runs for."""
        return self.trips(self.loops(op, result, operands)) * self.once(op, result, operands)

    @staticmethod
    def loops(op: Op, result: Valued, operands: Sequence[Valued]) -> Axes:
        """The loops that an op runs in; what closes a loop works on every chunk."""
        opened = result.open.union(*(operand.open for operand in operands))
        return opened | {op.axis} if isinstance(op, (Concat, Fold)) else opened

    def once(self, op: Op, result: Valued, operands: Sequence[Valued]) -> float:
        """Predicted time of one run of an op, on the chunk lengths of the loops around it."""
        if is_same_array(op):
            return 0.0
        match op:
            case Leaf() | Const():
                return 0.0
            case Chunk():
                # A slice of an array comes from main memory, however small it is.
                return self.bytes(result) / self.machine.bytes
            case Map(name=name):
                known = ELEMENTWISE.get(name)
                work = self.elements(result.axes, result.open) * (known.cost if known else 1.0)
                return work / self.machine.elements
            case Iota() | Delta():
                return self.elements(result.axes, result.open) / self.machine.elements
            case Fold(monoid=Monoid()):
                # Each part of the state is read, merged by a few functions, and written.
                merged = sum(self.elements(operand.axes, operand.open) for operand in operands)
                traffic = 2 * sum(self.traffic(operand) for operand in operands)
                return traffic + MERGE_WORK * merged / self.machine.elements + 4 * self.machine.call
            case Fold(axis=axis, monoid=Select() as select):
                # Every chunk's best entries, then the best of those and of the ones so far.
                body = operands[0]
                rows = self.elements(body.axes - {axis}, body.open)
                work = self.selection(select, body)
                work += rows * selection_work(select, 2 * select.k, body.dtype, self.library)
                combine = work / self.machine.elements + 2 * self.traffic(body)
                return combine + 8 * self.machine.call
            case Fold(monoid=Opaque()):
                # What is accumulated into stays where it is; the chunks are read.
                _, *chunks = operands
                work = max((self.elements(chunk.axes, chunk.open) for chunk in chunks), default=0)
                reading = sum(self.traffic(chunk) for chunk in chunks)
                return self.machine.call + reading + CALL_WORK * work / self.machine.elements
            case Fold(axis=axis, monoid=Operation() as folded):
                # Each chunk is factorised below the factor of others, and about one more pair of factors is.
                sizes = core_sizes(folded)
                first, *_, last = folded.spec.signature.axes
                sizes[first] = self.length(axis, operands[0].open) + 3 * sizes[last]
                slices = self.elements(operands[0].axes - set(folded.axes), operands[0].open)
                flops = folded.spec.once(sizes) * slices if folded.spec.once else 0.0
                reading = sum(self.traffic(operand) for operand in operands)
                return flops / self.machine.flops + 2 * reading + 4 * self.machine.call
            case Concat() | Fold():
                return 2 * self.traffic(operands[0]) + self.machine.call
        if isinstance(op, (Operation, Opaque)) and self.is_view(op):
            return self.viewing(op, result, operands)
        seconds = self.machine.call + self.traffic(result)
        match op:
            case Reduce() if not self.stores_result(op):
                weight = 1.0 if is_short(op, self.machine) else self.machine.long_inlined
                return weight * self.elements(operands[0].axes, operands[0].open) / self.machine.elements
            case Reduce():
                read = self.elements(operands[0].axes, operands[0].open)
                seconds += self.machine.reduction * read / self.machine.elements
                if self.stores_operands(op, operands):
                    seconds += 2 * self.traffic(operands[0])
            case Dot(axes=axes):
                both = operands[0].axes | operands[1].axes
                opened = operands[0].open | operands[1].open
                flops = 2 * self.elements(both, opened)
                if self.multiplies_vectors(axes, operands):
                    rate = self.machine.elements
                else:
                    precise = "HIGH" in (op.precision or "")
                    rate = self.machine.product_flops(op.dtype, precise) * self.filling(axes, operands)
                compute = flops / rate
                moving = self.traffic(result) + sum(self.traffic(operand) for operand in operands)
                seconds = self.machine.call + self.machine.multiplying(compute, moving)
            case Select():
                seconds += self.selection(op, operands[0]) / self.machine.elements
                if self.stores_operands(op, operands):
                    seconds += 2 * self.traffic(operands[0])
            case Operation():
                # Written out, a named operation is several.
                seconds += 4 * self.machine.call
                sorting = self.sorting(op, operands)
                seconds += sorting / self.machine.elements
                if not sorting:
                    seconds += self.operation(op, result, operands) / self.machine.flops
                if op.spec.once:
                    seconds += max(core_sizes(op).values(), default=1) * self.machine.row
                seconds += sum(self.traffic(operand) for operand in operands)
            case Opaque(call=call) if call.bodies:
                # The bodies are predicted by themselves. All results are of one pass over the operands.
                reading = sum(self.traffic(operand) for operand in operands)
                return self.traffic(result) + reading / len(call.out_layouts)
            case Opaque(call=call) if call.primitive.name in UPDATES:
                updates = operands[UPDATES[call.primitive.name]]
                each = VIEW_WORK if call.primitive.name == "dynamic_update_slice" else LOOKUP_WORK
                work = each * self.elements(updates.axes, updates.open)
                return self.machine.call + work / self.machine.elements + 2 * self.traffic(updates)
            case Opaque(call=call) if call.primitive.name in JOINS:
                opened = result.open.union(*(operand.open for operand in operands))
                seconds += JOIN_WORK * self.elements(result.axes, opened) / self.machine.elements
            case Opaque(call=call):
                opened = result.open.union(*(operand.open for operand in operands))
                work = self.elements(result.axes, opened)
                cubic = SOLVES.get(call.primitive.name)
                if cubic is not None:
                    core = [d for d in call.out_layouts[0] if call.passing.isdisjoint(parts(d))]
                    longest = max(layout_shape(tuple(core)), default=1)
                    seconds += longest * (2 * cubic * work / self.machine.flops + self.machine.row)
                elif call.primitive.name == "conv_general_dilated":
                    seconds += self.convolution(op, opened)
                elif call.primitive in (read_p, pick_p):
                    return self.machine.call + self.bytes(result) / self.machine.streamed
                else:
                    weight = WORK.get(call.primitive.name, CALL_WORK)
                    if call.primitive.name in WINDOWS:
                        weight = math.prod(call.params["window_dimensions"])
                    work = self.sorting(op, operands) or weight * work
                    seconds += work / self.machine.elements
                seconds += sum(self.traffic(operand) for operand in operands)
        return seconds

    def viewing(self, op: Operation | Opaque, result: Valued, operands: Sequence[Valued]) -> float:
        """Seconds to read entries of the first operand at other places, inside of what reads them."""
        name = op.spec.name if isinstance(op, Operation) else op.call.primitive.name
        opened = result.open.union(*(operand.open for operand in operands))
        entries = self.elements(result.axes, opened)
        if name not in LOOKUPS:
            return VIEW_WORK * entries / self.machine.elements
        cached = self.bytes(operands[0]) <= self.machine.cache
        rate = self.machine.cached_bytes if cached else self.machine.bytes
        work = VIEW_WORK if name == "dynamic_slice" else LOOKUP_WORK
        return work * entries / self.machine.elements + entries * itemsize(result.dtype) / rate

    def operation(self, op: Operation, result: Valued, operands: Sequence[Valued]) -> float:
        """Floating-point operations of a named operation, all slices together."""
        sizes = core_sizes(op)
        core = frozenset(op.axes)
        opened = result.open.union(*(operand.open for operand in operands))
        slices = self.elements(result.axes - core, opened)
        flops = 0.0
        if op.spec.once:
            flops += op.spec.once(sizes) * self.elements(operands[0].axes - core, opened)
        if op.spec.each:
            # Rates are those of matrix products; anything else does so much less in the same time.
            slower = 1.0 if op.spec.once else self.machine.flops / self.machine.elements
            flops += op.spec.each(sizes) * slices * slower
        if not (op.spec.once or op.spec.each):
            flops += math.prod(sizes.values()) * slices
        return flops

    def sorting(self, op: Operation | Opaque, operands: Sequence[Valued]) -> float:
        """Work of a sort, in additions; 0 of anything else."""
        if isinstance(op, Operation):
            if op.spec.name not in SORTS:
                return 0.0
            length, alone = op.axes[0].size, op.spec.name == "sort"
        elif op.call.primitive.name == "sort":
            (length,) = layout_shape((op.call.arg_layouts[0][op.call.params["dimension"]],))
            alone = len(operands) == 1
        else:
            return 0.0
        integers = alone and not is_inexact(operands[0].dtype)
        entries = max(self.elements(operand.axes, operand.open) for operand in operands)
        return entries * self.machine.sorting(length, integers)

    def filling(self, contracted: Axes, operands: Sequence[Valued]) -> float:
        """The share of the machine's rate that a matrix product reaches."""
        first, second = operands
        rows = self.elements(first.axes - second.axes, first.open)
        columns = self.elements(second.axes - first.axes, second.open)
        terms = self.elements(contracted, first.open)
        tiles = self.machine.tiles
        if tiles is None:
            return self.filled(rows, terms, columns)
        batch = self.elements((first.axes & second.axes) - contracted, first.open | second.open)
        part = None
        if self.machine.emits_steps:
            part = tiles.part(terms, rows, columns, batch, itemsize(first.dtype))
        return tiles.busy(rows, columns, batch * (terms // part if part else 1))

    def filled(self, rows: int, depth: int, columns: int) -> float:
        """The share of the machine's rate that a product of matrices of this size reaches.

        Few rows or columns leave it idle: the traffic of each multiplication is inversely proportional to
        rows, columns and depth.
        """
        share = 1.0 + PACKING_ROWS * self.machine.rows * (1 / rows + 1 / columns)
        deep = depth / DEPTH
        return max(1 / share, LEAST_FILLING) * min(1.0, (1 + IDLE_DEPTH) * deep / (deep + IDLE_DEPTH))

    def convolution(self, op: Opaque, opened: Axes) -> float:
        """Seconds of a convolution: those of its products, and of copying what these read."""
        work = convolution_work(op.call, lambda axis: self.length(axis, opened))
        dtype = op.call.out_dtypes[op.result]
        if not self.library and is_shifted(op.call, self.machine.shifted_taps):
            return self.machine.shifted * work.flops / 2 / self.machine.elements
        if self.machine.orders_convolutions and work.by_numbers:
            return NUMBER_WORK * work.flops / self.machine.elements
        precise = "HIGH" in str(op.call.params.get("precision") or "")
        rate = self.machine.product_flops(dtype, precise) * self.filled(work.rows, work.depth, work.columns)
        return work.flops / rate + self.machine.patch * work.runs / self.machine.elements

    def selection(self, op: Select, operand: Valued) -> float:
        """Work of a selection from `operand`, in additions."""
        rows = self.elements(operand.axes - {op.axis}, operand.open)
        return rows * selection_work(op, self.length(op.axis, operand.open), operand.dtype, self.library)


def selection_work(op: Select, length: int, dtype: str, library: bool = False) -> float:
    """Work of selecting from a row of that length, in additions; a short one costs as a longer one does.

    **Arguments:**

    - `library`: whether it is left to XLA, whatever the length.
    """
    if op.kind != "top_k":
        return 2.0 * (length + SHORT_ROW)
    if library or leaves_to_library(op.k, length, dtype):
        weight = 6.0 + math.log2(op.k) if dtype == LIBRARY_DTYPE else SORTING_WORK
        return weight * (length + SHORT_ROW)
    if not by_blocks(op.k, length, dtype):
        return SUCCESSIVE_WORK * op.k * (length + SHORT_ROW)
    block = block_length(op.k, length)
    chosen = op.k * block + length % block
    left = selection_work(op, length // block, dtype) + selection_work(op, chosen, dtype)
    return MAXIMUM_WORK * length + CHOSEN_WORK * chosen + left
