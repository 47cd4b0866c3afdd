"""A program as egglog text: the e-graph's schema, and one node per term.

Axes are their ids, sets of axes are egglog sets. What egglog need not look into is interned in
`Symbols` and stands in the e-graph as a string or a number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import is_real_float
from eqsat.ir.ops import (
    Call,
    Const,
    Dot,
    Iota,
    Leaf,
    Map,
    Op,
    Opaque,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.program import Program
from eqsat.ir.term import Term

CONSTRUCTORS: dict[str, tuple[str, ...]] = {
    "Leaf": ("i64",),
    "Const": ("String", "String"),
    "Iota": ("i64",),
    "Map1": ("String", "T"),
    "Map2": ("String", "T", "T"),
    "Map3": ("String", "T", "T", "T"),
    "Reduce": ("String", "Axes", "T"),
    "Dot": ("String", "Axes", "T", "T"),
    "Select": ("String", "i64", "T"),
    "Rename": ("i64", "i64", "T"),
    "Opaque": ("i64", "i64", "Args"),
    "Chunk": ("i64", "T"),
    "Concat": ("i64", "T"),
    "Fold": ("i64", "String", "T"),
}
"""The ops in the e-graph. `by-X` beside each constructor X records which rule made a node."""

LOADED = -1
"""The maker of nodes that were in the program from the start."""


def _schema() -> str:
    lines = [
        "(sort T) (sort Axes (Set i64)) (sort Args)",
        "(constructor Node (i64) T)",
        "(constructor Nil () Args) (constructor Cons (T Args) Args) (constructor ChunkAll (i64 Args) Args)",
        "(function axes (T) Axes :merge (set-intersect old new))",
        "(function open (T) Axes :merge (set-intersect old new))",
        "(function dtype (T) String :merge old)",
        "(relation axis (i64)) (relation large (i64)) (relation stored (T)) (relation passes (i64 i64))",
        "(relation float (String)) (relation uniform (String))",
    ]
    for name, sorts in CONSTRUCTORS.items():
        lines.append(f"(constructor {name} ({' '.join(sorts)}) T)")
        lines.append(f"(function by-{name} ({' '.join(sorts)}) i64 :merge old)")
    # A chunk of a list of operands: operands without the axis are the same in every chunk.
    lines += [
        "(ruleset chunk-operands)",
        "(rule ((= e (ChunkAll n (Nil)))) ((union e (Nil))) :ruleset chunk-operands)",
        "(rule ((= e (ChunkAll n (Cons a rest))) (= A (axes a)) (= O (open a)) (= d (dtype a))"
        " (set-contains A n)) ((let c (Chunk n a)) (set (axes c) A) (set (open c) (set-insert O n))"
        " (set (dtype c) d) (union e (Cons c (ChunkAll n rest)))) :ruleset chunk-operands)",
        "(rule ((= e (ChunkAll n (Cons a rest))) (= A (axes a)) (set-not-contains A n))"
        " ((union e (Cons a (ChunkAll n rest)))) :ruleset chunk-operands)",
    ]
    return "\n".join(lines)


SCHEMA = _schema()


def quote(text: str) -> str:
    """An egglog string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def axis_set(axes: Iterable[Axis]) -> str:
    ids = sorted(axis.id for axis in axes)
    return f"(set-of {' '.join(map(str, ids))})" if ids else "(set-empty)"


@dataclass
class Symbols:
    """What the e-graph's strings and numbers stand for."""

    axes: dict[int, Axis] = field(default_factory=dict)
    leaves: dict[int, Leaf] = field(default_factory=dict)
    maps: dict[str, tuple[str, tuple[tuple[str, object], ...]]] = field(default_factory=dict)
    selects: dict[str, Select] = field(default_factory=dict)
    calls: dict[int, Call] = field(default_factory=dict)
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

    def select_key(self, op: Select) -> str:
        """A selection's name; the axis it runs along is not part of it."""
        out = "" if op.out_axis is None else op.out_axis.id
        key = f"{op.kind}[{op.k},{out},{op.result},{op.dtype}]"
        self.selects.setdefault(key, op)
        return key


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
        case Iota(axis=axis):
            return "Iota", [str(axis.id)]
        case Map():
            return f"Map{len(args)}", [quote(symbols.map_key(op)), *args]
        case Reduce(kind=kind, axes=axes):
            return "Reduce", [quote(kind), axis_set(axes), *args]
        case Dot(axes=axes):
            key = precision_key(op, dtypes)
            symbols.precisions.add(key)
            return "Dot", [quote(key), axis_set(axes), *args]
        case Select(axis=axis):
            return "Select", [quote(symbols.select_key(op)), str(axis.id), *args]
        case Rename(old=old, new=new):
            return "Rename", [str(old.id), str(new.id), *args]
        case Opaque(call=call, result=result):
            symbols.calls[call.id] = call
            operands = "(Nil)"
            for arg in reversed(args):
                operands = f"(Cons {arg} {operands})"
            return "Opaque", [str(call.id), str(result), operands]
    raise AssertionError(f"a loaded program has no {type(op).__name__}")


def encode_term(term: Term, symbols: Symbols) -> str:
    """Actions that add a term whose operands have been added."""
    operands = [f"(Node {arg.number})" for arg in term.args]
    constructor, args = encode_op(term.op, operands, [arg.dtype for arg in term.args], symbols)
    node = f"(Node {term.number})"
    spelled = " ".join(args)
    lines = [
        f"(union {node} ({constructor} {spelled}))",
        f"(set (by-{constructor} {spelled}) {LOADED})",
        f"(set (axes {node}) {axis_set(term.axes)})",
        f"(set (open {node}) (set-empty))",
        f"(set (dtype {node}) {quote(term.dtype)})",
    ]
    return "\n".join(lines)


def encode_program(
    program: Program, large: Iterable[Axis], stored: Iterable[Term]
) -> tuple[list[str], Symbols]:
    """Blocks of actions that load a program, small enough to parse quickly, and their symbols.

    **Arguments:**

    - `large`: the axes that may be split into chunks.
    - `stored`: the terms that may be computed piece by piece and laid side by side.
    """
    symbols = Symbols()
    symbols.axes = {axis.id: axis for axis in program.axes()}
    blocks: list[str] = []
    lines: list[str] = []
    dtypes = set()
    for term in program.reachable():
        lines.append(encode_term(term, symbols))
        dtypes.add(term.dtype)
        if isinstance(term.op, (Reduce, Dot)):
            symbols.axes.update((axis.id, axis) for axis in term.op.axes)
        if len(lines) >= 25:
            blocks.append("\n".join(lines))
            lines = []
    lines += [f"(float {quote(dtype)})" for dtype in sorted(dtypes) if is_real_float(dtype)]
    lines += [f"(uniform {quote(key)})" for key in sorted(symbols.precisions) if "|" not in key]
    lines += [f"(axis {number})" for number in sorted(symbols.axes)]
    large_ids = {axis.id for axis in large}
    lines += [f"(large {number})" for number in sorted(large_ids)]
    lines += [f"(stored (Node {term.number}))" for term in stored]
    for call in symbols.calls.values():
        lines += [f"(passes {call.id} {axis.id})" for axis in call.passing if axis.id in large_ids]
    blocks.append("\n".join(lines))
    return blocks, symbols
