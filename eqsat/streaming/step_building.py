"""From a program whose loops read its inputs by chunks to the steps that run it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from eqsat.ir.axis import Axis
from eqsat.ir.control import steady
from eqsat.ir.ops import Chunk, Concat, Const, Delta, Fold, Iota, Leaf, Opaque, Rename
from eqsat.ir.picked_entries import is_pick
from eqsat.ir.program import Program
from eqsat.ir.running_calls import starts_of
from eqsat.ir.streams import UnsupportedError, is_read
from eqsat.ir.term import Term
from eqsat.planning.blocks import Block, Compute, Loop, combination
from eqsat.streaming.block_uses import (
    RunningStep,
    all_axes,
    running_in,
    runs_in_python,
    used_inside,
    used_whole,
)
from eqsat.streaming.keys import Key
from eqsat.streaming.needed_steps import Group, known_load, known_value, needed_steps
from eqsat.streaming.places import can_be_sliced
from eqsat.streaming.reading_steps import ReadingSteps
from eqsat.streaming.running_terms import state_keys
from eqsat.streaming.segments import Advance, Finish, Known, Placement, Root, Scope, Update, Value
from eqsat.streaming.states import Part, state_parts
from eqsat.streaming.steps import (
    ControlFlow,
    Entry,
    Kept,
    Load,
    Pass,
    Result,
    State,
    Step,
    Streaming,
    Written,
    needs,
)

FREE = (Const, Iota, Delta, Rename, Chunk, Leaf)
"""Ops that segments compute wherever they need them."""


def streaming(
    program: Program,
    block: Block,
    streamed: Mapping[int, float],
    axes: frozenset[Axis],
    spill: float = math.inf,
) -> Streaming:
    """The steps of a program.

    **Arguments:**

    - `program`: it has reads (`eqsat.ir.streams`), and `block` is all of it.
    - `streamed`: the positions of the inputs that are read, each with how much is read of it, as a share of
      its size.
    - `axes`: those along which they are read by chunks. Results that have one are kept outside the device's
      memory.
    - `spill`: a value of more bytes that several passes need is kept outside, too.

    **Raises:** `UnsupportedError` if a loop can't run in Python.
    """
    return _Builder(program, streamed, axes, spill).whole(block)


class _Builder:
    def __init__(
        self, program: Program, streamed: Mapping[int, float], axes: frozenset[Axis], spill: float
    ) -> None:
        self.program = program
        self.axes = axes
        self.kept: dict[int, Kept] = {}
        self.results: list[Result] = []
        self.reads = ReadingSteps({position: position for position in streamed}, self.kept, streamed)
        self.scopes = 0
        whole = {
            arg.number for term in program.reachable() if not isinstance(term.op, Chunk) for arg in term.args
        }
        self.whole_uses: frozenset[int] = frozenset()
        for number, output in enumerate(program.outputs):
            term = output.term
            opened = term.axes & axes
            if isinstance(term.op, Concat) and opened and can_be_sliced(output.layout, opened):
                self.kept[term.number] = Kept(term.number, tuple(sorted(term.axes)), term.dtype)
                self.results.append(Result("kept", term.number, output.layout))
            else:
                self.results.append(Result("device", number, output.layout))
        for term in program.reachable():
            outside = isinstance(term.op, Concat) and not term.open and term.axes & axes
            if outside and term.bytes > spill and term.number not in whole:
                self.kept.setdefault(term.number, Kept(term.number, tuple(sorted(term.axes)), term.dtype))

    def whole(self, block: Block) -> Streaming:
        known: dict[int, Known] = {}
        for term in self.program.inputs:
            assert isinstance(term.op, Leaf)
            if term.op.index not in self.reads.sources:
                known[term.number] = Known(Key("argument", term.op.index), term.op.layout, term.dtype)
        axes = {axis for inner in self.program.inside() for axis in all_axes(inner)}
        free = 1 + max((axis.id for axis in axes), default=0)
        scope = Scope(known, (), free, self.program.next_call())
        last = [
            Value(Key("result", number), output.term, output.layout)
            for number, (output, result) in enumerate(zip(self.program.outputs, self.results, strict=True))
            if result.kind == "device"
        ]
        self.whole_uses = frozenset(used_whole(block))
        steps, _ = self.block(block, scope, last, {})
        kept = tuple(self.kept.values())
        return Streaming(self.program, tuple(steps), kept, tuple(self.results), self.axes)

    def block(
        self,
        block: Block,
        scope: Scope,
        last: Sequence[Root],
        outside: Mapping[int, int],
        wanted: frozenset[Key] = frozenset(),
    ) -> tuple[list[Step], Scope]:
        """The steps of a block, and what is known after it.

        **Arguments:**

        - `last`: what is computed in the end.
        - `outside`: by number, terms whose values go to a kept result, with the number of that.
        - `wanted`: other values that are needed after the block.
        """
        groups: list[tuple[Scope, Group]] = []
        here: list[Term] = []

        def flush() -> None:
            nonlocal scope
            if here:
                groups.append((scope, list(here)))
                scope = scope.with_known((term.number, known_value(term, scope)) for term in here)
                here.clear()

        def add(step: Step, known: Iterable[tuple[int, Known]]) -> None:
            nonlocal scope
            groups.append((scope, step))
            scope = scope.with_known(known)

        for step in block.steps:
            if isinstance(step, Loop):
                flush()
                starts, passes, ends, after = self._pass(step, scope, outside)
                groups.append((scope, starts))
                for one in passes:
                    add(one, ())
                groups.append((scope, ends))
                scope = scope.with_known(after)
            elif is_read(step.term):
                flush()
                load = self.reads.load(step.term, scope)
                add(load, [(step.term.number, known_load(load))])
            elif (load_back := self.reads.of_kept(step.term, scope)) is not None:
                flush()
                add(load_back, [(step.term.number, known_load(load_back))])
            elif is_pick(step.term):
                flush()
                indices, picking = self.reads.picking(step.term, scope)
                groups.append((scope, indices))
                add(picking, [(step.term.number, known_load(picking))])
            elif any(map(runs_in_python, step.bodies)):
                if step.term.number not in scope.known:
                    flush()
                    first, flow, found = self._control(step, block, scope)
                    groups.append((scope, first))
                    add(flow, found)
            elif not isinstance(step.term.op, FREE):
                for arg in step.term.args if step.bodies else ():
                    whole = self.reads.operand(arg, scope)
                    if whole is not None and arg.number not in scope.known:
                        flush()
                        add(whole, [(arg.number, known_load(whole))])
                here.append(step.term)
        return needed_steps(groups, here, scope, last, wanted), scope

    # Loops over chunks

    def _pass(
        self, loop: Loop, scope: Scope, outside: Mapping[int, int]
    ) -> tuple[list[Root], list[Pass], list[Root], list[tuple[int, Known]]]:
        """A loop: what its folds start from, its passes, what they end with, and what is known after it."""
        inner = scope.within(loop.axis)
        states: list[State] = []
        last: list[Root] = []
        starts: list[Root] = []
        ends: list[Root] = []
        known: list[tuple[int, Known]] = []
        written: list[Written] = []
        targets: dict[int, int] = {}
        used = used_inside(loop.body)
        for result in loop.results:
            if isinstance(result.op, Fold):
                last.append(Update(result, loop.axis))
                for number, part in enumerate(state_parts(result)):
                    key = Key("state", result.number, number, scope.id)
                    states.append(State(key, part, result.open))
                    if part.given:
                        starts.append(Value(key, result.args[0], part.axes))
                end = known_value(result, scope)
                ends.append(Finish(end.key, result))
                known.append((result.number, end))
                continue
            (body,) = result.args
            target = result.number if result.number in self.kept else outside.get(result.number)
            if target is None or result.number in self.whole_uses & self.kept.keys():
                part = Part(tuple(sorted(result.axes)), result.dtype, "0")
                key = Key("state", result.number, 0, scope.id)
                states.append(State(key, part, result.open))
                last.append(Placement(result, loop.axis))
                known.append((result.number, Known(key, part.axes, result.dtype, result.open)))
            if target is None:
                continue
            if isinstance(body.op, Concat) and body.number not in used:
                targets[body.number] = target
            else:
                value = known_value(body, inner)
                written.append(Written(value.key, target, value.layout, body.open))
        running, turn = running_in(loop)
        passes: list[Pass] = []
        restored: tuple[State, ...] = ()
        for number in range(turn):
            if own := [one for one in running if one.turn == number]:
                before = self._saving(loop, inner, own, restored, starts)
                passes.append(before)
                restored += before.saved
        for each in running:
            if each.turn == turn:
                starts += self._begun(each, scope, states)
                last.append(Advance(each.term))
        wanted = frozenset(one.key for one in written)
        steps, after = self.block(loop.body, inner, last, targets, wanted)
        loads = [step for step in steps if isinstance(step, Load)]
        others = [step for step in steps if not isinstance(step, Load)]
        # What is written may be what is read, or what an inner loop has put together.
        arrays = after.known
        written = [
            replace(one, key=arrays[n].key, layout=arrays[n].layout)
            if (n := one.key.number) in arrays
            else one
            for one in written
        ]
        one = Pass(
            loop.id,
            loop.axis,
            loop.shortest,
            tuple(combination(result) for result in loop.results),
            tuple(loads),
            tuple(others),
            tuple(states),
            tuple(written),
            turn % 2 == 1,
            restored=restored,
        )
        return starts, [*passes, one], ends, known

    def _saving(
        self,
        loop: Loop,
        inner: Scope,
        running: Sequence[RunningStep],
        restored: tuple[State, ...],
        starts: list[Root],
    ) -> Pass:
        """A pass that carries states, and saves those before each chunk for a pass in the other order."""
        states: list[State] = []
        for each in running:
            starts += self._begun(each, inner, states)
        steps, _ = self.block(loop.body, inner, [Advance(each.term) for each in running], {})
        read = needs([step for step in steps if not isinstance(step, Load)], set())
        return Pass(
            loop.id,
            loop.axis,
            loop.shortest,
            ("states",),
            tuple(step for step in steps if isinstance(step, Load) and step.key in read),
            tuple(step for step in steps if not isinstance(step, Load)),
            tuple(states),
            (),
            running[0].how.reverse,
            tuple(states),
            restored,
        )

    def _begun(self, running: RunningStep, scope: Scope, states: list[State]) -> Iterator[Root]:
        """What the state of a running call starts as; it is among what the pass carries."""
        term, how = running.term, running.how
        keys = state_keys(term, how, scope.id)
        if how.call.control is None:
            starts = list(map(self.program.terms.make, starts_of(how)))
        else:
            starts = [term.args[place] for place in how.carried]
        for key, (axes, dtype), start in zip(keys, how.state, starts, strict=True):
            opened = term.open & set(axes)
            if start.open != opened:
                raise UnsupportedError("a cumulative sum, or a scan, of chunks of a chunk")
            states.append(State(key, Part(axes, dtype, None, given=True), opened))
            yield Value(key, start, axes)

    # Control flow

    def _control(
        self, step: Compute, block: Block, scope: Scope
    ) -> tuple[list[Root], ControlFlow, list[tuple[int, Known]]]:
        """Control flow: its operands, the step, and what is known after it."""
        op = step.term.op
        assert isinstance(op, Opaque)
        call, control = op.call, op.call.control
        assert control is not None
        self.scopes += 1
        number = self.scopes
        operands: list[Key | None] = []
        roots: list[Root] = []
        for position, (arg, layout) in enumerate(zip(step.term.args, call.arg_layouts, strict=True)):
            known = scope.known.get(arg.number)
            if self.reads.source(arg) is not None:
                if position not in steady(control, len(step.term.args)):
                    raise UnsupportedError("a loop that carries or goes over what is read by chunks")
                operands.append(None)
            elif known is not None and known.layout == layout:
                operands.append(known.key)
            else:
                operands.append(Key("operand", number, position))
                roots.append(Value(Key("operand", number, position), arg, layout))
        entries, bodies, outputs = [], [], []
        for place, (body, inside) in enumerate(zip(call.bodies, step.bodies, strict=True)):
            self.scopes += 1
            own: dict[int, Known] = {}
            taken = []
            for leaf, position in zip(body.program.inputs, body.sources, strict=True):
                assert isinstance(leaf.op, Leaf)
                source = self.reads.source(step.term.args[position])
                if source is not None:
                    self.reads.sources[leaf.op.index] = source
                    continue
                key = Key("value", leaf.number, 0, self.scopes)
                own[leaf.number] = Known(key, leaf.op.layout, leaf.dtype, scope.opened_in(leaf))
                taken.append(Entry(key, position))
            keys = [Key("output", number, 1000 * place + each) for each in range(len(body.program.outputs))]
            last = [
                Value(key, output.term, output.layout)
                for key, output in zip(keys, body.program.outputs, strict=True)
            ]
            steps, _ = self.block(inside, replace(scope, known=own, id=self.scopes), last, {})
            entries.append(tuple(taken))
            bodies.append(tuple(steps))
            outputs.append(tuple(keys))
        results = tuple(Key("flow", number, each) for each in range(len(call.out_layouts)))
        found = []
        for other in block.steps:
            if isinstance(other, Compute) and isinstance(other.term.op, Opaque):
                same = other.term.op.call == call and other.term.args == step.term.args
                if same:
                    each = other.term.op.result
                    dtype = call.out_dtypes[each]
                    known = Known(results[each], call.out_layouts[each], dtype, other.term.open)
                    found.append((other.term.number, known))
        every = tuple(operands), tuple(entries), tuple(bodies), tuple(outputs), results
        return roots, ControlFlow(number, control, *every, tuple(known for _, known in found)), found
