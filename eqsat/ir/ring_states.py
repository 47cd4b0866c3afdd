"""What a ring of devices carries from step to step of the results of its folds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from jax import lax

from eqsat.ir.axis import Axis
from eqsat.ir.device_terms import DeviceTerms
from eqsat.ir.dtypes import is_inexact
from eqsat.ir.formula import Application, Constant, Formula, Monoid, Scalar
from eqsat.ir.merging import Merging, State, constant_text
from eqsat.ir.ops import Const, Iota, Map, Reduce, Select
from eqsat.ir.reduction_monoids import MERGES
from eqsat.ir.term import Term, Terms

START = {"sum": "0", "or": "0", "xor": "0", "prod": "1", "max": "-inf", "min": "inf"}
"""The identities of the reductions, but for that of `and`, which has all bits set."""

COMMUTATIVE = frozenset({"add", "mul", "max", "min", "and", "or", "xor", "eq", "ne"})

Entering = Callable[[Term, frozenset[Axis]], Term]
"""From an initial value and its axes to what a step sees of it."""


class RingState(Protocol):
    """The partial result of a fold."""

    def carries(self) -> Iterator[tuple[Term, Term]]:
        """What is carried: what a step sees, and what it makes of it."""
        ...

    def finished(self, results: Mapping[int, Term]) -> Term:
        """The result, given what is carried in the end, by number of what a step sees."""
        ...


@dataclass
class RingStates:
    """Builds the states of the folds of one ring, which share what is equal.

    **Attributes:**

    - `enter`: carries a value.
    - `owner`: the device that the visiting part belongs to.
    - `made`: the states so far.
    """

    terms: Terms
    devices: DeviceTerms
    enter: Entering
    owner: Callable[[], Term]

    def __post_init__(self) -> None:
        self.made: list[RingState] = []
        self.merging = Merging()
        self.parts: dict[int, tuple[Term, Term | None]] = {}
        self._selected: dict[tuple[object, ...], Selected] = {}

    def reduced(self, kind: str, value: Term) -> RingState:
        """The state of a reduction, of which `value` is what the visiting part gives."""
        if value.dtype == "bool" and kind in ("max", "min", "sum", "prod"):
            kind = "or" if kind in ("max", "sum") else "and"
        start = START.get(kind) or ("inf" if value.dtype == "bool" or value.dtype[0] == "u" else "-1")
        initial = self.terms.make(Const(constant_text(Constant(start), value.dtype), value.dtype))
        before = self.enter(initial, value.axes)
        after = self.terms.make(Map(MERGES[kind], value.dtype), [before, value])
        return self._with(Reduced(before, after))

    def selected(self, op: Select, value: Term) -> RingState:
        """The state of a selection along the visiting part of `value`."""
        key = (op.kind, op.k, op.out_axis, value.number)
        if key not in self._selected:
            self._selected[key] = Selected.of(self, op, value)
        return self._with(Entries(self._selected[key], op.result))

    def declared(self, monoid: Monoid, values: Sequence[Term]) -> RingState:
        """The state of a declared monoid, of which `values` is what the visiting part gives."""
        ordered = not is_commutative(monoid)
        state = self.merging.state(monoid, values)
        later = {
            leaf.number: self.converted(value, leaf.dtype)
            for leaf, value in zip(state.later, values, strict=True)
        }
        return self._with(Declared(self, state, later, ordered))

    def _with(self, state: RingState) -> RingState:
        self.made.append(state)
        return state

    def converted(self, term: Term, dtype: str) -> Term:
        return term if term.dtype == dtype else self.terms.make(Map("convert", dtype), [term])

    def chosen(self, which: Term, otherwise: Term, chosen: Term) -> Term:
        return self.terms.make(Map("select_n", chosen.dtype), [which, otherwise, chosen])

    def is_first(self) -> Term:
        """Whether the visiting part is that of the first device, before which all others were later ones."""
        return self.equal(self.owner(), self.terms.make(Const("0", "int32")))

    def equal(self, one: Term, other: Term) -> Term:
        return self.terms.make(Map("eq", "bool"), [one, other])


@dataclass
class Reduced:
    """The partial result of a reduction, which may be combined in any order."""

    before: Term
    after: Term

    def carries(self) -> Iterator[tuple[Term, Term]]:
        yield self.before, self.after

    def finished(self, results: Mapping[int, Term]) -> Term:
        return results[self.before.number]


class Declared:
    """The partial result of a declared monoid.

    Equal parts of several folds are carried once (`Merging`). If the order counts, what the parts from the
    device's own on give is put aside when the first device's comes.
    """

    def __init__(self, states: RingStates, state: State, later: Mapping[int, Term], ordered: bool) -> None:
        self.states = states
        self.state = state
        self.ordered = ordered
        self.first = states.is_first() if ordered else None
        identities = [states.terms.make(constant.op) for constant in state.identity]
        known = dict(later)
        self.before: list[tuple[Term, Term | None]] = []
        for leaf, identity in zip(state.earlier, identities, strict=True):
            key = leaf.number if not ordered else -1 - leaf.number
            if key not in states.parts:
                aside = states.enter(identity, leaf.axes) if ordered else None
                states.parts[key] = states.enter(identity, leaf.axes), aside
            before, aside = states.parts[key]
            self.before.append((before, aside))
            known[leaf.number] = before if self.first is None else states.chosen(self.first, before, identity)
        self.after = [self._built(term, known) for term in state.merged]

    def carries(self) -> Iterator[tuple[Term, Term]]:
        for (before, aside), after in zip(self.before, self.after, strict=True):
            yield before, after
            if aside is not None:
                assert self.first is not None
                yield aside, self.states.chosen(self.first, aside, before)

    def finished(self, results: Mapping[int, Term]) -> Term:
        last = [results[before.number] for before, _ in self.before]
        if self.ordered:
            known = dict(zip((leaf.number for leaf in self.state.earlier), last, strict=True))
            for leaf, (_, aside) in zip(self.state.later, self.before, strict=True):
                assert aside is not None
                known[leaf.number] = results[aside.number]
            last = [self._built(term, known) for term in self.state.merged]
        known = dict(zip((leaf.number for leaf in self.state.earlier), last, strict=True))
        return self._built(self.state.finished, known)

    def _built(self, term: Term, known: Mapping[int, Term]) -> Term:
        """A term of the monoid with values in place of leaves."""
        if term.number in known:
            return known[term.number]
        return self.states.terms.make(term.op, [self._built(arg, known) for arg in term.args])


Best = tuple[Term, Term]
"""The best entries and their indices."""


class Selected:
    """The best entries so far and their indices; of equal entries, the first ones.

    What the parts from the device's own on give is put aside when the first device's comes.
    """

    def __init__(self, states: RingStates, op: Select, here: Best) -> None:
        self.states = states
        self.op = op
        terms, device = states.terms, states.devices.device()
        self.device = device
        self._found: Best | None = None
        zeros = [terms.make(Const(constant_text(Constant("0"), one.dtype), one.dtype)) for one in here]
        self.before = [states.enter(zero, one.axes) for zero, one in zip(zeros, here, strict=True)]
        self.aside = [states.enter(zero, one.axes) for zero, one in zip(zeros, here, strict=True)]
        self.first = states.is_first()
        begins = terms.make(Map("or", "bool"), [self.first, states.equal(states.owner(), device)])
        merged = self._merged((self.before[0], self.before[1]), here)
        self.after = [states.chosen(begins, *pair) for pair in zip(merged, here, strict=True)]

    @staticmethod
    def of(states: RingStates, op: Select, value: Term) -> Selected:
        """The state for the best entries along an axis of `value`, of which a device sees a part."""
        terms = states.terms
        best = replace(op, result="values", dtype=value.dtype)
        if op.kind == "top_k":
            values = terms.make(best, [value])
        else:
            extreme = "max" if op.kind == "argmax" else "min"
            values = terms.make(Reduce(extreme, frozenset({op.axis}), value.dtype), [value])
        indices = terms.make(replace(op, result="indices", dtype="int32"), [value])
        begins = states.devices.begins(states.owner())
        return Selected(states, op, (values, terms.make(Map("add", "int32"), [indices, begins])))

    def carries(self) -> Iterator[tuple[Term, Term]]:
        yield from zip(self.before, self.after, strict=True)
        for aside, before in zip(self.aside, self.before, strict=True):
            yield aside, self.states.chosen(self.first, aside, before)

    def finished(self, results: Mapping[int, Term]) -> Best:
        if self._found is not None:
            return self._found
        last, aside = ([results[one.number] for one in some] for some in (self.before, self.aside))
        merged = self._merged((last[0], last[1]), (aside[0], aside[1]))
        zero = self.states.terms.make(Const("0", "int32"))
        alone = self.states.equal(self.device, zero)  # nothing was put aside
        values, indices = (self.states.chosen(alone, *pair) for pair in zip(merged, last, strict=True))
        self._found = values, indices
        return self._found

    def _merged(self, earlier: Best, later: Best) -> Best:
        return self._best_of(earlier, later) if self.op.kind == "top_k" else self._better(earlier, later)

    def _better(self, earlier: Best, later: Best) -> Best:
        """The better of two entries. NaN is better than any number."""
        terms = self.states.terms
        compare = "gt" if self.op.kind == "argmax" else "lt"
        better = terms.make(Map(compare, "bool"), [later[0], earlier[0]])
        if is_inexact(later[0].dtype):
            nans = [terms.make(Map("ne", "bool"), [one, one]) for one in (later[0], earlier[0])]
            only = terms.make(Map("gt", "bool"), nans)
            better = terms.make(Map("or", "bool"), [better, only])
        values, indices = (self.states.chosen(better, *pair) for pair in zip(earlier, later, strict=True))
        return values, indices

    def _best_of(self, earlier: Best, later: Best) -> Best:
        """The best k of two times k entries, of which those that are equal are in order."""
        terms, devices = self.states.terms, self.states.devices
        taken = self.op.out_axis
        rest = tuple(sorted(earlier[0].axes - ({taken} if taken else set())))
        among = devices.split.numbers.axis(2 * self.op.k)
        values, indices = (
            devices.call(lax.concatenate_p, {"dimension": 0}, [(taken, *rest)] * 2, (among, *rest), pair)
            for pair in zip(earlier, later, strict=True)
        )
        best = replace(self.op, axis=among)
        chosen = terms.make(replace(best, result="indices", dtype="int32"), [values])
        is_it = self.states.equal(terms.make(Iota(among, "int32")), chosen)
        zero = terms.make(Const("0", "int32"))
        kept = terms.make(Map("select_n", "int32"), [is_it, zero, indices])
        found = terms.make(replace(best, result="values", dtype=values.dtype), [values])
        return found, terms.make(Reduce("sum", frozenset({among}), "int32"), [kept])


@dataclass
class Entries:
    """The values or the indices of the best entries."""

    selected: Selected
    result: str

    def carries(self) -> Iterator[tuple[Term, Term]]:
        yield from self.selected.carries()

    def finished(self, results: Mapping[int, Term]) -> Term:
        values, indices = self.selected.finished(results)
        return values if self.result == "values" else indices


def is_commutative(monoid: Monoid) -> bool:
    """Whether the merge of a monoid stays the same if its operands change places."""
    turned = {f"{name}{one}": f"{name}{other}" for name in monoid.state for one, other in ("12", "21")}

    def key(formula: Formula, names: Mapping[str, str]) -> tuple[object, ...]:
        match formula:
            case Scalar(name=name):
                return ("scalar", names.get(name, name))
            case Constant(text=text):
                return ("constant", text)
            case Application(function=function, operands=operands, exponent=exponent):
                keys = [key(operand, names) for operand in operands]
                if function in COMMUTATIVE:
                    keys.sort(key=repr)
                return (function, exponent, *keys)

    return all(key(formula, {}) == key(formula, turned) for formula in monoid.merge)
