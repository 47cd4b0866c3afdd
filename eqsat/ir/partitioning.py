"""A program for many devices, each of which has a part of one axis: what one device does, with collectives.

An axis that is split over devices is an axis that is split into chunks, of which each device has one. Every
term with the axis has a part of it on each device; every other term is the same on all devices. So a sum over
the axis is the sum over a part, and then over devices (`psum`); a selection is one among the devices' best;
and what needs the axis whole gathers it first. This is the partitioning of GSPMD (Xu et al., 2021,
arXiv:2105.04663) where dimensions have names: nothing has to be propagated.

If the devices do not divide the axis, all parts have the length of the longest, c, and the last ones begin
before i c, so that they end with the axis: nothing is made up. What two devices have counts for the first of
them; sums leave it out in the second. Inputs and outputs with the axis are then whole on every device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat.ir.axis import Axis, Layout, layout_axes, parts
from eqsat.ir.control import Body, Scan, sliced
from eqsat.ir.device_terms import DeviceTerms, Split
from eqsat.ir.dtypes import is_real_float
from eqsat.ir.ops import Call, Const, Delta, Dot, Iota, Leaf, Map, Opaque, Operation, Reduce, Rename, Select
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Term, Terms

SCATTERS = {"scatter-add": "sum", "scatter-max": "max", "scatter-min": "min"}
"""Scatters whose results on parts of the updates are combined so."""


@dataclass(frozen=True)
class Partition:
    """What one device does.

    **Attributes:**

    - `program`: the program of one device.
    - `inputs`, `outputs`: for each input and output, the dimension of which each device has a part; None if
      each device has all of it.
    - `part`: the axis that each device has of the one that is split.
    """

    program: Program
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    part: Axis


def partitioned(program: Program, axis: Axis, name: Any, count: int) -> Partition:
    """The program of one of `count` devices along the axis `name` of a mesh, each with a part of `axis`.

    Named operations and other equalities of the program are lost.

    **Arguments:**

    - `axis`: it is longer than `count`.
    """
    assert axis.size > count
    numbers = [one.id for inner in program.inside() for one in _all_axes(inner)]
    free = max(numbers, default=0) + 1
    split = Split(
        axis,
        Axis(free, -(-axis.size // count)),
        name,
        count,
        free + 1,
        program.next_call() + 1,
        program.next_call(),
    )
    work = _Partitioner(Terms(), split)
    inputs, places = [], []
    for leaf in program.inputs:
        assert isinstance(leaf.op, Leaf)
        place = split_dimension(leaf.op.layout, axis) if split.divides else None
        places.append(place)
        inputs.append(work.input(leaf, whole=place is None))
    work.run(program)
    outputs = []
    ends = []
    for output in program.outputs:
        place = split_dimension(output.layout, axis) if split.divides else None
        ends.append(place)
        if place is None:
            outputs.append(Output(work.whole(output.term), output.layout))
        else:
            outputs.append(Output(work.local[output.term.number], split.layout(output.layout)))
    found = Program(tuple(inputs), tuple(outputs), work.terms)
    return Partition(found, tuple(places), tuple(ends), split.part)


def split_dimension(layout: Layout, axis: Axis) -> int | None:
    """The dimension that is split into contiguous parts where an axis is; None if there is none."""
    if layout_axes(layout).count(axis) != 1:
        return None
    for number, dimension in enumerate(layout):
        if axis in parts(dimension):
            return number if parts(dimension)[0] == axis else None
    return None


def _all_axes(program: Program) -> Iterable[Axis]:
    for term in program.reachable():
        yield from term.axes
        if isinstance(term.op, Opaque):
            for layout in (*term.op.call.arg_layouts, *term.op.call.out_layouts):
                yield from layout_axes(layout)
    for leaf in program.inputs:
        yield from leaf.axes
    for output in program.outputs:
        yield from layout_axes(output.layout)


class _WholeAxis(Exception):
    """Control flow needs the axis whole."""


class _Partitioner:
    """Builds the terms of one device. With `split` None, it copies.

    **Attributes:**

    - `local`: by the number of a term, what a device has of it: a part if it has the axis.
    """

    def __init__(self, terms: Terms, split: Split | None) -> None:
        self.terms = terms
        self.split = split
        self._devices = None if split is None else DeviceTerms(terms, split)
        self.local: dict[int, Term] = {}
        self._whole: dict[int, Term] = {}
        self._calls: dict[tuple[Call, bool], Call] = {}

    @property
    def devices(self) -> DeviceTerms:
        """What builds the terms in which devices differ; there is none for copies."""
        assert self._devices is not None
        return self._devices

    def has(self, axes: Iterable[Axis]) -> bool:
        return self.split is not None and self.split.axis in frozenset(axes)

    def input(self, leaf: Term, whole: bool = False) -> Term:
        """Enter an input. One that devices have as a `whole` is sliced by each of them."""
        assert isinstance(leaf.op, Leaf)
        op = leaf.op
        if not self.has(leaf.axes):
            made = self.local[leaf.number] = self.terms.make(op)
            return made
        assert self.split is not None
        if not whole:
            made = self.local[leaf.number] = self.terms.make(
                Leaf(op.index, self.split.layout(op.layout), op.dtype)
            )
            return made
        made = self._whole[leaf.number] = self.terms.make(op)
        self.local[leaf.number] = self.devices.part_of(made)
        return made

    def run(self, program: Program) -> None:
        """Enter all terms of a program whose inputs have been entered."""
        for term in program.reachable():
            if term.number not in self.local:
                self.local[term.number] = made = self._made(term)
                if term.number in program.terms.origins:
                    self.terms.origins.setdefault(made.number, program.terms.origins[term.number])

    def whole(self, term: Term) -> Term:
        """The same value with the axis whole, on every device."""
        if not self.has(term.axes):
            return self.local[term.number]
        if term.number not in self._whole:
            assert self.split is not None
            local, split = self.local[term.number], self.split
            rest = tuple(sorted(local.axes - {split.part}))
            self._whole[term.number] = self.devices.put_together(local, rest)
        return self._whole[term.number]

    def _made(self, term: Term) -> Term:
        op, split = term.op, self.split
        args = [self.local[arg.number] for arg in term.args]
        if split is None:
            if isinstance(op, Opaque):
                return self.terms.make(Opaque(self._copied(op.call), op.result), args)
            return self.terms.make(op, args)
        axis, part = split.axis, split.part
        match op:
            case Iota(axis=along) if along == axis:
                return self.devices.counted(op.dtype)
            case Delta(first=first, second=second) if axis in (first, second):
                pair = [
                    self.devices.counted("int32") if one == axis else self.terms.make(Iota(one, "int32"))
                    for one in (first, second)
                ]
                return self.terms.make(Map("eq", "bool"), pair)
            case Reduce(kind=kind, axes=axes) if axis in axes:
                return self.devices.reduced(kind, replace(op, axes=axes - {axis} | {part}), args)
            case Dot(axes=axes) if axis in axes:
                return self.devices.wide_sum(replace(op, axes=axes - {axis} | {part}), args)
            case Select(axis=along) if along == axis:
                return self.devices.selected(op, args[0])
            case Select(out_axis=out) if out == axis:
                return self._on_whole(term, self.terms.make(op, args))
            case Operation(axes=axes) if axis in axes:
                return self._on_whole(term, self.terms.make(op, map(self.whole, term.args)))
            case Rename(old=old) if old == axis:
                return self.terms.make(op, [self.whole(term.args[0])])
            case Rename(new=new) if new == axis:
                return self._on_whole(term, self.terms.make(op, args))
            case Opaque():
                return self._called(term, op, args)
        return self.terms.make(op, args)

    def _on_whole(self, term: Term, made: Term) -> Term:
        """A device's part of a result that every device has computed as a whole."""
        if not self.has(made.axes):
            return made
        self._whole[term.number] = made
        return self.devices.part_of(made)

    def _called(self, term: Term, op: Opaque, args: Sequence[Term]) -> Term:
        split = self.split
        assert split is not None
        call, axis = op.call, split.axis
        mentioned = self.has(
            a for layout in (*call.arg_layouts, *call.out_layouts) for a in layout_axes(layout)
        )
        names = {axis: split.part}
        if call.bodies:
            try:
                return self.terms.make(Opaque(self._control(call), op.result), args)
            except _WholeAxis:
                pass
        elif not mentioned or axis in call.passing:
            return self.terms.make(Opaque(call.renamed(names), op.result), args)
        elif axis in call.accumulates and call.primitive.name in SCATTERS:
            return self._scattered(call, args)
        elif axis in call.sums and split.divides:
            made = self.terms.make(Opaque(call.renamed(names), op.result), args)
            return made if split.part in made.axes else self.devices.merged("sum", made)
        return self._on_whole(
            term, self.terms.make(Opaque(self._copied(call), op.result), map(self.whole, term.args))
        )

    def _scattered(self, call: Call, args: Sequence[Term]) -> Term:
        assert self.split is not None
        kind = SCATTERS[call.primitive.name]
        renamed = call.renamed({self.split.axis: self.split.part})
        if kind != "sum":
            return self.devices.merged(kind, self.terms.make(Opaque(renamed, 0), args))
        zero = self.terms.make(Const("0.0" if is_real_float(args[0].dtype) else "0", args[0].dtype))
        updates = [*args[1:-1], self.devices.counting(args[-1])]
        added = self.devices.merged("sum", self.terms.make(Opaque(renamed, 0), [zero, *updates]))
        return self.terms.make(Map("add", added.dtype), [args[0], added])

    def _control(self, call: Call) -> Call:
        """Control flow on a device's parts.

        **Raises:** `_WholeAxis` if it runs over the axis.
        """
        assert self.split is not None
        key = (call, True)
        if key not in self._calls:
            if isinstance(call.control, Scan):
                stacked = call.out_layouts[len(call.control.carried) :]
                runs = [*(call.arg_layouts[number] for number in sliced(call.control)), *stacked]
                if any(self.has(parts(layout[0])) for layout in runs):
                    raise _WholeAxis
            renamed = call.renamed({self.split.axis: self.split.part})
            bodies = tuple(Body(self._body(body.program), body.sources) for body in call.bodies)
            self._calls[key] = replace(
                renamed, bodies=bodies, sums=renamed.sums - {self.split.part}, accumulates=frozenset()
            )
        return self._calls[key]

    def _body(self, program: Program) -> Program:
        inputs = tuple(self.input(leaf) for leaf in program.inputs)
        self.run(program)
        layout = self.split.layout if self.split else lambda old: old
        outputs = tuple(
            Output(self.local[output.term.number], layout(output.layout)) for output in program.outputs
        )
        return Program(inputs, outputs, self.terms)

    def _copied(self, call: Call) -> Call:
        """A call with its bodies among the new terms."""
        if not call.bodies:
            return call
        key = (call, False)
        if key not in self._calls:
            copier = _Partitioner(self.terms, None)
            bodies = tuple(Body(copier._body(body.program), body.sources) for body in call.bodies)
            self._calls[key] = replace(call, bodies=bodies)
        return self._calls[key]
