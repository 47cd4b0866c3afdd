"""A program as egglog text: one node per term, and facts on terms, axes and dtypes.

Axes are their ids, sets of axes are egglog sets. Everything that egglog need not look into is interned in
`Symbols` and appears in the e-graph as a string or a number.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from eqsat.engine.compiled import Granted
from eqsat.engine.schema import DTYPE_CLASSES, FENCE, NEW_AXES, type_text
from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.dtypes import is_extended, is_inexact, is_real_float, limits_of
from eqsat.ir.formula import Monoid
from eqsat.ir.guard import Guard
from eqsat.ir.operations import OperationSpec
from eqsat.ir.ops import (
    Call,
    Const,
    Delta,
    Dot,
    Iota,
    Leaf,
    Map,
    Op,
    Opaque,
    Operation,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.program import Program
from eqsat.ir.term import Term, reachable

LOADED = -1
"""The maker of nodes that were in the program from the start."""

EQUATED = -2
"""The maker of nodes that were loaded as equal to something in the program (`Program.equalities`)."""

LINES_OF_BLOCK = 8
"""How many terms or facts are loaded together: the engine's time for a block grows faster than its length."""

LENGTH_OF_BLOCK = 4_000
"""How many characters are loaded together, if that is more than one term or fact: for each of its words, the
engine notes the text of the whole block."""

Cell = int | str | frozenset[Axis]
"""An argument of a constructor: a number, a text, or a set of axes."""

Row = tuple[int | str | float, ...]


def quote(text: str) -> str:
    """An egglog string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def operand_list(operands: Iterable[str]) -> str:
    """The list of operands of a call, as text."""
    text = "(Nil)"
    for operand in reversed(list(operands)):
        text = f"(Cons {operand} {text})"
    return text


def core_list(axes: Iterable[str]) -> str:
    """The core axes of an operation, as text."""
    text = "(Axes0)"
    for axis in reversed(list(axes)):
        text = f"(AxesCons {axis} {text})"
    return text


def axis_set(axes: Iterable[Axis]) -> str:
    ids = sorted(axis.id for axis in axes)
    return f"(set-of {' '.join(map(str, ids))})" if ids else "(set-empty)"


class Axes(dict[int, Axis]):
    """Axes by their numbers; those that rules make by their length are known by that."""

    def __missing__(self, number: int) -> Axis:
        if number < NEW_AXES:
            raise KeyError(number)
        return Axis(number, number % NEW_AXES)


@dataclass
class Symbols:
    """The meaning of the e-graph's strings and numbers: operations by name and number of core axes."""

    axes: Axes = field(default_factory=Axes)
    maps: dict[str, tuple[str, tuple[tuple[str, object], ...]]] = field(default_factory=dict)
    monoids: dict[str, Monoid] = field(default_factory=dict)
    leaves: dict[int, Leaf] = field(default_factory=dict)
    calls: dict[int, Call] = field(default_factory=dict)
    operations: dict[tuple[str, int], OperationSpec] = field(default_factory=dict)
    precisions: set[str] = field(default_factory=lambda: {"", "HIGHEST"})

    def map_key(self, op: Map, fence: str = "") -> str:
        """A map's name in the e-graph: its JAX name, with parameters or target dtype if it has any."""
        key = fence + map_key(op)
        self.maps[key] = (op.name, op.params)
        return key


def map_key(op: Map) -> str:
    """The name of a map in an e-graph."""
    if op.name == "convert":
        return f"convert:{op.dtype}"
    return f"{op.name}[{','.join(repr(value) for _, value in op.params)}]" if op.params else op.name


def select_key(op: Select, fence: str = "") -> str:
    """A selection's name; the axis it runs along is not part of it, and the number of entries is the
    length of the axis that they are along."""
    out = -1 if op.out_axis is None else op.out_axis.id
    return f"{fence}{op.kind}:{out}:{op.result}:{op.dtype}"


def monoid_key(monoid: Monoid) -> str:
    """A declared monoid's name in the e-graph: two files may declare different ones of one name."""
    return f"{monoid.name}#{zlib.crc32(repr(monoid).encode())}"


def call_axes(op: Opaque) -> tuple[tuple[Axis, ...], ...]:
    """The axes of a call as the e-graph lists them for one of its results: passing, accumulating, summed
    over, needed whole."""
    call = op.call
    sliced = call.sums.intersection(layout_axes(call.out_layouts[op.result]))
    lists = (call.passing | sliced, call.accumulates, call.sums - sliced, call.whole)
    return tuple(tuple(sorted(axes)) for axes in lists)


def precision_key(op: Dot, operands: Iterable[str]) -> str:
    """A contraction's precision in the e-graph; with its dtypes if those of its operands differ."""
    mixed = sorted({dtype for dtype in operands if dtype != op.dtype})
    return "|".join([op.precision or "", *mixed])


def precision_of(key: str) -> str | None:
    """The precision that a key stands for."""
    return key.split("|")[0] or None


def encode_op(
    op: Op, args: list[int], dtypes: list[str], symbols: Symbols, fence: str = ""
) -> tuple[str, list[Cell]]:
    """The constructor and its arguments for `op(*args)`; operands are the numbers of terms.

    Lists of operands and of core axes are texts already. `fence` is `FENCE` where no algebra may change it.
    """
    match op:
        case Leaf(index=index):
            symbols.leaves[index] = op
            return "Leaf", [index]
        case Const(text=text, dtype=dtype):
            return "Const", [text, dtype]
        case Iota(axis=axis, dtype=dtype):
            return "Iota", [axis.id, dtype]
        case Delta(first=first, second=second):
            return "Delta", [first.id, second.id]
        case Map():
            return f"Map{len(args)}", [symbols.map_key(op, fence), *args]
        case Reduce(kind=kind, axes=axes):
            return "Reduce", [fence + kind, axes, *args]
        case Dot(axes=axes):
            key = precision_key(op, dtypes)
            symbols.precisions.add(key)
            return "Dot", [key, axes, *args]
        case Select(axis=axis):
            return "Select", [select_key(op, fence), axis.id, *args]
        case Rename(old=old, new=new):
            # A broadcast value may be renamed along an axis that no term has.
            symbols.axes.update((axis.id, axis) for axis in (old, new))
            return "Rename", [old.id, new.id, *args]
        case Opaque(call=call, result=result):
            symbols.calls[call.id] = call
            # Along some of its axes, all operands may be broadcast: then no term has them.
            symbols.axes.update((axis.id, axis) for axes in call_axes(op) for axis in axes)
            lists = [core_list([str(axis.id) for axis in axes]) for axes in call_axes(op)]
            return "Opaque", [call.id, result, *lists, operand_list(map(node_text, args))]
        case Operation(spec=spec, axes=core):
            symbols.operations[spec.name, len(core)] = spec
            listed = core_list([str(axis.id) for axis in core])
            return "Operation", [quote(spec.name), listed, operand_list(map(node_text, args))]
    raise AssertionError(f"a loaded program has no {type(op).__name__}")


def node_text(number: int) -> str:
    """A term of the program in the e-graph."""
    return f"(Node {number})"


class Loading:
    """A program as rows of tables, which the engine reads fast, and as actions where there are lists.

    **Attributes:**

    - `rows`: by constructor, a row for each term: its number, axes, dtype and maker, and its op's arguments.
    - `values`: a row for each constant that is a number.
    - `actions`: everything else.
    """

    def __init__(self, symbols: Symbols) -> None:
        self.symbols = symbols
        self.rows: dict[str, list[Row]] = {}
        self.values: list[Row] = []
        self.actions: list[str] = []
        self._sets: dict[frozenset[Axis], int] = {}

    def blocks(self) -> Iterator[str]:
        """Commands that do the actions, a few at a time: one by one, they would be compiled one by one."""
        start = 0
        while start < len(self.actions):
            stop, length = start + 1, len(self.actions[start])
            while stop < min(start + LINES_OF_BLOCK, len(self.actions)):
                length += len(self.actions[stop])
                if length > LENGTH_OF_BLOCK:
                    break
                stop += 1
            text = "\n".join(self.actions[start:stop])
            name = f"load-{start}"
            yield f'(ruleset {name})\n(rule () ({text}) :ruleset {name} :name "{name}")\n(run {name} 1)'
            start = stop

    def tables(self) -> Iterator[tuple[str, list[Row]]]:
        """The tables to fill, and with what, for the rules of `schema.LOADING` to make terms of."""
        yield "raw-value", self.values
        for constructor, rows in self.rows.items():
            yield f"raw-{constructor}", rows

    def axis_set(self, axes: frozenset[Axis]) -> int:
        """The number of a set of axes."""
        number = self._sets.get(axes)
        if number is None:
            number = self._sets[axes] = len(self._sets)
            self.actions.append(f"(set (axis-set {number}) {axis_set(axes)})")
        return number

    def term(self, term: Term, maker: int = LOADED, fence: str = "") -> None:
        """Add a term whose operands are added too."""
        numbers = [arg.number for arg in term.args]
        dtypes = [arg.dtype for arg in term.args]
        constructor, args = encode_op(term.op, numbers, dtypes, self.symbols, fence)
        if isinstance(term.op, (Opaque, Operation)):
            self.actions.append(_listed(term, constructor, [str(arg) for arg in args], maker))
            return
        cells = [self.axis_set(arg) if isinstance(arg, frozenset) else arg for arg in args]
        row = (term.number, self.axis_set(term.axes), term.dtype, *cells, maker)
        self.rows.setdefault(constructor, []).append(row)
        value = real_value(term.op.text, term.op.dtype) if isinstance(term.op, Const) else None
        if value is not None and math.isfinite(value):
            self.values.append((term.number, value))
        elif value is not None:
            self.actions.append(f"(set (value (Node {term.number})) {value!r})")


def _listed(term: Term, constructor: str, args: list[str], maker: int) -> str:
    """Actions that add a term with lists among its arguments."""
    node = node_text(term.number)
    spelled = " ".join(args)
    lines = [
        f"(union {node} ({constructor} {spelled}))",
        f"(set (by-{constructor} {spelled}) {maker})",
        f"(set (type {node}) {type_text(axis_set(term.axes), '(set-empty)', quote(term.dtype))})",
    ]
    match term.op:
        case Operation(axes=core):
            lines.append(f"(set (core-axes {args[1]}) {axis_set(core)})")
        case Opaque() as op:
            lines += [
                f"(set (core-axes {listed}) {axis_set(axes)})"
                for listed, axes in zip(args[2:6], call_axes(op), strict=True)
            ]
    return "\n".join(lines)


def real_value(text: str, dtype: str) -> float | None:
    """The value of a constant that is a real number, whatever its dtype."""
    if text in ("True", "False"):
        return None
    number = complex(text)
    return None if math.isnan(number.real) or number.imag != 0 else number.real


def number_text(value: float, dtype: str) -> str | None:
    """A rule's number as a constant of a dtype; None if that has no such number."""
    if is_extended(dtype) or dtype == "bool":
        return None
    if is_inexact(dtype):
        return repr(value if is_real_float(dtype) else complex(value))
    limits = limits_of(dtype)
    return str(int(value)) if limits.min <= value <= limits.max and value == int(value) else None


def encode_program(
    program: Program,
    large: Iterable[Axis],
    stored: Iterable[Term],
    numbers: Iterable[float] = (),
    copies: Iterable[tuple[int, int]] = (),
    fenced: Collection[int] = (),
    beside: Iterable[Term] = (),
    tiled: bool = True,
) -> Loading:
    """The egglog text of a program.

    **Arguments:**

    - `large`: the axes that may be split into chunks.
    - `stored`: the terms that may be computed by chunks and concatenated.
    - `numbers`: the numbers that rules may make constants of.
    - `copies`: the copies of an axis that rules may ask for, as in `CompiledRule`.
    - `fenced`: the numbers of terms that stay as written, except for chunks and names of axes.
    - `beside`: further terms to load.
    - `tiled`: whether chunks may be split into chunks along another axis.
    """
    symbols = Symbols()
    loading = Loading(symbols)
    written = {term.number for term in program.reachable()}
    # Truth values and indices may be made by rules in a program that has none.
    dtypes = {"bool", "int32"}
    known = {term.number: term for term in program.known()}
    known |= {term.number: term for term in reachable(beside)}
    for term in known.values():
        maker = LOADED if term.number in written else EQUATED
        loading.term(term, maker, FENCE if term.number in fenced else "")
        dtypes.add(term.dtype)
        for axes in (term.axes, *(arg.axes for arg in term.args)):
            symbols.axes.update((axis.id, axis) for axis in axes)
    lines = loading.actions
    lines += [
        f"(union (Node {one.number}) (Node {other.number}))"
        for one, other in program.equalities
        if one.number not in fenced or other.number in fenced
    ]
    for fact in program.facts:
        along = " ".join(str(axis.id) for axis in fact.axes)
        lines.append(f"(is-{fact.property} (Node {fact.term.number}) {along})")
    lines += _dtype_facts(sorted(dtypes), numbers)
    lines += [
        f"(conversion {quote(key)} {quote(key[8:])})" for key in symbols.maps if key.startswith("convert:")
    ]
    lines += [f"(uniform {quote(key)})" for key in sorted(symbols.precisions) if "|" not in key]
    lines += _copies(symbols, copies)
    for number, axis in sorted(symbols.axes.items()):
        lines.append(f"(axis {number}) (set (size {number}) {float(axis.size)!r})")
    large_ids = {axis.id for axis in large}
    lines += [f"(large {number})" for number in sorted(large_ids)]
    lines += [f"(tiled {number})" for number in sorted(large_ids) if tiled]
    lines += [f"(stored (Node {term.number}))" for term in stored]
    return loading


def granted_text(granted: Granted, guard: Guard) -> str:
    """The action that grants a rule something; `guard` is its guard."""
    terms = [node_text(term.number) for term in granted.values]
    axes = [
        axis_set(some) if name[0].isupper() else str(next(iter(some)).id)
        for name, some in zip(guard.axes, granted.axes, strict=True)
    ]
    return f"(granted-{granted.rule} {' '.join([*terms, *axes])})"


def _dtype_facts(dtypes: Sequence[str], numbers: Iterable[float]) -> Iterator[str]:
    for dtype in dtypes:
        kinds = [kind for kind, holds in DTYPE_CLASSES.items() if holds(dtype)]
        yield " ".join(f"({kind} {quote(dtype)})" for kind in kinds)
        for number in numbers:
            text = number_text(number, dtype)
            if text is not None:
                yield f"(set (number {quote(repr(number))} {quote(dtype)}) {quote(text)})"


def _copies(symbols: Symbols, copies: Iterable[tuple[int, int]]) -> list[str]:
    """For every axis, longer copies of it for rules that need them: `l = copy(k) + 1`."""
    originals, span = list(symbols.axes.items()), max(symbols.axes, default=0) + 1
    lines = []
    for turn, (more, which) in enumerate(copies, 1):
        for number, axis in originals:
            copy = Axis(turn * span + number, axis.size + more)
            symbols.axes[copy.id] = copy
            lines.append(f"(copy {number} {more} {which} {copy.id})")
    return lines
