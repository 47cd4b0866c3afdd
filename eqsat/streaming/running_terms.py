"""Running calls on chunks as terms: each goes on from the state that the chunk before it left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jax import lax

from eqsat.ir.axis import Axis, Layout, layout_shape
from eqsat.ir.compensated_sums import added
from eqsat.ir.control import Scan
from eqsat.ir.ops import Call, Const, Iota, Map, Opaque
from eqsat.ir.running_calls import Running, combined
from eqsat.ir.term import Term
from eqsat.streaming.keys import Key
from eqsat.streaming.states import StateTerms

MOST_PARTS = 1_000
"""More arrays than a state has."""


def state_keys(term: Term, how: Running, scope: int) -> list[Key]:
    """The names of the state of a running call, which all its results share."""
    assert isinstance(term.op, Opaque)
    first = MOST_PARTS * how.axis.id
    return [Key("state", -1 - term.op.call.id, first + part, scope) for part in range(len(how.state))]


@dataclass
class RunningTerms:
    """Builds the terms of running calls in one segment.

    **Attributes:**

    - `scope`: the `Scope.id` of the segment.
    - `given`: makes an input of the segment.
    - `renamed`: gives a call of control flow with other axes.
    - `value`: the term of the segment for one of the program.
    """

    states: StateTerms
    scope: int
    given: Callable[[Key, Layout, str], Term]
    renamed: Callable[[Call, Mapping[Axis, Axis]], Call]
    value: Callable[[Term], Term]
    _made: dict[tuple[int, tuple[int, ...]], tuple[Call, list[Term]]] = field(default_factory=dict)

    def result(self, term: Term, how: Running, names: Mapping[Axis, Axis]) -> Term:
        """What a running call makes of the current chunk.

        **Arguments:**

        - `names`: the axes of the chunks by those that are open.
        """
        assert isinstance(term.op, Opaque)
        call, args = self._continued(term, how, names)
        found = self.states.terms.make(Opaque(call, term.op.result), args)
        return self._added(found, term, how, names)[0] if how.compensated else found

    def after(self, term: Term, how: Running, names: Mapping[Axis, Axis]) -> list[Term]:
        """The state after the current chunk."""
        call, args = self._continued(term, how, names)
        if how.call.control is not None:
            return [self.states.terms.make(Opaque(call, k), args) for k in range(len(how.state))]
        (layout,) = call.out_layouts
        at, shape = int(call.params["axis"]), layout_shape(layout)
        end = 0 if how.reverse else shape[at] - 1
        params = {
            "start_indices": tuple(end if number == at else 0 for number in range(len(shape))),
            "limit_indices": tuple(end + 1 if number == at else n for number, n in enumerate(shape)),
            "strides": None,
        }
        found = self.states.terms.make(Opaque(call, 0), args)
        new = (*layout[:at], None, *layout[at + 1 :])
        last = self.states.call(lax.slice_p, params, [layout], new, [found])
        return list(self._added(last, term, how, names)) if how.compensated else [last]

    def _added(self, sums: Term, term: Term, how: Running, names: Mapping[Axis, Axis]) -> tuple[Term, Term]:
        """The total before the current chunk with sums of its entries, and the excess of that."""
        total, excess = self._state(term, how, names)
        return added(self.states.terms, total, excess, sums)

    def _state(self, term: Term, how: Running, names: Mapping[Axis, Axis]) -> list[Term]:
        """The state before the current chunk."""
        return [
            self.given(key, _renamed(axes, names), dtype)
            for key, (axes, dtype) in zip(state_keys(term, how, self.scope), how.state, strict=True)
        ]

    def _continued(self, term: Term, how: Running, names: Mapping[Axis, Axis]) -> tuple[Call, list[Term]]:
        """The call on the current chunk, from the state on; and its operands."""
        assert isinstance(term.op, Opaque)
        key = term.op.call.id, tuple(arg.number for arg in term.args)
        if key not in self._made:
            self._made[key] = self._made_of(term, how, names)
        return self._made[key]

    def _made_of(self, term: Term, how: Running, names: Mapping[Axis, Axis]) -> tuple[Call, list[Term]]:
        state = self._state(term, how, names)
        part = names[how.axis]
        if isinstance(how.call.control, Scan):
            control = replace(how.call.control, length=part.size)
            call = self.renamed(replace(how.call, control=control), names)
            return call, [
                state[how.carried.index(place)] if place in how.carried else self.value(arg)
                for place, arg in enumerate(term.args)
            ]
        terms = self.states.terms
        entries = self.value(term.args[0])
        call = replace(how.call.renamed(names), id=self.states.calls)
        self.states.calls += 1
        if how.compensated:
            return call, [entries]
        place = part.size - 1 if how.reverse else 0
        counted = [terms.make(Iota(part, "int32")), terms.make(Const(str(place), "int32"))]
        is_first = terms.make(Map("eq", "bool"), counted)
        begun = combined(terms, how, state[0], entries)
        begun = terms.make(Map("select_n", entries.dtype), [is_first, entries, begun])
        return call, [begun]


def _renamed(axes: Sequence[Axis], names: Mapping[Axis, Axis]) -> Layout:
    return tuple(names.get(axis, axis) for axis in axes)
