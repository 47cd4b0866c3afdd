"""Folds with declared monoids as source: a variable for each part of the state, merged by its formulas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eqsat.backend.elementwise import constant_text, dtype_text, scalar_text
from eqsat.backend.layout import Emitted, broadcast, merge_orders, shape_text
from eqsat.ir.axis import Axis
from eqsat.ir.formula import Monoid
from eqsat.ir.merging import Merging, State
from eqsat.ir.ops import Const, Fold, Map
from eqsat.ir.term import Term, reachable

if TYPE_CHECKING:
    from eqsat.backend.emit import Emitter
    from eqsat.backend.scope import Scope


@dataclass
class Carried:
    """One variable that a loop carries: what it starts as and what it becomes.

    **Attributes:**

    - `name`: what the variable is called before and after every chunk.
    - `initial`: its first value, or None if the first chunk makes it.
    - `order`: its dimensions.
    - `after`: the variable that holds its new value at the end of a chunk.
    """

    name: str
    initial: str | None
    order: tuple[Axis, ...]
    after: str


class DeclaredFolds:
    """Writes the states of one loop's folds. A part that several folds share is one variable."""

    def __init__(self, emitter: Emitter, outer: Scope) -> None:
        self.emitter = emitter
        self.outer = outer
        self.merging = Merging()
        self.states: dict[int, State] = {}
        self.carried: dict[int, Carried] = {}
        self.values: dict[int, Emitted] = {}

    def merge(self, result: Term, bodies: Sequence[Emitted], inner: Scope) -> list[Carried]:
        """Write the merge of a chunk's values into the state; the parts that are new with this fold."""
        assert isinstance(result.op, Fold)
        assert isinstance(result.op.monoid, Monoid)
        names = result.op.monoid.state
        state = self.states[result.number] = self.merging.state(result.op.monoid, result.args)
        lengths = self.outer.lengths_of(result)
        orders = merge_orders([body.order for body in bodies])
        for name, leaf, arg, body in zip(names, state.later, result.args, bodies, strict=True):
            if leaf.number not in self.values:
                self.values[leaf.number] = self._widened(name, leaf, arg, body, inner)
        fresh = []
        for name, constant, leaf in zip(names, state.identity, state.earlier, strict=True):
            if leaf.number not in self.carried:
                assert isinstance(constant.op, Const)
                order = tuple(axis for axis in orders if axis in leaf.axes)
                variable = self.emitter.local(f"{name}_{result.number}")
                shape = shape_text(order, lengths)
                initial = f"jnp.full({shape}, {scalar_text(constant.op)}, {dtype_text(leaf.dtype)})"
                self.carried[leaf.number] = Carried(variable, initial, order, variable)
                self.values[leaf.number] = Emitted(variable, order)
                fresh.append(self.carried[leaf.number])
        self._emit(state.merged, self.values, inner, result)
        for leaf, new in zip(state.earlier, state.merged, strict=True):
            part = self.carried[leaf.number]
            part.after = broadcast(self.values[new.number], part.order, lengths)
        return fresh

    def _widened(self, name: str, leaf: Term, arg: Term, body: Emitted, inner: Scope) -> Emitted:
        """A part of a chunk in the dtype in which it is merged."""
        if leaf.dtype == arg.dtype:
            return body
        wide = self.emitter.local(f"wide_{name}")
        text = f"lax.convert_element_type({body.text}, {dtype_text(leaf.dtype)})"
        self.emitter.line(inner, f"{wide} = {text}")
        return Emitted(wide, body.order)

    def finished(self, result: Term) -> Emitted:
        """Write what a fold returns, after the loop."""
        state = self.states[result.number]
        values: dict[int, Emitted] = {}
        for leaf in state.earlier:
            part = self.carried[leaf.number]
            values[leaf.number] = Emitted(part.name, part.order)
        self._emit([state.finished], values, self.outer, result)
        value = values[state.finished.number]
        order = merge_orders([value.order, *(values[leaf.number].order for leaf in state.earlier)])
        text = broadcast(value, order, self.outer.lengths_of(result))
        if state.finished.dtype != result.dtype:
            text = f"lax.convert_element_type({text}, {dtype_text(result.dtype)})"
        return Emitted(text, order)

    def _emit(self, roots: Iterable[Term], values: dict[int, Emitted], scope: Scope, result: Term) -> None:
        """Assign the terms of formulas to variables, which are put among the `values`."""
        lengths = self.outer.lengths_of(result)
        comment = self.emitter.makers.get(result.number, "")
        for term in reachable(roots):
            if term.number in values:
                continue
            if isinstance(term.op, Const):
                values[term.number] = Emitted(constant_text(term.op), ())
                continue
            assert isinstance(term.op, Map)
            value = self.emitter.mapped(term, term.op, [values[arg.number] for arg in term.args], lengths)
            name = self.emitter.local(f"{term.op.name}_{result.number}")
            self.emitter.line(scope, f"{name} = {value.text}", comment)
            values[term.number] = Emitted(name, value.order)
