"""Computes the partial results of chunks of narrow floats in the dtype of their accumulator.

A reduction or contraction of narrow floats accumulates in a wider dtype and rounds once. In a loop over
chunks, the result of each chunk would be rounded before the loop adds it. It may then overflow where the
whole does not, and if chunks cancel, rounding errors remain. So the partial results are computed in the
accumulator's dtype, through nested loops too, and only the result of the outermost loop is rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import accumulator, numpy_dtype
from eqsat.ir.formula import Monoid
from eqsat.ir.ops import Call, Dot, Fold, Map, Opaque, Reduce, Rename
from eqsat.ir.program import Program
from eqsat.ir.term import Term

SUMS = frozenset({"sum", "prod", "mean"})
"""The reductions that round their results."""

LINEAR = frozenset({"neg", "add", "sub", "mul", "div", "select_n"})
"""The elementwise functions that rules put between a loop and the reduction of a chunk."""


@dataclass(frozen=True)
class Widened:
    """A widened program, and the terms that replaced those of the original.

    **Attributes:**

    - `terms`: the replacements by the numbers of the original terms. Each original term has one of its own
      dtype and, if it was widened, one of the accumulator's dtype.
    """

    program: Program
    terms: Mapping[int, Sequence[Term]]


def widened(program: Program) -> Widened:
    """Returns the program with wide partial results in its loops.

    The bodies of control flow stay as they are.
    """
    terms = list(program.reachable())
    wanted = _wanted(terms)
    if not wanted:
        return Widened(program, {term.number: (term,) for term in terms})
    widening = _Widening(program, wanted)
    for term in terms:
        widening.enter(term)
    outputs = tuple(replace(out, term=widening.narrow[out.term.number]) for out in program.outputs)
    alike = tuple(widening.narrow[term.number] for term in program.alike)
    found = {number: [term] for number, term in widening.narrow.items()}
    for number, term in widening.wide.items():
        found[number].append(term)
    return Widened(replace(program, outputs=outputs, alike=alike), found)


def _wanted(terms: Sequence[Term]) -> frozenset[int]:
    """Returns the numbers of the terms to be computed in their accumulator's dtype.

    **Arguments:**

    - `terms`: all terms of the program, operands first.
    """
    gaining: set[int] = set()
    for term in terms:
        if _gains(term, gaining):
            gaining.add(term.number)
    wanted: dict[int, frozenset[Axis]] = {}
    """The axes of the loops that combine each term as a partial result, by the term's number."""
    for term in reversed(terms):
        if term.number not in gaining:
            continue
        loops = wanted.get(term.number, frozenset())
        if isinstance(term.op, Fold):
            wanted[term.number] = loops = loops | {term.op.axis}
        if loops and isinstance(term.op, (Fold, Rename, Map)):
            for part in _parts(term, loops):
                wanted[part.number] = wanted.get(part.number, frozenset()) | loops
    return frozenset(wanted) & gaining


def _gains(term: Term, gaining: set[int]) -> bool:
    """Returns whether a term would be more precise in its accumulator's dtype."""
    if accumulator(term.dtype) == term.dtype:
        return False
    match term.op:
        case Dot():
            return True
        case Reduce(kind=kind):
            return kind in SUMS and term.args[0].dtype == term.dtype
        case Opaque(call=call):
            return bool(call.sums) and "preferred_element_type" in call.params
        case Fold(axis=axis, monoid=str() | Monoid()):
            return any(part.number in gaining for part in _parts(term, frozenset({axis})))
        case Rename():
            return term.args[0].number in gaining
        case Map(name=name):
            return name in LINEAR and any(arg.number in gaining for arg in term.args)
    return False


def _parts(term: Term, loops: frozenset[Axis]) -> list[Term]:
    """Returns the operands that are partial results of one of the loops, and may be widened.

    A part of a monoid's state must keep its rounded value if another part is computed from it. For example,
    deviations are computed from the rounded mean.
    """
    parts = [arg for arg in term.args if loops & arg.open - arg.axes]
    if not isinstance(term.op, Fold) or len(term.args) == 1:
        return parts
    read = _read_inside(term.args, term.op.axis)
    return [part for part in parts if part.number not in read]


def _read_inside(bodies: Sequence[Term], axis: Axis) -> set[int]:
    """Returns the numbers of the terms that a loop over `axis` computes on the way to its bodies."""
    found: set[int] = set()
    stack = [arg for body in bodies for arg in body.args]
    while stack:
        term = stack.pop()
        if axis in term.open and term.number not in found:
            found.add(term.number)
            stack.extend(term.args)
    return found


class _Widening:
    """Rebuilds the terms of a program. Those in `wanted` are built in both dtypes, wide and narrow."""

    def __init__(self, program: Program, wanted: frozenset[int]) -> None:
        self.made = program.terms
        self.wanted = wanted
        self.narrow: dict[int, Term] = {}
        self.wide: dict[int, Term] = {}
        self.calls: dict[Call, Call] = {}

    def enter(self, term: Term) -> None:
        """Rebuilds a term whose operands have been rebuilt."""
        if term.number in self.wanted:
            self.wide[term.number] = made = self._wide(term)
            self.narrow[term.number] = self.made.make(Map("convert", term.dtype), [made])
        else:
            made = self.made.make(term.op, [self.narrow[arg.number] for arg in term.args])
            self.narrow[term.number] = made
        if term.number in self.made.origins:
            for new in (made, self.narrow[term.number]):
                self.made.origins.setdefault(new.number, self.made.origins[term.number])

    def _wide(self, term: Term) -> Term:
        """Builds a term in its accumulator's dtype."""
        dtype = accumulator(term.dtype)
        match term.op:
            case Reduce():
                return self.made.make(replace(term.op, dtype=dtype), [self._converted(term.args[0])])
            case Dot():
                operands = [self.narrow[arg.number] for arg in term.args]
                return self.made.make(replace(term.op, dtype=dtype), operands)
            case Opaque(call=call):
                operands = [self.narrow[arg.number] for arg in term.args]
                return self.made.make(replace(term.op, call=self._call(call, dtype)), operands)
            case Map():
                return self.made.make(replace(term.op, dtype=dtype), map(self._converted, term.args))
            case _:
                return self.made.make(term.op, map(self._converted, term.args))

    def _converted(self, term: Term) -> Term:
        """Returns a term in its accumulator's dtype, converted if it is not computed in it."""
        if term.number in self.wide:
            return self.wide[term.number]
        narrow, dtype = self.narrow[term.number], accumulator(term.dtype)
        return narrow if narrow.dtype == dtype else self.made.make(Map("convert", dtype), [narrow])

    def _call(self, call: Call, dtype: str) -> Call:
        """Returns the call with results of that dtype."""
        if call not in self.calls:
            params = {**call.params, "preferred_element_type": numpy_dtype(dtype)}
            self.calls[call] = replace(call, params=params, out_dtypes=(dtype,))
        return self.calls[call]
