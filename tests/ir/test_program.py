"""Programs: numbers for what is made of them."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np

from eqsat.ir.control import Body
from eqsat.ir.ops import Const, Leaf, Opaque
from tests.stages import lowered, normal


def test_a_new_call_has_the_number_of_no_term_that_was_made_and_left() -> None:
    """Calls are compared by their numbers: one would be the other, with the other one's parameters."""
    x = normal(4, 4)
    program, _ = lowered(jax.numpy.linalg.cholesky, x @ x.T + 4 * np.eye(4, dtype=np.float32))
    (call,) = {term.op.call for term in program.reachable() if isinstance(term.op, Opaque)}
    number = program.next_call()
    assert number > call.id
    (operand,) = (term.args[0] for term in program.reachable() if isinstance(term.op, Opaque))
    program.terms.make(Opaque(replace(call, id=number), 0), [operand])
    assert program.next_call() > number
    assert program.terms.call_number("another", number) > number


def test_a_new_input_has_the_number_of_no_input_even_if_nothing_reads_that() -> None:
    """Two inputs of one body with one number would be one value."""
    program, _ = lowered(
        lambda x: jax.lax.fori_loop(0, 3, lambda _, carry: (carry[0] + 1, carry[0]), (x, x)), normal(4)
    )
    (body,) = {body for call, _ in program.controls() for body in call.bodies}
    unread = program.terms.make(Leaf(program.next_input() - 7, (), "float32"))
    inner = replace(body.program, inputs=(*body.program.inputs, unread))
    assert inner.next_input() < unread.op.index
    call, args = next(program.controls())
    made = replace(
        call, arg_layouts=(*call.arg_layouts, ()), bodies=(Body(inner, (*body.sources, len(args))),)
    )
    scalar = program.terms.make(Const("0", "float32"))
    term = program.terms.make(Opaque(made, 0), [*args, scalar])
    outer = replace(program, outputs=(replace(program.outputs[0], term=term),))
    assert outer.next_input() < unread.op.index
