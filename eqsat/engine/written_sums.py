"""Short sums written out, entry by entry, as equalities of a program.

    sum_k f(x_ik, y_jk)  =  f(x_i0, y_j0) + f(x_i1, y_j1) + f(x_i2, y_j2)

A compiler that stores the results of reductions computes the right side on the fly. The language of rules
has no name for the entries of an axis, so these equalities are loaded beside the program as it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from math import prod

from jax import lax

from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import accumulator, is_extended
from eqsat.ir.ops import Call, Const, Dot, Iota, Map, Opaque, Reduce, Rename
from eqsat.ir.program import Program
from eqsat.ir.term import Term

MOST_TERMS = 4_000
"""Programs with more terms than this, with the terms that are added, get no more written sums."""

Place = tuple[tuple[Axis, int], ...]
"""An entry: by axis, its index."""


def with_written_sums(program: Program, longest: int, inlined: int = 0) -> Program:
    """Returns the program with equalities between its short sums and the same sums written out.

    **Arguments:**

    - `longest`: the most entries of a sum that is written out.
    - `inlined`: reductions of no more entries are computed on the fly as they are, and stay so.
    """
    writer = _Writer(program)
    pairs = []
    for term in list(program.known()):
        least = max(inlined if isinstance(term.op, Reduce) else 0, 1)
        if _is_sum(term) and least < prod(axis.size for axis in _summed(term)) <= longest:
            if len(writer.terms_made) > MOST_TERMS:
                break
            written = writer.written(term)
            if written is not None:
                pairs.append((term, written))
    return replace(program, equalities=(*program.equalities, *pairs)) if pairs else program


def _summed(term: Term) -> frozenset[Axis]:
    """Returns the axes that a term sums over."""
    return term.op.axes if isinstance(term.op, (Dot, Reduce)) else frozenset()


def _is_sum(term: Term) -> bool:
    """Returns whether a term sums entries of a dtype that it accumulates in."""
    sums = isinstance(term.op, Dot) or (isinstance(term.op, Reduce) and term.op.kind == "sum")
    alike = all(arg.dtype == term.dtype for arg in term.args)
    return sums and alike and not is_extended(term.dtype) and accumulator(term.dtype) == term.dtype


class _Writer:
    """Writes sums out.

    **Attributes:**

    - `terms_made`: the numbers of the terms that were made.
    """

    def __init__(self, program: Program) -> None:
        self.terms = program.terms
        self.terms_made: set[int] = set()
        self._next_call = program.next_call()
        self._known: dict[tuple[int, Place], Term | None] = {}

    def written(self, term: Term) -> Term | None:
        """Returns a sum as its entries added up in order, or None if one of them can't be written."""
        op = term.op
        assert isinstance(op, (Dot, Reduce))
        axes = sorted(op.axes, key=lambda axis: axis.id)
        total: Term | None = None
        for indices in product(*(range(axis.size) for axis in axes)):
            place = tuple(zip(axes, indices, strict=True))
            entries = [self.entry(arg, place) for arg in term.args]
            if any(entry is None for entry in entries):
                return None
            whole = [entry for entry in entries if entry is not None]
            value = self._made(Map("mul", term.dtype), whole) if isinstance(op, Dot) else whole[0]
            total = value if total is None else self._made(Map("add", term.dtype), [total, value])
        return total

    def entry(self, term: Term, place: Place) -> Term | None:
        """Returns a term at an entry of some axes, or None if it can't be written."""
        place = tuple((axis, index) for axis, index in place if axis in term.axes)
        if not place:
            return term
        key = (term.number, place)
        if key not in self._known:
            self._known[key] = self._entry(term, place)
        return self._known[key]

    def _entry(self, term: Term, place: Place) -> Term | None:
        match term.op:
            case Map() as op:
                args = [self.entry(arg, place) for arg in term.args]
                return None if None in args else self._made(op, [arg for arg in args if arg is not None])
            case Rename(old=old, new=new):
                named = tuple((old if axis == new else axis, index) for axis, index in place)
                found = self.entry(term.args[0], named)
                if found is None or old not in found.axes:
                    return found
                return self._made(Rename(old, new), [found])
            case Iota(axis=axis, dtype=dtype) if len(place) == 1 and place[0][0] == axis:
                return self._made(Const(str(place[0][1]), dtype), [])
            case _:
                return self._sliced(term, dict(place))

    def _sliced(self, term: Term, place: Mapping[Axis, int]) -> Term | None:
        """Returns a slice of a term, by a call of its own."""
        if term.open or is_extended(term.dtype):
            return None
        axes = sorted(term.axes, key=lambda axis: axis.id)
        starts = tuple(place.get(axis, 0) for axis in axes)
        limits = tuple(place[axis] + 1 if axis in place else axis.size for axis in axes)
        call = Call(
            self._next_call,
            lax.slice_p,
            {"start_indices": starts, "limit_indices": limits, "strides": None},
            (tuple(axes),),
            (tuple(None if axis in place else axis for axis in axes),),
            (term.dtype,),
            frozenset(axis for axis in axes if axis not in place),
        )
        self._next_call += 1
        return self._made(Opaque(call, 0), [term])

    def _made(self, op: Map | Rename | Const | Opaque, args: list[Term]) -> Term:
        made = self.terms.make(op, args)
        self.terms_made.add(made.number)
        return made
