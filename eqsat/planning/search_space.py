"""The search space: the saturated e-graphs of a program and its bodies, and the axes to loop over."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eqsat.engine.compiled import CompiledRule, Granted
from eqsat.engine.contraction_orders import Order, better_orders, with_contraction_orders
from eqsat.engine.encode import EQUATED, LOADED
from eqsat.engine.families import Families
from eqsat.engine.saturate import Limits, Saturation, saturate
from eqsat.engine.storage_model import StorageModel, overwrites, solves_batch
from eqsat.ir.axis import Axis
from eqsat.ir.comparing import compared_with_tiles
from eqsat.ir.ops import Call, Chunk, Map, Opaque, Operation, Reduce, Rename
from eqsat.ir.picked_entries import is_pick
from eqsat.ir.program import Program
from eqsat.ir.streams import is_read
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term, reachable
from eqsat.ir.tiled_values import tile_axes, tiled_values, with_tiles
from eqsat.planning.candidates import Candidate, as_written
from eqsat.planning.infeasibility import fits_nowhere
from eqsat.planning.joined_arrays import joined_axes, with_joined_arrays
from eqsat.planning.liveness import largest_stored
from eqsat.planning.memory_around import memory_around
from eqsat.planning.provenance import class_places
from eqsat.planning.rematerialisation import with_rematerialised_operands
from eqsat.support.deadline import NO_DEADLINE, Deadline
from eqsat.support.records import Place
from eqsat.targets.machine import Machine

SPLIT_AXES = (2, 4)
"""The number of axes that may be looped over, those of the largest terms first; the second if nothing fits.

With the larger number, chunks are also split along further axes.
"""

BIG_SHARE = 16
"""A term is big if it takes more than 1/16 of the memory for temporaries."""

SMALLEST_SHARE = 1 << 10
"""A value this many times smaller than the largest value is not worth a loop."""

PARTS = frozenset({"slice", "pad"})
"""The primitives that take parts of arrays, or make arrays of parts."""

LONG = 300
"""A program of more terms is long. Its parts are searched before variants of the whole that store less, and
fewer programs are extracted and compiled, and fewer budgets tried, before something else is."""

LARGEST_ITEM = 8
"""The largest size of an element in bytes, from which the number of elements that fit is estimated."""


MANY = 64
"""So long an axis can be split finely enough for most budgets."""


def free_bytes(program: Program, budget: int) -> int:
    """The bytes that a budget leaves for temporaries, after arguments and outputs."""
    return budget - program.fixed_bytes


def is_long(program: Program) -> bool:
    """Whether a search for programs in the place of this one takes long."""
    return sum(1 for _ in program.reachable()) > LONG


def computed(program: Program, known: bool = False) -> Iterator[tuple[Term, frozenset[Axis]]]:
    """The terms that a program computes, each with the axes along which a loop around it makes it smaller.

    Inputs that a library's routine copies are included. So are terms inside control flow, with the axes that
    pass through the call.

    **Arguments:**

    - `known`: whether those in its equalities are, too, which it may compute in place of others.
    """
    seen: set[Call] = set()
    for term in program.known() if known else program.reachable():
        if term.args:
            yield term, term.axes
        copies = overwrites(term.op) or solves_batch(term.op, term.args)
        if copies and not term.args[0].args:
            yield term.args[0], term.args[0].axes  # The input is copied.
        if isinstance(term.op, Opaque) and term.op.call not in seen:
            seen.add(term.op.call)
            for body in term.op.call.bodies:
                for inside, axes in computed(body.program):
                    yield inside, axes & term.op.call.cut


def smallest_share(program: Program) -> int:
    """The least memory for temporaries that a search assumes, in bytes."""
    largest = max((term.bytes for term, axes in computed(program) if axes), default=0)
    return largest // SMALLEST_SHARE


def _takes_part(term: Term) -> bool:
    return isinstance(term.op, Opaque) and term.op.call.primitive.name in PARTS


def large_axes(program: Program, threshold: float) -> tuple[Axis, ...]:
    """The axes of terms over `threshold` bytes, those of the largest terms first.

    An axis is weighted by the sum of its terms' squared sizes, so that one large value outweighs many small
    ones. Values that only slices are taken of do not count if the slices are known to be computed otherwise.
    Axes of tiles come first: only they pass through window operations. Then come those that all of the terms
    have. From the third on, an axis of terms that have none of those before comes first.
    """
    sliced = {
        whole.number: other
        for whole, other in program.equalities
        if isinstance(other.op, Map) and _takes_part(whole)
    }
    if sliced:
        program = with_inputs(
            replace(program, equalities=tuple(tiled_values(program))), program.inputs, sliced
        )
    weight = _weights(program, threshold)
    for axis, other in _weights(with_tiles(program), threshold).items():
        weight[axis] = max(weight.get(axis, 0), other)
    first = tile_axes(program)
    everywhere = {axis for axis in _shared_axes(program, threshold) if axis.size >= MANY}

    def preference(axis: Axis) -> tuple[float, ...]:
        return axis not in first, axis not in everywhere, -weight[axis] * math.log(axis.size + 1), axis.id

    ranked = sorted(weight, key=preference)
    return tuple(_covering(program, threshold, ranked))


def _covering(program: Program, threshold: float, ranked: Sequence[Axis]) -> list[Axis]:
    """The axes, with those that cover further terms next to the first few.

    Parts of a program may have nothing in common, as the restarts of k-means with 4, 8 and 16 centres do.
    Each of them needs an axis of its own, however small it is beside the others. What has another name for an
    axis of a value is no part: a loop makes chunks of the value, whatever it is called.
    """
    chosen = list(ranked[: SPLIT_AXES[0]])
    left = [axis for axis in ranked if axis not in chosen]
    large = [
        (term.bytes, axes)
        for term, axes in computed(program)
        if term.bytes > threshold and not isinstance(term.op, Rename)
    ]
    while uncovered := [(size, axes) for size, axes in large if axes and axes.isdisjoint(chosen)]:
        covered = {axis: sum(size**2 for size, axes in uncovered if axis in axes) for axis in left}
        best = max(left, key=lambda axis: covered[axis], default=None)
        if best is None or not covered[best]:
            break
        chosen.append(best)
        left.remove(best)
    return chosen + left


def _shared_axes(program: Program, threshold: float) -> frozenset[Axis]:
    """The axes that every term over so many bytes has: one loop makes all of them smaller."""
    found = [axes for term, axes in computed(program) if term.bytes > threshold]
    return frozenset[Axis].intersection(*found) if found else frozenset()


def _weights(program: Program, threshold: float) -> dict[Axis, int]:
    weight: dict[Axis, int] = {}
    for term, axes in computed(program):
        if term.bytes > threshold:
            for axis in axes:
                weight[axis] = weight.get(axis, 0) + term.bytes**2
    # A chunk of a concatenation is computed from chunks of its operands.
    for joined, axis in joined_axes(program):
        if joined in weight and axis in weight:
            weight[joined] = max(weight[joined], weight[axis])
    return weight


def long_sums(program: Program, machine: Machine) -> Iterator[Axis]:
    """The axes of reductions that are too long to compute the program's largest values on the fly.

    In chunks of these axes they can, whatever other axes are looped over.
    """
    terms = [term for term in program.reachable() if term.args]
    largest = max((term.bytes for term in terms), default=0)
    for term in terms:
        if isinstance(term.op, Reduce) and isinstance(term.args[0].op, Map) and term.args[0].bytes == largest:
            yield from sorted(axis for axis in term.op.axes if axis.size > machine.fused_reduction)


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
        results: dict[int, set[int]] = {}
        known: set[int] = set()
        chunks: dict[int, list[int]] = {}
        for number, eclass in enumerate(self.saturation.graph.classes):
            for node in eclass.nodes:
                if node.maker == EQUATED:
                    known.add(number)
                elif isinstance(node.op, Opaque) and node.op.call.bodies and node.maker == LOADED:
                    results.setdefault(node.op.call.id, set()).add(number)
                elif isinstance(node.op, Chunk):
                    chunks.setdefault(node.children[0], []).append(number)
        found = {number for some in results.values() if some & known for number in some - known}
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


def _control_flow(program: Program) -> Iterator[Call]:
    for term in program.known():
        if isinstance(term.op, Opaque) and term.op.call.bodies:
            yield term.op.call


def _has_large(program: Program, threshold: float) -> bool:
    """Whether a program, or a body inside it, computes a value of more than `threshold` bytes."""
    return any(
        term.args and term.bytes > threshold for inner in program.inside() for term in inner.reachable()
    )
