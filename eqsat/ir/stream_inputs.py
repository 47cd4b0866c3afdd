"""Inputs that are not in memory, as what a program has of them: slices, flips, joins, entries by indices.

A slice along the longest dimension of an input needs all of it, and so do flips, joins and others that only
move entries. As an input of its own, what they make is read by chunks. Bodies of control flow get such inputs
as further operands.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from eqsat.ir.axis import Axis, Dimension, Layout, layout_shape
from eqsat.ir.axis_names import with_joint_axes
from eqsat.ir.comparing import compared
from eqsat.ir.control import Body, steady
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.moved_arrays import Moved, Whole
from eqsat.ir.moved_computations import Moves, Moving
from eqsat.ir.moved_terms import MovedTerm, MovedTerms, filled, longest_axes, operands_of
from eqsat.ir.moving_calls import arranged, placed, repeats, tiled
from eqsat.ir.ops import Call, Leaf, Opaque
from eqsat.ir.picked_entries import can_be_picked, is_pick, picked, picked_rows, windows_of
from eqsat.ir.program import Program
from eqsat.ir.running_calls import running_call, running_result
from eqsat.ir.substitution import substituted, with_inputs
from eqsat.ir.term import Term, reachable
from eqsat.ir.unused_results import trimmed


@dataclass(frozen=True)
class StreamInputs:
    """A program with further inputs.

    **Attributes:**

    - `read`: by position, the inputs that are read by chunks, as what is moved of others.
    - `tables`: the same for those of which entries are picked by indices.
    """

    program: Program
    read: Mapping[int, Moved]
    tables: Mapping[int, Moved]


def with_stream_inputs(program: Program, streamed: Collection[int], exact: bool = False) -> StreamInputs:
    """The program with all that it needs of inputs that are not in memory as inputs that are read by chunks.

    **Arguments:**

    - `streamed`: the positions of the inputs.
    - `exact`: whether sums are not to be rounded otherwise.
    """
    moved = {program.inputs[position].number for position in streamed}
    axes = {axis for position in streamed for axis in program.inputs[position].axes}
    for term in program.reachable():
        made = [operand.number in moved for operand in operands_of(term) if filled(operand) is None]
        if made and all(made):
            moved.add(term.number)
            axes |= term.axes
    return _Pass(with_joint_axes(program, axes), exact).result(streamed)


@dataclass
class _Inside:
    """A program, or a body in it.

    **Attributes:**

    - `moved`: what is made of inputs that are not in memory by moving entries.
    - `added`: the new inputs, by their position in the whole program.
    - `picked`: the axes of what is picked.
    - `forms`: what moves entries of computed arrays, and as it is computed from moved ones; `form_of`: the
      latter by number of the former.
    """

    program: Program
    moved: MovedTerms
    is_body: bool
    picked: frozenset[Axis] = frozenset()
    added: dict[int, Term] = field(default_factory=dict)
    found: dict[int, Term] = field(default_factory=dict)
    forms: list[tuple[Term, Term]] = field(default_factory=list)
    form_of: dict[int, Term] = field(default_factory=dict)
    runs: dict[tuple[Call, tuple[Term, ...]], Call | None] = field(default_factory=dict)


class _Pass:
    """The pass over a program and the bodies inside.

    **Attributes:**

    - `read`, `tables`: the new inputs of the whole program.
    - `leaf`: a number that no input of a body has; the next ones below are free, too.
    - `call`, `axis`: numbers that no call, and no axis, has; the next ones are free, too.
    """

    def __init__(self, program: Program, exact: bool) -> None:
        self.program = program
        self.exact = exact
        self.leaf = program.next_input()
        self.call = program.next_call()
        axes = [
            axis.id for inner in program.inside(known=True) for term in inner.known() for axis in term.axes
        ]
        self.axis = 1 + max(axes, default=0)
        self.positions: dict[tuple[bool, Moved, Layout, str], int] = {}

    def result(self, streamed: Collection[int]) -> StreamInputs:
        program = self.program
        files = {}
        for position in streamed:
            leaf = program.inputs[position]
            assert isinstance(leaf.op, Leaf)
            layout = leaf.op.layout
            if not repeats(layout):
                files[leaf.number] = MovedTerm(Whole(position, layout_shape(layout)), layout, False)
        inside = _Inside(program, MovedTerms(files), False)
        known = self._substituted(inside)
        changed = self._with_forms(inside, with_inputs(inside.program, program.inputs, known))
        # What only operands of control flow were made for that bodies do not read is not read.
        needed = {term.number for term in changed.known()}
        names: dict[int, Term] = {}
        inputs, kinds = list(program.inputs), (dict[int, Moved](), dict[int, Moved]())
        for (table, moved, layout, dtype), position in self.positions.items():
            old = inside.added.get(position)
            if old is not None and old.number in needed:
                kinds[table][len(inputs)] = moved
                names[old.number] = program.terms.make(Leaf(len(inputs), layout, dtype))
                inputs.append(names[old.number])
        return StreamInputs(with_inputs(changed, tuple(inputs), names), *kinds)

    def _with_forms(self, inside: _Inside, program: Program) -> Program:
        """The program with what moves entries of computed arrays in its other form, too."""
        return replace(program, equalities=(*program.equalities, *inside.forms)) if inside.forms else program

    # Terms

    def _substituted(self, inside: _Inside) -> Mapping[int, Term]:
        """The terms of a program that change, by number."""
        # Another form of what becomes an input, or is picked from one, reads all of what that is of.
        compares = compared(inside.program).between
        others = tuple(
            pair
            for pair in inside.program.equalities
            if not any(self._changes(term, inside) for term in pair)
        )
        program = inside.program = replace(inside.program, equalities=others)
        terms, found = program.terms, inside.found
        roots = [output.term for output in program.outputs]
        roots += [term for pair in program.equalities for term in pair]
        roots += [fact.term for fact in program.facts]
        stack = [(root, False) for root in reversed([*roots, *program.alike])]
        forms: list[tuple[Term, Term]] = []
        instead: dict[int, Term] = {}
        calls: dict[tuple[Call, tuple[int, ...]], tuple[Call, tuple[Term, ...], Mapping[int, int]]] = {}
        while stack:
            term, leaving = stack.pop()
            if term.number in found:
                continue
            of = inside.moved.of(term)
            if of is not None and of.apart:
                found[term.number] = self._input(inside, of, term.dtype, False)
                continue
            table = self._table(term, inside)
            args = term.args[1:] if table is not None else term.args
            if not leaving:
                stack.append((term, True))
                stack.extend((arg, False) for arg in args)
                continue
            new = tuple(found[arg.number] for arg in args)
            op = term.op
            if table is None and (found_form := self._form(term, inside)) is not None:
                form, same_bits = found_form
                if same_bits and term.number in compares:
                    instead[term.number] = form
                else:
                    forms.append((term, form))
                inside.form_of[term.number] = form
                stack.append((form, False))
            if table is not None:
                found[term.number] = self._picked(term, table, new, inside)
            elif isinstance(op, Opaque) and op.call.bodies:
                key = op.call, tuple(arg.number for arg in new)
                if key not in calls:
                    calls[key] = self._control(op.call, term.args, new, inside)
                call, operands, results = calls[key]
                found[term.number] = terms.make(Opaque(call, results[op.result]), operands)
            else:
                found[term.number] = terms.make(op, new) if new != term.args else term
            found[term.number] = self._run(found[term.number], inside)
        if instead:
            known = {found[number].number: found[form.number] for number, form in instead.items()}
            found.update(zip(found, substituted(terms, list(found.values()), known), strict=True))
        inside.forms = [(found[term.number], found[form.number]) for term, form in forms]
        return found

    def _form(self, term: Term, inside: _Inside) -> tuple[Term, bool] | None:
        """What moves entries of a computed array along its longest axis, as computed from moved ones.

        Beside it, whether it is the same bits.
        """
        if not isinstance(term.op, Opaque):
            return None
        call = term.op.call
        if all(longest_axes(layout) <= call.passing for layout in call.arg_layouts):
            return None

        def given(part: Term, moves: Moves) -> Term | None:
            return self._moved_input(part, moves, inside)

        moving = Moving(inside.program.terms, given, inside.form_of)
        made = moving.computed(term)
        return None if made is None else (made, moving.same_bits)

    def _moved_input(self, term: Term, moves: Moves, inside: _Inside) -> Term | None:
        """Some entries of a term, if it is of inputs that are not in memory."""
        of = inside.moved.of(term)
        if of is None:
            return None
        layout = tuple(sorted(term.axes))
        moved = arranged(of.moved, of.layout, layout)
        if moved is None:
            return None
        picks = [axis for axis, move in moves.items() if move.places is None]
        if picks:
            (axis,) = picks
            leaf = self._input(inside, MovedTerm(moved, layout, True), term.dtype, True)
            self.call += 1
            at, move = layout.index(axis), moves[axis]
            terms = inside.program.terms
            self.axis += 1
            rows = picked_rows(terms, (leaf, layout), at, move.index, self.call - 1, self.axis - 1)
            return self._with_windows(rows, leaf, moved, inside)
        new: list[Dimension] = []
        for number, axis in enumerate(sorted(term.axes)):
            if axis not in moves:
                new.append(axis)
                continue
            move = moves[axis]
            assert move.places is not None
            moved = placed(moved, number, move.places, move.outside, term.dtype)
            moved = tiled(moved, number, move.count)
            new += move.axes or (None,)
        return self._input(inside, MovedTerm(moved, tuple(new), True), term.dtype, False)

    def _run(self, term: Term, inside: _Inside) -> Term:
        """A term that goes through an axis of an input entry by entry, as a running call."""
        if not isinstance(term.op, Opaque):
            return term
        call, key = term.op.call, (term.op.call, term.args)
        if key not in inside.runs:
            axes = frozenset[Axis]().union(*(of.layout_axes for of in inside.moved.inputs.values()))
            axes = axes.union(inside.picked, *(leaf.axes for leaf in inside.added.values()))
            made = running_call(call, term.args, axes, self.exact, self.call)
            self.call += 2 if made is not None else 0
            inside.runs[key] = made
        made = inside.runs[key]
        return term if made is None else running_result(inside.program.terms, made, term.args, term.op.result)

    def _changes(self, term: Term, inside: _Inside) -> bool:
        of = inside.moved.of(term)
        return (of is not None and of.apart) or self._table(term, inside) is not None

    def _table(self, term: Term, inside: _Inside) -> Moved | None:
        """What a term takes entries of by indices, if that is not in memory."""
        if not isinstance(term.op, Opaque) or not can_be_picked(term.op.call):
            return None
        call, of = term.op.call, inside.moved.of(term.args[0])
        if of is None or longest_axes(of.layout) <= call.passing:
            return None
        layouts = (call.arg_layouts[0], *call.out_layouts)
        return None if any(map(repeats, layouts)) else arranged(of.moved, of.layout, layouts[0])

    def _picked(self, term: Term, table: Moved, rest: tuple[Term, ...], inside: _Inside) -> Term:
        assert isinstance(term.op, Opaque)
        layout = term.op.call.arg_layouts[0]
        leaf = self._input(inside, MovedTerm(table, layout, True), term.dtype, True)
        found = picked(inside.program.terms, term, leaf, rest, self.call, self.axis)
        self.call += 2
        self.axis += 1
        found = self._with_windows(found, leaf, table, inside)
        inside.picked |= found.axes
        return found

    def _with_windows(self, found: Term, leaf: Term, table: Moved, inside: _Inside) -> Term:
        """A term that picks entries of a table by indices: where these are affine, it reads windows."""
        known: dict[int, Term] = {}
        for term in reachable([found]):
            if is_pick(term) and term.args[0] is leaf and (windows := windows_of(term, table)) is not None:
                known[term.number] = self._input(inside, MovedTerm(*windows, True), term.dtype, False)
        return substituted(inside.program.terms, [found], known)[0] if known else found

    def _input(self, inside: _Inside, of: MovedTerm, dtype: str, table: bool) -> Term:
        """The new input of a program that is read as this."""
        key = table, of.moved, of.layout, dtype
        position = self.positions.setdefault(key, len(self.program.inputs) + len(self.positions))
        if position not in inside.added:
            index = position
            if inside.is_body:
                index = self.leaf
                self.leaf -= 1
            leaf = inside.added[position] = inside.program.terms.make(Leaf(index, of.layout, dtype))
            if not table:
                inside.moved.add(leaf, replace(of, apart=True))
        return inside.added[position]

    # Control flow

    def _control(
        self, call: Call, args: tuple[Term, ...], new: tuple[Term, ...], outside: _Inside
    ) -> tuple[Call, tuple[Term, ...], Mapping[int, int]]:
        """Control flow with what its bodies read as further operands; its operands; its results by number."""
        assert call.control is not None
        still = steady(call.control, len(args))
        insides = []
        for body in call.bodies:
            files = {}
            for leaf, source in zip(body.program.inputs, body.sources, strict=True):
                of = outside.moved.of(args[source]) if source in still else None
                moved = arranged(of.moved, of.layout, call.arg_layouts[source]) if of is not None else None
                if moved is not None:
                    assert isinstance(leaf.op, Leaf)
                    files[leaf.number] = MovedTerm(moved, leaf.op.layout, False)
            insides.append(_Inside(body.program, MovedTerms(files), True))
        known = [self._substituted(inside) for inside in insides]
        same = {number: number for number in range(len(call.out_layouts))}
        if all(term.number == number for each in known for number, term in each.items()):
            return call, new, same
        keys = list(self.positions)
        positions = sorted({position for inside in insides for position in inside.added})
        places = {position: place for place, position in enumerate(positions, len(args))}
        bodies = []
        for body, inside, changed in zip(call.bodies, insides, known, strict=True):
            inputs = (*body.program.inputs, *inside.added.values())
            program = self._with_forms(inside, with_inputs(inside.program, inputs, changed))
            bodies.append(Body(program, (*body.sources, *(places[position] for position in inside.added))))
        operands, layouts = list(new), list(call.arg_layouts)
        for position in positions:
            table, moved, layout, dtype = keys[position - len(self.program.inputs)]
            operands.append(self._input(outside, MovedTerm(moved, layout, True), dtype, table))
            layouts.append(layout)
        made = with_bodies(replace(call, id=self.call, arg_layouts=tuple(layouts)), bodies, operands)
        self.call += 1
        fewer = trimmed(made, operands, set(same))
        if fewer is None:
            return made, tuple(operands), same
        made, results, left = fewer
        return made, tuple(operands[place] for place in left), results
