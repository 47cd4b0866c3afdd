"""Rematerialised values: how a loop computes a large value, or one slice of it, from smaller ones.

A slice of a scan's stacked result is the output of one iteration. An iteration of another loop can recompute
it from slices of the scan's operands and from the carry of that iteration. So a loop over time need not keep
its residuals for the backward pass, only its carries (checkpointing: Griewank and Walther, 2000).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eqsat.ir.axis import Axis, Layout, layout_axes
from eqsat.ir.control import Scan, While, carried, sliced
from eqsat.ir.control_axes import given_layouts, keeps
from eqsat.ir.ops import (
    Call,
    Const,
    Delta,
    Dot,
    Iota,
    Leaf,
    Map,
    Opaque,
    Operation,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.sliced_calls import sliced_call
from eqsat.ir.substitution import substituted
from eqsat.ir.term import Term, Terms, reachable
from eqsat.planning.saved_carries import Carries

SMALL_RESULT = 64
"""What loops give is kept if it is so many times smaller than the largest value: a choice, not measured."""

Operand = tuple[Term, Axis | None]
"""A value that a loop is given, and the axis along which it is sliced, if any."""


@dataclass(frozen=True, slots=True)
class Rematerialisation:
    """A value, or its slices, in terms of the operands that a loop needs to compute it.

    **Attributes:**

    - `term`: the term to compute, after `given` and `inner` replace the terms with these numbers.
    - `given`: the operands: inputs, small values, and values of which no piece can be computed alone.
    - `inner`: values along other axes, or of an iteration of another loop, which are rematerialised in turn.
    """

    term: Term
    given: tuple[tuple[int, Operand], ...]
    inner: tuple[tuple[int, Rematerialisation], ...] = ()

    def operands(self) -> Iterator[Operand]:
        """The operands that the loop is given instead of the value."""
        yield from (operand for _, operand in self.given)
        for _, one in self.inner:
            yield from one.operands()

    def built(self, terms: Terms, inside: Mapping[Operand, Term]) -> Term:
        """The value, in terms of the inputs that stand for its operands inside the loop."""
        return substituted(terms, [self.term], self._known(terms, inside))[0]

    def equalities(
        self, terms: Terms, inside: Mapping[Operand, Term], known: Iterable[tuple[Term, Term]]
    ) -> Iterator[tuple[Term, Term]]:
        """Of pairs of equal terms of the program, those that the value is computed with, inside the loop.

        They hold for the whole value, not for its slices.
        """
        given = self._known(terms, inside)
        within = {term.number for term in reachable([self.term])} - given.keys()
        leaves = {term.number for term in given.values()}
        for first, second in known:
            if first.number in within:
                one, other = substituted(terms, [first, second], given)
                if all(at.number in leaves for at in reachable([other]) if isinstance(at.op, Leaf)):
                    yield one, other

    def _known(self, terms: Terms, inside: Mapping[Operand, Term]) -> dict[int, Term]:
        known = {number: inside[operand] for number, operand in self.given}
        known.update((number, one.built(terms, inside)) for number, one in self.inner)
        return known


@dataclass(frozen=True, slots=True)
class Rematerialiser:
    """Finds rematerialisations in one program.

    **Attributes:**

    - `threshold`: the size in bytes above which a value is large.
    - `carries`: the source of the carries of scans, stacked.
    - `numbered`: a call that was made of another one, with a number of its own.
    - `next_leaf`: returns the number of a new input.
    - `forms`: by the number of a term, the terms that the program knows to be equal to it.
    - `once`: the numbers of terms that are computed only once, since they are compared with what was selected
      from them: computed again, they might be rounded otherwise.
    - `largest`: bytes of the largest value of the program.
    """

    terms: Terms
    threshold: float
    carries: Carries
    numbered: Callable[[Call, Call], Call]
    next_leaf: Callable[[], int]
    forms: Mapping[int, Sequence[Term]]
    once: frozenset[int] = frozenset()
    largest: float = 0
    _loops: dict[int, bool] = field(default_factory=dict)

    def find(self, term: Term, along: Axis | None) -> Rematerialisation | None:
        """How to compute a large value, or its slices along an axis, from less; None if impossible."""
        given: dict[int, Operand] = {}
        inner: dict[int, Rematerialisation] = {}
        stack, seen = [term], {term.number}
        while stack:
            at = stack.pop()
            if at.number in self.once:
                given[at.number] = _operand(at, along)
                continue
            elsewhere = self._elsewhere(at, along)
            if elsewhere is not None:
                inner[at.number] = elsewhere
                continue
            if not can_be_cut(at, along):
                form = self._form(at, along)
                if form is not None:
                    inner[at.number] = form
                else:
                    given[at.number] = _operand(at, along)
                continue
            for arg in at.args:
                if arg.number not in seen:
                    seen.add(arg.number)
                    if self._is_given(arg):
                        given[arg.number] = _operand(arg, along)
                    else:
                        stack.append(arg)
        if term.number in given:
            return None
        return Rematerialisation(term, tuple(given.items()), tuple(inner.items()))

    def _form(self, term: Term, along: Axis | None) -> Rematerialisation | None:
        """How to compute a large value of which no piece can be computed alone: as a term that equals it."""
        forms = () if self._is_given(term) else self.forms.get(term.number, ())
        found = (self.find(form, along) for form in forms)
        return next((one for one in found if one is not None), None)

    def _is_given(self, term: Term) -> bool:
        """Whether a loop should be given the value rather than compute it."""
        if isinstance(term.op, Leaf) or (term.bytes <= self.threshold and not is_index(term)):
            return True
        return SMALL_RESULT * term.bytes <= self.largest and self._runs_loops(term)

    def _runs_loops(self, term: Term) -> bool:
        """Whether the value takes loops to compute: they would run in every iteration of another one."""
        if term.number not in self._loops:
            for at in reachable([term]):
                loops = isinstance(at.op, Opaque) and isinstance(at.op.call.control, Scan | While)
                self._loops[at.number] = loops or any(self._loops[arg.number] for arg in at.args)
        return self._loops[term.number]

    def _either(self, term: Term, along: Axis | None) -> Rematerialisation:
        """The value rematerialised if that is possible and useful, or else given."""
        found = None if self._is_given(term) else self.find(term, along)
        return found or Rematerialisation(term, ((term.number, _operand(term, along)),))

    def _elsewhere(self, term: Term, along: Axis | None) -> Rematerialisation | None:
        """How to compute a slice through another axis: that of a rename, or the iterations of a scan."""
        if along is None or along not in term.axes:
            return None
        match term.op:
            case Rename(old=old, new=new) if new == along:
                return self._either(term.args[0], old)
            case Opaque(call=call, result=result) if isinstance(call.control, Scan):
                stacked = result >= len(carried(call.control))
                if stacked and call.out_layouts[result][0] == along:
                    return self._iteration(call, result, term.args)
            case Opaque():
                return self._slice(term, along)
        return None

    def _slice(self, term: Term, along: Axis) -> Rematerialisation | None:
        """How to compute a slice of a call's result from slices of its operands; None if impossible."""
        assert isinstance(term.op, Opaque)
        sliced = sliced_call(term.op.call, along, [arg.dtype for arg in term.args])
        if sliced is None:
            return None
        inner: list[tuple[int, Rematerialisation]] = []
        args: list[Term] = []
        for arg in term.args:
            if along in arg.axes:
                slices = self._either(arg, along)
                arg = self.terms.make(Leaf(self.next_leaf(), layout_of(arg, along), arg.dtype))
            else:
                # What all iterations read is computed once.
                slices = Rematerialisation(arg, ((arg.number, (arg, None)),))
            args.append(arg)
            inner.append((arg.number, slices))
        call = self.numbered(sliced, term.op.call)
        return Rematerialisation(self.terms.make(Opaque(call, term.op.result), args), (), tuple(inner))

    def _iteration(self, call: Call, result: int, args: tuple[Term, ...]) -> Rematerialisation | None:
        """How to recompute one iteration's part of a scan's stacked result; None if that is impossible."""
        assert call.control is not None
        (body,) = call.bodies
        given = _called(
            self.terms,
            body.program.outputs[result].term,
            body.program.outputs[result].layout,
            given_layouts(call)[result],
        )
        if given is None:
            return None
        needed = {term.number for term in reachable([given])}
        if needed & self.once:
            return None
        inner: list[tuple[int, Rematerialisation]] = []
        for leaf, source in zip(body.program.inputs, body.sources, strict=True):
            if leaf.number not in needed:
                continue
            if source in carried(call.control):
                kept = self.carries.stacked(call, args, source)
                if kept is None:
                    return None
                slices = Rematerialisation(kept[0], ((kept[0].number, kept),))
            elif source in sliced(call.control):
                axis = call.arg_layouts[source][0]
                if not isinstance(axis, Axis) or args[source].axes | {axis} != leaf.axes | {axis}:
                    return None
                # What is broadcast along the iterations is the same in all of them.
                slices = self._either(args[source], axis if axis in args[source].axes else None)
            else:
                slices = self._either(args[source], None)
            inner.append((leaf.number, slices))
        return Rematerialisation(given, (), tuple(inner))


def _called(terms: Terms, term: Term, layout: Layout, wanted: Layout) -> Term | None:
    """A term with its axes renamed and broadcast from one layout to another; None if axes are merged."""
    for own, other in zip(layout, wanted, strict=True):
        if own != other:
            if not isinstance(own, Axis) or not isinstance(other, Axis) or other in term.axes:
                return None
            term = terms.make(Rename(own, other), [term]) if own in term.axes else term
    for axis in layout_axes(wanted):
        if axis not in term.axes:
            term = _broadcast(terms, term, axis)
    return term


def _broadcast(terms: Terms, term: Term, axis: Axis) -> Term:
    """The term broadcast along an axis: a choice by index between the term and itself."""
    zero = terms.make(Const("0", "int32"))
    chosen = terms.make(Map("lt", "bool"), [terms.make(Iota(axis, "int32")), zero])
    return terms.make(Map("select_n", term.dtype), [chosen, term, term])


def _operand(term: Term, along: Axis | None) -> Operand:
    return term, along if along in term.axes else None


def can_be_cut(term: Term, along: Axis | None) -> bool:
    """Whether a piece of the term can be computed alone: a slice along an axis, if one is given."""
    if isinstance(term.op, Opaque):
        return along is None and bool(term.op.call.passing)
    if along is not None and not keeps(term, along):
        return False
    if isinstance(term.op, Operation):
        return along is not None or not term.axes <= set(term.op.axes)
    return isinstance(term.op, (Map, Reduce, Dot, Select, Rename, Iota, Delta, Const))


def layout_of(term: Term, along: Axis | None = None) -> Layout:
    """The layout in which a loop is given a value, or its slices along an axis; inputs keep their own."""
    given = layout_axes(term.op.layout) if isinstance(term.op, Leaf) else tuple(sorted(term.axes))
    return tuple(axis for axis in given if axis != along)


def is_index(term: Term) -> bool:
    """Whether the term is made only of indices and constants, so that recomputing it costs nothing."""
    return all(not isinstance(at.op, (Leaf, Opaque)) for at in reachable([term]))
