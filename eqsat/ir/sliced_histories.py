"""Slices of functions of what a scan stacks, along its iterations, as functions of slices of it.

    f(h)[s:]  =  f(h[s:])

So products of deviations from a mean, some iterations apart, are read from the history itself, whose parts
can be carried (`history_parts`). A function that several slices are taken of is computed for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from eqsat.ir.axis import Axis, Dimension, Layout, layout_axes, layout_shape
from eqsat.ir.control import Scan
from eqsat.ir.history_functions import goes_inside
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.program import Program
from eqsat.ir.substitution import substituted, with_inputs
from eqsat.ir.term import Term, Terms


def with_sliced_histories(program: Program, exact: bool = False) -> tuple[Program, Mapping[int, Term]]:
    """Returns the program with slices of histories in place of slices of their functions.

    **Returns:** the program, and what has become of its terms, by number. The program is the same if it has
    no such slices.
    """
    terms = list(program.reachable())
    slicing = _Slicing(program.terms, program.next_call(), exact)
    known: dict[int, Term] = {}
    for term in terms:
        if _cuts_iterations(term):
            (operand,) = substituted(program.terms, term.args, known) if known else term.args
            made = slicing.sliced(term, operand)
            if made is not None:
                known[term.number] = made
    if not known:
        return program, known
    found = substituted(program.terms, terms, known)
    changed = with_inputs(program, program.inputs, known)
    return changed, {term.number: new for term, new in zip(terms, found, strict=True)}


def _cuts_iterations(term: Term) -> bool:
    """Whether a term is a slice along its first dimension alone."""
    if not isinstance(term.op, Opaque) or term.op.call.primitive.name != "slice":
        return False
    (before,), (after,) = term.op.call.arg_layouts, term.op.call.out_layouts
    cut = bool(before) and before[0] != after[0] and before[1:] == after[1:]
    return cut and isinstance(before[0], Axis) and isinstance(after[0], Axis)


@dataclass
class _Slicing:
    """Slices that are made anew.

    **Attributes:**

    - `next_call`: the number of the next call.
    - `made`: by the slice that is written and the number of an operand, the slice of that.
    """

    terms: Terms
    next_call: int
    exact: bool
    made: dict[tuple[Call, int], Term] = field(default_factory=dict)

    def sliced(self, term: Term, operand: Term) -> Term | None:
        """A slice of a function of a history, in its new form; None if it is of something else."""
        assert isinstance(term.op, Opaque)
        axis = term.op.call.arg_layouts[0][0]
        assert isinstance(axis, Axis)
        stack = _stack(operand, axis)
        if stack is None or _history(operand, axis) is not None:
            return None
        return self._cut(term.op.call, operand, axis, stack)

    def _cut(self, call: Call, term: Term, axis: Axis, stack: Term) -> Term:
        """A term cut along an axis as a call does it: what it is computed from is cut."""
        if axis not in term.axes:
            return term
        if (call, term.number) not in self.made:
            is_function = _history(term, axis) is None and _stack(term, axis) is not None
            if is_function and goes_inside(term, axis, stack, self.exact):
                args = [self._cut(call, arg, axis, stack) for arg in term.args]
                made = self.terms.make(term.op, args)
            else:
                made = self.terms.make(Opaque(self._call(call, term, axis), 0), [term])
            if term.number in self.terms.origins:
                self.terms.origins.setdefault(made.number, self.terms.origins[term.number])
            self.made[call, term.number] = made
        return self.made[call, term.number]

    def _call(self, call: Call, term: Term, axis: Axis) -> Call:
        """The same slice of another array."""
        layout: Layout = (axis, *sorted(term.axes - {axis}))
        if _history(term, axis) is not None:
            assert isinstance(term.op, Opaque)
            layout = term.op.call.out_layouts[term.op.result]
        others, params = layout_shape(layout[1:]), dict(call.params)
        params["start_indices"] = (params["start_indices"][0], *(0 for _ in others))
        params["limit_indices"] = (params["limit_indices"][0], *others)
        if params["strides"] is not None:
            params["strides"] = (params["strides"][0], *(1 for _ in others))
        self.next_call += 1
        return replace(
            call,
            id=self.next_call - 1,
            params=params,
            arg_layouts=(layout,),
            out_layouts=((call.out_layouts[0][0], *layout[1:]),),
            out_dtypes=(term.dtype,),
            passing=frozenset(layout_axes(layout[1:])),
        )


def _stack(term: Term, axis: Axis) -> Term | None:
    """The stacked result that a term is a function of, along an axis; the first one, if it is of several."""
    waiting, seen = [term], {term.number}
    while waiting:
        at = waiting.pop()
        found = _history(at, axis)
        if found is not None:
            return found
        if axis in at.axes and not isinstance(at.op, Opaque):
            waiting += [arg for arg in at.args if arg.number not in seen]
            seen.update(arg.number for arg in at.args)
    return None


def _history(term: Term, axis: Axis) -> Term | None:
    """The stacked result that a term is, along an axis, or a slice of; None if it is something else."""
    along: Dimension = axis
    while _cuts_iterations(term):
        assert isinstance(term.op, Opaque)
        if term.op.call.out_layouts[0][0] != along:
            return None
        along, term = term.op.call.arg_layouts[0][0], term.args[0]
    if not isinstance(term.op, Opaque) or not isinstance(term.op.call.control, Scan):
        return None
    call, result = term.op.call, term.op.result
    stacks = result >= len(term.op.call.control.carried) and call.out_layouts[result][0] == along
    return term if stacks else None
