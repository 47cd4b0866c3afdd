"""Segments: stretches of a program between loops that run in Python, each as a program of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from jax import lax

from eqsat.ir.axis import Axis, Layout, as_dimension, parts
from eqsat.ir.axis_names import with_names
from eqsat.ir.control import Body
from eqsat.ir.ops import (
    Call,
    Chunk,
    Const,
    Delta,
    Iota,
    Leaf,
    Map,
    Opaque,
)
from eqsat.ir.program import Output, Program
from eqsat.ir.running_calls import plain_op, running
from eqsat.ir.streams import UnsupportedError, is_read
from eqsat.ir.term import Term, Terms
from eqsat.streaming.keys import Key
from eqsat.streaming.running_terms import RunningTerms, state_keys
from eqsat.streaming.states import StateTerms, state_parts


@dataclass(frozen=True)
class Known:
    """An array that segments can read: its name, and its dimensions in the axes of the whole program."""

    key: Key
    layout: Layout
    dtype: str
    open: frozenset[Axis] = frozenset()


@dataclass(frozen=True)
class Scope:
    """What segments can read at a place of the program.

    **Attributes:**

    - `known`: by the number of a term, the array that holds it.
    - `opened`: the axes of the loops around, outermost first.
    - `free`, `calls`: the first numbers that no axis, and no call, of the program has.
    - `id`: 0 for the program, and another number for each body of control flow.
    """

    known: Mapping[int, Known]
    opened: tuple[Axis, ...]
    free: int
    calls: int
    id: int = 0

    def within(self, axis: Axis) -> Scope:
        """The scope of the body of a loop. What varies with an outer loop over the same axis is not seen."""
        known = {number: each for number, each in self.known.items() if axis not in each.open}
        opened = (*(one for one in self.opened if one != axis), axis)
        return replace(self, known=known, opened=opened)

    def part(self, axis: Axis, length: int) -> Axis:
        """The axis of a segment's program in the place of one that is open."""
        return Axis(self.free + self.opened.index(axis), length)

    def opened_in(self, leaf: Term) -> frozenset[Axis]:
        """The axes of which an input of control flow inside of loops is the current chunk."""
        return leaf.axes & frozenset(self.opened)

    def with_known(self, more: Iterable[tuple[int, Known]]) -> Scope:
        return replace(self, known={**self.known, **dict(more)})


@dataclass(frozen=True)
class Value:
    """A root of a segment: a term that is computed, with the order of its dimensions."""

    key: Key
    term: Term
    layout: Layout


@dataclass(frozen=True)
class Update:
    """A root of a segment: the state of a fold after a chunk of `axis`."""

    result: Term
    axis: Axis


@dataclass(frozen=True)
class Placement:
    """A root of a segment: a result of which a chunk of `axis` has been written."""

    result: Term
    axis: Axis


@dataclass(frozen=True)
class Finish:
    """A root of a segment: what a fold ends with."""

    key: Key
    result: Term


@dataclass(frozen=True)
class Advance:
    """A root of a segment: the state of a running call after a chunk of its axis."""

    term: Term


Root = Value | Update | Placement | Finish | Advance


@dataclass(frozen=True)
class Piece:
    """A segment at certain chunk lengths: a program, and the names of its inputs and outputs."""

    program: Program
    reads: tuple[Key, ...]
    writes: tuple[Key, ...]


@dataclass(frozen=True, eq=False)
class Segment:
    """A stretch of a program that is compiled as one, for each length of the chunks around it."""

    roots: tuple[Root, ...]
    scope: Scope

    def piece(self, lengths: Mapping[Axis, int], first: bool = False) -> Piece:
        """The program.

        **Arguments:**

        - `lengths`: of the chunks of the axes that are open.
        - `first`: whether it works on the first chunk of the loop around it.
        """
        return _SegmentTerms(self.scope, lengths, first).piece(self.roots)

    @cached_property
    def reads(self) -> tuple[Key, ...]:
        """All that it may read."""
        return self.piece({axis: axis.size for axis in self.scope.opened}).reads

    @cached_property
    def writes(self) -> tuple[Key, ...]:
        """All that it computes."""
        return self.piece({axis: axis.size for axis in self.scope.opened}).writes


@dataclass
class _SegmentTerms:
    """Builds the terms of one segment."""

    scope: Scope
    lengths: Mapping[Axis, int]
    first: bool
    terms: Terms = field(default_factory=Terms)
    inputs: dict[Key, Term] = field(default_factory=dict)

    def __post_init__(self) -> None:
        opened = self.scope.opened
        self.parts = {axis: self.scope.part(axis, self.lengths[axis]) for axis in opened}
        self.states = StateTerms(self.terms, self.scope.free + len(opened), self.scope.calls)
        self.running = RunningTerms(self.states, self.scope.id, self._input, self._renamed_call, self.value)
        self.made: dict[int, Term] = {}
        self.calls: dict[tuple[Call, frozenset[Axis]], Call] = {}

    def piece(self, roots: Sequence[Root]) -> Piece:
        outputs: list[Output] = []
        writes: list[Key] = []
        for root in roots:
            for key, output in self._outputs(root):
                writes.append(key)
                outputs.append(output)
        program = Program(tuple(self.inputs.values()), tuple(outputs), self.terms)
        return Piece(program, tuple(self.inputs), tuple(writes))

    def _outputs(self, root: Root) -> list[tuple[Key, Output]]:
        match root:
            case Value(key, term, layout):
                return [(key, Output(self.value(term), self._layout(layout, term.open)))]
            case Finish(key, result):
                term = self.states.finished(result, self._state(result), self._names(result))
                return [(key, Output(term, self._layout(tuple(sorted(result.axes)), result.open)))]
            case Update(result, axis):
                earlier = [] if self.first and _starts_with_a_chunk(result) else self._state(result)
                taken = result.args[1:] if state_parts(result)[0].given else result.args
                later = [self.value(body) for body in taken]
                part = self.parts[axis]
                names = {one: self.parts[one] for one in self.parts if one in result.open | {axis}}
                new = self.states.merged(result, earlier, later, part, partial(self._start, axis), names)
                keys = [Key("state", result.number, number, self.scope.id) for number in range(len(new))]
                layouts = [self._part_layout(result, number) for number in range(len(new))]
                return [
                    (key, Output(term, layout)) for key, term, layout in zip(keys, new, layouts, strict=True)
                ]
            case Advance(term):
                how = running(term)
                assert how is not None
                states = self.running.after(term, how, self._names(term))
                layouts = [self._layout(axes, term.open) for axes, _ in how.state]
                keys = state_keys(term, how, self.scope.id)
                outputs = (Output(state, layout) for state, layout in zip(states, layouts, strict=True))
                return list(zip(keys, outputs, strict=True))
            case Placement(result, axis):
                key = Key("state", result.number, 0, self.scope.id)
                layout = self._layout(tuple(sorted(result.axes)), result.open)
                held = self._input(key, layout, result.dtype)
                value = self.value(result.args[0])
                mine = tuple(self.parts[axis] if one == axis else one for one in layout)
                zero = self.terms.make(Const("0", "int32"))
                starts = [self._start(axis) if one == axis else zero for one in layout]
                layouts = [layout, mine, *((),) * len(layout)]
                written = self.states.call(
                    lax.dynamic_update_slice_p, {}, layouts, layout, [held, value, *starts]
                )
                return [(key, Output(written, layout))]

    # Inputs

    def _input(self, key: Key, layout: Layout, dtype: str) -> Term:
        if key not in self.inputs:
            self.inputs[key] = self.terms.make(Leaf(len(self.inputs), layout, dtype))
        return self.inputs[key]

    def _start(self, axis: Axis) -> Term:
        return self._input(Key("start", axis.id), (), "int32")

    def _state(self, result: Term) -> list[Term]:
        return [
            self._input(
                Key("state", result.number, number, self.scope.id),
                self._part_layout(result, number),
                part.dtype,
            )
            for number, part in enumerate(state_parts(result))
        ]

    def _part_layout(self, result: Term, number: int) -> Layout:
        return self._layout(state_parts(result)[number].axes, result.open)

    def _layout(self, layout: Layout, opened: frozenset[Axis]) -> Layout:
        """A layout with the chunks of axes that are open in their place."""
        return tuple(
            as_dimension(self.parts[axis] if axis in opened else axis for axis in parts(dimension))
            for dimension in layout
        )

    # Terms

    def value(self, root: Term) -> Term:
        """The term of the segment for one of the program."""
        stack = [(root, False)]
        while stack:
            term, leaving = stack.pop()
            if term.number in self.made:
                continue
            known = self.scope.known.get(term.number)
            if known is not None:
                layout = self._layout(known.layout, known.open)
                self.made[term.number] = self._input(known.key, layout, known.dtype)
            elif leaving or not term.args:
                self.made[term.number] = self._made(term)
            else:
                stack.append((term, True))
                stack.extend((arg, False) for arg in _needed(term))
        return self.made[root.number]

    def _made(self, term: Term) -> Term:
        op = term.op
        assert not is_read(term), "what is read is known where its loop begins"
        if isinstance(op, Chunk):
            return self._chunk(op.axis, term.args[0], term)
        how = running(term)
        if how is not None and how.axis in term.open:
            return self.running.result(term, how, self._names(term))
        op = plain_op(term)
        args = [self.made[arg.number] for arg in term.args]
        names = self._names(term)
        if isinstance(op, Opaque) and op.call.bodies:
            return self.terms.make(Opaque(self._renamed_call(op.call, names), op.result), args)
        return self.terms.make(with_names(op, names), args)

    def _names(self, term: Term) -> dict[Axis, Axis]:
        """The axes of the chunks by those that are open."""
        return {axis: part for axis, part in self.parts.items() if axis in term.open}

    def _chunk(self, axis: Axis, operand: Term, term: Term) -> Term:
        part = self.parts[axis]
        if isinstance(operand.op, Iota):
            return self._indices(axis, operand.dtype)
        if isinstance(operand.op, Delta):
            other = operand.op.second if axis == operand.op.first else operand.op.first
            indices = [self._indices(axis, "int32"), self.terms.make(Iota(other, "int32"))]
            return self.terms.make(Map("eq", "bool"), indices)
        whole = self.made[operand.number]
        if part in whole.axes:
            return whole  # An input of control flow inside of the loop is the chunk itself.
        rest = tuple(sorted(whole.axes - {axis}))
        zero = self.terms.make(Const("0", "int32"))
        starts = [self._start(axis), *[zero] * len(rest)]
        params = {"slice_sizes": (part.size, *(one.size for one in rest))}
        layouts = [(axis, *rest), *((),) * len(starts)]
        return self.states.call(lax.dynamic_slice_p, params, layouts, (part, *rest), [whole, *starts])

    def _indices(self, axis: Axis, dtype: str) -> Term:
        start = self._start(axis)
        if dtype != "int32":
            start = self.terms.make(Map("convert", dtype), [start])
        counted = self.terms.make(Iota(self.parts[axis], dtype))
        return self.terms.make(Map("add", dtype), [counted, start])

    def _renamed_call(self, call: Call, names: Mapping[Axis, Axis]) -> Call:
        key = (call, frozenset(names))
        if key not in self.calls:
            bodies = tuple(Body(self._body(body.program, names), body.sources) for body in call.bodies)
            made = replace(call.renamed(names), bodies=bodies, id=self.states.calls)
            self.states.calls += 1
            self.calls[key] = made
        return self.calls[key]

    def _body(self, program: Program, names: Mapping[Axis, Axis]) -> Program:
        """A body on the chunks of the axes that are open around its call."""
        found: dict[int, Term] = {}

        def layout(old: Layout) -> Layout:
            return tuple(as_dimension(names.get(axis, axis) for axis in parts(each)) for each in old)

        for leaf in program.inputs:
            assert isinstance(leaf.op, Leaf)
            found[leaf.number] = self.terms.make(replace(leaf.op, layout=layout(leaf.op.layout)))
        for term in program.reachable():
            if term.number in found:
                continue
            args = [found[arg.number] for arg in term.args]
            op = plain_op(term)
            if is_read(term):
                found[term.number] = args[0]  # A step has read what the call is given.
            elif isinstance(term.op, Chunk) and term.op.axis in names:
                operand = term.args[0]
                if isinstance(operand.op, (Iota, Delta)):
                    raise UnsupportedError("indices of a chunk inside of control flow")
                found[term.number] = args[0]
            elif isinstance(op, (Iota, Delta)):
                found[term.number] = self.terms.make(op)  # of which chunks are refused above
            elif isinstance(op, Opaque) and op.call.bodies:
                inner = self._renamed_call(op.call, names)
                found[term.number] = self.terms.make(Opaque(inner, op.result), args)
            else:
                found[term.number] = self.terms.make(with_names(op, names), args)
        inputs = tuple(found[leaf.number] for leaf in program.inputs)
        outputs = tuple(
            Output(found[output.term.number], layout(output.layout)) for output in program.outputs
        )
        return Program(inputs, outputs, self.terms)


def _starts_with_a_chunk(result: Term) -> bool:
    part = state_parts(result)[0]
    return part.initial is None and not part.given


def _needed(term: Term) -> list[Term]:
    """The operands that a segment needs for a term."""
    if isinstance(term.op, Chunk) and isinstance(term.args[0].op, (Iota, Delta)):
        return []
    how = running(term)
    carried = how.carried if how is not None and how.axis in term.open else ()
    return [arg for place, arg in enumerate(term.args) if place not in carried]
