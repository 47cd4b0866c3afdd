"""Rematerialised values: how a large value, or one slice of it, is computed inside of a loop from less.

A slice of what a scan stacks is what one of its iterations computes. It can be computed anew in the iteration
of another loop, from slices of what the scan was given, and from what it carried there: so the residuals of a
loop over time need not be kept for the backward pass, only what was carried (checkpointing: Griewank and
Walther, 2000).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from eqsat.ir.axis import Axis, Layout, layout_axes
from eqsat.ir.control import Scan, carried, sliced
from eqsat.ir.control_axes import given_layouts, keeps
from eqsat.ir.ops import Call, Const, Delta, Dot, Iota, Leaf, Map, Opaque, Reduce, Rename, Select
from eqsat.ir.substitution import substituted
from eqsat.ir.term import Term, Terms, reachable
from eqsat.planning.saved_carries import Carries

Operand = tuple[Term, Axis | None]
"""A value that a loop is given, and along which axis by slices."""


@dataclass(frozen=True, slots=True)
class Rematerialisation:
    """A value, or its slices, in terms of what a loop has to be given to compute it.

    **Attributes:**

    - `term`: what is computed once `given` and `inner` are in the places of terms of these numbers.
    - `given`: inputs, small values, and what can't be cut.
    - `inner`: what is computed of other axes, or in an iteration of another loop, itself rematerialised.
    """

    term: Term
    given: tuple[tuple[int, Operand], ...]
    inner: tuple[tuple[int, Rematerialisation], ...] = ()

    def operands(self) -> Iterator[Operand]:
        """What the loop is given instead of the value."""
        yield from (operand for _, operand in self.given)
        for _, one in self.inner:
            yield from one.operands()

    def built(self, terms: Terms, inside: Mapping[Operand, Term]) -> Term:
        """The value, in terms of what stands inside of the loop for what it is given."""
        known = {number: inside[operand] for number, operand in self.given}
        known.update((number, one.built(terms, inside)) for number, one in self.inner)
        return substituted(terms, [self.term], known)[0]


@dataclass(frozen=True, slots=True)
class Rematerialiser:
    """Finds what can be rematerialised in one program.

    **Attributes:**

    - `threshold`: bytes over which a value is large.
    - `carries`: how to have what scans carry.
    """

    terms: Terms
    threshold: float
    carries: Carries

    def find(self, term: Term, along: Axis | None) -> Rematerialisation | None:
        """How to compute a large value, or its slices along an axis, from less; None if that can't be."""
        given: dict[int, Operand] = {}
        inner: dict[int, Rematerialisation] = {}
        stack, seen = [term], {term.number}
        while stack:
            at = stack.pop()
            elsewhere = self._elsewhere(at, along)
            if elsewhere is not None:
                inner[at.number] = elsewhere
                continue
            if not _can_be_cut(at, along):
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

    def _is_given(self, term: Term) -> bool:
        """Whether a loop had better be given the value than compute it."""
        return isinstance(term.op, Leaf) or (term.bytes <= self.threshold and not _is_index(term))

    def _either(self, term: Term, along: Axis | None) -> Rematerialisation:
        """The value computed from less where that can be, or else given."""
        found = None if self._is_given(term) else self.find(term, along)
        return found or Rematerialisation(term, ((term.number, _operand(term, along)),))

    def _elsewhere(self, term: Term, along: Axis | None) -> Rematerialisation | None:
        """How to compute a slice that is one along another axis: by another name, or of an iteration."""
        if along is None or along not in term.axes:
            return None
        match term.op:
            case Rename(old=old, new=new) if new == along:
                return self._either(term.args[0], old)
            case Opaque(call=call, result=result) if isinstance(call.control, Scan):
                stacked = result >= len(carried(call.control))
                if stacked and call.out_layouts[result][0] == along:
                    return self._iteration(call, result, term.args)
        return None

    def _iteration(self, call: Call, result: int, args: tuple[Term, ...]) -> Rematerialisation | None:
        """What an iteration of a scan gives for a result that it stacks; None if it can't be repeated."""
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
                if not isinstance(axis, Axis) or args[source].axes != leaf.axes | {axis}:
                    return None
                slices = self._either(args[source], axis)
            else:
                slices = self._either(args[source], None)
            inner.append((leaf.number, slices))
        return Rematerialisation(given, (), tuple(inner))


def _called(terms: Terms, term: Term, layout: Layout, wanted: Layout) -> Term | None:
    """A term with the axes of its layout called as in another one, all there; None if it merges axes."""
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
    """The term with an axis that it does not vary along: chosen by the index, from itself and itself."""
    zero = terms.make(Const("0", "int32"))
    chosen = terms.make(Map("lt", "bool"), [terms.make(Iota(axis, "int32")), zero])
    return terms.make(Map("select_n", term.dtype), [chosen, term, term])


def _operand(term: Term, along: Axis | None) -> Operand:
    return term, along if along in term.axes else None


def _can_be_cut(term: Term, along: Axis | None) -> bool:
    """Whether a piece of the term may be had without all of it: a slice along an axis, if one is given."""
    if isinstance(term.op, Opaque):
        return along is None and bool(term.op.call.passing)
    if along is not None and not keeps(term, along):
        return False
    return isinstance(term.op, (Map, Reduce, Dot, Select, Rename, Iota, Delta, Const))


def _is_index(term: Term) -> bool:
    """Whether the term is made of nothing but indices and constants: it costs nothing to make again."""
    return all(not isinstance(at.op, (Leaf, Opaque)) for at in reachable([term]))
