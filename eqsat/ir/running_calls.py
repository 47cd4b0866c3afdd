"""Calls that go through an axis entry by entry: cumulative sums, and scans over rows.

A chunk of what they make depends on the chunks before it, by a state that is carried from chunk to chunk:

    cummax(chunk)  =  cummax(max(state, first entry), other entries);  next state = its last entry
    cumsum(chunk)  =  state + cumsum of its own entries;  next state = its last entry

The state of a cumulative sum of floats is compensated: it has the excess over the exact sum, too.

A loop over what is read by chunks runs in Python and takes the chunks in order, so that it can carry the
state. For such loops only, a call of this kind counts as one through which the axis passes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jax.extend.core import Primitive

from eqsat.ir.axis import Axis, Layout, layout_axes
from eqsat.ir.constants import constant_text
from eqsat.ir.control import Body, Scan
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.dtypes import is_extended, is_inexact, is_real_float, numpy_dtype
from eqsat.ir.ops import Call, Const, Map, Op, Opaque
from eqsat.ir.picked_entries import is_pick
from eqsat.ir.single_entries import entry_at, extreme
from eqsat.ir.streams import UnsupportedError
from eqsat.ir.term import Term, Terms

running_p = Primitive("running")
"""The primitive of running calls. What runs such programs puts the calls themselves in their place."""

CUMULATIVE = {
    "cumsum": "add",
    "cumprod": "mul",
    "cummax": "max",
    "cummin": "min",
    "cumlogsumexp": "logaddexp",
}
"""Cumulative reductions, each with the function that combines two entries."""

ROUNDED = ("cumsum", "cumprod", "cumlogsumexp")
"""Those that round differently in chunks, of floats."""


@dataclass(frozen=True)
class Running:
    """How a call goes through an axis.

    **Attributes:**

    - `call`: the call itself.
    - `axis`: the axis.
    - `reverse`: whether it begins at the end.
    - `carried`: by array of the state, the operand that it starts as; empty for a cumulative reduction.
    """

    call: Call
    axis: Axis
    reverse: bool
    carried: tuple[int, ...]

    @property
    def compensated(self) -> bool:
        """Whether it is a cumulative sum whose state is the total, and its excess over the exact sum."""
        return self.call.primitive.name == "cumsum" and is_real_float(self.call.out_dtypes[0])

    @property
    def state(self) -> tuple[tuple[tuple[Axis, ...], str], ...]:
        """The axes and dtypes of the arrays that are carried from chunk to chunk."""
        call = self.call
        if call.control is None:
            axes = tuple(sorted(set(layout_axes(call.out_layouts[0])) - {self.axis}))
            return ((axes, call.out_dtypes[0]),) * (2 if self.compensated else 1)
        layouts = zip(call.out_layouts, call.out_dtypes, strict=True)
        return tuple((tuple(sorted(layout_axes(layout))), dtype) for layout, dtype in layouts)[
            : len(self.carried)
        ]


def running(term: Term) -> Running | None:
    """How a term goes through an axis, if it is a running call. Its axes may have been renamed."""
    if not isinstance(term.op, Opaque) or term.op.call.primitive is not running_p:
        return None
    how: Running = term.op.call.params["running"]
    layouts = zip(
        (*how.call.arg_layouts, *how.call.out_layouts),
        (*term.op.call.arg_layouts, *term.op.call.out_layouts),
        strict=True,
    )
    names = {
        old: new
        for before, after in layouts
        for old, new in zip(layout_axes(before), layout_axes(after), strict=True)
        if old != new
    }
    if not names:
        return how
    if how.call.bodies and names.keys() - {how.axis}:
        raise UnsupportedError("a loop over rows with another axis under two names")
    return replace(how, call=how.call.renamed(names), axis=names.get(how.axis, how.axis))


def plain_op(term: Term) -> Op:
    """The op of a term; of a running call, that of the call itself."""
    how = running(term)
    if how is None:
        return term.op
    assert isinstance(term.op, Opaque)
    return Opaque(how.call, term.op.result)


def running_call(
    call: Call, args: Sequence[Term], axes: Collection[Axis], exact: bool, number: int
) -> Call | None:
    """A call as a running one; None if it goes through none of these axes entry by entry.

    The results of a scan are followed by all its carries, after every iteration.

    **Arguments:**

    - `exact`: whether sums are not to be rounded otherwise.
    - `number`: one that no call has. The next one is free, too.
    """
    if call.primitive.name in CUMULATIVE:
        axis = call.out_layouts[0][call.params["axis"]]
        rounds = call.primitive.name in ROUNDED and is_inexact(call.out_dtypes[0])
        if not isinstance(axis, Axis) or axis not in axes or axis not in args[0].axes or (exact and rounds):
            return None
        return _made(Running(call, axis, bool(call.params["reverse"]), ()), number)
    if not isinstance(call.control, Scan) or any(map(is_extended, call.out_dtypes)):
        return None
    control = call.control
    axis = _scanned(call, control, args)
    if axis is None or axis not in axes:
        return None
    (body,) = call.bodies
    outputs, count = body.program.outputs, len(control.carried)
    program = replace(body.program, outputs=(*outputs, *outputs[:count]))
    layouts: tuple[Layout, ...] = tuple((axis, *output.layout) for output in outputs[:count])
    longer = replace(
        call,
        out_layouts=(*call.out_layouts, *layouts),
        out_dtypes=(*call.out_dtypes, *call.out_dtypes[:count]),
        id=number,
    )
    longer = with_bodies(longer, [Body(program, body.sources)], args)
    return _made(Running(longer, axis, control.reverse, control.carried), number + 1)


def running_result(terms: Terms, call: Call, args: Sequence[Term], result: int) -> Term:
    """A result of a running call. The last carries are the carries of all iterations at the last one."""
    how: Running = call.params["running"]
    count = len(how.carried)
    if result >= count:
        return terms.make(Opaque(call, result), args)
    every = terms.make(Opaque(call, len(call.out_layouts) - count + result), args)
    return entry_at(terms, every, how.axis, 0 if how.reverse else how.axis.size - 1)


def _scanned(call: Call, control: Scan, args: Sequence[Term]) -> Axis | None:
    """The axis along which a scan goes, if it is nowhere else in the scan."""
    count = len(control.carried)
    along = {call.arg_layouts[position][0] for position in control.sliced}
    along |= {layout[0] for layout in call.out_layouts[count:]}
    if len(along) != 1 or not control.sliced:
        return None
    (axis,) = along
    if not isinstance(axis, Axis) or any(axis not in args[position].axes for position in control.sliced):
        return None
    elsewhere = [layout for place, layout in enumerate(call.arg_layouts) if place not in control.sliced]
    elsewhere += [call.arg_layouts[place][1:] for place in control.sliced]
    elsewhere += [layout if place < count else layout[1:] for place, layout in enumerate(call.out_layouts)]
    if any(axis in layout_axes(layout) for layout in elsewhere):
        return None
    for body in call.bodies:
        for inner in body.program.inside():
            for term in inner.known():
                if axis in term.axes or is_pick(term) or running(term) is not None:
                    return None
    return axis


def _made(how: Running, number: int) -> Call:
    return replace(
        how.call,
        id=number,
        primitive=running_p,
        params={"running": how},
        passing=how.call.passing | {how.axis},
        ordered=frozenset({how.axis}),
        control=None,
        bodies=(),
    )


def starts_of(how: Running) -> list[Const]:
    """What each array of the state of a cumulative reduction starts as: it changes nothing."""
    dtype = how.call.out_dtypes[0]
    return [_start_of(how, dtype), *([Const("0.0", dtype)] if how.compensated else [])]


def _start_of(how: Running, dtype: str) -> Const:
    match how.call.primitive.name:
        case "cumsum":
            return Const(("-0.0" if is_real_float(dtype) else "(-0-0j)") if is_inexact(dtype) else "0", dtype)
        case "cumprod":
            return Const(constant_text(np.ones((), numpy_dtype(dtype))), dtype)
        case name:
            return Const(extreme(dtype, name != "cummin"), dtype)


def combined(terms: Terms, how: Running, state: Term, entries: Term) -> Term:
    """The state of a cumulative reduction, combined with further entries."""
    name, dtype = CUMULATIVE[how.call.primitive.name], entries.dtype
    if name != "logaddexp":
        return terms.make(Map(name, dtype), [state, entries])

    def made(name: str, *args: Term) -> Term:
        return terms.make(Map(name, "bool" if name in ("eq", "ne") else dtype), list(args))

    # As in JAX: the difference of two infinities is none. The first state changes nothing, not even -0.0.
    difference = made("sub", state, entries)
    rest = made("log1p", made("exp", made("neg", made("abs", difference))))
    found = made("add", made("max", state, entries), rest)
    found = made("select_n", made("ne", difference, difference), found, made("add", state, entries))
    lowest = terms.make(Const("-inf", dtype))
    return made("select_n", made("eq", state, lowest), found, entries)
