"""Replays a schedule step by step: it allocates, computes, and frees the buffers that nothing later reads.

The replay shares no code with the simulator, so that tests can compare the two. It decides anew from the ops
which values have buffers. Only the parts of a declared monoid's state come from `eqsat.ir.merging` in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import accumulator, itemsize
from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.ir.formula import Monoid
from eqsat.ir.merging import Merging
from eqsat.ir.ops import (
    Chunk,
    Concat,
    Const,
    Dot,
    Fold,
    Iota,
    Leaf,
    Map,
    Opaque,
    Operation,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.term import Term
from eqsat.planning.blocks import Block, Compute, Loop, Schedule

VIEWS = {"head", "reverse", "merge", "split", "diagonal", "take", "slice", "dynamic_slice", "reshape", "rev"}
VIEWS |= {"gather", "squeeze", "bitcast_convert_type"}
"""Calls that have no buffer, since they read their operand in the kernel into which they are fused."""

SHORT = 32
"""A reduction over at most this many elements computes its operand on the fly."""

Lengths = Mapping[Axis, int]


def replayed_peak(schedule: Schedule) -> int:
    """Returns the peak bytes of arguments, outputs and temporaries together."""
    results = {output.term for output in schedule.program.outputs}
    replay = _Replay(schedule.chunks, results)
    moments = replay.block(schedule.block, {})
    elsewhere = guests(moments, replay.written)
    return schedule.program.fixed_bytes + max((moment.bytes(elsewhere) for moment in moments), default=0)


Buffer = tuple[tuple[int, ...], Term]
"""A buffer: the places of the loops around it in their blocks, and the term that it holds."""


@dataclass
class Moment:
    """The buffers in memory while a step runs, except for those of the program's results.

    **Attributes:**

    - `when`: the place of the step in its block, after those of the loops around it.
    - `live`: the bytes of each buffer.
    - `more`: the bytes of temporaries in the bodies of calls.
    """

    when: tuple[int, ...]
    live: dict[Buffer, int]
    more: int = 0

    def bytes(self, elsewhere: set[Buffer]) -> int:
        return self.more + sum(size for buffer, size in self.live.items() if buffer not in elsewhere)


def guests(moments: list[Moment], written: dict[Term, tuple[int, tuple[int, ...]]]) -> set[Buffer]:
    """Returns the buffers that share the memory of a result which is written after they are freed.

    The largest buffers are placed first.
    """
    lives: dict[Buffer, list[int]] = {}
    sizes: dict[Buffer, int] = {}
    for number, moment in enumerate(moments):
        for buffer, size in moment.live.items():
            lives.setdefault(buffer, []).append(number)
            sizes[buffer] = size
    places = sorted(((size, when, set[int]()) for size, when in written.values()), key=lambda place: place[0])
    largest = max((size for size, *_ in places), default=0)
    found = set()
    for buffer in sorted(lives, key=lambda b: (-sizes[b], moments[lives[b][0]].when, lives[b][-1])):
        for size, when, taken in places:
            over = moments[lives[buffer][-1]].when < when
            fits = largest <= 64 * sizes[buffer] <= 64 * size
            if largest <= 64 * size and fits and over and not taken & set(lives[buffer]):
                taken |= set(lives[buffer])
                found.add(buffer)
                break
    return found


class _Replay:
    def __init__(self, chunks: Mapping[int, int], results: set[Term]) -> None:
        self.chunks = chunks
        self.results = results
        """The results of the program. Their buffers exist from the start, and are counted apart."""
        self.written: dict[Term, tuple[int, tuple[int, ...]]] = {}
        """For each result: its bytes, and the moment at which it is written."""

    def block(self, block: Block, lengths: Lengths, path: tuple[int, ...] = ()) -> list[Moment]:
        """Returns the moments of one run of a block, in order."""
        stored = _stored(block, lengths)
        places = {term: place for place, step in enumerate(block.steps) for term in step.results}
        wants = [self._read(block, place, places, stored) for place in range(len(block.steps))]
        memory: dict[Term, int] = {}
        started: set[object] = set()
        found: list[Moment] = []
        for now, step in enumerate(block.steps):
            if isinstance(step, Compute) and step.term not in stored:
                continue
            assert all(term in memory for term in wants[now]), "what is read is there"
            together = [step]
            if isinstance(step, Compute) and isinstance(step.term.op, Opaque):
                # A call computes all its results at once.
                together = [other for other in block.steps if _same_call(step, other)]
            first = not any(term in started for term in step.results)
            if first:
                for other in together:
                    sizes = {t: b for t, b in self._sizes(other, lengths).items() if t in stored}
                    for term in sizes.keys() & self.results:
                        if not path:
                            self.written[term] = sizes[term], (now,)
                        sizes[term] = 0
                    memory |= sizes
                    started |= set(other.results)
            later = {term for place in range(now + 1, len(wants)) for term in wants[place]}
            due = {t for other in block.steps[now + 1 :] for t in other.results}
            kept = later | due | set(block.needs)
            over = [term for term in self._entries_of(block, now, wants[now]) if term not in kept]
            lost = max(over, key=lambda term: memory[term], default=None)
            live = {(path, term): size for term, size in memory.items() if term != lost and size}
            found += (
                self._inside(step, lengths, (*path, now), live) if first else [Moment((*path, now), live)]
            )
            memory = {term: size for term, size in memory.items() if term in kept}
        return found

    def _entries_of(self, block: Block, place: int, read: set[Term]) -> set[Term]:
        """Returns the buffers that an elementwise step may overwrite, since it reads them entry by entry."""
        step = block.steps[place]
        if not isinstance(step, Compute) or not isinstance(step.term.op, Map) or step.term in block.needs:
            return set()
        here = {term for other in block.steps for term in other.results}

        def alike(term: Term) -> bool:
            return (term.axes, term.open) == (step.term.axes, step.term.open) and term in here

        reached, last = {step.term}, set[Term]()
        while reached != last:
            last = set(reached)
            for term in last - read:
                if isinstance(term.op, Map):
                    reached |= {arg for arg in term.args if alike(arg)}
        return {term for term in reached & read if itemsize(term.dtype) == itemsize(step.term.dtype)}

    def _read(self, block: Block, place: int, places: Mapping[Term, int], stored: set[Term]) -> set[Term]:
        """Returns the buffers that a step reads, also through terms that are fused into it.

        A step that writes no buffer reads none.
        """
        step = block.steps[place]
        if isinstance(step, Compute) and step.term not in stored:
            return set()
        found, seen = set(), set()
        waiting = list(step.imports if isinstance(step, Loop) else step.term.args)
        while waiting:
            term = waiting.pop()
            if term in stored:
                found.add(term)
            elif term in places and term not in seen:
                seen.add(term)
                below = block.steps[places[term]]
                assert isinstance(below, Compute), "loops write buffers"
                waiting.extend(below.term.args)
        return found

    def _inside(
        self, step: Compute | Loop, lengths: Lengths, path: tuple[int, ...], live: dict[Buffer, int]
    ) -> list[Moment]:
        if isinstance(step, Loop):
            inner = self.block(step.body, {**lengths, step.axis: self.chunks[step.id]}, path)
            around = [Moment(moment.when, live | moment.live, moment.more) for moment in inner]
            return [Moment(path, live), *around]
        bodies = [moment.bytes(set()) for body in step.bodies for moment in self.block(body, lengths, path)]
        return [Moment(path, live, max(bodies, default=0))]

    def _sizes(self, step: Compute | Loop, lengths: Lengths) -> dict[Term, int]:
        sizes: dict[Term, int] = {}
        merging, counted = Merging(), set()
        for term in step.results:
            if isinstance(term.op, Fold) and isinstance(term.op.monoid, Monoid):
                state = [p for p in merging.state(term.op.monoid, term.args).earlier if p not in counted]
                counted |= set(state)
                sizes[term] = sum(_bytes(p.axes, term.open, p.dtype, lengths) for p in state)
            else:
                summed = isinstance(term.op, Fold) and isinstance(term.op.monoid, str)
                dtype = accumulator(term.dtype) if summed else term.dtype
                sizes[term] = _bytes(term.axes, term.open, dtype, lengths)
        return sizes


def _bytes(axes: frozenset[Axis], opened: frozenset[Axis], dtype: str, lengths: Lengths) -> int:
    chunked = [min(lengths.get(axis, axis.size), axis.size) for axis in axes & opened]
    return prod(chunked) * prod(axis.size for axis in axes - opened) * itemsize(dtype)


def _same_call(step: Compute, other: Compute | Loop) -> bool:
    if not isinstance(other, Compute) or not isinstance(other.term.op, Opaque):
        return False
    assert isinstance(step.term.op, Opaque)
    return other.term.op.call is step.term.op.call and other.term.args == step.term.args


def _stored(block: Block, lengths: Lengths) -> set[Term]:
    """Returns the terms of a block that have a buffer of their own."""
    here = {term for step in block.steps for term in step.results}
    stored = set(block.needs)
    uses: dict[Term, int] = {}
    for step in block.steps:
        stored |= {term for term in step.results if _writes(term)}
        if isinstance(step, Loop):
            stored |= {_under_any_name(term) for term in step.imports}
            continue
        for arg in step.term.args:
            uses[arg] = uses.get(arg, 0) + 1
        if _reads(step.term, lengths):
            stored |= set(step.term.args)
    for term, count in uses.items():
        if count > 1 and isinstance(term.op, Map) and ELEMENTWISE[term.op.name].cost >= 3:
            stored.add(term)
    return {term for term in stored & here if not _is_there_already(term)}


def _writes(term: Term) -> bool:
    match term.op:
        case Operation(spec=spec):
            return spec.name not in VIEWS
        case Opaque(call=call):
            return call.primitive.name not in VIEWS | {"split"}
    return isinstance(term.op, (Dot, Select, Reduce, Concat, Fold))


def _reads(term: Term, lengths: Lengths) -> bool:
    match term.op:
        case Reduce(axes=axes):
            opened = term.args[0].open
            return prod(lengths.get(a, a.size) if a in opened else a.size for a in axes) > SHORT
        case Fold(monoid=monoid):
            return isinstance(monoid, (Select, Opaque))
        case Operation() | Opaque():
            return _writes(term)
    return isinstance(term.op, (Dot, Select, Chunk))


def _is_there_already(term: Term) -> bool:
    return isinstance(_under_any_name(term).op, (Leaf, Const, Iota))


def _under_any_name(term: Term) -> Term:
    """Returns the array that a term is, which may have other names."""
    while isinstance(term.op, Rename):
        term = term.args[0]
    return term
