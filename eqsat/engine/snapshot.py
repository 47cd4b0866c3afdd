"""A saturated e-graph as Python data: classes of nodes whose ops are the IR's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eqsat.engine.encode import CONSTRUCTORS, LOADED, Symbols, precision_of
from eqsat.ir.axis import Axis
from eqsat.ir.ops import (
    Chunk,
    Concat,
    Const,
    Dot,
    Fold,
    Iota,
    Map,
    Op,
    Opaque,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.program import Program

if TYPE_CHECKING:
    from eqsat.engine.egraph import Dump


@dataclass(frozen=True, slots=True)
class ENode:
    """`op` applied to classes. `maker` is the number of the rule that made it, or `LOADED`."""

    op: Op
    children: tuple[int, ...]
    maker: int


@dataclass(slots=True)
class EClass:
    """A class of equal values: its schema, the loops it varies with, its dtype, its nodes."""

    axes: frozenset[Axis]
    open: frozenset[Axis]
    dtype: str
    nodes: list[ENode] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The classes, and for each term of the program (by number) the class it is in."""

    classes: list[EClass]
    class_of: dict[int, int]

    @property
    def node_count(self) -> int:
        return sum(len(eclass.nodes) for eclass in self.classes)


def snapshot(dump: Dump, symbols: Symbols, program: Program) -> Snapshot:
    """Decode a dump of an e-graph into which `program` was loaded."""
    axes = symbols.axes
    numbers: dict[Any, int] = {}
    classes: list[EClass] = []
    open_of = {inputs[0]: output for inputs, output in dump.rows("open")}
    dtype_of = {inputs[0]: output for inputs, output in dump.rows("dtype")}
    for (handle,), schema in dump.rows("axes"):
        numbers[handle] = len(classes)
        opened = frozenset(axes[number] for number in open_of.get(handle, ()))
        classes.append(EClass(frozenset(axes[number] for number in schema), opened, dtype_of[handle]))
    lists = _operand_lists(dump)
    for constructor in CONSTRUCTORS:
        makers = dict(dump.rows(f"by-{constructor}"))
        for inputs, handle in dump.rows(constructor):
            number = numbers[handle]
            op, operands = _decode(constructor, inputs, classes[number].dtype, symbols, program, lists)
            if op is None or any(operand not in numbers for operand in operands):
                continue
            children = tuple(numbers[operand] for operand in operands)
            if number not in children:
                classes[number].nodes.append(ENode(op, children, makers.get(inputs, LOADED)))
    class_of = {inputs[0]: numbers[handle] for inputs, handle in dump.rows("Node") if handle in numbers}
    return Snapshot(classes, class_of)


def _operand_lists(dump: Dump) -> dict[Any, tuple[Any, ...]]:
    """What each list of operands holds."""
    cells = {handle: inputs for inputs, handle in dump.rows("Cons")}
    lists: dict[Any, tuple[Any, ...]] = {handle: () for _, handle in dump.rows("Nil")}
    for start in cells:
        held: list[Any] = []
        cell: Any = start
        while cell not in lists and cell in cells:
            head, cell = cells[cell]
            held.append(head)
        if cell in lists:
            lists[start] = (*held, *lists[cell])
    return lists


def _decode(
    constructor: str,
    inputs: tuple[Any, ...],
    dtype: str,
    symbols: Symbols,
    program: Program,
    lists: dict[Any, tuple[Any, ...]],
) -> tuple[Op | None, tuple[Any, ...]]:
    axes = symbols.axes
    match constructor:
        case "Leaf":
            return program.inputs[inputs[0]].op, ()
        case "Const":
            return Const(inputs[0], inputs[1]), ()
        case "Iota":
            return Iota(axes[inputs[0]], dtype), ()
        case "Map1" | "Map2" | "Map3":
            name, params = symbols.maps.get(inputs[0], (inputs[0], ()))
            if inputs[0] not in symbols.maps and "[" in name:
                name, params = "integer_pow", (("y", int(name.split("[")[1][:-1])),)
            return Map(name, dtype, params), inputs[1:]
        case "Reduce":
            return Reduce(inputs[0], frozenset(axes[n] for n in inputs[1]), dtype), inputs[2:]
        case "Dot":
            return Dot(frozenset(axes[n] for n in inputs[1]), dtype, precision_of(inputs[0])), inputs[2:]
        case "Select":
            return _selection(symbols.selects[inputs[0]], axes[inputs[1]]), inputs[2:]
        case "Rename":
            return Rename(axes[inputs[0]], axes[inputs[1]]), inputs[2:]
        case "Opaque":
            operands = lists.get(inputs[2])
            if operands is None:
                return None, ()
            return Opaque(symbols.calls[inputs[0]], inputs[1]), operands
        case "Chunk":
            return Chunk(axes[inputs[0]]), inputs[1:]
        case "Concat":
            return Concat(axes[inputs[0]]), inputs[1:]
        case "Fold":
            axis = axes[inputs[0]]
            select = symbols.selects.get(inputs[1])
            return Fold(axis, inputs[1] if select is None else _selection(select, axis)), inputs[2:]
    raise AssertionError(constructor)


def _selection(known: Select, axis: Axis) -> Select:
    return Select(known.kind, axis, known.k, known.out_axis, known.result, known.dtype)
