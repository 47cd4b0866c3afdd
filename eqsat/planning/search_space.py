"""The search space: the saturated e-graphs of a program and its bodies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eqsat.engine.compiled import CompiledRule, Granted
from eqsat.engine.contraction_orders import Order, better_orders, with_contraction_orders
from eqsat.engine.families import Families
from eqsat.engine.saturate import Limits, Saturation, saturate
from eqsat.engine.storage_model import StorageModel
from eqsat.ir.axis import Axis
from eqsat.ir.comparing import compared_with_tiles
from eqsat.ir.ops import Call, Chunk, Opaque, Operation
from eqsat.ir.picked_entries import is_pick
from eqsat.ir.program import Program
from eqsat.ir.streams import is_read
from eqsat.ir.term import Term, reachable
from eqsat.ir.tiled_values import tiled_values
from eqsat.planning.candidates import Candidate, as_written
from eqsat.planning.infeasibility import fits_nowhere
from eqsat.planning.joined_arrays import with_joined_arrays
from eqsat.planning.liveness import largest_stored
from eqsat.planning.loop_axes import SPLIT_AXES, computed, large_axes, long_sums
from eqsat.planning.memory_around import memory_around
from eqsat.planning.provenance import class_places
from eqsat.planning.rematerialisation import with_rematerialised_operands
from eqsat.support.deadline import NO_DEADLINE, Deadline
from eqsat.support.records import Place
from eqsat.targets.machine import Machine

BIG_SHARE = 16
"""A term is big if it takes more than 1/16 of the memory for temporaries."""

SMALLEST_SHARE = 1 << 10
"""A value this many times smaller than the largest value is not worth a loop."""

LONG = 300
"""A program of more terms is long. Its parts are searched before variants of the whole that store less, and
fewer programs are extracted and compiled, and fewer budgets tried, before something else is."""

LARGEST_ITEM = 8
"""The largest size of an element in bytes, from which the number of elements that fit is estimated."""


def free_bytes(program: Program, budget: int) -> int:
    """The bytes that a budget leaves for temporaries, after arguments and outputs."""
    return budget - program.fixed_bytes


def is_long(program: Program) -> bool:
    """Whether a search for programs in the place of this one takes long."""
    return sum(1 for _ in program.reachable()) > LONG


def smallest_share(program: Program) -> int:
    """The least memory for temporaries that a search assumes, in bytes."""
    largest = max((term.bytes for term, axes in computed(program) if axes), default=0)
    return largest // SMALLEST_SHARE


def stored_results(program: Program, large: Sequence[Axis], machine: Machine) -> list[Term]:
    """The terms that may be computed chunk by chunk: results, and values that are stored anyway.

    What is cut out of such a result is less to collect than the result is.
    """
    model = StorageModel(machine, {})
    found: dict[int, Term] = {output.term.number: output.term for output in program.outputs}
    axes = frozenset(large)
    tiles = [tiles for _, tiles in tiled_values(program)]
    for term in dict.fromkeys((*program.reachable(), *reachable(tiles))):
        cuts = isinstance(term.op, (Opaque, Operation)) and any(
            arg.number in found and arg.bytes > term.bytes for arg in term.args
        )
        if cuts or model.stores_result(term.op):
            found[term.number] = term
        if model.stores_operands(term.op, term.args):
            found.update((arg.number, arg) for arg in term.args)
    return [term for term in found.values() if term.args and term.axes & axes]


@dataclass(frozen=True)
class SearchSpace:
    """The programs equal to one, as a saturated e-graph, and the axes that they may loop over.

    **Attributes:**

    - `large`: the axes that may be looped over.
    - `bodies`: for each call of control flow, the space of each body; a candidate for a body without large
      values.
    """

    program: Program
    saturation: Saturation
    rules: Sequence[CompiledRule]
    machine: Machine
    large: tuple[Axis, ...]
    bodies: dict[Call, tuple[SearchSpace | Candidate, ...]]

    @cached_property
    def dispensable(self) -> frozenset[int]:
        """The e-classes of what loops stack and other forms of the same loops do without, and of its chunks.

        A scan that saves its carries gives all other results, so that its residuals need not be made.
        """
        class_of = self.saturation.graph.class_of
        given: dict[int, set[int]] = {}
        forms: dict[int, set[int]] = {}
        for term in filter(_is_control_flow, self.program.known()):
            for call in _loops_of(term):
                given.setdefault(call, set()).add(class_of[term.number])
        for term, form in self.program.equalities:
            for call in _loops_of(term) if _is_control_flow(term) else ():
                for other in _loops_of(form):
                    given[other].add(class_of[term.number])
                    forms.setdefault(call, set()).add(other)
                    forms.setdefault(other, set()).add(call)
        found: set[int] = set()
        written = set[int]().union(*map(_loops_of, filter(_is_control_flow, self.program.reachable())))
        for call in written & forms.keys():
            # Some forms have results that others do without.
            alike, left = {call}, [call]
            while left:
                fresh = forms[left.pop()] - alike
                alike |= fresh
                left += fresh
            always = set[int].intersection(*(given[other] for other in alike))
            found |= given[call] - always
        chunks: dict[int, list[int]] = {}
        for number, eclass in enumerate(self.saturation.graph.classes):
            for node in eclass.nodes:
                if isinstance(node.op, Chunk):
                    chunks.setdefault(node.children[0], []).append(number)
        waiting = list(found)
        while waiting:
            new = [chunk for chunk in chunks.get(waiting.pop(), ()) if chunk not in found]
            found.update(new)
            waiting += new
        return frozenset(found)

    @cached_property
    def places(self) -> dict[int, Place]:
        """The source places of the e-graph's classes."""
        return class_places(self.saturation.graph, self.program.terms.origins)

    @cached_property
    def streams(self) -> bool:
        """Whether the program reads inputs that are not in memory."""
        return any(is_read(term) or is_pick(term) for term in self.program.reachable())

    @cached_property
    def is_long(self) -> bool:
        """Whether extraction takes long."""
        return is_long(self.program)

    @cached_property
    def largest_as_written(self) -> int:
        """Bytes of the largest value that the program stores as it is written."""
        return largest_stored(as_written(self.program, self.machine).schedule, self.machine)

    def fits_nowhere(self, budget: int) -> bool:
        """Whether it is known that all programs need more than a budget in bytes.

        With arguments that are read by chunks, nothing is: what is larger may be kept outside of the memory.
        """
        if budget not in self._hopeless:
            self._hopeless[budget] = not self.streams and fits_nowhere(
                self.program, self.saturation.graph, self.large, self.machine, budget
            )
        return self._hopeless[budget]

    @cached_property
    def _hopeless(self) -> dict[int, bool]:
        """By budget, what is known of it."""
        return {}

    @cached_property
    def around(self) -> Mapping[Call, int]:
        """Bytes that are in memory while a call of control flow runs, beside what its bodies compute."""
        return memory_around(self.program)

    @cached_property
    def families(self) -> Families:
        """The families of e-classes that must be computed by one expression everywhere."""
        graph = self.saturation.graph
        return Families.in_graph(
            graph, [graph.class_of[value.number] for value in compared_with_tiles(self.program).values]
        )


Saturations = dict[tuple[object, ...], Saturation]
"""The saturated e-graphs of a program and of the bodies inside, by everything that saturation depends on."""


def prepare(
    program: Program,
    rules: Sequence[CompiledRule],
    budget: int | None,
    machine: Machine,
    most_axes: int = SPLIT_AXES[0],
    limits: Limits | None = None,
    deadline: Deadline = NO_DEADLINE,
    known: Saturations | None = None,
    granted: Sequence[Granted] = (),
    orders: Sequence[Order] = (),
    axes: tuple[Axis, ...] | None = None,
) -> SearchSpace:
    """Saturate a program's e-graph.

    **Arguments:**

    - `budget`: bytes to fit in; if None, only algebraic rewrites are explored, no loops.
    - `most_axes`: the number of axes that may be looped over.
    - `deadline`: when to stop saturating.
    - `known`: saturations of this program by these rules for other budgets; new ones are added.
    - `granted`: the matches for which rules with guards may be used, outside the bodies of control flow.
    - `orders`: further orders of contractions that may be used.
    - `axes`: the axes that may be looped over; None for those of large values.
    """
    if orders:
        pairs = ((order.root, order.winner) for order in orders)
        program = replace(program, equalities=(*program.equalities, *pairs))
    free = None if budget is None else max(free_bytes(program, budget), smallest_share(program))
    known = {} if known is None else known
    return _prepared(
        program, rules, free, machine, most_axes, limits, frozenset(), deadline, known, granted, axes, budget
    )


def _prepared(
    program: Program,
    rules: Sequence[CompiledRule],
    free: int | None,
    machine: Machine,
    most_axes: int,
    limits: Limits | None,
    whole: frozenset[Axis],
    deadline: Deadline,
    known: Saturations,
    granted: Sequence[Granted] = (),
    wanted: tuple[Axis, ...] | None = None,
    budget: int | None = None,
) -> SearchSpace:
    """Saturate the e-graphs of a program and of the bodies inside.

    **Arguments:**

    - `free`: bytes for temporaries.
    - `whole`: axes that are not looped over here, since a loop outside the call may be over them.
    - `wanted`: the axes that may be looped over; None for those of large values.
    - `budget`: bytes to fit in. If no program can, the bodies are left as written.
    """
    large: tuple[Axis, ...] = ()
    cap = None
    if free is not None:
        cap = free // LARGEST_ITEM
        # The axes are the same for all budgets, so that a larger budget offers all that a smaller one does.
        axes = large_axes(program, smallest_share(program))
        axes = tuple(axis for axis in axes if axis not in whole)
        summed = [axis for axis in long_sums(program, machine) if axis in axes[most_axes:]]
        large = (*axes[:most_axes], *summed[:1])
        if wanted is not None:
            large = tuple(axis for axis in wanted if axis not in whole)
        program = with_joined_arrays(program, free / BIG_SHARE)
        exact = all(rule.accuracy == "exact" for rule in rules)
        program = with_rematerialised_operands(program, free / BIG_SHARE, free, exact)
    calls = dict.fromkeys(_control_flow(program)) if free is not None else {}
    if rules:
        program = with_contraction_orders(program, _reorders(rules), rules[0].precision or None, cap)
    stored = stored_results(program, large, machine)
    tiled = most_axes > SPLIT_AXES[0]
    key = (program.outputs, program.equalities, program.facts, large, tiled, tuple(stored), limits, *granted)
    saturation = known.get(key)
    if saturation is None:
        saturation = saturate(program, rules, large, stored, limits, deadline, granted, tiled)
        if not deadline.passed():
            known[key] = saturation
    bodies: dict[Call, tuple[SearchSpace | Candidate, ...]] = {}
    space = SearchSpace(program, saturation, rules, machine, large, bodies)
    if free is None or not calls:
        return space
    # With no memory for temporaries, the programs that need least are wanted.
    hopeless = budget is not None and budget > program.fixed_bytes and space.fits_nowhere(budget)
    # Even if there is room, memory beyond what a process keeps between calls takes time to allocate.
    big = math.inf if hopeless else min(free, machine.kept) / BIG_SHARE

    def inside(inner: Program, call: Call) -> SearchSpace | Candidate:
        if not _has_large(inner, big):
            return as_written(inner, machine)
        around = whole | call.cut
        return _prepared(
            inner, rules, free, machine, most_axes, limits, around, deadline, known, wanted=wanted
        )

    bodies |= {call: tuple(inside(body.program, call) for body in call.bodies) for call in calls}
    return space


def tested_orders(program: Program, rules: Sequence[CompiledRule], budget: int) -> list[Order]:
    """Orders of contractions that are as accurate as the rules if nothing over- or underflows."""
    if _reorders(rules) or not any(rule.accuracy == "reassociates" for rule in rules):
        return []
    cap = max(free_bytes(program, budget), smallest_share(program)) // LARGEST_ITEM
    always = {(order.root, order.winner) for order in better_orders(program, False, None, cap)}
    found = better_orders(program, True, rules[0].precision or None, cap)
    return [order for order in found if (order.root, order.winner) not in always]


def _reorders(rules: Sequence[CompiledRule]) -> bool:
    """Whether the rules may compute contractions of floats in any order.

    Another order may overflow where the written one does not: B v may be infinite where (A B) v is finite.
    """
    return any(rule.accuracy not in ("exact", "reassociates") for rule in rules)


def _is_control_flow(term: Term) -> bool:
    return isinstance(term.op, Opaque) and bool(term.op.call.bodies)


def _loops_of(term: Term) -> set[int]:
    """The numbers of the calls of control flow of whose results a term is made, but for what these read."""
    found: set[int] = set()
    waiting, seen = [term], set[int]()
    while waiting:
        term = waiting.pop()
        if isinstance(term.op, Opaque) and term.op.call.bodies:
            found.add(term.op.call.id)
        else:
            waiting += (arg for arg in term.args if arg.number not in seen)
            seen.update(arg.number for arg in term.args)
    return found


def _control_flow(program: Program) -> Iterator[Call]:
    for term in program.known():
        if isinstance(term.op, Opaque) and term.op.call.bodies:
            yield term.op.call


def _has_large(program: Program, threshold: float) -> bool:
    """Whether a program, or a body inside it, computes a value of more than `threshold` bytes."""
    return any(
        term.args and term.bytes > threshold for inner in program.inside() for term in inner.reachable()
    )
