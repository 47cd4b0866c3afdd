"""Cuts a program into parts where little is alive, and puts programs for the parts together.

Blocks one after another may each need loops over axes of their own, and other limits on what is stored. What
is alive between two blocks is kept, and each part is a program from kept values to kept values. So each has a
search of its own. What is too large to keep is computed again in each part that needs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from eqsat.ir.comparing import compared
from eqsat.ir.ops import Chunk, Const, Delta, Iota, Leaf, Opaque, Rename
from eqsat.ir.program import Output, Program
from eqsat.ir.substitution import substituted, with_inputs
from eqsat.ir.term import Term

KEPT_SHARE = 1 / 2
"""The part of the memory for results and temporaries that all values kept at one place may take."""

NARROW = 1.5
"""On both sides of a cut, at least this many times as much is alive somewhere."""

SMALL = 8
"""A value is large if it takes more than an eighth of what may be kept."""

SOON = 12
"""A value is read again soon if at most so many large ones are computed until then. It is not cut off there,
since it would be computed twice in a row."""

WORTH_CUTTING = 1 / 4
"""The part of the same memory that a part must have alive somewhere."""


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a program, as a program of its own.

    **Attributes:**

    - `program`: from inputs of the whole program and kept values to the values that are kept of this part.
    - `kept`: for each output, the number of the whole program's term that it is.
    - `reads`: for each input that is a kept value, that input, and the number of the term.
    - `room`: the bytes that all else leaves for temporaries of this part.
    """

    program: Program
    kept: tuple[int, ...]
    reads: tuple[tuple[Term, int], ...]
    room: int


def parts_of(program: Program, free: int) -> tuple[Part, ...]:
    """The parts of a program that has `free` bytes for temporaries, in order; none if it can't be cut."""
    order = list(program.reachable())
    lives = _Lives(order, program, free)
    cuts = lives.cuts()
    if not cuts:
        return ()
    stages = lives.stages(cuts)
    parts: list[Part] = []
    leaves: dict[int, Term] = {}
    for stage in stages:
        parts.append(_part(program, stage, leaves))
        leaves.update((term.number, _leaf(program, term)) for term in stage)
    if not _may_stand_apart(program, parts, frozenset(leaves)):
        return ()
    return tuple(_with_room(program, parts, free))


class _Lives:
    """What is alive at each place of a program as it is written.

    **Attributes:**

    - `alive`: for each term, the bytes alive right after it.
    - `needed`: the same without what is too large to keep and not read again soon.
    - `uses`: by number, the places where a value is computed and read, in order. The end is one for results.
    """

    def __init__(self, order: Sequence[Term], program: Program, free: int) -> None:
        self.order = order
        results = {output.term.number: output.bytes for output in program.outputs}
        self.results = frozenset(results)
        # Temporaries may take the place of results that are not written yet.
        self.room = free + sum(results.values())
        self.most = int(KEPT_SHARE * self.room)
        given = _given(order)
        self.born = [term for term in order if term.number not in given]
        self.uses: dict[int, list[int]] = {term.number: [place] for place, term in enumerate(order)}
        for place, term in enumerate(order):
            for arg in term.args:
                self.uses[arg.number].append(place)
        for number in results:
            self.uses[number].append(len(order))
        large = [term.number not in given and SMALL * term.bytes > self.most for term in order]
        self.large_before = list(accumulate(large, initial=0))
        alive, needed = [0] * (len(order) + 1), [0] * (len(order) + 1)
        for term in self.born:
            uses = self.uses[term.number]
            for begin, end in pairwise(uses):
                soon = self.large_before[end] - self.large_before[begin] <= SOON
                for counts in (alive, needed) if self._small(term) or soon else (alive,):
                    counts[begin] += term.bytes
                    counts[end] -= term.bytes
        self.alive, self.needed = list(accumulate(alive)), list(accumulate(needed))

    def _small(self, term: Term) -> bool:
        return term.bytes <= self.most or term.number in self.results

    def last(self, term: Term) -> int:
        """The place where a value is last read."""
        return self.uses[term.number][-1]

    def cuts(self) -> list[int]:
        """The places after which to cut, in order: those where least is alive come first."""
        # Of places where as much is needed, the one where less is alive that is too large to keep.
        ranked = sorted(
            range(len(self.order) - 1), key=lambda place: (self.needed[place], self.alive[place], -place)
        )
        cuts = [-1, len(self.order)]
        for place in ranked:
            if self.needed[place] > self.most:
                break
            after = next(number for number, cut in enumerate(cuts) if cut >= place)
            if cuts[after] == place:
                continue
            enough = max(NARROW * self.needed[place], int(WORTH_CUTTING * self.room))
            sides = (cuts[after - 1] + 1, place), (place + 1, cuts[after])
            if all(max(self.alive[first:last], default=0) > enough for first, last in sides):
                cuts.insert(after, place)
        return cuts[1:-1]

    def stages(self, cuts: Sequence[int]) -> list[list[Term]]:
        """For each part the values that are kept of it."""
        stages: list[list[Term]] = [[] for _ in range(len(cuts) + 1)]
        for term in self.born:
            stage = next((n for n, cut in enumerate(cuts) if self.uses[term.number][0] <= cut), len(cuts))
            crosses = stage < len(cuts) and self.last(term) > cuts[stage]
            if term.number in self.results or (crosses and self._small(term)):
                stages[stage].append(term)
        return [stage for stage in stages if stage]


def _given(order: Sequence[Term]) -> frozenset[int]:
    """The numbers of the terms that are inputs, constants and indices, or these under another name."""
    given: set[int] = set()
    for term in order:
        if isinstance(term.op, (Leaf, Const, Iota, Delta)) or (
            isinstance(term.op, (Rename, Chunk)) and term.args[0].number in given
        ):
            given.add(term.number)
    return frozenset(given)


def _leaf(program: Program, term: Term) -> Term:
    """The input that stands for a kept value."""
    return program.terms.make(Leaf(len(program.inputs) + term.number, tuple(sorted(term.axes)), term.dtype))


def _part(program: Program, stage: Sequence[Term], leaves: dict[int, Term]) -> Part:
    """The program that computes some values from inputs and from kept values."""
    outputs = tuple(Output(term, tuple(sorted(term.axes))) for term in stage)
    plain = replace(program, outputs=outputs, equalities=(), facts=(), aliased=0)
    inside = {term.number for term in with_inputs(plain, (), leaves).reachable()}
    inside |= {number for number, leaf in leaves.items() if leaf.number in inside}
    equalities = tuple(pair for pair in program.equalities if pair[0].number in inside - leaves.keys())
    facts = tuple(fact for fact in program.facts if fact.term.number in inside)
    cut = with_inputs(replace(plain, equalities=equalities, facts=facts), (), leaves)
    read = {term.number for term in cut.known()}
    inputs = tuple(leaf for leaf in program.inputs if leaf.number in read)
    reads = tuple((leaf, number) for number, leaf in leaves.items() if leaf.number in read)
    whole = replace(cut, inputs=(*inputs, *(leaf for leaf, _ in reads)))
    return Part(whole, tuple(term.number for term in stage), reads, 0)


def _may_stand_apart(program: Program, parts: Sequence[Part], kept: frozenset[int]) -> bool:
    """Whether nothing is computed in several parts that must be computed only once.

    That is control flow, whose bodies are planned together, and what is compared with a selection from it.
    """
    found = compared(program)
    once = (found.between | {value.number for value in found.values}) - kept
    seen: set[int] = set()
    for part in parts:
        terms = list(part.program.reachable())
        calls = {~term.op.call.id for term in terms if isinstance(term.op, Opaque) and term.op.call.bodies}
        here = calls | (once & {term.number for term in terms})
        if here & seen:
            return False
        seen |= here
    return not once - seen


def _with_room(program: Program, parts: Sequence[Part], free: int) -> Iterator[Part]:
    """The parts, each with the memory that what is kept around it leaves."""
    results = {output.term.number: output.bytes for output in program.outputs}
    made = {number: place for place, part in enumerate(parts) for number in part.kept}
    ends = {number: place for place, part in enumerate(parts) for _, number in part.reads}
    sizes = {
        number: output.bytes
        for part in parts
        for number, output in zip(part.kept, part.program.outputs, strict=True)
    }
    for place, part in enumerate(parts):
        around = sum(
            sizes[number]
            for number, begin in made.items()
            if number not in results and begin <= place <= ends.get(number, begin)
        )
        unwritten = sum(size for number, size in results.items() if made.get(number, -1) > place)
        yield replace(part, room=free - around + unwritten)


def joined(
    program: Program, parts: Sequence[Part], found: Sequence[Program], makers: Sequence[dict[int, str]]
) -> tuple[Program, dict[int, str]]:
    """The program that is made of programs for its parts, and which rules made its terms.

    **Arguments:**

    - `found`: for each part, a program with its inputs and outputs.
    - `makers`: for each of these, by number of a term that a rule made, the rule's name.
    """
    whole: dict[int, Term] = {}
    names: dict[int, str] = {}
    alike: list[Term] = []
    for part, inner, made in zip(parts, found, makers, strict=True):
        known = {leaf.number: whole[number] for leaf, number in part.reads}
        old = list(inner.reachable())
        new = dict(zip((term.number for term in old), substituted(program.terms, old, known), strict=True))
        names.update({new[number].number: name for number, name in made.items() if number in new})
        whole.update(zip(part.kept, (new[output.term.number] for output in inner.outputs), strict=True))
        alike += [new[term.number] for term in inner.alike if term.number in new]
    outputs = tuple(
        Output(whole.get(output.term.number, output.term), output.layout) for output in program.outputs
    )
    return replace(program, outputs=outputs, equalities=(), facts=(), alike=tuple(alike)), names
