"""The e-graph's schema: its constructors, the analyses of its classes, and their bookkeeping."""

from __future__ import annotations

from collections.abc import Callable

from eqsat.ir.dtypes import accumulator, is_extended, is_inexact, is_real_float, numpy_dtype
from eqsat.ir.elementwise import COMMUTATIVE, INCREASING, LINEAR
from eqsat.ir.properties import PROPERTIES
from eqsat.language.functions import UNROUNDED

CONSTRUCTORS: dict[str, tuple[str, ...]] = {
    "Leaf": ("i64",),
    "Const": ("String", "String"),
    "Iota": ("i64", "String"),
    "Delta": ("i64", "i64"),
    "Map1": ("String", "T"),
    "Map2": ("String", "T", "T"),
    "Map3": ("String", "T", "T", "T"),
    "Reduce": ("String", "Axes", "T"),
    "Dot": ("String", "Axes", "T", "T"),
    "Select": ("String", "i64", "T"),
    "Operation": ("String", "Core", "Args"),
    "Rename": ("i64", "i64", "T"),
    "Opaque": ("i64", "i64", "Core", "Core", "Core", "Core", "Args"),
    "Chunk": ("i64", "T"),
    "Concat": ("i64", "T"),
    "Fold": ("i64", "String", "T"),
    "FoldMany": ("i64", "String", "Args"),
    "FoldOperation": ("i64", "String", "Core", "Args"),
    "FoldCall": ("i64", "i64", "i64", "Core", "Core", "Core", "Core", "Args"),
}
"""The ops in the e-graph. `by-X` beside each constructor X records the rule that made a node.

A call is its number, that of its result, and four lists of axes: those that pass, those along which it
accumulates, those that it sums over, those that it needs whole. So it can get other names for its axes.
"""

DTYPE_CLASSES: dict[str, Callable[[str], bool]] = {
    "float": is_real_float,
    "real": lambda dtype: not is_extended(dtype) and numpy_dtype(dtype).kind != "c",
    "integer": lambda dtype: not is_extended(dtype) and numpy_dtype(dtype).kind in "iu",
    "complex": lambda dtype: is_inexact(dtype) and not is_real_float(dtype),
    "boolean": lambda dtype: dtype == "bool",
    "wide": lambda dtype: not is_extended(dtype) and accumulator(dtype) == dtype,
}
"""What rules may ask of a dtype."""

NEW_AXES = 1 << 32
"""What the numbers of axes that rules make by their length begin at: the second of a rule, of length 5, is
2 * NEW_AXES + 5."""

FENCE = "!"
"""Stands before the name of an op that no algebra may change: rules that name it don't know it by this name.

Rules for all functions of a class do: a chunk of its result is still that of its operands' chunks.
"""

FAMILIES = {
    "commutative": COMMUTATIVE,
    "increasing": INCREASING,
    "linear": LINEAR,
    "unrounded": frozenset({*UNROUNDED, *(FENCE + kind for kind in UNROUNDED)}),
}
"""The classes of functions that rules may range over, but for those of which all that fit are members.

Reductions are split whether or not algebra may change them; elementwise functions are in classes for algebra.
"""

BOOKKEEPING = "bookkeeping"
"""The ruleset of what follows from the nodes that there are; run after every round of rules."""

LOADING = "loading"
"""The ruleset that makes terms of the rows that a program is loaded as."""

READING = "reading"
"""The ruleset that takes types apart, for whoever reads the e-graph."""

CHUNKS = "chunks"
"""The ruleset that asks for the chunks, along each large axis, of every term of the program that has it."""

AXES_OF, OPEN_OF = "(pair-first (pair-first {}))", "(pair-second (pair-first {}))"
DTYPE_OF = "(pair-second {})"
"""The parts of a type."""


def type_text(axes: str, opened: str, dtype: str) -> str:
    """The type of a term: its axes, open loops and dtype. In one table, as a rule joins all that it asks."""
    return f"(pair (pair {axes} {opened}) {dtype})"


def _both(part: str) -> str:
    return f"(set-intersect {part.format('old')} {part.format('new')})"


_PARTS = f"(= A {AXES_OF.format('y')}) (= O {OPEN_OF.format('y')}) (= d {DTYPE_OF.format('y')})"

_ANALYSES = f"""
(sort T) (sort Axes (Set i64)) (sort Args) (sort Core)
(constructor Node (i64) T)
(constructor Nil () Args) (constructor Cons (T Args) Args)
(constructor ChunkAll (i64 Args) Args) (constructor RenameAll (i64 i64 Args) Args)
(constructor Axes0 () Core) (constructor AxesCons (i64 Core) Core)
(constructor RenameCore (i64 i64 Core) Core)
(sort Loops (Pair Axes Axes)) (sort Type (Pair Loops String))
(function type (T) Type :merge {type_text(_both(AXES_OF), _both(OPEN_OF), DTYPE_OF.format("old"))})
(relation typed (T Axes Axes String))
(function value (T) f64 :merge old)
(function core-axes (Core) Axes :merge old)
(function size (i64) f64 :merge old) (function size-of (Axes) f64 :merge old) (relation need-size (Axes))
(function number (String String) String :merge old)
(relation axis (i64)) (relation copy (i64 i64 i64 i64)) (relation large (i64)) (relation tiled (i64))
(relation stored (T)) (relation called (T)) (relation simplified (i64 T))
(relation symbol (T String)) (relation over (String String))
(relation member (String String)) (relation uniform (String))
(relation conversion (String String))
"""

_BOOKKEEPING = f"""
; A chunk of a list of operands: operands without the axis are the same in every chunk.
(rule ((= e (ChunkAll n (Nil)))) ((union e (Nil))))
(rule ((= e (ChunkAll n (Cons a rest))) (= y (type a)) {_PARTS} (set-contains A n))
      ((let c (Chunk n a)) (set (type c) {type_text("A", "(set-insert O n)", "d")})
       (union e (Cons c (ChunkAll n rest)))))
(rule ((= e (ChunkAll n (Cons a rest))) (= y (type a)) (= A {AXES_OF.format("y")}) (set-not-contains A n))
      ((union e (Cons a (ChunkAll n rest)))))
; Likewise for another name of an axis.
(rule ((= e (RenameAll j k (Nil)))) ((union e (Nil))))
(rule ((= e (RenameAll j k (Cons a rest))) (= y (type a)) {_PARTS} (set-contains A j))
      ((let c (Rename j k a)) (set (type c) {type_text("(set-insert (set-remove A j) k)", "O", "d")})
       (union e (Cons c (RenameAll j k rest)))))
(rule ((= e (RenameAll j k (Cons a rest))) (= y (type a)) (= A {AXES_OF.format("y")}) (set-not-contains A j))
      ((union e (Cons a (RenameAll j k rest)))))
(rule ((= e (Axes0))) ((set (core-axes e) (set-empty))))
(rule ((= e (AxesCons n rest)) (= A (core-axes rest))) ((set (core-axes e) (set-insert A n))))
(rule ((= e (RenameCore j k (Axes0)))) ((union e (Axes0))))
(rule ((= e (RenameCore j k (AxesCons j rest)))) ((union e (AxesCons k (RenameCore j k rest)))))
(rule ((= e (RenameCore j k (AxesCons i rest))) (!= i j)) ((union e (AxesCons i (RenameCore j k rest)))))
(rule ((= e (Operation f c a))) ((called e)))
; Which of two axes comes first in a delta does not matter.
(rule ((= e (Delta i j))) ((union e (Delta j i))))
; The number of elements along a set of axes.
(rule ((need-size S) (= 0 (set-length S))) ((set (size-of S) 1.0)))
(rule ((need-size S) (< 0 (set-length S)) (= n (set-get S 0))) ((need-size (set-remove S n))))
(rule ((need-size S) (< 0 (set-length S)) (= n (set-get S 0)) (= r (size-of (set-remove S n))) (= s (size n)))
      ((set (size-of S) (* s r))))
; The values of constants computed from constants.
(rule ((= e (Map1 "neg" a)) (= x (value a))) ((set (value e) (neg x))))
(rule ((= e (Map2 "add" a b)) (= x (value a)) (= y (value b))) ((set (value e) (+ x y))))
(rule ((= e (Map2 "sub" a b)) (= x (value a)) (= y (value b))) ((set (value e) (- x y))))
(rule ((= e (Map2 "mul" a b)) (= x (value a)) (= y (value b))) ((set (value e) (* x y))))
(rule ((= e (Map2 "div" a b)) (= x (value a)) (= y (value b)) (!= y 0.0)
       (= t (type e)) (= d {DTYPE_OF.format("t")}) (float d))
      ((set (value e) (/ x y))))
"""

_ASKING = f"""
(rule ((= e (Node i)) (= y (type e)) {_PARTS} (large n) (set-contains A n))
      ((let c (Chunk n e)) (set (type c) {type_text("A", "(set-insert O n)", "d")}))"""

_TYPING = f"(rule ((= y (type t)) {_PARTS}) ((typed t A O d)) :ruleset {READING})"


SYMBOLS = {
    "Const": "number",
    "Iota": "iota",
    "Delta": "delta",
    "Map1": None,
    "Map2": None,
    "Map3": None,
    "Reduce": None,
    "Dot": "dot",
    "Select": "select",
    "Operation": None,
    "Rename": "rename",
    "Chunk": "chunk",
    "Concat": "concat",
    "Fold": "fold",
    "FoldMany": "fold",
    "FoldOperation": "fold",
}
"""The symbols of nodes, by their constructors: a word, or None for the name that is their first argument."""

NUMBER = SYMBOLS["Const"]
"""The symbol of whatever has a known value."""


def _symbols() -> list[str]:
    """The rules that tell of which symbols there are nodes over which others.

    A `symbol` of a class is that of any of its nodes. Lists of operands are not looked into.
    """
    rules = [f'((= x (value e))) ((symbol e "{NUMBER}"))']
    for name, word in SYMBOLS.items():
        sorts = CONSTRUCTORS[name]
        cells = " ".join(f"c{number}" for number in range(len(sorts)))
        spelled = f'"{word}"' if word else "c0"
        rules.append(f"((= e ({name} {cells}))) ((symbol e {spelled}))")
        rules += [
            f"((= e ({name} {cells})) (symbol c{number} s)) ((over {spelled} s))"
            for number, sort in enumerate(sorts)
            if sort == "T"
        ]
    return [f"(rule {rule} :ruleset {BOOKKEEPING})" for rule in rules]


def _loading() -> list[str]:
    """For each constructor without lists, a table of loaded terms, and the rule that makes them.

    A row is a term's number, the number of its set of axes, its dtype, its op's arguments and its maker; an
    operand is the number of a term, a set of axes a number of `axis-set`.
    """
    lines = [
        f"(ruleset {LOADING})",
        "(function axis-set (i64) Axes :merge old) (relation raw-value (i64 f64))",
        f"(rule ((raw-value i x)) ((set (value (Node i)) x)) :ruleset {LOADING})",
    ]
    for name, sorts in CONSTRUCTORS.items():
        if name.startswith("Fold") or {"Core", "Args"} & set(sorts):
            continue
        columns = " ".join("String" if sort == "String" else "i64" for sort in sorts)
        cells = [f"c{number}" for number in range(len(sorts))]
        spelled = {"T": "(Node {})", "Axes": "S{}"}
        args = " ".join(spelled.get(sort, "{}").format(cell) for sort, cell in zip(sorts, cells, strict=True))
        sets = " ".join(
            f"(= S{cell} (axis-set {cell}))"
            for sort, cell in zip(sorts, cells, strict=True)
            if sort == "Axes"
        )
        lines += [
            f"(relation raw-{name} (i64 i64 String {columns} i64))",
            f"(rule ((raw-{name} i s d {' '.join(cells)} m) (= A (axis-set s)) {sets})"
            f" ((let n ({name} {args})) (union (Node i) n) (set (by-{name} {args}) m)"
            f" (set (type n) {type_text('A', '(set-empty)', 'd')})) :ruleset {LOADING})",
        ]
    return lines


def _schema() -> str:
    lines = [_ANALYSES]
    lines += [f"(relation {kind} (String))" for kind in DTYPE_CLASSES]
    lines += [f"(relation is-{name} (T{' i64' * axes}))" for name, axes in PROPERTIES.items()]
    for name, sorts in CONSTRUCTORS.items():
        lines.append(f"(constructor {name} ({' '.join(sorts)}) T)")
        lines.append(f"(function by-{name} ({' '.join(sorts)}) i64 :merge old)")
    for family, functions in FAMILIES.items():
        lines += [f'(member "{family}" "{function}")' for function in sorted(functions)]
    lines.append(f"(ruleset {BOOKKEEPING})")
    for rule in _BOOKKEEPING.split("\n(rule ")[1:]:
        body = rule.split("\n;")[0].rstrip()
        assert body.endswith(")")
        lines.append(f"(rule {body[:-1]} :ruleset {BOOKKEEPING})")
    lines += _symbols()
    lines += _loading()
    lines += [f"(ruleset {CHUNKS})", f"{_ASKING} :ruleset {CHUNKS})", f"(ruleset {READING})", _TYPING]
    return "\n".join(lines)


SCHEMA = _schema()
