"""A program as egglog text: one node per term, and what is known of terms, axes and dtypes.

Axes are their ids, sets of axes are egglog sets. What egglog need not look into is interned in
`Symbols` and stands in the e-graph as a string or a number.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from eqsat.engine.schema import DTYPE_CLASSES
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import is_extended, is_inexact, is_real_float
from eqsat.ir.formula import Monoid
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
from eqsat.ir.term import Term

LOADED = -1
"""The maker of nodes that were in the program from the start."""

EQUATED = -2
"""The maker of nodes that were loaded as equal to something in the program (`Program.equalities`)."""

LINES_OF_BLOCK = 8
"""How many terms or facts are loaded together: the engine's time for a block grows faster than its length."""


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


@dataclass
class Symbols:
    """What the e-graph's strings and numbers stand for."""

    axes: dict[int, Axis] = field(default_factory=dict)
    maps: dict[str, tuple[str, tuple[tuple[str, object], ...]]] = field(default_factory=dict)
    monoids: dict[str, Monoid] = field(default_factory=dict)
    leaves: dict[int, Leaf] = field(default_factory=dict)
    calls: dict[int, Call] = field(default_factory=dict)
    operations: dict[str, OperationSpec] = field(default_factory=dict)
    precisions: set[str] = field(default_factory=lambda: {"", "HIGHEST"})

    def map_key(self, op: Map) -> str:
        """A map's name in the e-graph: its JAX name, with parameters or target dtype if it has any."""
        key = op.name
        if op.name == "convert":
            key = f"convert:{op.dtype}"
        elif op.params:
            key = f"{op.name}[{','.join(repr(value) for _, value in op.params)}]"
        self.maps[key] = (op.name, op.params)
        return key


def select_key(op: Select) -> str:
    """A selection's name; the axis it runs along is not part of it, and the number of entries is the
    length of the axis that they are along."""
    out = -1 if op.out_axis is None else op.out_axis.id
    return f"{op.kind}:{out}:{op.result}:{op.dtype}"


def monoid_key(monoid: Monoid) -> str:
    """A declared monoid's name in the e-graph: two files may declare different ones of one name."""
    return f"{monoid.name}#{zlib.crc32(repr(monoid).encode())}"


def call_axes(call: Call) -> tuple[tuple[Axis, ...], ...]:
    """The axes of a call as the e-graph lists them: passing, accumulating, summed over, needed whole."""
    return tuple(tuple(sorted(axes)) for axes in (call.passing, call.accumulates, call.sums, call.whole))


def precision_key(op: Dot, operands: Iterable[str]) -> str:
    """A contraction's precision in the e-graph; with its dtypes if those of its operands differ."""
    mixed = sorted({dtype for dtype in operands if dtype != op.dtype})
    return "|".join([op.precision or "", *mixed])


def precision_of(key: str) -> str | None:
    """The precision that a key stands for."""
    return key.split("|")[0] or None


def encode_op(op: Op, args: list[str], dtypes: list[str], symbols: Symbols) -> tuple[str, list[str]]:
    """The constructor and its arguments, as text, for `op(*args)`."""
    match op:
        case Leaf(index=index):
            symbols.leaves[index] = op
            return "Leaf", [str(index)]
        case Const(text=text, dtype=dtype):
            return "Const", [quote(text), quote(dtype)]
        case Iota(axis=axis, dtype=dtype):
            return "Iota", [str(axis.id), quote(dtype)]
        case Delta(first=first, second=second):
            return "Delta", [str(first.id), str(second.id)]
        case Map():
            return f"Map{len(args)}", [quote(symbols.map_key(op)), *args]
        case Reduce(kind=kind, axes=axes):
            return "Reduce", [quote(kind), axis_set(axes), *args]
        case Dot(axes=axes):
            key = precision_key(op, dtypes)
            symbols.precisions.add(key)
            return "Dot", [quote(key), axis_set(axes), *args]
        case Select(axis=axis):
            return "Select", [quote(select_key(op)), str(axis.id), *args]
        case Rename(old=old, new=new):
            return "Rename", [str(old.id), str(new.id), *args]
        case Opaque(call=call, result=result):
            symbols.calls[call.id] = call
            # Along some of its axes, all operands may be broadcast: then no term has them.
            symbols.axes.update((axis.id, axis) for axes in call_axes(call) for axis in axes)
            lists = [core_list([str(axis.id) for axis in axes]) for axes in call_axes(call)]
            return "Opaque", [str(call.id), str(result), *lists, operand_list(args)]
        case Operation(spec=spec, axes=core):
            symbols.operations[spec.name] = spec
            return "Operation", [
                quote(spec.name),
                core_list([str(axis.id) for axis in core]),
                operand_list(args),
            ]
    raise AssertionError(f"a loaded program has no {type(op).__name__}")


def encode_term(term: Term, symbols: Symbols, maker: int = LOADED) -> str:
    """Actions that add a term whose operands have been added."""
    operands = [f"(Node {arg.number})" for arg in term.args]
    constructor, args = encode_op(term.op, operands, [arg.dtype for arg in term.args], symbols)
    node = f"(Node {term.number})"
    spelled = " ".join(args)
    lines = [
        f"(union {node} ({constructor} {spelled}))",
        f"(set (by-{constructor} {spelled}) {maker})",
        f"(set (axes {node}) {axis_set(term.axes)})",
        f"(set (open {node}) (set-empty))",
        f"(set (dtype {node}) {quote(term.dtype)})",
    ]
    match term.op:
        case Const(text=text, dtype=dtype):
            value = real_value(text, dtype)
            if value is not None:
                lines.append(f"(set (value {node}) {value!r})")
        case Operation(axes=core):
            lines.append(f"(set (core-axes {args[1]}) {axis_set(core)})")
        case Opaque(call=call):
            lines += [
                f"(set (core-axes {listed}) {axis_set(axes)})"
                for listed, axes in zip(args[2:6], call_axes(call), strict=True)
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
    return str(int(value)) if math.isfinite(value) and value == int(value) else None


def encode_program(
    program: Program,
    large: Iterable[Axis],
    stored: Iterable[Term],
    numbers: Iterable[float] = (),
    copies: bool = False,
) -> tuple[list[str], Symbols]:
    """Commands that load a program, by blocks short enough to be run quickly, and their symbols.

    **Arguments:**

    - `large`: the axes that may be split into chunks.
    - `stored`: the terms that may be computed piece by piece and laid side by side.
    - `numbers`: those that rules may make constants of.
    - `copies`: whether rules may ask for a copy of an axis.
    """
    symbols = Symbols()
    written = {term.number for term in program.reachable()}
    lines: list[str] = []
    # Truth values and indices may be made by rules in a program that has none.
    dtypes = {"bool", "int32"}
    for term in program.known():
        lines.append(encode_term(term, symbols, LOADED if term.number in written else EQUATED))
        dtypes.add(term.dtype)
        for axes in (term.axes, *(arg.axes for arg in term.args)):
            symbols.axes.update((axis.id, axis) for axis in axes)
    lines += [f"(union (Node {one.number}) (Node {other.number}))" for one, other in program.equalities]
    for fact in program.facts:
        along = " ".join(str(axis.id) for axis in fact.axes)
        lines.append(f"(is-{fact.property} (Node {fact.term.number}) {along})")
    lines += _dtype_facts(sorted(dtypes), numbers)
    lines += [
        f"(conversion {quote(key)} {quote(key[8:])})" for key in symbols.maps if key.startswith("convert:")
    ]
    lines += [f"(uniform {quote(key)})" for key in sorted(symbols.precisions) if "|" not in key]
    if copies:
        lines += _copies(symbols)
    for number, axis in sorted(symbols.axes.items()):
        lines.append(f"(axis {number}) (set (size {number}) {float(axis.size)!r})")
    large_ids = {axis.id for axis in large}
    lines += [f"(large {number})" for number in sorted(large_ids)]
    lines += [f"(stored (Node {term.number}))" for term in stored]
    return list(_blocks(lines)), symbols


def _blocks(actions: Sequence[str]) -> Iterator[str]:
    """Rules that do a few actions each: one by one, they would be compiled one by one."""
    for start in range(0, len(actions), LINES_OF_BLOCK):
        text = "\n".join(actions[start : start + LINES_OF_BLOCK])
        name = f"load-{start}"
        yield f'(ruleset {name})\n(rule () ({text}) :ruleset {name} :name "{name}")\n(run {name} 1)'


def _dtype_facts(dtypes: Sequence[str], numbers: Iterable[float]) -> Iterator[str]:
    for dtype in dtypes:
        kinds = [kind for kind, holds in DTYPE_CLASSES.items() if holds(dtype)]
        yield " ".join(f"({kind} {quote(dtype)})" for kind in kinds)
        for number in numbers:
            text = number_text(number, dtype)
            if text is not None:
                yield f"(set (number {quote(repr(number))} {quote(dtype)}) {quote(text)})"


def _copies(symbols: Symbols) -> list[str]:
    """A second axis of the same length for every axis, for rules that need one: `l = copy(k)`."""
    first = max(symbols.axes, default=0) + 1
    lines = []
    for number, axis in list(symbols.axes.items()):
        copy = Axis(first + number, axis.size)
        symbols.axes[copy.id] = copy
        lines.append(f"(copy {number} {copy.id})")
    return lines
