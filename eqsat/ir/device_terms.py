"""What one of several devices has of values: parts of an axis, and the calls that combine those of all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax import lax

from eqsat.ir.axis import Axis, Layout, as_dimension, layout_axes, parts
from eqsat.ir.dtypes import accumulator, is_inexact, is_real_float
from eqsat.ir.ops import Call, Const, Dot, Iota, Map, Opaque, Reduce, Select
from eqsat.ir.program import Program
from eqsat.ir.term import Term, Terms

MERGED = {"sum": lax.psum_p, "max": lax.pmax_p, "min": lax.pmin_p}
"""The collectives that combine partial results."""

COLLECTIVES = frozenset({"psum", "pmax", "pmin", "all_gather", "ppermute"})
"""The names of the primitives by which devices talk."""


@dataclass
class Numbers:
    """The next free numbers of axes, calls and inputs of bodies.

    **Attributes:**

    - `device`: the number of the call that tells a device's.
    - `leaf`: returns the next number of an input, if something else makes inputs of the same bodies, too.
    """

    axes: int
    calls: int
    inputs: int
    device: int
    leaf: Callable[[], int] | None = None

    @staticmethod
    def after(program: Program, leaf: Callable[[], int] | None = None) -> Numbers:
        """The numbers that nothing in a program has."""
        axes = [axis.id for inner in program.inside(known=True) for axis in _all_axes(inner)]
        call = program.next_call()
        return Numbers(max(axes, default=0) + 1, call + 1, program.next_input(), call, leaf)

    def axis(self, size: int) -> Axis:
        self.axes += 1
        return Axis(self.axes - 1, size)

    def call(self) -> int:
        self.calls += 1
        return self.calls - 1

    def numbered(self, made: Call, origin: Call) -> Call:
        """A call that was made of another one with a number of its own."""
        return replace(made, id=self.call())

    def input(self) -> int:
        if self.leaf is not None:
            return self.leaf()
        self.inputs -= 1
        return self.inputs + 1


def _all_axes(program: Program) -> Iterator[Axis]:
    for term in program.known():
        yield from term.axes
        if isinstance(term.op, Opaque):
            for layout in (*term.op.call.arg_layouts, *term.op.call.out_layouts):
                yield from layout_axes(layout)
    for leaf in program.inputs:
        yield from leaf.axes
    for output in program.outputs:
        yield from layout_axes(output.layout)


@dataclass(frozen=True)
class Split:
    """An axis and the part of it that each device has.

    **Attributes:**

    - `name`, `count`: the axis of the mesh, and how many devices there are along it.
    """

    axis: Axis
    part: Axis
    name: Any
    count: int
    numbers: Numbers

    @property
    def divides(self) -> bool:
        return self.part.size * self.count == self.axis.size


def renamed(layout: Layout, names: Mapping[Axis, Axis]) -> Layout:
    """A layout with some of its axes replaced."""
    return tuple(as_dimension(names.get(axis, axis) for axis in parts(dimension)) for dimension in layout)


class DeviceTerms:
    """Builds the terms of one device.

    **Attributes:**

    - `terms`: the table in which they are built.
    """

    def __init__(self, terms: Terms, split: Split) -> None:
        self.terms = terms
        self.split = split

    def put_together(self, local: Term, rest: tuple[Axis, ...]) -> Term:
        """The parts of all devices as a whole axis."""
        split = self.split
        if split.divides:
            return self.gathered(local, (split.part, *rest), (split.axis, *rest), True)
        length, n = split.part.size, split.axis.size
        joined = split.numbers.axis(length * split.count)
        all_parts = self.gathered(local, (split.part, *rest), (joined, *rest), True)
        # Of the last part that counts, the first entries are the ones before it again.
        last = (n - 1) // length
        again = last * length - (n - length)
        pieces = []
        for start, stop in ((0, last * length), (last * length + again, (last + 1) * length)):
            axis = split.numbers.axis(stop - start) if stop - start > 1 else None
            layout = (axis, *rest)
            sizes = [one.size for one in rest]
            params = {
                "start_indices": (start, *[0] * len(rest)),
                "limit_indices": (stop, *sizes),
                "strides": None,
            }
            pieces.append((self.call(lax.slice_p, params, [(joined, *rest)], layout, [all_parts]), layout))
        terms, layouts = zip(*pieces, strict=True)
        return self.call(lax.concatenate_p, {"dimension": 0}, layouts, (split.axis, *rest), terms)

    def call(
        self,
        primitive: Any,
        params: Mapping[str, Any],
        old: Sequence[Layout],
        new: Layout,
        args: Sequence[Term],
    ) -> Term:
        """A call whose axes pass through it, but for those that only its operands or its result have."""
        kept = frozenset(layout_axes(new))
        for layout in old:
            kept &= frozenset(layout_axes(layout)) or kept
        dtype = args[0].dtype
        call = Call(self.split.numbers.call(), primitive, dict(params), tuple(old), (new,), (dtype,), kept)
        return self.terms.make(Opaque(call, 0), args)

    # What devices do together

    def collective(
        self, primitive: Any, params: Mapping[str, Any], term: Term, out: Layout, old: Layout
    ) -> Term:
        return self.call(primitive, params, [old], out, [term])

    def merged(self, kind: str, term: Term) -> Term:
        """Partial results of all devices, combined."""
        if term.dtype == "bool" and kind in ("and", "or", "max", "min"):
            number = self.terms.make(Map("convert", "int32"), [term])
            merged = self.merged("max" if kind in ("or", "max") else "min", number)
            return self.terms.make(Map("ne", "bool"), [merged, self.terms.make(Const("0", "int32"))])
        layout = tuple(sorted(term.axes))
        if kind in MERGED:
            params = {"axes": (self.split.name,), "axis_index_groups": None}
            return self.collective(MERGED[kind], params, term, layout, layout)
        devices = self.split.numbers.axis(self.split.count)
        gathered = self.gathered(term, layout, (devices, *layout), False)
        return self.terms.make(Reduce(kind, frozenset({devices}), term.dtype), [gathered])

    def gathered(self, term: Term, old: Layout, new: Layout, tiled: bool) -> Term:
        params = {
            "all_gather_dimension": 0,
            "axis_index_groups": None,
            "axis_name": (self.split.name,),
            "axis_size": self.split.count,
            "tiled": tiled,
        }
        return self.collective(lax.all_gather_p, params, term, new, old)

    def device(self) -> Term:
        """The number of the device along the mesh's axis."""
        params = {"axis_name": self.split.name}
        call = Call(self.split.numbers.device, lax.axis_index_p, params, (), ((),), ("int32",), frozenset())
        return self.terms.make(Opaque(call, 0))

    def offset(self) -> Term:
        """The index at which the device's part begins."""
        split = self.split
        begins = self.begins()
        if split.divides:
            return begins
        last = self.terms.make(Const(str(split.axis.size - split.part.size), "int32"))
        return self.terms.make(Map("min", "int32"), [begins, last])

    def begins(self, device: Term | None = None) -> Term:
        """The first index that counts for the device, or for another one."""
        size = self.terms.make(Const(str(self.split.part.size), "int32"))
        return self.terms.make(Map("mul", "int32"), [self.device() if device is None else device, size])

    def counting(self, term: Term, kind: str = "sum") -> Term:
        """The term with what counts for another device replaced by what changes no sum, or product."""
        split = self.split
        if split.divides or split.part not in term.axes:
            return term
        counts = self.terms.make(Map("ge", "bool"), [self.counted("int32"), self.begins()])
        value = {"prod": "1", "and": "True", "or": "False"}.get(kind, "0")
        if term.dtype == "bool":
            value = {"prod": "True", "sum": "False"}.get(kind, "False")
        elif is_inexact(term.dtype):
            value += ".0" if is_real_float(term.dtype) else "j" if value == "0" else "+0j"
        neutral = self.terms.make(Const(value, term.dtype))
        return self.terms.make(Map("select_n", term.dtype), [counts, neutral, term])

    def counted(self, dtype: str, offset: Term | None = None) -> Term:
        """The indices of the device's part, or of that which begins at an `offset`."""
        offset = self.offset() if offset is None else offset
        if dtype != "int32":
            offset = self.terms.make(Map("convert", dtype), [offset])
        return self.terms.make(Map("add", dtype), [self.terms.make(Iota(self.split.part, dtype)), offset])

    def part_of(self, whole: Term) -> Term:
        """The device's part of a value that it has as a whole."""
        rest = tuple(sorted(whole.axes - {self.split.axis}))
        old, new = (self.split.axis, *rest), (self.split.part, *rest)
        zero = self.terms.make(Const("0", "int32"))
        sizes = tuple(axis.size for axis in new)
        starts = [self.offset(), *[zero] * len(rest)]
        layouts = [old, *((),) * len(old)]
        return self.call(lax.dynamic_slice_p, {"slice_sizes": sizes}, layouts, new, [whole, *starts])

    # Reductions and selections

    def reduced(self, kind: str, op: Reduce, args: Sequence[Term]) -> Term:
        if kind == "mean":
            wide = accumulator(op.dtype)
            total = self.wide_sum(replace(op, kind="sum", dtype=wide), args)
            entries = math.prod(axis.size for axis in op.axes - {self.split.part}) * self.split.axis.size
            count = self.terms.make(Const(f"{float(entries)!r}", wide))
            mean = self.terms.make(Map("div", wide), [total, count])
            return mean if wide == op.dtype else self.terms.make(Map("convert", op.dtype), [mean])
        if kind == "sum":
            return self.wide_sum(op, args)
        if kind in ("prod", "xor"):
            args = [self.counting(arg, kind) for arg in args]
        return self.merged(kind, self.terms.make(op, args))

    def wide_sum(self, op: Reduce | Dot, args: Sequence[Term]) -> Term:
        """A sum over a part, and then over devices. Sums of narrow floats are rounded at the end."""
        wide = accumulator(op.dtype)
        args = [self.counting(arg) for arg in args]
        if isinstance(op, Reduce) and args[0].dtype != wide:
            args = [self.terms.make(Map("convert", wide), [arg]) for arg in args]
        if wide == op.dtype or not is_real_float(op.dtype):
            return self.merged("sum", self.terms.make(op, args))
        total = self.merged("sum", self.terms.make(replace(op, dtype=wide), args))
        return self.terms.make(Map("convert", op.dtype), [total])

    def selected(self, op: Select, operand: Term) -> Term:
        """The best of all devices' best entries: of equal ones, the first device's."""
        split = self.split
        if op.k > split.part.size or not (split.divides or op.kind != "top_k"):
            # An entry that two devices have would be found twice.
            rest = tuple(sorted(operand.axes - {split.part}))
            return self.terms.make(op, [self.put_together(operand, rest)])
        here = replace(op, axis=split.part)
        indices = self.terms.make(replace(here, result="indices"), [operand])
        offset = self.offset()
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
        among = split.numbers.axis(split.count * op.k)
        old, new = (*taken, *rest), (among, *rest)
        values = self.gathered(values, old, new, tiled=bool(taken))
        best = replace(op, axis=among)
        if op.result == "values":
            return self.terms.make(best, [values])
        indices = self.gathered(indices, old, new, tiled=bool(taken))
        chosen = self.terms.make(replace(best, result="indices", dtype="int32"), [values])
        position = self.terms.make(Iota(among, "int32"))
        zero = self.terms.make(Const("0", indices.dtype))
        is_it = self.terms.make(Map("eq", "bool"), [position, chosen])
        kept = self.terms.make(Map("select_n", indices.dtype), [is_it, zero, indices])
        return self.terms.make(Reduce("sum", frozenset({among}), indices.dtype), [kept])

    # Calls
