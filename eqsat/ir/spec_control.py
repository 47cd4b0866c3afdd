"""Checks of well-formed control flow: the bodies must fit the operands and the results of the call."""

from __future__ import annotations

from eqsat.errors import EqsatError
from eqsat.ir.axis import Layout, layout_shape
from eqsat.ir.control import Scan, Switch, While, carried, sliced
from eqsat.ir.ops import Call, Leaf, Opaque
from eqsat.ir.term import Term


def check_control(term: Term, call: Call) -> None:
    """Raises an `EqsatError` if the bodies of a call do not fit it.

    Shapes and dtypes must agree between carries and results, between operands and the bodies' inputs, and
    between the bodies' outputs and the results. The condition of a while loop has no outputs to check.

    **Arguments:**

    - `term`: one of the call's results. Its operands are those of the call.
    """
    control = call.control
    wanted = {Scan: 1, While: 2}.get(type(control))
    if control is None or not call.bodies or (wanted is not None and len(call.bodies) != wanted):
        raise EqsatError(f"{call.primitive} has {len(call.bodies)} bodies")
    assert isinstance(term.op, Opaque)
    if term.op.result in call.unread:
        raise EqsatError(f"{call.primitive}: result {term.op.result} is read, though nothing should")
    if not isinstance(control, Switch):
        for result, place in enumerate(carried(control)):
            given, taken = call.arg_layouts[place], call.out_layouts[result]
            _same(call, f"what is carried by operand {place}", given, taken)
            _same_dtype(call, f"what is carried by operand {place}", term.args[place].dtype, result)
    for number, body in enumerate(call.bodies):
        for leaf, source in zip(body.program.inputs, body.sources, strict=True):
            assert isinstance(leaf.op, Leaf)
            layout = call.arg_layouts[source]
            given = layout[1:] if source in sliced(control) else layout
            _same(call, f"input {leaf.op.index} of body {number}", given, leaf.op.layout)
            if leaf.dtype != term.args[source].dtype:
                given_dtype = term.args[source].dtype
                raise EqsatError(f"{call.primitive}: operand {source} is {given_dtype}, not {leaf.dtype}")
        if isinstance(control, While) and number == 0:
            continue
        first = len(carried(control)) if isinstance(control, Scan) else len(call.out_layouts)
        for result, (output, layout) in enumerate(zip(body.program.outputs, call.out_layouts, strict=True)):
            taken = layout if result < first else layout[1:]
            _same(call, f"result {result} of body {number}", output.layout, taken)
            _same_dtype(call, f"result {result} of body {number}", output.term.dtype, result)


def _same(call: Call, what: str, given: Layout, taken: Layout) -> None:
    if layout_shape(given) != layout_shape(taken):
        raise EqsatError(f"{call.primitive}: {what} has layout {given}, which is taken for {taken}")


def _same_dtype(call: Call, what: str, given: str, result: int) -> None:
    if given != call.out_dtypes[result]:
        raise EqsatError(f"{call.primitive}: {what} is {given}, not {call.out_dtypes[result]}")
