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

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax import lax

from eqsat.ir.axis import Axis, Layout, as_dimension, layout_axes, parts
from eqsat.ir.control import Body, Scan, sliced
from eqsat.ir.dtypes import accumulator, is_inexact, is_real_float
from eqsat.ir.ops import Call, Const, Delta, Dot, Iota, Leaf, Map, Opaque, Operation, Reduce, Rename, Select
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Term, Terms

MERGED = {"sum": lax.psum_p, "max": lax.pmax_p, "min": lax.pmin_p}
"""The collectives that combine partial results."""

SCATTERS = {"scatter-add": "sum", "scatter-max": "max", "scatter-min": "min"}
"""Scatters whose results on parts of the updates are combined so."""

COLLECTIVES = frozenset({"psum", "pmax", "pmin", "all_gather"})
"""The names of the primitives by which devices talk in what `partitioned` makes."""


@dataclass(frozen=True)
class Partition:
    """What one device does.

    **Attributes:**

    - `program`: the program of one device.
    - `inputs`, `outputs`: for each input and output, the dimension of which each device has a part; None if
      each device has all of it.
    """

    program: Program
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]


def partitioned(program: Program, axis: Axis, name: Any, count: int) -> Partition:
    """The program of one of `count` devices along the axis `name` of a mesh, each with a part of `axis`.

    Named operations and other equalities of the program are lost.

    **Arguments:**

    - `axis`: it is longer than `count`.
    """
    assert axis.size > count
    numbers = [one.id for inner in program.inside() for one in _all_axes(inner)]
    free = max(numbers, default=0) + 1
    split = _Split(
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
    return Partition(found, tuple(places), tuple(ends))


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


@dataclass
class _Split:
    """An axis and the part of it that each device has.

    `axes` and `calls` are the next free numbers; `device` is that of the call that tells the device's.
    """

    axis: Axis
    part: Axis
    name: Any
    count: int
    axes: int
    calls: int
    device: int

    @property
    def divides(self) -> bool:
        return self.part.size * self.count == self.axis.size

    def layout(self, old: Layout) -> Layout:
        return tuple(
            as_dimension(self.part if axis == self.axis else axis for axis in parts(dimension))
            for dimension in old
        )

    def new_axis(self, size: int) -> Axis:
        self.axes += 1
        return Axis(self.axes - 1, size)

    def new_call(self) -> int:
        self.calls += 1
        return self.calls - 1


class _Partitioner:
    """Builds the terms of one device. With `split` None, it copies.

    **Attributes:**

    - `local`: by the number of a term, what a device has of it: a part if it has the axis.
    """

    def __init__(self, terms: Terms, split: _Split | None) -> None:
        self.terms = terms
        self.split = split
        self.local: dict[int, Term] = {}
        self._whole: dict[int, Term] = {}
        self._calls: dict[tuple[Call, bool], Call] = {}

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
        self.local[leaf.number] = self._part_of(made)
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
            self._whole[term.number] = self._put_together(local, rest)
        return self._whole[term.number]

    def _put_together(self, local: Term, rest: tuple[Axis, ...]) -> Term:
        """The parts of all devices as a whole axis."""
        split = self.split
        assert split is not None
        if split.divides:
            return self._gathered(local, (split.part, *rest), (split.axis, *rest), True)
        length, n = split.part.size, split.axis.size
        joined = split.new_axis(length * split.count)
        all_parts = self._gathered(local, (split.part, *rest), (joined, *rest), True)
        # Of the last part that counts, the first entries are the ones before it again.
        last = (n - 1) // length
        again = last * length - (n - length)
        pieces = []
        for start, stop in ((0, last * length), (last * length + again, (last + 1) * length)):
            axis = split.new_axis(stop - start) if stop - start > 1 else None
            layout = (axis, *rest)
            sizes = [one.size for one in rest]
            params = {
                "start_indices": (start, *[0] * len(rest)),
                "limit_indices": (stop, *sizes),
                "strides": None,
            }
            pieces.append((self._call(lax.slice_p, params, [(joined, *rest)], layout, [all_parts]), layout))
        terms, layouts = zip(*pieces, strict=True)
        return self._call(lax.concatenate_p, {"dimension": 0}, layouts, (split.axis, *rest), terms)

    def _call(
        self,
        primitive: Any,
        params: Mapping[str, Any],
        old: Sequence[Layout],
        new: Layout,
        args: Sequence[Term],
    ) -> Term:
        """A call whose axes pass through it, but for those that only its operands or its result have."""
        assert self.split is not None
        kept = frozenset(layout_axes(new))
        for layout in old:
            kept &= frozenset(layout_axes(layout)) or kept
        dtype = args[0].dtype
        call = Call(self.split.new_call(), primitive, dict(params), tuple(old), (new,), (dtype,), kept)
        return self.terms.make(Opaque(call, 0), args)

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
                return self._counted(op.dtype)
            case Delta(first=first, second=second) if axis in (first, second):
                pair = [
                    self._counted("int32") if one == axis else self.terms.make(Iota(one, "int32"))
                    for one in (first, second)
                ]
                return self.terms.make(Map("eq", "bool"), pair)
            case Reduce(kind=kind, axes=axes) if axis in axes:
                return self._reduced(kind, replace(op, axes=axes - {axis} | {part}), args)
            case Dot(axes=axes) if axis in axes:
                return self._wide_sum(replace(op, axes=axes - {axis} | {part}), args)
            case Select(axis=along) if along == axis:
                return self._selected(op, args[0])
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
        return self._part_of(made)

    # What devices do together

    def _collective(
        self, primitive: Any, params: Mapping[str, Any], term: Term, out: Layout, old: Layout
    ) -> Term:
        assert self.split is not None
        return self._call(primitive, params, [old], out, [term])

    def _merged(self, kind: str, term: Term) -> Term:
        """Partial results of all devices, combined."""
        assert self.split is not None
        if term.dtype == "bool" and kind in ("and", "or", "max", "min"):
            number = self.terms.make(Map("convert", "int32"), [term])
            merged = self._merged("max" if kind in ("or", "max") else "min", number)
            return self.terms.make(Map("ne", "bool"), [merged, self.terms.make(Const("0", "int32"))])
        layout = tuple(sorted(term.axes))
        if kind in MERGED:
            params = {"axes": (self.split.name,), "axis_index_groups": None}
            return self._collective(MERGED[kind], params, term, layout, layout)
        devices = self.split.new_axis(self.split.count)
        gathered = self._gathered(term, layout, (devices, *layout), False)
        return self.terms.make(Reduce(kind, frozenset({devices}), term.dtype), [gathered])

    def _gathered(self, term: Term, old: Layout, new: Layout, tiled: bool) -> Term:
        assert self.split is not None
        params = {
            "all_gather_dimension": 0,
            "axis_index_groups": None,
            "axis_name": (self.split.name,),
            "axis_size": self.split.count,
            "tiled": tiled,
        }
        return self._collective(lax.all_gather_p, params, term, new, old)

    def _device(self) -> Term:
        """The number of the device along the mesh's axis."""
        assert self.split is not None
        params = {"axis_name": self.split.name}
        call = Call(self.split.device, lax.axis_index_p, params, (), ((),), ("int32",), frozenset())
        return self.terms.make(Opaque(call, 0))

    def _offset(self) -> Term:
        """The index at which the device's part begins."""
        split = self.split
        assert split is not None
        begins = self._begins()
        if split.divides:
            return begins
        last = self.terms.make(Const(str(split.axis.size - split.part.size), "int32"))
        return self.terms.make(Map("min", "int32"), [begins, last])

    def _begins(self) -> Term:
        """The first index that counts for the device."""
        assert self.split is not None
        size = self.terms.make(Const(str(self.split.part.size), "int32"))
        return self.terms.make(Map("mul", "int32"), [self._device(), size])

    def _counting(self, term: Term, kind: str = "sum") -> Term:
        """The term with what counts for another device replaced by what changes no sum, or product."""
        split = self.split
        assert split is not None
        if split.divides or split.part not in term.axes:
            return term
        counts = self.terms.make(Map("ge", "bool"), [self._counted("int32"), self._begins()])
        value = {"prod": "1", "and": "True", "or": "False"}.get(kind, "0")
        if term.dtype == "bool":
            value = {"prod": "True", "sum": "False"}.get(kind, "False")
        elif is_inexact(term.dtype):
            value += ".0" if is_real_float(term.dtype) else "j" if value == "0" else "+0j"
        neutral = self.terms.make(Const(value, term.dtype))
        return self.terms.make(Map("select_n", term.dtype), [counts, neutral, term])

    def _counted(self, dtype: str) -> Term:
        """The indices of the device's part."""
        assert self.split is not None
        offset = self._offset()
        if dtype != "int32":
            offset = self.terms.make(Map("convert", dtype), [offset])
        return self.terms.make(Map("add", dtype), [self.terms.make(Iota(self.split.part, dtype)), offset])

    def _part_of(self, whole: Term) -> Term:
        """The device's part of a value that it has as a whole."""
        assert self.split is not None
        rest = tuple(sorted(whole.axes - {self.split.axis}))
        old, new = (self.split.axis, *rest), (self.split.part, *rest)
        zero = self.terms.make(Const("0", "int32"))
        sizes = tuple(axis.size for axis in new)
        starts = [self._offset(), *[zero] * len(rest)]
        layouts = [old, *((),) * len(old)]
        return self._call(lax.dynamic_slice_p, {"slice_sizes": sizes}, layouts, new, [whole, *starts])

    # Reductions and selections

    def _reduced(self, kind: str, op: Reduce, args: Sequence[Term]) -> Term:
        assert self.split is not None
        if kind == "mean":
            wide = accumulator(op.dtype)
            total = self._wide_sum(replace(op, kind="sum", dtype=wide), args)
            entries = math.prod(axis.size for axis in op.axes - {self.split.part}) * self.split.axis.size
            count = self.terms.make(Const(f"{float(entries)!r}", wide))
            mean = self.terms.make(Map("div", wide), [total, count])
            return mean if wide == op.dtype else self.terms.make(Map("convert", op.dtype), [mean])
        if kind == "sum":
            return self._wide_sum(op, args)
        if kind in ("prod", "xor"):
            args = [self._counting(arg, kind) for arg in args]
        return self._merged(kind, self.terms.make(op, args))

    def _wide_sum(self, op: Reduce | Dot, args: Sequence[Term]) -> Term:
        """A sum over a part, and then over devices. Sums of narrow floats are rounded at the end."""
        wide = accumulator(op.dtype)
        args = [self._counting(arg) for arg in args]
        if isinstance(op, Reduce) and args[0].dtype != wide:
            args = [self.terms.make(Map("convert", wide), [arg]) for arg in args]
        if wide == op.dtype or not is_real_float(op.dtype):
            return self._merged("sum", self.terms.make(op, args))
        total = self._merged("sum", self.terms.make(replace(op, dtype=wide), args))
        return self.terms.make(Map("convert", op.dtype), [total])

    def _selected(self, op: Select, operand: Term) -> Term:
        """The best of all devices' best entries: of equal ones, the first device's."""
        split = self.split
        assert split is not None
        if op.k > split.part.size or not (split.divides or op.kind != "top_k"):
            # An entry that two devices have would be found twice.
            rest = tuple(sorted(operand.axes - {split.part}))
            return self.terms.make(op, [self._put_together(operand, rest)])
        here = replace(op, axis=split.part)
        indices = self.terms.make(replace(here, result="indices"), [operand])
        offset = self._offset()
        if indices.dtype != "int32":
            offset = self.terms.make(Map("convert", indices.dtype), [offset])
        indices = self.terms.make(Map("add", indices.dtype), [indices, offset])
        if op.kind == "top_k":
            values = self.terms.make(replace(here, result="values", dtype=operand.dtype), [operand])
        else:
            extreme = "max" if op.kind == "argmax" else "min"
            values = self.terms.make(Reduce(extreme, frozenset({split.part}), operand.dtype), [operand])
        taken = () if op.out_axis is None else (op.out_axis,)
        rest = tuple(sorted(values.axes - set(taken)))
        among = split.new_axis(split.count * op.k)
        old, new = (*taken, *rest), (among, *rest)
        values = self._gathered(values, old, new, tiled=bool(taken))
        best = replace(op, axis=among)
        if op.result == "values":
            return self.terms.make(best, [values])
        indices = self._gathered(indices, old, new, tiled=bool(taken))
        chosen = self.terms.make(replace(best, result="indices", dtype="int32"), [values])
        position = self.terms.make(Iota(among, "int32"))
        zero = self.terms.make(Const("0", indices.dtype))
        is_it = self.terms.make(Map("eq", "bool"), [position, chosen])
        kept = self.terms.make(Map("select_n", indices.dtype), [is_it, zero, indices])
        return self.terms.make(Reduce("sum", frozenset({among}), indices.dtype), [kept])

    # Calls

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
            return made if split.part in made.axes else self._merged("sum", made)
        return self._on_whole(
            term, self.terms.make(Opaque(self._copied(call), op.result), map(self.whole, term.args))
        )

    def _scattered(self, call: Call, args: Sequence[Term]) -> Term:
        assert self.split is not None
        kind = SCATTERS[call.primitive.name]
        renamed = call.renamed({self.split.axis: self.split.part})
        if kind != "sum":
            return self._merged(kind, self.terms.make(Opaque(renamed, 0), args))
        zero = self.terms.make(Const("0.0" if is_real_float(args[0].dtype) else "0", args[0].dtype))
        updates = [*args[1:-1], self._counting(args[-1])]
        added = self._merged("sum", self.terms.make(Opaque(renamed, 0), [zero, *updates]))
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
