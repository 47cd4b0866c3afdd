"""Decides which values of a block have buffers, and how long each buffer lives.

A value is stored if its op writes a buffer, if a consumer reads it from memory, or if computing it again for
every consumer would be expensive. Every other value is fused into its consumers, and keeps its operands alive
until they have run. Chunk lengths matter only for reductions, which fuse their operands if they are short, so
a block is analysed once, not for every chunk length that is tried.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from eqsat.engine.storage_model import StorageModel, Value, Valued, is_expensive, is_short
from eqsat.ir.dtypes import accumulator, itemsize
from eqsat.ir.formula import Monoid
from eqsat.ir.memory_order import array_of
from eqsat.ir.merging import Merging
from eqsat.ir.ops import Const, Dot, Fold, Iota, Leaf, Map, Op, Opaque, Operation, Reduce
from eqsat.ir.term import Term
from eqsat.planning.blocks import Block, Compute, Loop, dependencies, work_of
from eqsat.planning.repeated_reads import read_repeatedly
from eqsat.targets.machine import Machine


@dataclass(frozen=True, slots=True)
class Span:
    """A buffer over the steps of a block.

    **Attributes:**

    - `holds`: the values in the buffer: the term, or all parts of the state that a fold carries.
    - `birth`, `death`: the step that first writes it, and the step that last reads it. The death of a result
      of the block is the number of its steps.
    """

    term: Term
    holds: tuple[Valued, ...]
    birth: int
    death: int

    def bytes(self, model: StorageModel) -> int:
        return sum(model.bytes(value) for value in self.holds)


@dataclass(frozen=True, slots=True)
class Storage:
    """The storage of a block.

    **Attributes:**

    - `stored`: the numbers of the terms that have a buffer.
    - `spans`: their buffers, in the order of the steps.
    """

    stored: frozenset[int]
    spans: tuple[Span, ...]


class _Facts:
    """The facts about a block that do not depend on chunk lengths.

    **Attributes:**

    - `here`: by number, the terms that the block computes.
    - `always`: the numbers of the terms that are stored whatever the chunk lengths.
    - `reductions`: the reductions over chunked axes, which may be short or long, with their operands and the
      operands' numbers.
    - `known`: the storage, by which of these reductions are long.
    """

    def __init__(self, block: Block, model: StorageModel) -> None:
        self.here = {result.number: result for step in block.steps for result in step.results}
        self.always: set[int] = set()
        self.reductions: list[tuple[Reduce, Valued, int]] = []
        self.known: dict[tuple[bool, ...], Storage] = {}
        self._look(block, model)

    def _look(self, block: Block, model: StorageModel) -> None:
        uses: dict[int, int] = {}
        always = self.always
        for step in block.steps:
            for result in step.results:
                if model.stores_result(result.op):
                    always.add(result.number)
            if isinstance(step, Loop):
                always.update(array_of(term).number for term in step.imports)
                continue
            term = step.term
            for arg in term.args:
                uses[arg.number] = uses.get(arg.number, 0) + 1
            if isinstance(term.op, Reduce) and term.op.axes & term.args[0].open:
                self.reductions.append((term.op, term.args[0], term.args[0].number))
                continue
            for position in model.read_operands(term.op, term.args):
                always.add(_read_from(term.args[position], model.machine).number)
        always.update(read_repeatedly(block, model.machine))
        if model.machine.stores_gathers:
            always.update(_gathered(block, always))
        always.update(_written_often(block, always, model))
        if model.machine.stores_broadcasts:
            always.update(_broadcast(block, always, model.machine))
        if model.machine.fuses_products:
            always.update(_shared_products(block, uses, always))
        for number, count in uses.items():
            if number in self.here and count > cheap_uses(self.here[number].op, model.machine):
                always.add(number)
        always.update(term.number for term in block.needs)

    def stored(self, long: tuple[bool, ...]) -> frozenset[int]:
        read = {number for (*_, number), is_long in zip(self.reductions, long, strict=True) if is_long}
        # Inputs, constants and indices need no buffer in the block.
        here = self.here
        return frozenset(n for n in self.always | read if n in here and not is_given(here[n]))


_FACTS: WeakKeyDictionary[Block, dict[Machine, _Facts]] = WeakKeyDictionary()
"""The facts about each block, by machine."""


def storage(block: Block, model: StorageModel) -> Storage:
    """The storage of a block at the model's chunk lengths."""
    of_block = _FACTS.setdefault(block, {})
    facts = of_block.get(model.machine)
    if facts is None:
        facts = of_block[model.machine] = _Facts(block, model)
    long = tuple(model.stores_operands(op, [operand]) for op, operand, _ in facts.reductions)
    found = facts.known.get(long)
    if found is None:
        stored = facts.stored(long)
        found = facts.known[long] = Storage(stored, tuple(_spans(block, stored, model.machine)))
    return found


def stored_terms(block: Block, model: StorageModel) -> frozenset[int]:
    """The numbers of the block's terms that have a buffer."""
    return storage(block, model).stored


def _spans(block: Block, stored: frozenset[int], machine: Machine) -> Iterator[Span]:
    last = _last_uses(block, stored)
    # An elementwise term overwrites the first of its operands that is not read again.
    donation = set()
    places = overwritten_on(block, stored, machine)
    for index, step in enumerate(block.steps):
        for term in places.get(step.results[0].number, ()):
            if last[term.number] == index:
                donation.add(term.number)
                break
    begun: dict[object, int] = {}
    for index, step in enumerate(block.steps):
        # All results of a call exist from the step of the first of them.
        begin = index if isinstance(step, Loop) else begun.setdefault(work_of(step.term), index)
        wanted = [result for result in step.results if result.number in stored]
        if wanted:
            holds = buffers(step)
            for result in wanted:
                death = last.get(result.number, index)
                yield Span(result, holds[result.number], begin, death - (result.number in donation))


def overwritten_on(block: Block, stored: frozenset[int], machine: Machine) -> dict[int, list[Term]]:
    """Returns the same as `overwritten`, as far as the machine's compiler does it.

    A compiler that does not overwrite still computes an elementwise function of a reduction with it.
    """
    found = overwritten(block, stored)
    if machine.overwrites:
        return found
    fused = (
        (number, [term for term in terms if isinstance(term.op, Reduce)]) for number, terms in found.items()
    )
    return {number: terms for number, terms in fused if terms}


def overwritten(block: Block, stored: frozenset[int]) -> dict[int, list[Term]]:
    """By number of a stored elementwise term, the stored terms whose buffers it may overwrite.

    XLA lets a term overwrite a value that it is computed from entry by entry, if it is the last to read it.
    Results of the block have buffers of their own.
    """
    here = {result.number for step in block.steps for result in step.results}
    needs = {term.number for term in block.needs}
    found = {}
    for step in block.steps:
        if not isinstance(step, Compute) or not isinstance(step.term.op, Map):
            continue
        whole = step.term
        if whole.number not in stored or whole.number in needs:
            continue
        places, seen, waiting = [], {whole.number}, list(whole.args)
        while waiting:
            term = waiting.pop()
            if term.number in seen or term.axes != whole.axes or term.open != whole.open:
                continue
            seen.add(term.number)
            if term.number in stored:
                if itemsize(term.dtype) == itemsize(whole.dtype):
                    places.append(term)
            elif term.number in here and isinstance(term.op, Map):
                waiting += term.args
        if places:
            found[whole.number] = places
    return found


def _last_uses(block: Block, stored: frozenset[int]) -> dict[int, int]:
    """For each stored term, the last step that reads it, directly or through fused terms.

    A fused term that is never read reads nothing. One pass from the end suffices, since consumers come later.
    """
    end = len(block.steps)
    last = {term.number: end for term in block.needs}
    for index in range(end - 1, -1, -1):
        step = block.steps[index]
        if isinstance(step, Loop) or step.term.number in stored:
            read: int | None = index
        else:
            read = last.get(step.term.number)
        if read is not None:
            for term in dependencies(step):
                last[term.number] = max(last.get(term.number, 0), read)
    return last


def buffers(step: Compute | Loop) -> dict[int, tuple[Valued, ...]]:
    """By number of each of a step's results, the values that its buffer holds, if it has one.

    The buffer of a fold holds its carry. A part of the state that several folds share counts with the first.
    """
    if isinstance(step, Compute):
        return {step.term.number: (step.term,)}
    merging = Merging()
    counted: set[int] = set()
    found: dict[int, tuple[Valued, ...]] = {}
    for result in step.results:
        match result.op:
            case Fold(monoid=Monoid() as monoid):
                state = merging.state(monoid, result.args)
                carried = {part.number: part for part in state.earlier if part.number not in counted}
                counted.update(carried)
                found[result.number] = tuple(
                    Value(part.axes, result.open, part.dtype) for part in carried.values()
                )
            case Fold(monoid=str()):
                found[result.number] = (Value(result.axes, result.open, accumulator(result.dtype)),)
            case _:
                found[result.number] = (result,)
    return found


def _read_from(arg: Term, machine: Machine) -> Term:
    """Returns the term whose buffer an operand is read from.

    Where the order of entries does not matter, an array with its axes renamed is read as it is.
    """
    return arg if machine.lanes else array_of(arg)


def _broadcast(block: Block, stored: set[int], machine: Machine) -> Iterator[int]:
    """Yields the numbers of expensive values that are read along more axes than they have."""
    expensive: set[int] = set()
    for step in block.steps:
        if not isinstance(step, Compute):
            continue
        term = step.term
        inside = [arg.number for arg in term.args if arg.number in expensive]
        if term.number not in stored and (inside or is_expensive(term.op, machine)):
            expensive.add(term.number)
        if isinstance(term.op, Map):
            wider = (arg for arg in term.args if arg.number in inside and arg.axes < term.axes)
            yield from (_read_from(arg, machine).number for arg in wider)


def _gathered(block: Block, stored: set[int]) -> Iterator[int]:
    """Yields the numbers of gathered values of which parts are read along more axes than they have."""
    inside: dict[int, frozenset[int]] = {}
    for step in block.steps:
        if not isinstance(step, Compute):
            continue
        term = step.term
        found = frozenset[int]().union(*(inside.get(arg.number, ()) for arg in term.args))
        if _gathers(term):
            found |= {term.number}
        if found and term.number not in stored:
            inside[term.number] = found
        if isinstance(term.op, Map):
            for arg in term.args:
                if arg.axes < term.axes:
                    yield from inside.get(arg.number, ())


def _gathers(term: Term) -> bool:
    """Whether a term is gathered from places that are not known beforehand."""
    match term.op:
        case Operation(spec=spec):
            return spec.name == "take"
        case Opaque(call=call):
            return str(call.primitive.name) == "gather"
        case _:
            return False


def _shared_products(block: Block, uses: Mapping[int, int], stored: set[int]) -> Iterator[int]:
    """Yields the numbers of values that several read and that have a product inside, computed on the fly."""
    inside: set[int] = set()
    for step in block.steps:
        if isinstance(step, Compute) and step.term.number not in stored:
            term = step.term
            if isinstance(term.op, Dot) or any(arg.number in inside for arg in term.args):
                if uses.get(term.number, 0) > 1:
                    yield term.number
                else:
                    inside.add(term.number)


def _written_often(block: Block, stored: set[int], model: StorageModel) -> Iterator[int]:
    """Yields the numbers of values for which a kernel would have code in too many places.

    A compiler writes the code of a value that is computed on the fly once for each way to index it: one for
    all that read it entry by entry, and others for each view of it, such as a slice. One kernel alone gathers
    the entries of a value.
    """
    most = model.machine.most_copies
    terms = [step.term for step in block.steps if isinstance(step, Compute)]
    views = [term for term in terms if term.number not in stored and model.is_view(term.op)]
    if not most or not (len(views) > most // 2 or any(map(_gathers, views))):
        return
    needs = {term.number for term in block.needs}
    indexed: dict[int, set[int]] = {}
    kernel_of: list[int] = []
    through: dict[tuple[int, int], int] = {}

    def begun(kernel: int) -> int:
        """A new way to index, in a kernel."""
        kernel_of.append(kernel)
        return len(kernel_of) - 1

    for step in reversed(block.steps):
        if not isinstance(step, Compute):
            continue
        term, number = step.term, step.term.number
        ways = indexed.pop(number, set())
        kernels = Counter(kernel_of[way] for way in ways)
        often = max(kernels.values(), default=0) > most or (len(kernels) > 1 and _gathers(term))
        often = often and number not in stored and not is_given(term)
        if often:
            yield number
        if often or number in stored or number in needs:
            ways = {begun(number)}
        if model.is_view(term.op):
            for way in ways:
                if (number, way) not in through:
                    through[number, way] = begun(kernel_of[way])
            ways = {through[number, way] for way in ways}
        for arg in term.args:
            indexed.setdefault(arg.number, set()).update(ways)


def cheap_uses(op: Op, machine: Machine) -> float:
    """Returns the number of consumers up to which a value is computed for each of them, and not stored."""
    if not is_expensive(op, machine):
        return math.inf
    if isinstance(op, Reduce) and is_short(op, machine):
        return machine.short_uses
    return machine.cheap_uses if isinstance(op, (Map, Opaque)) else 1


def is_given(term: Term) -> bool:
    """Whether the term is an input, a constant or an index, or the same array."""
    return isinstance(array_of(term).op, (Leaf, Const, Iota))
