"""Loops that sum narrow floats, with the partial results of chunks as wide as what they are carried in.

A reduction or a product of narrow floats is accumulated in a wider dtype and rounded once. Done chunk by
chunk, each chunk's part would be rounded before the loop adds it up: it may overflow where the whole doesn't,
and where parts cancel, what is left are rounding errors. So parts are computed in the accumulator's dtype,
through loops in one another, and what the outermost loop carries is rounded when it has come to its end.
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
"""The reductions that round."""

LINEAR = frozenset({"neg", "add", "sub", "mul", "div", "select_n"})
"""The elementwise functions that rules put between a loop and the sum of a chunk."""


@dataclass(frozen=True)
class Widened:
    """A program, and what has become of the terms of the one that it was made of.

    **Attributes:**

    - `terms`: for each term, by number, what stands for it: a term of its own dtype, and a wide one if any.
    """

    program: Program
    terms: Mapping[int, Sequence[Term]]


def widened(program: Program) -> Widened:
    """The program with wide partial results in its loops; bodies of control flow are left as they are."""
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
    """The numbers of the terms, operands first, that are wanted wide."""
    gaining: set[int] = set()
    for term in terms:
        if _gains(term, gaining):
            gaining.add(term.number)
    wanted: dict[int, frozenset[Axis]] = {}
    """By number, the axes of the loops that a term is a partial result in."""
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
    """Whether a term is more precise in its accumulator's dtype than what it is when it has been rounded."""
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
    """The operands that are partial results in one of the loops, and used for nothing but to be put together.

    The parts of a state are what they are for one another: deviations are from the mean as it was rounded.
    """
    parts = [arg for arg in term.args if loops & arg.open - arg.axes]
    if not isinstance(term.op, Fold) or len(term.args) == 1:
        return parts
    read = _read_inside(term.args, term.op.axis)
    return [part for part in parts if part.number not in read]


def _read_inside(bodies: Sequence[Term], axis: Axis) -> set[int]:
    """The numbers of what a loop over an axis computes in order to compute the bodies."""
    found: set[int] = set()
    stack = [arg for body in bodies for arg in body.args]
    while stack:
        term = stack.pop()
        if axis in term.open and term.number not in found:
            found.add(term.number)
            stack.extend(term.args)
    return found


class _Widening:
    """Builds the terms of a program again, those that are `wanted` wide in both dtypes."""

    def __init__(self, program: Program, wanted: frozenset[int]) -> None:
        self.made = program.terms
        self.wanted = wanted
        self.narrow: dict[int, Term] = {}
        self.wide: dict[int, Term] = {}
        self.calls: dict[Call, Call] = {}

    def enter(self, term: Term) -> None:
        """Build a term whose operands have been built."""
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
        """A term in its accumulator's dtype."""
        if term.number in self.wide:
            return self.wide[term.number]
        narrow, dtype = self.narrow[term.number], accumulator(term.dtype)
        return narrow if narrow.dtype == dtype else self.made.make(Map("convert", dtype), [narrow])

    def _call(self, call: Call, dtype: str) -> Call:
        """A call that gives its sums in that dtype."""
        if call not in self.calls:
            params = {**call.params, "preferred_element_type": numpy_dtype(dtype)}
            self.calls[call] = replace(call, params=params, out_dtypes=(dtype,))
        return self.calls[call]
