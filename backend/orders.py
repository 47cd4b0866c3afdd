"""Which order of dimensions each value should have: that of what consumes it.

A selection wants its axis last, an operation its core axes, an output the order in which it is returned;
an elementwise op passes the wish on to its operands. A contraction can give either of two orders at no
cost.
"""

from __future__ import annotations

from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.ops import Concat, Fold, Map, Operation, Reduce, Select
from eqsat.ir.program import Program
from eqsat.ir.term import Term


def wanted_orders(program: Program) -> dict[int, tuple[Axis, ...]]:
    """The order wanted of each term, by number, where some consumer has a wish; the first one counts."""
    wanted: dict[int, tuple[Axis, ...]] = {}
    for output in program.outputs:
        returned = tuple(axis for axis in layout_axes(output.layout) if axis in output.term.axes)
        wanted.setdefault(output.term.number, returned)
    for term in reversed(list(program.reachable())):
        order = wanted.get(term.number)
        for arg in term.args:
            wish = _wish(term, order, arg)
            if wish is not None:
                wanted.setdefault(arg.number, wish)
    return wanted


def _wish(term: Term, order: tuple[Axis, ...] | None, arg: Term) -> tuple[Axis, ...] | None:
    """What `term`, wanted in `order`, wants of its operand `arg`."""
    match term.op:
        case Select(axis=axis, out_axis=out) | Fold(monoid=Select(axis=axis, out_axis=out)):
            rest = order if order is not None else tuple(sorted(arg.axes - {axis}))
            return (*(a for a in rest if a != out and a in arg.axes), axis)
        case Reduce(axes=axes):
            rest = order if order is not None else tuple(sorted(arg.axes - axes))
            return (*rest, *sorted(axes))
        case Operation(axes=axes):
            core = tuple(axis for axis in axes if axis in arg.axes)
            rest = order if order is not None else tuple(sorted(arg.axes))
            rest = tuple(axis for axis in rest if axis in arg.axes and axis not in axes)
            # The right-hand sides of linear systems are columns.
            return (*core, *rest) if arg is not term.args[0] and len(core) == 1 else (*rest, *core)
        case Map() | Concat() | Fold():
            return None if order is None else tuple(axis for axis in order if axis in arg.axes)
        case _:
            return None
