"""From what is extracted to candidates; where all together is too much, also to others that store less."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from eqsat.engine.encode import EQUATED, LOADED
from eqsat.engine.extract import Extractor, Selection
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Call, Chunk, Opaque, Operation, Rename
from eqsat.ir.program import Output
from eqsat.ir.substitution import in_chunks
from eqsat.ir.term import Term
from eqsat.ir.widening import widened
from eqsat.planning.candidates import Candidate, rechunk, scheduled, useful_axes
from eqsat.planning.chunks import WORTH_MEMORY
from eqsat.planning.liveness import simulate
from eqsat.planning.loops import TooManyStepsError, build
from eqsat.planning.materialisation import with_kept
from eqsat.planning.search_space import PlannedCall, Search

MOST_LIVE = 4
"""So many of the values alive at the peak, the largest first, are tried to find one to do without."""

SMALL_SHARE = 64
"""What takes less than this part of the memory for temporaries may be computed before a loop reads it."""

MOST_SPILLED = 6
"""How many values, one after the other, are not to be stored where all of them together are too much."""

REPEATED = 6
"""With more steps than so many times the terms, loops do the same things again, one after the other.
Extraction took them for one loop: the program is far slower than it said."""

FEW_STEPS = 3_000
"""Programs of so many steps are looked at in any case."""

NAMED = "named-operation"
"""What the report calls a named operation that is called instead of its body."""

REMATERIALISED = "rematerialised-in-loop"
"""What it calls control flow that computes a large operand inside."""

REORDERED = "contraction-order"
"""What it calls the steps of a contraction of many factors whose order was found by a path solver."""

KNOWN_AS = {Operation: NAMED, Opaque: REMATERIALISED}
"""What it calls ops that were entered beside what was written."""

DEEPEST = 6
"""The left side of a rule that finds a term equal to a part of itself has no more ops over that part."""


@dataclass(frozen=True)
class Way:
    """A way to extract: under a cap, looping over some axes, and what came of it."""

    extractor: Extractor
    cap: float
    split: frozenset[Axis] | None
    one_pass: bool
    selection: Selection

    def again(self, split: frozenset[Axis] | None, without: frozenset[int] = frozenset()) -> Selection | None:
        """What comes of it otherwise."""
        return self.extractor.extract(self.cap, split, self.one_pass, without)


@dataclass(frozen=True)
class Made:
    """A candidate, and of which class of the e-graph each of its terms is, by number."""

    candidate: Candidate
    classes: Mapping[int, int]

    @staticmethod
    def of(
        search: Search,
        selection: Selection,
        budget: int,
        planned: Mapping[int, PlannedCall],
        largest_block: float = math.inf,
        most: float = math.inf,
    ) -> Made:
        """The selected nodes as a program of terms, in blocks of at most so many steps, with chunk lengths.

        **Raises:** `TooManyStepsError` if there are more.
        """
        program = search.program
        terms: dict[int, Term] = {}
        makers: dict[int, str] = {}
        calls: dict[tuple[int, frozenset[Axis]], Call] = {}

        def with_plan(call: Call, args: Sequence[Term]) -> Call:
            opened = frozenset[Axis]().union(*(arg.open for arg in args)) & call.cut
            if (call.id, opened) not in calls:
                if call.id in planned:
                    makers.update(planned[call.id].makers)
                    call = planned[call.id].call
                calls[call.id, opened] = in_chunks(call, opened, program.terms)
            return calls[call.id, opened]

        for number, node in selection.nodes.items():
            args = [terms[child] for child in node.children]
            op = node.op
            if isinstance(op, Opaque) and op.call.bodies:
                op = Opaque(with_plan(op.call, args), op.result)
            term = program.terms.make(op, args)
            terms[number] = term
            if node.maker == EQUATED:
                makers[term.number] = KNOWN_AS.get(type(node.op), REORDERED)
            elif node.maker != LOADED:
                makers[term.number] = search.rules[node.maker].name
        class_of = search.saturation.graph.class_of
        makers.update(simplified(search, terms))
        outputs = tuple(
            Output(terms[class_of[output.term.number]], output.layout) for output in program.outputs
        )
        for number, place in search.places.items():
            if number in terms:
                program.terms.origins.setdefault(terms[number].number, place)
        alike = tuple(terms[number] for number in search.families.computed(selection.nodes))
        wide = widened(replace(program, outputs=outputs, equalities=(), facts=(), alike=alike))
        classes: dict[int, int] = {}
        for number, term in terms.items():
            for made in wide.terms.get(term.number, (term,)):
                classes[made.number] = number
                if term.number in makers:
                    makers.setdefault(made.number, makers[term.number])
        block = build(wide.program, most)
        candidate = scheduled(wide.program, block, makers, budget, search.machine, largest_block)
        candidate = with_kept(candidate, budget, search.machine, largest_block)
        return Made(candidate, classes)


def simplified(search: Search, terms: Mapping[int, Term]) -> dict[int, str]:
    """For terms of the program that have gone, being equal to a part of themselves, by which rule.

    **Arguments:**

    - `terms`: by class, what has been selected.
    """
    graph = search.saturation.graph
    if not graph.simplified:
        return {}
    kept = {term.number for term in terms.values()}
    used = set(terms)
    ahead = list(terms)
    while ahead:  # a chunk of a value, or the value under another name, stands for it
        for node in graph.classes[ahead.pop()].nodes:
            if isinstance(node.op, Chunk | Rename) and node.children[0] not in used:
                used.add(node.children[0])
                ahead.append(node.children[0])
    ops = {term.op for term in terms.values()}
    gone: dict[int, str] = {}
    for term in search.program.reachable():
        number = graph.class_of.get(term.number, -1)
        if number not in graph.simplified or term.number in kept:
            continue
        part = _part(term, number, graph.class_of)
        if part is None:
            continue
        # Where it has been merged with what reads it, what it was computed from tells that it was there.
        inner = {graph.class_of.get(below.number, -1) for below in part.args if below.args}
        if number in used or (term.op not in ops and inner & used):
            gone[term.number] = search.rules[min(graph.simplified[number])].name
    return gone


def _part(term: Term, number: int, class_of: Mapping[int, int]) -> Term | None:
    """What a term of that class is computed from that is of the class too; as far down as rules reach."""
    level = [term]
    for _ in range(DEEPEST):
        level = list(dict.fromkeys(arg for above in level for arg in above.args))
        found = next((below for below in level if class_of.get(below.number) == number), None)
        if found is not None:
            return found
    return None


class Maker:
    """Makes candidates of what has been extracted under a cap.

    **Attributes:**

    - `found`: the candidates, but for those that have been made before.
    - `ways`: how they were extracted.
    - `repetitive`: ways that are put off.
    """

    def __init__(
        self,
        search: Search,
        budget: int,
        planned: Mapping[int, PlannedCall],
        seen: set[frozenset[tuple[int, int]]],
        largest_block: float = math.inf,
    ) -> None:
        self.search = search
        self.budget = budget
        self.planned = planned
        self.seen = seen
        self.largest_block = largest_block
        self.inside = {(-number - 1, id(call)) for number, call in planned.items()}
        self.found: list[Candidate] = []
        self.ways: list[tuple[Way, Made]] = []
        self.repetitive: list[Way] = []

    def add(self, way: Way) -> None:
        """Enter what was extracted."""
        if not self._is_new(way.selection):
            return
        try:
            self._add(way, max(FEW_STEPS, REPEATED * len(way.selection.nodes)))
        except TooManyStepsError:
            self.repetitive.append(way)

    def add_repetitive(self) -> None:
        """Enter what was put off, as its loops do most things again and again."""
        for way in self.repetitive:
            self._add(way)

    def _add(self, way: Way, most: float = math.inf) -> None:
        made = self._made(way.selection, most)
        useful = useful_axes(made.candidate.schedule)
        if useful != {loop.axis for loop in made.candidate.schedule.block.loops}:
            # Some loop iterates only once: better none at all, if the cap allows.
            plainer = way.again(useful)
            if plainer is not None:
                way = replace(way, split=useful, selection=plainer)
                made = self._made(plainer)
        self.found.append(made.candidate)
        self.ways.append((way, made))

    def computing_inside(self, seconds: float) -> list[Candidate]:
        """A candidate that computes in its loops what others would slice there, so that chunks can be longer.

        That is looked at for what would be the fastest with more memory, if it then took less than `seconds`.
        """
        slicing = [one for one in self.ways if _slices(one[0].selection)]
        ample = [rechunk(made.candidate, math.inf, self.search.machine) for _, made in slicing]
        places = range(len(slicing))
        fastest = min(places, key=lambda place: ample[place].predicted_seconds, default=None)
        if fastest is None:
            return []
        way, made = slicing[fastest]
        before = min(seconds, made.candidate.predicted_seconds)
        if ample[fastest].predicted_seconds >= WORTH_MEMORY * before:
            return []
        selection = way.again(way.split, self._whole_along(made.candidate, way.extractor))
        return [] if selection is None or not self._is_new(selection) else [self._made(selection).candidate]

    def _whole_along(self, candidate: Candidate, extractor: Extractor) -> frozenset[int]:
        """The classes of what has the axis of an outermost loop, computed whole, and is of some size."""
        loops = frozenset(loop.axis for loop in candidate.schedule.block.own_loops)
        some = (self.budget - self.search.program.fixed_bytes) / SMALL_SHARE
        return frozenset(
            number
            for number, eclass in enumerate(self.search.saturation.graph.classes)
            if loops & (eclass.axes - eclass.open)
            and extractor.bytes[number] > some
            and not extractor.given[number]
        )

    def spilling(self, way: Way, made: Made, seconds: float = math.inf) -> list[Candidate]:
        """Candidates with lower and lower peaks than one that is too big, all of them faster than `seconds`.

        In each, one more of the values alive at the peak is not stored: the largest that need not be, or of
        several, if it is to be faster than something, that with which it is fastest.
        """
        found: list[Candidate] = []
        without: frozenset[int] = frozenset()
        most_tried = 1 if seconds == math.inf else MOST_LIVE
        while len(found) < MOST_SPILLED and made.candidate.predicted_peak > self.budget:
            fewer = list(islice(self._spilling_one(way, made, without, seconds), most_tried))
            if not fewer:
                break
            found += [other.candidate for _, other in fewer]
            without, made = min(fewer, key=lambda ways: self._ranked(ways[1].candidate))
        return found

    def _ranked(self, candidate: Candidate) -> tuple[bool, float]:
        return candidate.predicted_peak > self.budget, candidate.predicted_seconds

    def _spilling_one(
        self, way: Way, made: Made, without: frozenset[int], seconds: float
    ) -> Iterator[tuple[frozenset[int], Made]]:
        live = simulate(made.candidate.schedule, self.search.machine)[1].live
        numbers = [made.classes[term.number] for term, _ in live if term.number in made.classes]
        for number in [number for number in numbers if number not in without][:MOST_LIVE]:
            fewer = without | {number}
            selection = way.again(way.split, fewer)
            if selection is None or selection.seconds >= seconds or not self._is_new(selection):
                continue
            other = self._made(selection)
            if (
                other.candidate.predicted_peak < made.candidate.predicted_peak
                and other.candidate.predicted_seconds < seconds
            ):
                yield fewer, other

    def _made(self, selection: Selection, most: float = math.inf) -> Made:
        return Made.of(self.search, selection, self.budget, self.planned, self.largest_block, most)

    def _is_new(self, selection: Selection) -> bool:
        """Whether that was not selected before; from now on, it was."""
        key = frozenset(self.inside | {(number, id(node)) for number, node in selection.nodes.items()})
        if key in self.seen:
            return False
        self.seen.add(key)
        return True


def _slices(selection: Selection) -> bool:
    """Whether a loop reads slices of something that is computed before it."""
    nodes = selection.nodes
    chunks = (nodes[node.children[0]] for node in nodes.values() if isinstance(node.op, Chunk))
    return any(whole.children for whole in chunks)
