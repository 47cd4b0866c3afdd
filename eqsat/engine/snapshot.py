"""A saturated e-graph as Python data: classes of nodes whose ops are the IR's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eqsat.engine.compiled import CompiledRule, Found
from eqsat.engine.encode import LOADED, Symbols, call_axes, precision_of
from eqsat.engine.schema import CONSTRUCTORS, FENCE
from eqsat.ir.axis import Axis
from eqsat.ir.operations import known_operation
from eqsat.ir.ops import (
    Chunk,
    Concat,
    Const,
    Delta,
    Dot,
    Fold,
    Iota,
    Map,
    Op,
    Opaque,
    Operation,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.program import Program

if TYPE_CHECKING:
    from eqsat.engine.egraph import Dump


@dataclass(frozen=True, slots=True)
class ENode:
    """`op` applied to classes. `maker` is the number of the rule that made it, or of `encode`'s makers."""

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
    """The classes, and for each term of the program (by number) the class it is in.

    **Attributes:**

    - `simplified`: by class, the numbers of the rules that found something in it to be equal to a part of
      itself: such a rule makes no node.
    """

    classes: list[EClass]
    class_of: dict[int, int]
    simplified: dict[int, frozenset[int]] = field(default_factory=dict)

    @property
    def node_count(self) -> int:
        return sum(len(eclass.nodes) for eclass in self.classes)


def snapshot(dump: Dump, symbols: Symbols, program: Program) -> tuple[Snapshot, dict[Any, int]]:
    """Decode a dump of an e-graph into which `program` was loaded; with the numbers of classes by handle."""
    axes = symbols.axes
    numbers: dict[Any, int] = {}
    classes: list[EClass] = []
    for (handle, schema, opened, dtype), _ in dump.rows("typed"):
        numbers[handle] = len(classes)
        named, loops = (frozenset(axes[number] for number in some) for some in (schema, opened))
        classes.append(EClass(named, loops, dtype))
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
    simplified: dict[int, frozenset[int]] = {}
    for (rule, handle), _ in dump.rows("simplified"):
        if handle in numbers:
            number = numbers[handle]
            simplified[number] = simplified.get(number, frozenset()) | {rule}
    return Snapshot(classes, class_of, simplified), numbers


def matches_found(
    dump: Dump, rules: Iterable[CompiledRule], numbers: Mapping[Any, int], axes: Mapping[int, Axis]
) -> Iterator[Found]:
    """Where rules with guards match."""
    for rule in rules:
        assert rule.guard is not None
        count = len(rule.guard.variables)
        found = set()
        for row, _ in dump.rows(f"found-{rule.number}"):
            named = (cell if isinstance(cell, frozenset) else {cell} for cell in row[count:])
            along = tuple(frozenset(axes[number] for number in some) for some in named)
            if all(handle in numbers for handle in row[:count]):
                found.add(Found(rule.number, tuple(numbers[handle] for handle in row[:count]), along))
        yield from sorted(found, key=lambda one: (one.classes, tuple(map(sorted, one.axes))))


def _operand_lists(dump: Dump) -> dict[Any, tuple[Any, ...]]:
    """What each list of operands, and each list of core axes, holds."""
    lists: dict[Any, tuple[Any, ...]] = {}
    for cons, nil in (("Cons", "Nil"), ("AxesCons", "Axes0")):
        cells = {handle: inputs for inputs, handle in dump.rows(cons)}
        lists.update((handle, ()) for _, handle in dump.rows(nil))
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
            return symbols.leaves[inputs[0]], ()
        case "Const":
            return Const(inputs[0], inputs[1]), ()
        case "Iota":
            return Iota(axes[inputs[0]], inputs[1]), ()
        case "Delta":
            return Delta(axes[inputs[0]], axes[inputs[1]]), ()
        case "Map1" | "Map2" | "Map3":
            return _map(inputs[0], dtype, symbols), inputs[1:]
        case "Reduce":
            return Reduce(
                inputs[0].removeprefix(FENCE), frozenset(axes[n] for n in inputs[1]), dtype
            ), inputs[2:]
        case "Dot":
            return Dot(frozenset(axes[n] for n in inputs[1]), dtype, precision_of(inputs[0])), inputs[2:]
        case "Select":
            return _selection(inputs[0], axes[inputs[1]], symbols), inputs[2:]
        case "Rename":
            return Rename(axes[inputs[0]], axes[inputs[1]]), inputs[2:]
        case "Opaque":
            operands = lists.get(inputs[6])
            call = _call(inputs, symbols, lists)
            return (None, ()) if call is None or operands is None else (call, operands)
        case "FoldCall":
            operands = lists.get(inputs[7])
            call = _call(inputs[1:], symbols, lists)
            return (None, ()) if call is None or operands is None else (Fold(axes[inputs[0]], call), operands)
        case "FoldMany":
            operands = lists.get(inputs[2])
            return (
                (None, ())
                if operands is None
                else (Fold(axes[inputs[0]], symbols.monoids[inputs[1]]), operands)
            )
        case "Operation":
            operands = lists.get(inputs[2])
            operation = _operation(inputs, dtype, symbols, lists)
            return (None, ()) if operation is None or operands is None else (operation, operands)
        case "FoldOperation":
            operands = lists.get(inputs[3])
            operation = _operation(inputs[1:], dtype, symbols, lists)
            if operation is None or operands is None:
                return None, ()
            return Fold(axes[inputs[0]], operation), operands
        case "Chunk":
            return Chunk(axes[inputs[0]]), inputs[1:]
        case "Concat":
            return Concat(axes[inputs[0]]), inputs[1:]
        case "Fold":
            axis = axes[inputs[0]]
            name = inputs[1].removeprefix(FENCE)
            return Fold(axis, _selection(name, axis, symbols) if ":" in name else name), inputs[2:]
    raise AssertionError(constructor)


def _operation(
    inputs: tuple[Any, ...], dtype: str, symbols: Symbols, lists: dict[Any, tuple[Any, ...]]
) -> Operation | None:
    """A named operation, given its name and its core axes."""
    name, core = inputs[0], lists.get(inputs[1])
    if core is None or len(set(core)) < len(core):
        return None
    spec = symbols.operations.get((name, len(core))) or known_operation(name)
    return None if spec is None else Operation(spec, tuple(symbols.axes[number] for number in core), dtype)


def _call(inputs: tuple[Any, ...], symbols: Symbols, lists: dict[Any, tuple[Any, ...]]) -> Opaque | None:
    """A call whose axes may have got other names."""
    call = symbols.calls[inputs[0]]
    names: dict[Axis, Axis] = {}
    for handle, written in zip(inputs[2:6], call_axes(Opaque(call, inputs[1])), strict=True):
        listed = lists.get(handle)
        if listed is None or len(set(listed)) < len(listed):
            return None
        names |= {old: symbols.axes[new] for old, new in zip(written, listed, strict=True)}
    changed = any(old != new for old, new in names.items())
    if changed and call.bodies:
        # A loop under other names would be a second loop; renaming its result is cheaper.
        return None
    return Opaque(call.renamed(names) if changed else call, inputs[1])


def _map(key: str, dtype: str, symbols: Symbols) -> Map:
    """The map that a key stands for: one of the program's, or one that a rule made."""
    if key in symbols.maps:
        name, params = symbols.maps[key]
        return Map(name, dtype, params)
    if key.startswith("convert:"):
        return Map("convert", dtype)
    if key.endswith("]"):
        return Map("integer_pow", dtype, (("y", int(key.split("[")[1][:-1])),))
    return Map(key, dtype)


def _selection(key: str, axis: Axis, symbols: Symbols) -> Select:
    kind, out, result, dtype = key.removeprefix(FENCE).split(":")
    out_axis = symbols.axes[int(out)] if int(out) >= 0 else None
    return Select(kind, axis, 1 if out_axis is None else out_axis.size, out_axis, result, dtype)
