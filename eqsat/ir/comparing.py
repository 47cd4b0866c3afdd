"""Compared values: values that a program compares with a selection from them, as entries with their maximum.

The derivative of a maximum looks for the entries that equal it. If the maximum were computed in another order
than the entries, it would differ from all of them by a rounding error. So a compared value is computed by one
expression wherever it is computed, and the terms between it and the comparison stay as written.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat.ir.axis import Axis
from eqsat.ir.control import While, carried
from eqsat.ir.dtypes import is_inexact
from eqsat.ir.ops import Call, Const, Delta, Iota, Leaf, Map, Op, Opaque, Operation, Reduce, Rename, Select
from eqsat.ir.program import Program
from eqsat.ir.term import Term, reachable
from eqsat.ir.tiled_values import tiled_values
from eqsat.support.weak_cache import weakly_cached

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "eq_to", "lt_to", "le_to"})

STEPS = COMPARISONS | {"sign", "floor", "ceil", "round"}
"""Functions whose result depends on the last digit of their operands."""

DIFFERENCES = frozenset({"sub", "div"})
"""Functions by which two values can be compared before a step: `sign(a - max(a))`."""

KEEPING = STEPS | {
    "abs", "and", "clamp", "convert", "copy", "max", "min", "neg", "not", "or", "select_n", "xor",
}  # fmt: skip
"""Functions that give the same bits for the same bits, whatever else is computed beside them."""

ROUNDED_ONCE = frozenset({"add", "sub", "mul", "div", "sqrt"})
"""Functions whose result is the exact one, rounded."""

SELECTING_REDUCTIONS = frozenset({"max", "min", "and", "or"})

SELECTING_CALLS = frozenset(
    {
        "broadcast_in_dim", "concatenate", "copy", "cummax", "cummin", "dynamic_slice",
        "dynamic_update_slice", "gather", "pad", "pick", "read", "reduce_window_max", "reduce_window_min",
        "reshape", "rev", "scatter", "scatter-max", "scatter-min", "scatter_max", "scatter_min", "select_n",
        "slice", "sort", "split", "squeeze", "top_k", "transpose",
    }
)  # fmt: skip
"""Primitives that give entries of their operands, perhaps in other places."""

INDICES = {"gather": 1, "dynamic_slice": 1, "dynamic_update_slice": 2, "pick": 1, "take": 1}
"""Of what selects entries by indices, the operands from which on these are."""

SELECTING_OPERATIONS = frozenset(
    {"append", "argsort", "diagonal", "head", "merge", "reverse", "sort", "split", "take", "tril", "triu"}
)


@dataclass(frozen=True, slots=True)
class Compared:
    """The values of a program that are compared with a selection from them.

    **Attributes:**

    - `values`: the compared values, each computed by one expression everywhere.
    - `between`: the numbers of the terms from there to the comparisons, which stay as written.
    - `once`: the numbers of the terms, here or in the bodies of control flow, that no other body may compute
      again: an entry of them is looked for as it is, and not only in the body that computes them.
    """

    values: tuple[Term, ...]
    between: frozenset[int]
    once: frozenset[int]


@weakly_cached
def compared(program: Program) -> Compared:
    """The values of a program that are compared with what was selected from them, here or inside."""
    return _Finder(program).found()


@weakly_cached
def compared_with_tiles(program: Program) -> Compared:
    """The same, and what is compared in tiles that results may be computed by instead.

    Such a result is compared itself, but nothing reads it, and its tiles read nothing that is compared: they
    make each comparison of values that they compute.
    """
    found = compared(program)
    if not found.between:
        return found
    written = {term.number: term for term in program.reachable()}
    read = {arg.number for term in written.values() for arg in term.args}
    compares = found.between | {value.number for value in found.values}
    tiles = [
        tiles
        for whole, tiles in tiled_values(program)
        if whole.number in found.between - read
        and compares.isdisjoint(term.number for term in reachable([tiles]))
    ]
    return _Finder(program, tiles).found() if tiles else found


class _Finder:
    """Looks through a program and the bodies inside. Sets of terms are the bits of integers.

    A term of a body has a place for each call of the body.

    **Attributes:**

    - `terms`, `args`, `bodies`: by place, the term, the places that it is made of, and the body that it is
      in, 0 for none.
    - `reached`: of each term, by place, what it is made of by elementwise functions and selections, in its
      body.
    - `pointed`: the same, but not through a float that becomes an integer: an index that is computed so, as
      that of a quantile, says nothing of which entries are larger.
    - `mapped`: the same by elementwise functions alone: functions of the same entry of it.
    - `kept`: what it has entries of, bit by bit: by selections alone, and through bodies.
    - `rounded`: the terms that rounding has a say in.
    """

    def __init__(self, program: Program, beside: Sequence[Term] = ()) -> None:
        self.terms: list[Term] = []
        self.args: list[list[int]] = []
        self.bodies: list[int] = []
        self.reached: list[int] = []
        self.pointed: list[int] = []
        self.mapped: list[int] = []
        self.kept: list[int] = []
        self.rounded = 0
        self._differences: dict[int, int] = {}
        self._count = 0
        self._read(program, {}, beside)

    def _read(self, program: Program, given: Mapping[int, int], beside: Sequence[Term] = ()) -> list[int]:
        """Enter the terms of a program; the places of its outputs.

        **Arguments:**

        - `given`: by number of an input, the place of what it is a slice of, or the whole.
        - `beside`: what else to enter, with what it is computed from.
        """
        body = self._count
        self._count += 1
        places: dict[int, int] = {}
        made: dict[tuple[int, tuple[int, ...]], list[list[int]]] = {}
        for term in reachable([*(output.term for output in program.outputs), *beside]):
            args = [places[arg.number] for arg in term.args]
            selects = _selects(term.op) or isinstance(term.op, Map)
            keeps = _keeps(term.op)
            if term.number in given:
                args = [given[term.number]]
            elif isinstance(term.op, Opaque) and term.op.call.bodies:
                call = term.op.call
                key = call.id, tuple(args)
                if key not in made:
                    made[key] = self._inside(call, args)
                args, keeps = [outputs[term.op.result] for outputs in made[key]], True
            place = places[term.number] = len(self.terms)
            self.terms.append(term)
            self.args.append(args)
            self.bodies.append(body)
            indices = _first_index(term.op)
            for found, passes in (
                (self.reached, selects),
                (self.pointed, selects and not _rounds_to_integers(term)),
                (self.mapped, isinstance(term.op, Map)),
                (self.kept, keeps),
            ):
                made_of = 1 << place
                for number, arg in enumerate(args) if passes else ():
                    made_of |= (self.pointed if found is self.reached and number >= indices else found)[arg]
                found.append(made_of)
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
        values, between, once = 0, 0, 0
        for place, term in enumerate(self.terms):
            if isinstance(term.op, Map) and term.op.name in STEPS and not _tests_nan(term):
                once |= self._looked_for(place)
                for meeting in () if self.bodies[place] else self._meetings(place, self.reached):
                    compares = meeting == place
                    common = self._common(meeting, self.reached) if compares else self._difference(meeting)
                    made, way = self._frontier(place, common)
                    if made:
                        values |= made
                        between |= way
        values |= sum(1 << place for place in _bits(once) if not self.bodies[place])
        return Compared(
            tuple(self.terms[place] for place in _bits(values)),
            frozenset(self.terms[place].number for place in _bits(between)),
            frozenset(self.terms[place].number for place in _bits(once)),
        )

    def _looked_for(self, step: int) -> int:
        """The values of which a step looks for an entry as it is, but for those that its own body computes.

        What the program computes outside of bodies counts all the same: it may be moved into one.
        """
        found = 0
        for meeting in self._meetings(step, self.kept):
            for place in _bits(self._common(meeting, self.kept)):
                own = self.bodies[place] and self.bodies[place] == self.bodies[step]
                if not own and not _keeps(self.terms[place].op):
                    found |= 1 << place
        return found

    def _meetings(self, step: int, made_of: Sequence[int]) -> Iterator[int]:
        """The steps that combine two values and depend on which is larger."""
        for place in _bits(made_of[step]):
            op = self.terms[place].op
            compares = place == step or (isinstance(op, Map) and op.name in DIFFERENCES)
            if compares and len(self.args[place]) == 2:
                yield place

    def _common(self, meeting: int, made_of: Sequence[int]) -> int:
        """The terms that both operands are computed from."""
        first, second = (made_of[arg] for arg in self.args[meeting])
        return first & second & self.rounded

    def _difference(self, meeting: int) -> int:
        """The terms that both operands of a difference are computed from, one of them by a selection.

        What both are elementwise functions of is the same entry: `a / (a + 1)` compares nothing. Unless both
        may be its very bits: `a - floor(a)` is 0 for whole numbers.
        """
        if meeting not in self._differences:
            common = self._common(meeting, self.reached)
            first, second = (self.mapped[arg] for arg in self.args[meeting])
            if common & first & second:
                above = [self._above(arg, first & second, common) for arg in self.args[meeting]]
                common &= above[0] & above[1] | self._common(meeting, self.kept)
            self._differences[meeting] = common
        return self._differences[meeting]

    def _above(self, place: int, ends: int, wanted: int) -> int:
        """What a term is made of on ways that lead past `ends`, as far as that is of what is `wanted`."""
        found, waiting = 0, [place]
        while waiting:
            place = waiting.pop()
            if (found | ends) >> place & 1 or not self.reached[place] & wanted:
                continue
            found |= 1 << place
            waiting += [arg for arg in self.args[place] if self.reached[place] >> arg & 1]
        return found

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


def same_bits(term: Term, axes: Collection[Axis]) -> bool:
    """Whether an elementwise function gives the same bits for an entry, beside whichever it is computed.

    A compiler may round a product and a sum of it together, or not.

    **Arguments:**

    - `axes`: those along which entries are beside others.
    """
    if not isinstance(term.op, Map) or term.op.name not in KEEPING | ROUNDED_ONCE:
        return False
    return term.op.name not in ("add", "sub") or not any(
        isinstance(arg.op, Map) and is_inexact(arg.dtype) and not _is_of_integers(arg)
        for arg in term.args
        if not arg.axes.isdisjoint(axes)
    )


def _is_of_integers(term: Term) -> bool:
    """Whether a term is integers, or truth values, as floats."""
    converts = isinstance(term.op, Map) and term.op.name == "convert"
    return converts and not is_inexact(term.args[0].dtype)


def _tests_nan(term: Term) -> bool:
    """Whether a term compares a value with itself: whatever its last digit, it is only unequal if it is
    NaN."""
    return len(term.args) == 2 and term.args[0] is term.args[1]


def _rounds_to_integers(term: Term) -> bool:
    """Whether a term is floats as integers."""
    converts = isinstance(term.op, Map) and term.op.name == "convert"
    return converts and is_inexact(term.args[0].dtype) and not is_inexact(term.dtype)


def _first_index(op: Op) -> float:
    """The number of the first operand that is an index; infinite if none is."""
    match op:
        case Opaque(call=call):
            return INDICES.get(call.primitive.name, math.inf)
        case Operation(spec=spec):
            return INDICES.get(spec.name, math.inf)
        case _:
            return math.inf


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
