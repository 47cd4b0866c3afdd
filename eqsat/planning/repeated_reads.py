"""Values that the body of a loop stores, since it would compute them again wherever it reads them.

It does so for shifted parts, such as neighbours of which a stencil reads several, and for what is repeated
along further axes, as the vectors of an outer product are. The loop may be one over chunks, or one of control
flow, whose iterations are steps of a simulation or of its derivative.

A compiler that computes such a value on the fly does so for each part, since entries at other places are
other computations. If the value is itself made of parts of another one, as after several steps of a
simulation, the work multiplies from step to step. What is repeated is computed for each entry that reads it,
but for its last expensive operation: the compiler stores the result of that.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from itertools import takewhile
from weakref import WeakKeyDictionary

from eqsat.engine.storage_model import JOINS, VIEW_OPERATIONS, VIEW_PRIMITIVES, is_expensive
from eqsat.ir.dtypes import is_extended
from eqsat.ir.memory_order import Order, memory_order
from eqsat.ir.ops import Chunk, Const, Iota, Map, Opaque, Operation, Rename
from eqsat.ir.term import Term
from eqsat.planning.blocks import Block, Compute, Schedule
from eqsat.targets.machine import Machine

SAME_PLACES = frozenset({"reshape", "squeeze", "bitcast_convert_type", "merge"})
"""Views whose entries are those of their operand in the same order."""

GATHERED = 3.0
"""What it costs to compute where an entry is gathered from, in elementwise operations."""

REPEATED = 8
"""Values are worth storing if so many entries, or more, read each of theirs: a choice."""

_FOUND: WeakKeyDictionary[Block, dict[tuple[float, ...], frozenset[int]]] = WeakKeyDictionary()


def read_repeatedly(block: Block, machine: Machine) -> frozenset[int]:
    """The numbers of the values of a block that are stored so; there are none if it is in no loop.

    Those are values that would cost more than `machine.shifted_work` elementwise operations for each entry to
    compute again for all parts but one, and those of `machine.repeated_work` operations that are repeated
    along an axis. There are none of a kind if that is 0.
    """
    if not block.iterates:
        return frozenset()
    key = machine.shifted_work, machine.repeated_work, machine.repeated_run
    found = _FOUND.setdefault(block, {})
    if key not in found:
        terms = [step.term for step in block.steps if isinstance(step, Compute)]
        shifted = _read_shifted(terms, machine.shifted_work) if machine.shifted_work else []
        repeated = _read_along_axes(terms, machine) if machine.repeated_work else []
        found[key] = frozenset([*shifted, *repeated])
    return found[key]


def read_repeatedly_in(schedule: Schedule, machine: Machine) -> dict[Block, frozenset[int]]:
    """By block, these values, for a whole schedule."""
    found = ((block, read_repeatedly(block, machine)) for block in schedule.block.blocks())
    return {block: here for block, here in found if here}


def _read_along_axes(terms: list[Term], machine: Machine) -> list[int]:
    """The values that an elementwise function repeats along an axis outside of long runs of their entries.

    Along the last axis in memory, a repeated value is kept in a register. Where its runs are short, the loop
    that reads it is no faster for storing it.
    """
    orders = _orders(terms)
    repeated = {
        arg.number
        for term in terms
        if (order := orders.get(term.number)) is not None
        for arg in term.args
        if _entries(term) >= REPEATED * _entries(arg) and _run(arg, order) >= machine.repeated_run
    }
    found: list[int] = []
    work: dict[int, float] = {}
    for term in terms:
        own = _own_work(term)
        below = (work.get(arg.number, 0.0) for arg in dict.fromkeys(term.args))
        cost = 0.0 if own is None else own + sum(below)
        if isinstance(term.op, Map) and is_expensive(term.op, machine):
            cost = 0.0
        if cost >= machine.repeated_work and term.number in repeated and _is_array(term):
            found.append(term.number)
            cost = 0.0
        work[term.number] = cost
    return found


def _orders(terms: list[Term]) -> dict[int, Order]:
    """The order in memory of elementwise functions, as far as an array of the same axes gives it."""
    orders: dict[int, Order] = {}
    maps = [term for term in terms if isinstance(term.op, Map)]
    for term in maps:
        alike = (arg for arg in term.args if arg.axes == term.axes)
        given = (orders.get(arg.number) or memory_order(arg) for arg in alike)
        if (order := next(filter(None, given), None)) is not None:
            orders[term.number] = order
    for term in reversed(maps):
        if (order := orders.get(term.number)) is not None:
            for arg in term.args:
                if arg.axes == term.axes:
                    orders.setdefault(arg.number, order)
    return orders


def _run(term: Term, order: Order) -> int:
    """How many entries of a term lie one after the other in an array that repeats it."""
    return math.prod(axis.size for axis in takewhile(term.axes.__contains__, reversed(order)))


def _read_shifted(terms: list[Term], most: float) -> list[int]:
    """The values of which shifted parts are read."""
    places = _places(terms)
    found: list[int] = []
    work: dict[int, float] = {}
    indices: set[int] = set()
    for term in terms:
        own = _own_work(term)
        if isinstance(term.op, Map) and all(_is_index(arg, indices) for arg in term.args):
            indices.add(term.number)
        below = (work.get(arg.number, 0.0) for arg in dict.fromkeys(term.args))
        cost = 0.0 if own is None else own + sum(below)
        again = (places.get(term.number, 1) - 1) * cost
        wanted = again > most and term.number not in indices and _moves(term) != "same"
        if wanted and _is_array(term):
            found.append(term.number)
            cost = 0.0
        work[term.number] = cost
    return found


def _is_array(term: Term) -> bool:
    """Whether a term is an array of numbers that has entries, and not one of keys."""
    return bool(term.axes) and all(axis.size for axis in term.axes) and not is_extended(term.dtype)


def _is_index(term: Term, known: Collection[int]) -> bool:
    """Whether a value depends on indices only."""
    while isinstance(term.op, (Chunk, Rename)):
        (term,) = term.args
    return isinstance(term.op, (Const, Iota)) or term.number in known


def _places(terms: list[Term]) -> Mapping[int, float]:
    """By number of a term, at how many places relative to an entry its entries are read.

    A view of few entries, such as a diagonal, counts as a part of a place, by what reads it: a row that an
    elementwise function repeats along all others is computed for each of these.
    """
    moved: dict[int, float] = {}
    in_place: set[int] = set()
    extent: dict[int, int] = {}
    for term in reversed(terms):
        kind = _moves(term)
        entries = max(_entries(term), extent.get(term.number, 0))
        own = max(1.0, moved.get(term.number, 0) + (term.number in in_place))
        for arg in dict.fromkeys(term.args):
            if kind is None:
                in_place.add(arg.number)
                reach = _entries(term) if isinstance(term.op, Map) else 0
            else:
                moved[arg.number] = moved.get(arg.number, 0) + own * min(1.0, entries / max(1, _entries(arg)))
                reach = entries
            extent[arg.number] = max(extent.get(arg.number, 0), reach)
    return {number: moved.get(number, 0) + (number in in_place) for number in {*moved, *in_place}}


def _entries(term: Term) -> int:
    return math.prod(axis.size for axis in term.axes)


def _moves(term: Term) -> str | None:
    """How a term has entries of its operands, if it only moves them."""
    match term.op:
        case Operation(spec=spec):
            name, views = spec.name, VIEW_OPERATIONS
        case Opaque(call=call):
            name, views = call.primitive.name, VIEW_PRIMITIVES | JOINS
        case Rename():
            return "same"
        case _:
            return None
    return None if name not in views else "same" if name in SAME_PLACES else "moved"


def _own_work(term: Term) -> float | None:
    """The elementwise operations that a term adds where it is computed on the fly; None if it is stored."""
    match term.op:
        case Map():
            return 1.0
        case Operation(spec=spec) if spec.name == "take":
            return GATHERED
        case Opaque(call=call) if call.primitive.name == "gather":
            return GATHERED
        case _:
            return 0.0 if _moves(term) else None
