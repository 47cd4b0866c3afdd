"""A program for many devices, each of which has a part of one axis: what one device does, with collectives.

An axis that is split over devices is an axis that is split into chunks, of which each device has one. Every
term with the axis has a part of it on each device; every other term is the same on all devices. So a sum over
the axis is the sum over a part, and then over devices (`psum`); a selection is one among the devices' best;
and what needs the axis whole gathers it first. This is the partitioning of GSPMD (Xu et al., 2021,
arXiv:2105.04663) where dimensions have names: nothing has to be propagated.

If the devices do not divide the axis, all parts have the length of the longest, c, and the last ones begin
before i c, so that they end with the axis: nothing is made up. What two devices have counts for the first of
them; sums leave it out in the second. Inputs and outputs with the axis are then whole on every device.

Several axes can be split over the same devices if no value has two of them, but in folds over one of these:
such a fold is a ring (`eqsat/ir/ring.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat.ir.axis import Axis, Layout, layout_axes, parts
from eqsat.ir.control import Body, Scan, sliced
from eqsat.ir.device_terms import DeviceTerms, Numbers, Split, renamed
from eqsat.ir.dtypes import is_real_float
from eqsat.ir.ops import (
    Call,
    Const,
    Delta,
    Dot,
    Fold,
    Iota,
    Leaf,
    Map,
    Opaque,
    Operation,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.program import Output, Program
from eqsat.ir.ring import AxesMeetError, Ring, in_rounds
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
    - `parts`: the axes that are split, each with the part that a device has of it.
    - `passed`: the axes whose parts are passed round in rings, each with the bytes that a device has of what
      is passed.
    """

    program: Program
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    parts: tuple[tuple[Axis, Axis], ...]
    passed: tuple[tuple[Axis, int], ...] = ()


def partitioned(program: Program, axes: Sequence[Axis], name: Any, count: int) -> Partition:
    """The program of one of `count` devices along the axis `name` of a mesh, each with a part of `axes`.

    Named operations and other equalities of the program are lost.

    **Arguments:**

    - `axes`: they are longer than `count`. If there are several, `count` divides them.

    **Raises:** `AxesMeetError` if a value has two of the axes, and is not in a fold over one of them.
    """
    assert all(axis.size > count and (len(axes) == 1 or axis.size % count == 0) for axis in axes)
    numbers = Numbers.after(program)
    splits = [Split(axis, numbers.axis(-(-axis.size // count)), name, count, numbers) for axis in axes]
    work = _Partitioner(Terms(), splits)
    inputs, places = [], []
    for leaf in program.inputs:
        assert isinstance(leaf.op, Leaf)
        place = work.place(leaf.op.layout)
        places.append(place)
        inputs.append(work.input(leaf, whole=place is None))
    work.run(program)
    outputs = []
    ends = []
    for output in program.outputs:
        place = work.place(output.layout)
        ends.append(place)
        if place is None:
            outputs.append(Output(work.whole(output.term), output.layout))
        else:
            outputs.append(Output(work.local[output.term.number], work.layout(output.layout)))
    found = Program(tuple(inputs), tuple(outputs), work.terms)
    own = tuple((split.axis, split.part) for split in splits)
    return Partition(found, tuple(places), tuple(ends), own, tuple(work.passed))


def split_dimension(layout: Layout, axis: Axis) -> int | None:
    """The dimension that is split into contiguous parts where an axis is; None if there is none."""
    if layout_axes(layout).count(axis) != 1:
        return None
    for number, dimension in enumerate(layout):
        if axis in parts(dimension):
            return number if parts(dimension)[0] == axis else None
    return None


class _WholeAxis(Exception):
    """Control flow needs the axis whole."""


class _Partitioner:
    """Builds the terms of one device. Without axes that are split, it copies.

    **Attributes:**

    - `along`: by axis that is split, what builds the terms in which devices differ.
    - `local`: by the number of a term, what a device has of it: a part if it has such an axis.
    - `passed`: the axes whose parts are passed round, with the bytes that a device has of them.
    """

    def __init__(self, terms: Terms, splits: Sequence[Split]) -> None:
        self.terms = terms
        self.along = {split.axis: DeviceTerms(terms, split) for split in splits}
        self.parts = {split.axis: split.part for split in splits}
        self.local: dict[int, Term] = {}
        self.passed: list[tuple[Axis, int]] = []
        self._whole: dict[int, Term] = {}
        self._calls: dict[tuple[Call, bool], Call] = {}

    def devices(self, axes: Iterable[Axis]) -> DeviceTerms | None:
        """What builds the terms in which devices differ along one of some axes; None if none is split.

        **Raises:** `AxesMeetError` if several are.
        """
        found = [self.along[axis] for axis in set(axes) if axis in self.along]
        if len(found) > 1:
            raise AxesMeetError
        return found[0] if found else None

    def layout(self, old: Layout) -> Layout:
        return renamed(old, self.parts)

    def place(self, layout: Layout) -> int | None:
        """The dimension of an input or output of which each device has a part; None if there is none."""
        devices = self.devices(layout_axes(layout))
        if devices is None or not devices.split.divides:
            return None
        return split_dimension(layout, devices.split.axis)

    def input(self, leaf: Term, whole: bool = False) -> Term:
        """Enter an input. One that devices have as a `whole` is sliced by each of them."""
        assert isinstance(leaf.op, Leaf)
        op = leaf.op
        devices = self.devices(leaf.axes)
        if devices is None or not whole:
            made = self.local[leaf.number] = self.terms.make(replace(op, layout=self.layout(op.layout)))
            return made
        made = self._whole[leaf.number] = self.terms.make(op)
        self.local[leaf.number] = devices.part_of(made)
        return made

    def run(self, program: Program) -> None:
        """Enter all terms of a program whose inputs have been entered."""
        for group in in_rounds(list(program.reachable())):
            if self.along and isinstance(group[0].op, Fold):
                self._ring(group, program)
                continue
            for term in group:
                if term.number in self.local or (self.along and (term.open or self._meets_in_delta(term))):
                    continue
                self.local[term.number] = made = self._made(term)
                if term.number in program.terms.origins:
                    self.terms.origins.setdefault(made.number, program.terms.origins[term.number])

    def _meets_in_delta(self, term: Term) -> bool:
        """Whether it is a comparison of two split axes, of which rings compute what they need."""
        return isinstance(term.op, Delta) and term.axes <= self.along.keys()

    def _ring(self, folds: Sequence[Term], program: Program) -> None:
        assert isinstance(folds[0].op, Fold)
        devices = self.along[folds[0].op.axis]
        ring = Ring(devices, self.along, self.local, program.terms.origins)
        for fold, made in zip(folds, ring.folded(folds), strict=True):
            self.local[fold.number] = made
        self.passed.append((folds[0].op.axis, ring.passed))

    def whole(self, term: Term) -> Term:
        """The same value with its axes whole, on every device."""
        devices = self.devices(term.axes)
        if devices is None:
            return self.local[term.number]
        if term.number not in self._whole:
            local = self.local[term.number]
            rest = tuple(sorted(local.axes - {devices.split.part}))
            self._whole[term.number] = devices.put_together(local, rest)
        return self._whole[term.number]

    def _made(self, term: Term) -> Term:
        op = term.op
        args = [self.local[arg.number] for arg in term.args]
        if not self.along:
            if isinstance(op, Opaque):
                return self.terms.make(Opaque(self._copied(op.call), op.result), args)
            return self.terms.make(op, args)
        self.devices(term.axes)  # raises an error if they meet
        match op:
            case Iota(axis=along) if along in self.along:
                return self.along[along].counted(op.dtype)
            case Delta(first=first, second=second):
                if self.devices((first, second)) is not None:
                    pair = [self._counted(one) for one in (first, second)]
                    return self.terms.make(Map("eq", "bool"), pair)
            case Reduce(kind=kind, axes=axes):
                if (devices := self.devices(axes)) is not None:
                    return devices.reduced(kind, replace(op, axes=self._parts(axes)), args)
            case Dot(axes=axes):
                if (devices := self.devices(axes)) is not None:
                    return devices.wide_sum(replace(op, axes=self._parts(axes)), args)
            case Select(axis=along) if along in self.along:
                return self.along[along].selected(op, args[0])
            case Select(out_axis=out) if out in self.along:
                return self._on_whole(term, self.terms.make(op, args))
            case Operation(axes=axes):
                if self.devices(axes) is not None:
                    return self._on_whole(term, self.terms.make(op, map(self.whole, term.args)))
            case Rename(old=old, new=new) if old in self.along and new in self.along:
                return self.terms.make(Rename(self.parts[old], self.parts[new]), args)
            case Rename(old=old) if old in self.along:
                return self.terms.make(op, [self.whole(term.args[0])])
            case Rename(new=new) if new in self.along:
                return self._on_whole(term, self.terms.make(op, args))
            case Opaque():
                return self._called(term, op, args)
        return self.terms.make(op, args)

    def _counted(self, axis: Axis) -> Term:
        if axis in self.along:
            return self.along[axis].counted("int32")
        return self.terms.make(Iota(axis, "int32"))

    def _parts(self, axes: Iterable[Axis]) -> frozenset[Axis]:
        return frozenset(self.parts.get(axis, axis) for axis in axes)

    def _on_whole(self, term: Term, made: Term) -> Term:
        """A device's part of a result that every device has computed as a whole."""
        devices = self.devices(made.axes)
        if devices is None:
            return made
        self._whole[term.number] = made
        return devices.part_of(made)

    def _called(self, term: Term, op: Opaque, args: Sequence[Term]) -> Term:
        call = op.call
        layouts = (*call.arg_layouts, *call.out_layouts)
        mentioned = {axis for layout in layouts for axis in layout_axes(layout)} & self.along.keys()
        if call.bodies:
            try:
                return self.terms.make(Opaque(self._control(call), op.result), args)
            except _WholeAxis:
                pass
        elif mentioned <= call.passing:
            return self.terms.make(Opaque(call.renamed(self.parts), op.result), args)
        elif (devices := self.devices(mentioned)) is not None:
            axis = devices.split.axis
            if axis in call.accumulates and call.primitive.name in SCATTERS:
                return self._scattered(devices, call, args)
            if axis in call.sums and devices.split.divides:
                made = self.terms.make(Opaque(call.renamed(self.parts), op.result), args)
                return made if devices.split.part in made.axes else devices.merged("sum", made)
        return self._on_whole(
            term, self.terms.make(Opaque(self._copied(call), op.result), map(self.whole, term.args))
        )

    def _scattered(self, devices: DeviceTerms, call: Call, args: Sequence[Term]) -> Term:
        kind = SCATTERS[call.primitive.name]
        call = call.renamed(self.parts)
        if kind != "sum":
            return devices.merged(kind, self.terms.make(Opaque(call, 0), args))
        zero = self.terms.make(Const("0.0" if is_real_float(args[0].dtype) else "0", args[0].dtype))
        updates = [*args[1:-1], devices.counting(args[-1])]
        added = devices.merged("sum", self.terms.make(Opaque(call, 0), [zero, *updates]))
        return self.terms.make(Map("add", added.dtype), [args[0], added])

    def _control(self, call: Call) -> Call:
        """Control flow on a device's parts.

        **Raises:** `_WholeAxis` if it runs over a split axis.
        """
        key = (call, True)
        if key not in self._calls:
            if isinstance(call.control, Scan):
                stacked = call.out_layouts[len(call.control.carried) :]
                runs = [*(call.arg_layouts[number] for number in sliced(call.control)), *stacked]
                if any(axis in self.along for layout in runs for axis in parts(layout[0])):
                    raise _WholeAxis
            renamed = call.renamed(self.parts)
            bodies = tuple(Body(self._body(body.program), body.sources) for body in call.bodies)
            self._calls[key] = replace(
                renamed,
                bodies=bodies,
                sums=renamed.sums - frozenset(self.parts.values()),
                accumulates=frozenset(),
            )
        return self._calls[key]

    def _body(self, program: Program) -> Program:
        inputs = tuple(self.input(leaf) for leaf in program.inputs)
        self.run(program)
        outputs = tuple(
            Output(self.local[output.term.number], self.layout(output.layout)) for output in program.outputs
        )
        return Program(inputs, outputs, self.terms)

    def _copied(self, call: Call) -> Call:
        """A call with its bodies among the new terms."""
        if not call.bodies:
            return call
        key = (call, False)
        if key not in self._calls:
            copier = _Partitioner(self.terms, ())
            bodies = tuple(Body(copier._body(body.program), body.sources) for body in call.bodies)
            self._calls[key] = replace(call, bodies=bodies)
        return self._calls[key]
