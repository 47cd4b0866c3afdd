"""Stacked results of scans of which only the last entry is read, as carries: the others are never stored.

    scan(...)[1][-1]  =  the entry of the last iteration

The labels after the last iteration of k-means, the last state of a trajectory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from eqsat.ir.axis import Axis, layout_shape
from eqsat.ir.control import Body, Scan
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.dtypes import is_extended, numpy_dtype
from eqsat.ir.ops import Const, Opaque
from eqsat.ir.program import Program
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term, Terms


def with_last_entries_carried(program: Program) -> Program:
    """Returns the program with carries for stacked results of which only the last entry is read."""
    while True:
        found = next(_found(program), None)
        if found is None:
            return program
        scan, result, slices = found
        known = _carried(program, scan, result, slices)
        gone = {term.number for term in slices}
        equalities = tuple(pair for pair in program.equalities if gone.isdisjoint(t.number for t in pair))
        program = with_inputs(replace(program, equalities=equalities), program.inputs, known)


def _found(program: Program) -> Iterator[tuple[Term, int, list[Term]]]:
    """Yields stacked results that are read by slices of their last entry alone, with these slices."""
    terms = list(program.reachable())
    readers: dict[int, list[Term]] = {}
    for term in terms:
        for arg in term.args:
            readers.setdefault(arg.number, []).append(term)
    outputs = {output.term.number for output in program.outputs}
    for term in terms:
        if not isinstance(term.op, Opaque) or term.number in outputs or is_extended(term.dtype):
            continue
        call, result = term.op.call, term.op.result
        control = call.control
        if not isinstance(control, Scan) or result < len(control.carried):
            continue
        slices = readers.get(term.number, [])
        if slices and all(_takes_last(reader, call.out_layouts[result], control) for reader in slices):
            yield term, result, slices


def _takes_last(term: Term, layout: tuple[object, ...], control: Scan) -> bool:
    """Returns whether a term is the entry of the last iteration of a stacked result."""
    op = term.op
    if not isinstance(op, Opaque) or op.call.primitive.name != "slice" or not control.length:
        return False
    call, params = op.call, op.call.params
    if call.arg_layouts != (layout,) or not isinstance(layout[0], Axis):
        return False
    shape = layout_shape(call.arg_layouts[0])
    last = 0 if control.reverse else control.length - 1
    wanted = [(last, last + 1), *((0, length) for length in shape[1:])]
    strides = params["strides"]
    whole = strides is None or all(stride == 1 for stride in strides)
    return whole and list(zip(params["start_indices"], params["limit_indices"], strict=True)) == wanted


def _carried(program: Program, scan: Term, result: int, slices: list[Term]) -> Mapping[int, Term]:
    """Returns the terms of the scan that carries a result, by those that they replace."""
    assert isinstance(scan.op, Opaque)
    call, terms = scan.op.call, program.terms
    control = call.control
    assert isinstance(control, Scan)
    (body,) = call.bodies
    count = len(control.carried)
    # The carries, the new one among them, and then what is stacked.
    order = [*range(count), result, *(r for r in range(count, len(call.out_layouts)) if r != result)]
    entry = call.out_layouts[result][1:]
    layouts = [call.out_layouts[r] if r != result else entry for r in order]
    start = _zero(terms, scan.dtype)
    args = (*scan.args, start)
    made = replace(
        call,
        id=program.next_call(),
        arg_layouts=(*call.arg_layouts, entry),
        out_layouts=tuple(layouts),
        out_dtypes=tuple(call.out_dtypes[r] for r in order),
        control=replace(control, carried=(*control.carried, len(scan.args))),
    )
    outputs = tuple(body.program.outputs[r] for r in order)
    made = with_bodies(made, [Body(replace(body.program, outputs=outputs), body.sources)], args)
    known = {
        term.number: terms.make(Opaque(made, order.index(term.op.result)), args)
        for term in program.known()
        if isinstance(term.op, Opaque) and term.op.call == call and term.args == scan.args
        if term.op.result != result
    }
    last = terms.make(Opaque(made, count), args)
    return known | {term.number: last for term in slices}


def _zero(terms: Terms, dtype: str) -> Term:
    return terms.make(Const(repr(np.zeros((), numpy_dtype(dtype)).item()), dtype))
