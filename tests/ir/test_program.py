"""Programs: numbers for what is made of them."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np

from eqsat.ir.ops import Opaque
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
