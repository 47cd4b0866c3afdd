"""Compared values: values that a program compares with a selection from them, as entries with their maximum.

The derivative of a maximum looks for the entries that equal it. If the maximum were computed in another order
than the entries, it would differ from all of them by a rounding error. So a compared value is computed by one
expression wherever it is computed, and the terms between it and the comparison stay as written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from eqsat.ir.control import While, carried
from eqsat.ir.dtypes import is_inexact
from eqsat.ir.ops import Call, Const, Delta, Iota, Leaf, Map, Op, Opaque, Operation, Reduce, Rename, Select
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


SEVERAL = 16
"""The number of programs of which it is kept."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The values of a program that are compared with a selection from them.

    **Attributes:**

    - `values`: the compared values, each computed by one expression everywhere.
    - `between`: the numbers of the terms from there to the comparisons, which stay as written.
    - `elsewhere`: the numbers of those terms, here or in the bodies of control flow, that are compared in
      other bodies than they are computed in. Nowhere else may they be computed again.
    """

    values: tuple[Term, ...]
    between: frozenset[int]
    elsewhere: frozenset[int]


@lru_cache(SEVERAL)
def compared(program: Program) -> Compared:
    """The values of a program that are compared with what was selected from them, here or inside."""
    return _Finder(program).found()


class _Finder:
    """Looks through a program and the bodies inside. Sets of terms are the bits of integers.

    A term of a body has a place for each call of the body.

    **Attributes:**

    - `terms`, `args`, `bodies`: by place, the term, the places that it is made of, and the body that it is
      in, 0 for none.
    - `reached`: of each term, by place, what it is made of by elementwise functions and selections.
    - `rounded`: the terms that rounding has a say in.
    """

    def __init__(self, program: Program) -> None:
        self.terms: list[Term] = []
        self.args: list[list[int]] = []
        self.bodies: list[int] = []
        self.reached: list[int] = []
        self.rounded = 0
        self._count = 0
        self._read(program, {})

    def _read(self, program: Program, given: Mapping[int, int]) -> list[int]:
        """Enter the terms of a program; the places of its outputs.

        **Arguments:**

        - `given`: by number of an input, the place of what it is a slice of, or the whole.
        """
        body = self._count
        self._count += 1
        places: dict[int, int] = {}
        made: dict[tuple[int, tuple[int, ...]], list[list[int]]] = {}
        for term in program.reachable():
            args = [places[arg.number] for arg in term.args]
            selects = _selects(term.op) or isinstance(term.op, Map)
            if term.number in given:
                args, selects = [given[term.number]], True
            elif isinstance(term.op, Opaque) and term.op.call.bodies:
                call = term.op.call
                key = call.id, tuple(args)
                if key not in made:
                    made[key] = self._inside(call, args)
                args, selects = [outputs[term.op.result] for outputs in made[key]], True
            place = places[term.number] = len(self.terms)
            self.terms.append(term)
            self.args.append(args)
            self.bodies.append(body)
            reached = 1 << place
            for arg in args if selects else ():
                reached |= self.reached[arg]
            self.reached.append(reached)
            own = is_inexact(term.dtype) and not _keeps(term.op)
            if own or any(self.rounded >> arg & 1 for arg in args):
                self.rounded |= 1 << place
        return [places[output.term.number] for output in program.outputs]

    def _inside(self, call: Call, args: Sequence[int]) -> list[list[int]]:
        """Enter the terms of a call's bodies; the places of the outputs of each that gives the results."""
        assert call.control is not None
        moving = carried(call.control)
        found = []
        for number, body in enumerate(call.bodies):
            fed = zip(body.program.inputs, body.sources, strict=True)
            outputs = self._read(
                body.program, {leaf.number: args[source] for leaf, source in fed if source not in moving}
            )
            if not isinstance(call.control, While) or number > 0:
                found.append(outputs)
        return found

    def found(self) -> Compared:
        values, between, elsewhere = 0, 0, 0
        for place, term in enumerate(self.terms):
            if isinstance(term.op, Map) and term.op.name in STEPS and not _tests_nan(term):
                for meeting in self._meetings(place):
                    made, way = self._frontier(place, self._common(meeting))
                    if made:
                        values |= made
                        between |= way
                        elsewhere |= sum(
                            1 << other for other in _bits(made) if self.bodies[other] != self.bodies[place]
                        )
        return Compared(
            tuple(self.terms[place] for place in _bits(values) if not self.bodies[place]),
            frozenset(self.terms[place].number for place in _bits(between) if not self.bodies[place]),
            frozenset(self.terms[place].number for place in _bits(elsewhere)),
        )

    def _meetings(self, step: int) -> Iterator[int]:
        """The steps that combine two values and depend on which is larger."""
        for place in _bits(self.reached[step]):
            op = self.terms[place].op
            compares = place == step or (isinstance(op, Map) and op.name in DIFFERENCES)
            if compares and len(self.args[place]) == 2:
                yield place

    def _common(self, meeting: int) -> int:
        """The terms that both operands are computed from."""
        first, second = (self.reached[arg] for arg in self.args[meeting])
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
            if common >> place & 1 and not _keeps(self.terms[place].op):
                values |= 1 << place
            elif self.reached[place] & common:
                between |= 1 << place
                waiting += self.args[place]
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
