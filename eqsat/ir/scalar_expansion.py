"""Scalar expansion: what rows in a `scan` read of a recurrence without rows is stacked by a loop of its own.

    scan(x, P) -> x's rows, which read K(P)   =>   scan(P) -> every K;  scan(x, K) -> x's rows

A Kalman filter of many series has one recurrence of covariances, which needs no series, and gives the gain of
each step. A loop over chunks of the series would compute the recurrence again for each chunk. Factorisations
and products of matrices are worth a second loop; elementwise functions are computed again.

The name is the one that compilers of loops have for it: Padua and Wolfe, "Advanced Compiler Optimizations for
Supercomputers", Communications of the ACM, 1986.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from eqsat.ir.axis import Axis
from eqsat.ir.changed_calls import Operands, with_changed_bodies
from eqsat.ir.control import Body, Scan
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.device_terms import Numbers
from eqsat.ir.dtypes import is_extended
from eqsat.ir.loop_dependence import dependent, dependent_on_axis, operands_of, results_among
from eqsat.ir.ops import Call, Dot, Leaf, Opaque, Operation
from eqsat.ir.program import Output, Program
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term
from eqsat.ir.unused_results import trimmed

LARGE = 16
"""What is stacked takes at most this part of the largest value with rows."""

MANY_OPERATIONS = 10_000
"""The multiplications and additions of a product that is worth a second loop: some microseconds."""

SLOW = frozenset(
    {
        "cholesky",
        "eig",
        "eigh",
        "householder_product",
        "lu",
        "qr",
        "schur",
        "svd",
        "triangular_solve",
        "tridiagonal_solve",
    }
)
"""Primitives that take microseconds, however small the matrix is."""


def with_scalar_expansion(program: Program) -> Program:
    """Returns the program with such recurrences in loops of their own, also inside of bodies."""
    return _with_expansion(program, Numbers.after(program))


def _with_expansion(program: Program, numbers: Numbers) -> Program:
    def changed(call: Call, _: Operands) -> list[Body]:
        inside = ((body, _with_expansion(body.program, numbers)) for body in call.bodies)
        return [body if new is body.program else Body(new, body.sources) for body, new in inside]

    program = with_changed_bodies(program, changed)
    while known := _expanded(program, numbers):
        program = with_inputs(program, program.inputs, known)
    return program


def _expanded(program: Program, numbers: Numbers) -> dict[int, Term]:
    """Returns the results of one loop as those of two, by the numbers of the terms that they replace."""
    for call, args in dict.fromkeys(program.controls()):
        if not isinstance(call.control, Scan) or call.control.length < 2:
            continue
        results = {
            term.op.result: term
            for term in program.known()
            if isinstance(term.op, Opaque) and term.op.call == call and term.args == args
        }
        for axis in sorted(call.cut, key=lambda axis: axis.size, reverse=True):
            needing = dependent_on_axis(call, axis)
            handed = _handed_over(call, needing)
            with_axis = set(results) & results_among(call, needing)
            if handed and with_axis and _is_small(call, axis, handed):
                return _two_loops(program, numbers, call, args, results, with_axis, handed)
    return {}


def _handed_over(call: Call, needing: set[int]) -> list[Term]:
    """What terms that need an axis read of those that don't, if it is slow to compute again.

    Only what changes from iteration to iteration counts: other values are computed outside of loops.

    **Arguments:**

    - `needing`: the terms that need it, by their numbers.
    """
    assert isinstance(call.control, Scan)
    (body,) = call.bodies
    terms = list(body.program.reachable())
    changing = {*call.control.carried, *call.control.sliced}
    moving = dependent(call, [leaf for leaf, source in operands_of(body) if source in changing])
    costly = dependent(call, [term for term in terms if term.number in moving and _is_costly(term)])
    read = {arg.number: arg for term in terms if term.number in needing for arg in term.args}
    return [arg for number, arg in read.items() if number in costly - needing]


def _is_small(call: Call, axis: Axis, handed: Sequence[Term]) -> bool:
    """Whether stacking these takes little memory beside the largest value with the axis."""
    control = call.control
    assert isinstance(control, Scan)
    if any(is_extended(term.dtype) for term in handed):
        return False
    (body,) = call.bodies
    sizes = [term.bytes for term in body.program.reachable() if axis in term.axes]
    stacked = [output.term for output in body.program.outputs[len(control.carried) :]]
    slices = [leaf for leaf, source in operands_of(body) if source in control.sliced]
    sizes += [control.length * term.bytes for term in (*stacked, *slices) if axis in term.axes]
    return LARGE * control.length * sum(term.bytes for term in handed) <= max(sizes, default=0)


def _is_costly(term: Term) -> bool:
    match term.op:
        case Dot(axes=axes):
            return 2 * math.prod(axis.size for axis in axes | term.axes) >= MANY_OPERATIONS
        case Opaque(call=call):
            return call.primitive.name in SLOW or bool(call.bodies)
        case Operation(spec=spec):
            return spec.once is not None
        case _:
            return False


def _two_loops(
    program: Program,
    numbers: Numbers,
    call: Call,
    args: tuple[Term, ...],
    results: dict[int, Term],
    with_axis: set[int],
    handed: Sequence[Term],
) -> dict[int, Term]:
    """Returns the results of the loop that stacks what is `handed` over, and of the one that reads it."""
    control = call.control
    assert isinstance(control, Scan)
    (body,) = call.bodies
    axis = numbers.axis(control.length)
    layouts = [tuple(sorted(value.axes)) for value in handed]

    # The loop without the axis.
    outputs = [Output(value, layout) for value, layout in zip(handed, layouts, strict=True)]
    stacking = replace(
        call,
        id=numbers.call(),
        out_layouts=(*call.out_layouts, *((axis, *layout) for layout in layouts)),
        out_dtypes=(*call.out_dtypes, *(value.dtype for value in handed)),
    )
    inner = replace(body.program, outputs=(*body.program.outputs, *outputs))
    stacking = with_bodies(stacking, [Body(inner, body.sources)], args)
    stacks = range(len(call.out_layouts), len(stacking.out_layouts))
    known = _results_of(program, stacking, args, {*(results.keys() - with_axis), *stacks})
    stacked = [known[place] for place in stacks]

    # The loop with the axis.
    leaves = [
        body.program.terms.make(Leaf(numbers.input(), layout, value.dtype))
        for value, layout in zip(handed, layouts, strict=True)
    ]
    inner = with_inputs(
        body.program,
        (*body.program.inputs, *leaves),
        {value.number: leaf for value, leaf in zip(handed, leaves, strict=True)},
    )
    places = range(len(args), len(args) + len(handed))
    reading = replace(
        call,
        id=numbers.call(),
        arg_layouts=(*call.arg_layouts, *((axis, *layout) for layout in layouts)),
        control=replace(control, sliced=(*control.sliced, *places)),
    )
    operands = (*args, *stacked)
    reading = with_bodies(reading, [Body(inner, (*body.sources, *places))], operands)
    known |= _results_of(program, reading, operands, with_axis)
    return {term.number: known[result] for result, term in results.items()}


def _results_of(program: Program, call: Call, args: tuple[Term, ...], used: set[int]) -> dict[int, Term]:
    """Returns some results of a call that computes no others, by their numbers."""
    found = trimmed(call, args, used)
    made, renumbered, operands = found or (call, {result: result for result in used}, range(len(args)))
    given = tuple(args[place] for place in operands)
    return {result: program.terms.make(Opaque(made, renumbered[result]), given) for result in used}
