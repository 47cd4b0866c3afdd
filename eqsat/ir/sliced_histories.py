"""Slices of functions of what a scan stacks, along its iterations, as functions of slices of it.

    f(h)[s:]  =  f(h[s:]),  h[s:, 1:-1]  =  h[s:][:, 1:-1]

So products of deviations from a mean, some iterations apart, are read from the history itself, whose parts
can be carried (`history_parts`). A function that several slices are taken of is computed for each of them,
unless entries of it are compared: computed twice, they might be rounded otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from eqsat.ir.axis import Axis, Dimension, Layout, layout_axes, layout_shape
from eqsat.ir.comparing import compared
from eqsat.ir.control import Scan
from eqsat.ir.history_functions import goes_inside
from eqsat.ir.history_parts import cuts_rows
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.program import Program
from eqsat.ir.sliced_calls import SlicedTerms
from eqsat.ir.substitution import substituted, with_inputs
from eqsat.ir.term import Term, Terms


def with_sliced_histories(
    program: Program, exact: bool = False, numbered: Callable[[Call, Call], Call] | None = None
) -> tuple[Program, Mapping[int, Term]]:
    """Returns the program with slices of histories in place of slices of their functions.

    **Arguments:**

    - `exact`: whether results must stay the same to the last bit.
    - `numbered`: returns a call that was made of another one with a number of its own; None if the program
      has all calls that there are.

    **Returns:** the program, and what has become of its terms, by number. The program is the same if it has
    no such slices.
    """
    terms = list(program.reachable())
    if not any(map(is_slice, terms)):
        return program, {}
    if numbered is None:
        numbers = count(program.next_call())

        def numbered(made: Call, origin: Call) -> Call:
            return replace(made, id=next(numbers))

    slicing = _Slicing(program.terms, numbered, compared(program).once, exact)
    known: dict[int, Term] = {}
    for term in terms:
        if is_slice(term):
            (operand,) = substituted(program.terms, term.args, known) if known else term.args
            made = slicing.sliced(term, operand)
            if made is not None:
                known[term.number] = made
    if not known:
        return program, known
    found = substituted(program.terms, terms, known)
    changed = with_inputs(program, program.inputs, known)
    return changed, {term.number: new for term, new in zip(terms, found, strict=True)}


Bounds = tuple[int, int, int]
"""Where a slice starts and ends along a dimension, and its stride."""


@dataclass
class _Slicing:
    """Slices that are made anew.

    **Attributes:**

    - `numbered`: returns a call that was made of another one with a number of its own.
    - `once`: the numbers of terms that are computed only once.
    - `made`: by the slice that is written and the number of an operand, the slice of that.
    """

    terms: Terms
    numbered: Callable[[Call, Call], Call]
    once: frozenset[int]
    exact: bool
    made: dict[tuple[Call, int], Term] = field(default_factory=dict)
    slices: SlicedTerms = field(init=False)

    def __post_init__(self) -> None:
        self.slices = SlicedTerms(self.terms, self.numbered)

    def sliced(self, term: Term, operand: Term) -> Term | None:
        """A slice of a history or of a function of it, in its new form; None if it stays as it is."""
        assert isinstance(term.op, Opaque)
        call = term.op.call
        (before,), (after,) = call.arg_layouts, call.out_layouts
        for place, (axis, short) in enumerate(zip(before, after, strict=True)):
            if axis == short or not isinstance(axis, Axis) or isinstance(short, tuple):
                continue
            stack = history_read(operand, axis)
            if stack is None:
                continue
            own = _history(operand, axis) is not None
            if term.args[0].number in self.once or (own and cuts_rows(term)):
                return None
            if not own and not goes_inside(operand, axis, stack, self.exact):
                return None
            if cuts_rows(term):
                return self._cut(call, operand, axis, stack)
            made = self._cut(self._rows(call, place, operand, axis), operand, axis, stack)
            if before[:place] + before[place + 1 :] != after[:place] + after[place + 1 :]:
                made = self.terms.make(Opaque(self._others(call, place), 0), [made])
            return made if made.axes == term.axes else None
        return None

    def _rows(self, call: Call, place: int, operand: Term, axis: Axis) -> Call:
        """A slice along the dimension `place` of another one, along its first dimension."""
        rows, others = _bounds(call)[place], tuple(sorted(operand.axes - {axis}))
        return self._sliced(call, [rows], (axis, *others), (call.out_layouts[0][place], *others))

    def _others(self, call: Call, place: int) -> Call:
        """A slice along all dimensions of another one but the dimension `place`, which is cut already."""
        (before,), (after,) = call.arg_layouts, call.out_layouts
        (length,) = layout_shape(after[place : place + 1])
        bounds = [*_bounds(call)]
        bounds[place] = (0, length, 1)
        return self._sliced(call, bounds, (*before[:place], after[place], *before[place + 1 :]), after)

    def _cut(self, call: Call, term: Term, axis: Axis, stack: Term) -> Term:
        """A term cut along an axis as a call does it: what it is computed from is cut."""
        if axis not in term.axes:
            return term
        if (call, term.number) not in self.made:
            short = call.out_layouts[0][0]
            assert not isinstance(short, tuple)
            is_function = _history(term, axis) is None and history_read(term, axis) is not None
            if is_function and term.number not in self.once and goes_inside(term, axis, stack, self.exact):
                args = [self._cut(call, arg, axis, stack) for arg in term.args]
                made = self.slices.of(term, axis, args, short)
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
        cut = (call.out_layouts[0][0], *layout[1:])
        return self._sliced(replace(call, out_dtypes=(term.dtype,)), _bounds(call)[:1], layout, cut)

    def _sliced(self, call: Call, bounds: Sequence[Bounds], before: Layout, after: Layout) -> Call:
        """A call made of another one that cuts the first dimensions of an array."""
        whole = [(0, length, 1) for length in layout_shape(before)]
        starts, limits, strides = zip(*bounds, *whole[len(bounds) :], strict=True)
        made = replace(
            call,
            params={"start_indices": starts, "limit_indices": limits, "strides": strides},
            arg_layouts=(before,),
            out_layouts=(after,),
            passing=frozenset(layout_axes(before)) & frozenset(layout_axes(after)),
        )
        return self.numbered(made, call)


def is_slice(term: Term) -> bool:
    """Whether a term is a slice at places that are known."""
    return isinstance(term.op, Opaque) and term.op.call.primitive.name == "slice"


def _bounds(call: Call) -> list[Bounds]:
    """By dimension, where a slice starts and ends, and its stride."""
    params = call.params
    strides = params["strides"] or [1] * len(params["start_indices"])
    return list(zip(params["start_indices"], params["limit_indices"], strides, strict=True))


def history_read(term: Term, axis: Axis) -> Term | None:
    """The stacked result that a term is a function of, along an axis; the first one, if it is of several.

    The function may be of a slice of it.
    """
    waiting, seen = [term], {term.number}
    while waiting:
        at = waiting.pop()
        found = _history(at, axis)
        if found is not None:
            return found
        passes = not isinstance(at.op, Opaque) or (axis in at.op.call.passing and not at.op.call.bodies)
        if axis in at.axes and passes:
            waiting += [arg for arg in at.args if arg.number not in seen]
            seen.update(arg.number for arg in at.args)
    return None


def _history(term: Term, axis: Axis) -> Term | None:
    """The stacked result that a term is, along an axis, or a slice of; None if it is something else."""
    along: Dimension = axis
    while cuts_rows(term):
        assert isinstance(term.op, Opaque)
        if term.op.call.out_layouts[0][0] != along:
            return None
        along, term = term.op.call.arg_layouts[0][0], term.args[0]
    if not isinstance(term.op, Opaque) or not isinstance(term.op.call.control, Scan):
        return None
    call, result = term.op.call, term.op.result
    stacks = result >= len(term.op.call.control.carried) and call.out_layouts[result][0] == along
    return term if stacks else None
