"""What scans are given is broadcast in their iterations: the same, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.ir.axis import layout_axes
from eqsat.ir.broadcast_operands import with_broadcast_inside
from eqsat.ir.control import Body, Scan
from eqsat.ir.ops import Opaque, Reduce
from eqsat.ir.program import Output, Program
from tests.stages import before_and_after, lowered, normal

STEPS, ROWS, WIDTH = 6, 4, 5
X, TIMES = normal(ROWS, WIDTH), normal(STEPS)


def broadcast(program: Program) -> int:
    """The number of operands of scans that have more axes in the scan than they have."""
    found = 0
    for call, args in dict.fromkeys(program.controls()):
        if isinstance(call.control, Scan):
            found += sum(
                not set(layout_axes(layout)) <= arg.axes
                for place, (layout, arg) in enumerate(zip(call.arg_layouts, args, strict=True))
                if place in call.control.sliced
            )
    return found


def summed(x: Any, xs: Any) -> Any:
    return lax.scan(lambda state, row: (jnp.sin(state + x) * row, state.sum()), x, xs)


def decoded(x: Any, times: Any) -> Any:
    """The same vector in every step."""
    given = jnp.broadcast_to(x[0] * 2, (STEPS, WIDTH))
    return lax.scan(lambda state, both: (jnp.tanh(state * both[0] + both[1]), state), x[1], (given, times))


def along_steps(rows: Any) -> Any:
    return jnp.broadcast_to(rows[:, None], (STEPS, ROWS, WIDTH))


NARROWED: dict[str, Callable[[Any, Any], Any]] = {
    "along all but the steps": lambda x, t: summed(x, along_steps(t[:, None])),
    "along rows": lambda x, t: summed(x, along_steps(t[:, None] * x[0])),
    "along the steps": decoded,
    "a number": lambda x, t: summed(x, jnp.full((STEPS, ROWS, WIDTH), 0.5)),
    "in reverse": lambda x, t: lax.scan(
        lambda s, row: (s * 0.5 + row, s), x, along_steps(t[:, None]), reverse=True
    ),
}


@pytest.mark.parametrize("name", NARROWED)
def test_operands_are_no_larger_than_what_they_are_made_of(name: str) -> None:
    before, after = before_and_after(with_broadcast_inside, jax.jit(NARROWED[name]), X, TIMES)
    assert broadcast(before)
    assert not broadcast(after)


KEPT: dict[str, Callable[[Any, Any], Any]] = {
    "that is summed": lambda x, t: lax.scan(
        lambda s, row: (s + row.sum(), None), 0.0, jnp.broadcast_to(t[:, None], (STEPS, WIDTH))
    ),
    "that is stacked": lambda x, t: lax.scan(
        lambda s, row: (s, row), 0.0, jnp.broadcast_to(t[:, None], (STEPS, WIDTH))
    ),
    "that is sorted": lambda x, t: lax.scan(
        lambda s, row: (s + jnp.sort(row), None), x[0], jnp.broadcast_to(t[:, None], (STEPS, WIDTH))
    ),
    "a carry": lambda x, t: lax.scan(lambda s, time: (s * time + x, None), jnp.zeros((ROWS, WIDTH)), t),
}


def test_an_operand_stays_of_which_a_form_of_the_body_has_a_sum() -> None:
    """Along an axis that it lacks, there would be nothing to add up."""
    program, _ = lowered(jax.jit(lambda x, t: summed(x, along_steps(t[:, None]))[0]), X, TIMES)
    (output,) = program.outputs
    assert isinstance(output.term.op, Opaque)
    call = output.term.op.call
    assert isinstance(call.control, Scan)
    (body,), (sliced,) = call.bodies, call.control.sliced
    leaf = body.program.inputs[body.sources.index(sliced)]
    total = program.terms.make(Reduce("sum", leaf.axes, leaf.dtype), [leaf])
    known = Body(replace(body.program, equalities=((total, total),)), body.sources)
    changed = program.terms.make(Opaque(replace(call, bodies=(known,)), 0), output.term.args)
    asked = replace(program, outputs=(Output(changed, output.layout),))
    assert with_broadcast_inside(program) is not program
    assert with_broadcast_inside(asked) is asked


@pytest.mark.parametrize("name", KEPT)
def test_other_operands_stay(name: str) -> None:
    program, _ = lowered(jax.jit(KEPT[name]), X, TIMES)
    assert with_broadcast_inside(program) is program


def test_times_that_are_broadcast_take_no_memory() -> None:
    def simulated(x: Any, times: Any) -> Any:
        given = jnp.broadcast_to(times[:, None], (len(times), len(x)))
        return lax.scan(lambda s, time: (jnp.sin(s + time) + 0.1 * s.mean(), None), x, given)[0]

    x, times = normal(2000), normal(1000)
    plain = jax.jit(simulated)
    assert plain.lower(x, times).compile().memory_analysis().temp_size_in_bytes > 7_900_000
    found = eqsat.optimize(simulated, budget="100KB")
    assert found.plan(x, times).peak_bytes < 100_000
    np.testing.assert_allclose(found(x, times), plain(x, times), rtol=1e-4, atol=1e-5)
