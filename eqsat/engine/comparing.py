"""Compared values: values that a program compares with a selection from them, as entries with their maximum.

The derivative of a maximum looks for the entries that equal it. If the maximum were computed in another order
than the entries, it would differ from all of them by a rounding error. So a compared value is computed by one
expression wherever it is computed, and the terms between it and the comparison stay as written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eqsat.ir.dtypes import is_inexact
from eqsat.ir.ops import Const, Delta, Iota, Leaf, Map, Op, Opaque, Operation, Reduce, Rename, Select
from eqsat.ir.program import Program
from eqsat.ir.term import Term

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "eq_to", "lt_to", "le_to"})

STEPS = COMPARISONS | {"sign", "floor", "ceil", "round"}
"""Functions whose result depends on the last digit of their operands."""

DIFFERENCES = frozenset({"sub", "div"})
"""Functions by which two values can be compared before a step: `sign(a - max(a))`."""

KEEPING = STEPS | {
    "abs", "and", "clamp", "convert", "copy", "max", "min", "neg", "not", "or", "select_n", "xor",
}  # fmt: skip
"""Functions that give the same bits for the same bits, whatever else is computed beside them."""

SELECTING_REDUCTIONS = frozenset({"max", "min", "and", "or"})

SELECTING_CALLS = frozenset(
    {
        "broadcast_in_dim", "concatenate", "copy", "cummax", "cummin", "dynamic_slice",
        "dynamic_update_slice", "gather", "pad", "reduce_window_max", "reduce_window_min", "reshape", "rev",
        "scatter", "scatter-max", "scatter-min", "scatter_max", "scatter_min", "select_n", "slice", "sort",
        "split", "squeeze", "top_k", "transpose",
    }
)  # fmt: skip
"""Primitives that give entries of their operands, perhaps in other places."""

SELECTING_OPERATIONS = frozenset(
    {"append", "argsort", "diagonal", "head", "merge", "reverse", "sort", "split", "take", "tril", "triu"}
)


@dataclass(frozen=True, slots=True)
class Compared:
    """The values of a program that are compared with a selection from them.

    **Attributes:**

    - `values`: the compared values, each computed by one expression everywhere.
    - `between`: the numbers of the terms from there to the comparisons, which stay as written.
    """

    values: tuple[Term, ...]
    between: frozenset[int]


def compared(program: Program) -> Compared:
    """The values of a program that are compared with what was selected from them."""
    return _Finder(program).found()


class _Finder:
    """Looks through one program. Sets of its terms are the bits of integers.

    **Attributes:**

    - `reached`: of each term, by place, what it is made of by elementwise functions and selections.
    - `rounded`: the terms that rounding has a say in.
    """

    def __init__(self, program: Program) -> None:
        self.terms = list(program.reachable())
        self.place = {term.number: place for place, term in enumerate(self.terms)}
        self.reached: list[int] = []
        self.rounded = 0
        for place, term in enumerate(self.terms):
            args = [self.place[arg.number] for arg in term.args]
            reached = 1 << place
            if _selects(term.op) or isinstance(term.op, Map):
                for arg in args:
                    reached |= self.reached[arg]
            self.reached.append(reached)
            own = is_inexact(term.dtype) and not _keeps(term.op)
            if own or any(self.rounded >> arg & 1 for arg in args):
                self.rounded |= 1 << place

    def found(self) -> Compared:
        values, between = 0, 0
        for place, term in enumerate(self.terms):
            if isinstance(term.op, Map) and term.op.name in STEPS and not _tests_nan(term):
                for meeting in self._meetings(place):
                    common = self._common(self.terms[meeting])
                    made, way = self._frontier(place, common)
                    if made:
                        values |= made
                        between |= way
        return Compared(
            tuple(self.terms[place] for place in _bits(values)),
            frozenset(self.terms[place].number for place in _bits(between)),
        )

    def _meetings(self, step: int) -> Iterator[int]:
        """The steps that combine two values and depend on which is larger."""
        for place in _bits(self.reached[step]):
            op = self.terms[place].op
            compares = place == step or (isinstance(op, Map) and op.name in DIFFERENCES)
            if compares and len(self.terms[place].args) == 2:
                yield place

    def _common(self, meeting: Term) -> int:
        """The terms that both operands are computed from."""
        first, second = (self.reached[self.place[arg.number]] for arg in meeting.args)
        return first & second & self.rounded

    def _frontier(self, step: int, common: int) -> tuple[int, int]:
        """Of the common parts those that the others are made of, and all that is on the way to the step."""
        if not common:
            return 0, 0
        values, between, seen = 0, 0, 0
        waiting = [step]
        while waiting:
            place = waiting.pop()
            if seen >> place & 1:
                continue
            seen |= 1 << place
            term = self.terms[place]
            if common >> place & 1 and not _keeps(term.op):
                values |= 1 << place
            elif self.reached[place] & common:
                between |= 1 << place
                waiting += [self.place[arg.number] for arg in term.args]
        return values, between


def _tests_nan(term: Term) -> bool:
    """Whether a term compares a value with itself: whatever its last digit, it is only unequal if it is
    NaN."""
    return len(term.args) == 2 and term.args[0] is term.args[1]


def _selects(op: Op) -> bool:
    """Whether each entry of the result is one of an operand's, or says which."""
    match op:
        case Rename() | Select():
            return True
        case Reduce(kind=kind):
            return kind in SELECTING_REDUCTIONS
        case Opaque(call=call):
            return call.primitive.name in SELECTING_CALLS
        case Operation(spec=spec):
            return spec.name in SELECTING_OPERATIONS
        case _:
            return False


def _keeps(op: Op) -> bool:
    """Whether an op gives the same bits for the same bits, wherever it is computed."""
    return (
        _selects(op)
        or isinstance(op, (Leaf, Const, Iota, Delta))
        or (isinstance(op, Map) and op.name in KEEPING)
    )


def _bits(number: int) -> Iterator[int]:
    """The places of the bits that are set."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
