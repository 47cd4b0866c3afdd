"""What one iteration of a scan has of values that are computed from what it stacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from eqsat.ir.axis import Axis, Layout, layout_axes
from eqsat.ir.control import Scan
from eqsat.ir.device_terms import Numbers
from eqsat.ir.history_functions import goes_inside
from eqsat.ir.history_parts import is_of_scan
from eqsat.ir.ops import Call, Const, Leaf, Map, Opaque, Rename
from eqsat.ir.sliced_calls import SlicedTerms
from eqsat.ir.substitution import substituted
from eqsat.ir.term import Term, Terms, reachable


@dataclass(frozen=True, slots=True)
class Operand:
    """A value from outside that an iteration needs, whole or one slice of it.

    **Attributes:**

    - `layout`: that of the value, the axis of iterations first if it is sliced.
    - `leaf`: what an iteration gets.
    """

    value: Term
    layout: Layout
    sliced: bool
    leaf: Term


@dataclass
class IterationValues:
    """Values that are computed from what a scan stacks, in the terms of its body.

    **Attributes:**

    - `stack`: one of the stacked results.
    - `exact`: whether they must stay the same to the last bit.
    - `wide`: whether products and calls may take longer than for all iterations at once.
    - `operands`: the values that the body does not have so far.
    - `numbered`: returns a call that was made of another one with a number of its own; None if `numbers` has
      all that the program has.
    - `_inside`: by number of a term, what an iteration has of it.
    - `_along`: by number of these terms, the axis that has the iterations; None if all have the same.
    - `_stand_ins`: the numbers of terms that stand for what has an entry in each iteration.
    """

    terms: Terms
    numbers: Numbers
    stack: Term
    exact: bool = False
    wide: bool = False
    operands: list[Operand] = field(default_factory=list)
    _inside: dict[int, Term] = field(default_factory=dict)
    _along: dict[int, Axis | None] = field(default_factory=dict)
    _stand_ins: set[int] = field(default_factory=set)
    numbered: Callable[[Call, Call], Call] | None = None
    _slices: SlicedTerms = field(init=False)

    def __post_init__(self) -> None:
        self._slices = SlicedTerms(self.terms, self.numbered or self.numbers.numbered)

    def stand_in(self, layout: Layout, entry: Term, axis: Axis) -> Term:
        """A term for what has a certain entry in each iteration.

        **Arguments:**

        - `layout`: that of an entry.
        """
        leaf = self.terms.make(Leaf(self.numbers.input(), (axis, *layout), entry.dtype))
        self._stand_ins.add(leaf.number)
        self._inside[leaf.number], self._along[leaf.number] = entry, axis
        return leaf

    def know(self, term: Term, inside: Term) -> None:
        """Note what every iteration has of a term that has no axis of iterations."""
        self._inside[term.number], self._along[term.number] = inside, None

    def of(self, value: Term, axis: Axis) -> Term | None:
        """What an iteration has of a value; None if it can't compute that by itself.

        **Arguments:**

        - `axis`: that of the iterations in this value.
        """
        waiting = [value]
        while waiting:
            term = waiting.pop()
            if isinstance(term.op, Const):
                continue
            along = axis if axis in term.axes else None
            if self._along.setdefault(term.number, along) != along:
                return None
            if term.number in self._inside:
                continue
            if isinstance(term.op, Opaque) and is_of_scan(term, self.stack):
                entry = entry_of(term.op, axis)
                if entry is None:
                    return None
                self._inside[term.number] = entry
            elif isinstance(term.op, Map) and axis in term.axes:
                waiting += term.args
            elif not self._is_of_iterations(term):
                self._inside[term.number] = self._operand(term, axis)
            elif isinstance(term.op, Map) and axis not in term.axes:
                waiting += term.args  # of what every iteration has of some entries
            elif isinstance(term.op, Rename) and term.op.new == axis:
                entry = self.of(term.args[0], term.op.old)
                if entry is None:
                    return None
                self._inside[term.number] = entry
            elif axis in term.axes and goes_inside(term, axis, self.stack, self.exact, self.wide):
                if isinstance(term.op, Opaque):
                    args = [entry for arg in term.args if (entry := self.of(arg, axis)) is not None]
                    if len(args) < len(term.args):
                        return None
                    self._inside[term.number] = self._slices.of(term, axis, args)
                else:
                    waiting += term.args
            else:
                return None
        return substituted(self.terms, [value], self._inside)[0]

    def _is_of_iterations(self, term: Term) -> bool:
        """Whether a term is computed from what the scan stacks."""
        return any(is_of_scan(at, self.stack) or at.number in self._stand_ins for at in reachable([term]))

    def _operand(self, term: Term, axis: Axis) -> Term:
        """What an iteration gets of a value from outside."""
        layout = tuple(sorted(term.axes - {axis}))
        leaf = self.terms.make(Leaf(self.numbers.input(), layout, term.dtype))
        sliced = axis in term.axes
        self.operands.append(Operand(term, (axis, *layout) if sliced else layout, sliced, leaf))
        return leaf


def entry_of(op: Opaque, axis: Axis | None = None) -> Term | None:
    """What an iteration stacks; None if it has other axes than the stack, or is a carry.

    **Arguments:**

    - `axis`: that of the iterations; None if it may have any name.
    """
    (body,) = op.call.bodies
    output, layout = body.program.outputs[op.result], op.call.out_layouts[op.result]
    assert isinstance(op.call.control, Scan)
    stacked = op.result >= len(op.call.control.carried) and axis in (None, layout[0])
    same = stacked and output.layout == layout[1:]
    return output.term if same and output.term.axes == frozenset(layout_axes(layout[1:])) else None
