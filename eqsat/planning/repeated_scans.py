"""Passes over the history of a scan: it runs once for each, and stacks nothing.

    m = mean_t(scan(...)[1]),  v = mean_t((scan(...)[1] - m)²)

The variance of a history needs its mean first. The first run of the scan carries the sum, and the second one
that of the squares. This takes the time of another run, so it is equal to what is written, and extraction
chooses. So are products that are larger than what an iteration adds to the history, such as covariances: each
iteration reads and writes all of them, or each segment of iterations does (`history_segments`). What single
passes carry is in `eqsat.ir.carried_histories`.

If a backward pass reads entries of the history, the first run stacks them for it. Nothing else reads them
then, so segments of the scan can be run again in their place (`segmented_scans`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

from eqsat.ir.carried_histories import with_histories_carried
from eqsat.ir.comparing import compared
from eqsat.ir.dtypes import is_extended, is_inexact
from eqsat.ir.history_ends import History, histories
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.padded_histories import is_pad, with_padded_histories
from eqsat.ir.program import Output, Program
from eqsat.ir.scattered_rows import is_scatter
from eqsat.ir.segment_ends import is_of_entries, segmented_histories
from eqsat.ir.sliced_histories import is_slice, with_sliced_histories
from eqsat.ir.substitution import substituted, with_inputs
from eqsat.ir.term import Term, reachable
from eqsat.ir.unused_results import Application, application, trimmed
from eqsat.planning.history_segments import Histories

MOST_PASSES = 5
"""The gradient of a skewness takes so many: it needs the deviation, and that the mean."""


@dataclass(frozen=True, slots=True)
class ByPasses:
    """What is read of large histories in a program, as results of scans that run several times.

    **Attributes:**

    - `program`: the program with such results of the histories that backward passes read; others are written
      as they were.
    - `pairs`: terms that are read of histories as written, with what they are as such results.
    """

    program: Program
    pairs: Sequence[tuple[Term, Term]] = ()


def by_passes(
    program: Program,
    threshold: float,
    room: float,
    numbered: Callable[[Call, Call], Call],
    next_leaf: Callable[[], int],
    exact: bool = False,
) -> ByPasses:
    """What is read of large histories, as results of scans that run several times.

    **Arguments:**

    - `threshold`: the size in bytes above which a history is large.
    - `room`: bytes for temporaries.
    - `numbered`: returns a call that was made of another one with a number of its own.
    - `next_leaf`: returns the number of a new input of a body.
    - `exact`: whether results must stay the same to the last bit.
    """
    sliced, cut = with_sliced_histories(program, exact, numbered)
    chosen, padded = with_padded_histories(sliced, threshold, numbered, exact)
    scans: dict[Application, list[History]] = {}
    read_back: set[Application] = set()
    for history in histories(chosen, exact, wide=True, functions=True):
        scanned = application(history.stack)
        if history.stack.bytes <= threshold or not history.is_read_back():
            continue
        if history.ends:
            scans.setdefault(scanned, []).append(history)
        if history.others:
            read_back.add(scanned)
    once = compared(chosen).once
    forms: dict[Term, Term] = {}
    known: dict[int, Term] = {}
    for scanned, read in scans.items():
        passes = _Passes(chosen, scanned, read, numbered, exact, once, next_leaf)
        if passes.are_compared():
            continue
        found = {term: form for term, form in passes.forms() if form is not term}
        forms |= found
        if scanned in read_back:
            # The forms of one scan may read another one.
            for term, form in found.items():
                (known[term.number],) = substituted(program.terms, [form], known)
    segments = Histories(program.terms, threshold, room, exact, once, numbered, next_leaf)
    by_segments: dict[Term, Term] = {}
    for of_scan in segmented_histories(chosen, threshold, exact):
        scanned = application(of_scan[0].stack)
        passes = _Passes(chosen, scanned, of_scan, numbered, exact, once, next_leaf, segments)
        if not passes.are_compared():
            by_segments |= {term: form for term, form in passes.forms() if form is not term}
    if not forms and not by_segments and chosen is sliced:
        return ByPasses(program)
    written: dict[Term, Term] = {}
    for term in program.reachable():
        between = cut.get(term.number, term)
        written[padded.get(between.number, between)] = term
    pairs = [
        (written.get(term, term), form) for found in (forms, by_segments) for term, form in found.items()
    ]
    # What is read may be a slice of the history, in place of one of a function of it; or a choice.
    moves = (
        (term, new) for new, term in written.items() if is_slice(term) or is_pad(term) or is_scatter(term)
    )
    pairs += ((term, new) for term, new in moves if new is not term)
    return ByPasses(with_inputs(chosen, chosen.inputs, known), pairs)


@dataclass(frozen=True, slots=True)
class _Passes:
    """One scan, and the passes that what is read of its histories needs.

    **Attributes:**

    - `histories`: those of its results that are large, and carried.
    - `once`: the numbers of terms that must be computed only once.
    - `segments`: makes segments of the scan for what an iteration can't carry; None if each carries all.
    """

    program: Program
    scanned: Application
    histories: Sequence[History]
    numbered: Callable[[Call, Call], Call]
    exact: bool
    once: frozenset[int]
    next_leaf: Callable[[], int]
    segments: Histories | None = None

    def are_compared(self) -> bool:
        """Whether entries of the histories, or of functions of them, are compared as they are.

        Computed again by another run, they might be rounded otherwise.
        """
        found = {term.number for history in self.histories for term in self._of_iterations(history.stack)}
        read = [term for history in self.histories for term, _ in history.others]
        for term in reachable([*self._ends(), *read]):
            if any(arg.number in found for arg in term.args):
                found.add(term.number)
        return not self.once.isdisjoint(found)

    @staticmethod
    def _of_iterations(stack: Term) -> Iterator[Term]:
        """A stacked result, and what an iteration computes."""
        assert isinstance(stack.op, Opaque)
        yield stack
        for body in stack.op.call.bodies:
            for program in body.program.inside():
                yield from program.reachable()

    def forms(self) -> list[tuple[Term, Term]]:
        """All that is read of the scan, with the same as results of several."""
        passes = self._passes()
        # Other runs may round otherwise.
        once = self.exact and any(map(_is_float, self._of_iterations(self.histories[0].stack)))
        if len(passes) > (1 if once else MOST_PASSES):
            return []
        stacks = {history.stack for history in self.histories}
        known: dict[int, Term] = {}
        pairs: list[tuple[Term, Term]] = []
        before = _calls(self.program.known()) - {self.scanned[0]}
        for read in passes:
            made = self._carried(substituted(self.program.terms, read, known), before)
            if any(term in stacks for term in reachable(made)):
                return []
            made = self._without_unread_results(made, before)
            before |= _calls(reachable(made))
            pairs += zip(read, made, strict=True)
            # Each pass has a history of its own.
            known = {term.number: form for term, form in pairs if term not in stacks}
        return pairs

    def _ends(self) -> list[Term]:
        """What is read of the histories in the end."""
        return list(dict.fromkeys(end.term for history in self.histories for end in history.ends))

    def _passes(self) -> list[list[Term]]:
        """What is read in each pass: in the first also other results, and histories that are read back."""
        ends = self._ends()
        stacks = {history.stack: history for history in self.histories}
        after: dict[int, int] = {}
        others: list[Term] = []
        for term in self.program.reachable():
            if term in stacks:
                after[term.number] = 0
                others += [term] if stacks[term].others else []
            elif isinstance(term.op, Opaque) and application(term) == self.scanned:
                after[term.number] = 1
                others.append(term)
            else:
                after[term.number] = max((after[arg.number] for arg in term.args), default=0) + (term in ends)
        count = max(after[end.number] for end in ends)
        passes = [[end for end in ends if after[end.number] == number] for number in range(1, count + 1)]
        return [[*passes[0], *others], *passes[1:]]

    def _carried(self, read: Sequence[Term], before: Set[Call]) -> list[Term]:
        """The terms that are read, as far as can be without a history.

        **Arguments:**

        - `before`: the calls that are not of this pass.
        """
        call, _ = self.scanned
        outputs = tuple(Output(term, tuple(sorted(term.axes))) for term in read)
        program = replace(self.program, outputs=outputs, facts=(), alike=())
        found = with_histories_carried(
            program,
            self.exact,
            call.id,
            wide=self.segments is None,
            stacked=True,
            numbered=self.numbered,
            only=None if self.segments is None else is_of_entries,
            next_leaf=self.next_leaf,
        )
        made = [output.term for output in found.outputs]
        if self.segments is None:
            return made
        known: dict[int, Term] = {}
        for of_scan in segmented_histories(found, self.segments.threshold, self.exact, needed=False):
            if application(of_scan[0].stack)[0] not in before:
                known |= self.segments.in_segments(found, of_scan) or {}
        return substituted(self.program.terms, made, known)

    def _without_unread_results(self, read: Sequence[Term], before: Set[Call]) -> list[Term]:
        """The terms that are read, of a scan that has no results but these.

        **Arguments:**

        - `before`: the calls that are not of this pass.
        """
        terms, (origin, _) = self.program.terms, self.scanned
        used: dict[Application, dict[int, Term]] = {}
        for term in reachable(read):
            if isinstance(term.op, Opaque) and term.op.call.control and term.op.call not in before:
                used.setdefault(application(term), {})[term.op.result] = term
        known: dict[int, Term] = {}
        for (call, _), results in used.items():
            args = next(iter(results.values())).args
            fewer = trimmed(call, args, set(results))
            made, numbers, places = fewer or (call, {result: result for result in results}, range(len(args)))
            made = self.numbered(made, origin)
            # The iterations in no segment follow those of the segments.
            operands = substituted(terms, [args[place] for place in places], known)
            for result, term in results.items():
                known[term.number] = terms.make(Opaque(made, numbers[result]), operands)
        return substituted(terms, read, known)


def _calls(terms: Iterable[Term]) -> set[Call]:
    return {term.op.call for term in terms if isinstance(term.op, Opaque)}


def _is_float(term: Term) -> bool:
    return not is_extended(term.dtype) and is_inexact(term.dtype)
