"""Control flow in the reference interpreter: on chunks, it gives the slices or summands of its results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.checking.arithmetic import DtypeArithmetic
from eqsat.errors import EqsatError
from eqsat.ir.axis import Axis
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Chunk, Concat, Fold, Opaque
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term, Terms
from tests.stages import lowered, normal

XS, W = normal(4, 7, 3), normal(3, 3)


def total(xs: Any) -> Any:
    return lax.scan(lambda carry, x: (carry + jnp.sum(x * x), None), 0.0, xs)[0]


def gradients(xs: Any, w: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        weights, state = carry
        new = jnp.tanh(x @ w)
        return (weights + x.T @ new, state + new), new

    return lax.scan(step, (jnp.zeros((3, 3)), jnp.zeros((7, 3))), xs)


def cumulated(xs: Any, w: Any) -> Any:
    """A call inside of the body passes the summed axis through."""

    def step(carry: Any, x: Any) -> Any:
        return carry + lax.cumsum(x @ w, axis=1).sum(0), None

    return lax.scan(step, jnp.zeros(3), xs)[0]


def nested(xs: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        return carry + lax.scan(lambda inner, y: (inner + jnp.sum(jnp.exp(y)), None), 0.0, x.T)[0], None

    return lax.scan(step, 0.0, xs)[0]


def chosen(xs: Any, w: Any) -> Any:
    return lax.cond(w[0, 0] > 0, lambda x: jnp.exp(x).sum((0, 1)), lambda x: jnp.cos(x).sum((0, 1)), xs)


def nothing(xs: Any) -> Any:
    return lax.scan(lambda carry, x: (carry + x.sum(), jnp.cos(x)), 0.0, xs)


def is_batch(axis: Axis) -> bool:
    return axis.size == XS.shape[1]


def by_chunks(term: Term, axis: Axis, terms: Terms) -> Term:
    """A call, given chunks: its results are laid side by side, or added up if they lack the axis."""
    chunks = [terms.make(Chunk(axis), [arg]) if axis in arg.axes else arg for arg in term.args]
    return terms.make(Concat(axis) if axis in term.axes else Fold(axis, "sum"), [terms.make(term.op, chunks)])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("length", [1, 2, 3, 7])
@pytest.mark.parametrize(
    ("function", "args"),
    [
        (total, [XS]),
        (gradients, [XS, W]),
        (cumulated, [XS, W]),
        (nested, [XS]),
        (chosen, [XS, W]),
        (nothing, [XS[:0]]),
    ],
)
def test_control_flow_that_sums_over_an_axis_by_chunks(
    function: Callable[..., Any], args: list[Any], length: int
) -> None:
    program, arrays = lowered(function, *args)
    outputs = []
    for output in program.outputs:
        op = output.term.op
        assert isinstance(op, Opaque)
        (axis,) = filter(is_batch, op.call.sums)
        outputs.append(replace(output, term=by_chunks(output.term, axis, program.terms)))
    chunked = replace(program, outputs=tuple(outputs))
    check_program(chunked)
    wanted = jax.tree.leaves(function(*args))
    for computed in (interpret, DtypeArithmetic().run):
        found = computed(chunked, [*args, *arrays], {axis: length})
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_body_that_counts_along_an_axis_is_refused_chunks_of_it() -> None:
    """No such control flow sums over the axis: one that says so is wrong."""

    def weighted(xs: Any) -> Any:
        return lax.scan(lambda carry, x: (carry + jnp.sum(x.T * jnp.arange(7.0)), None), 0.0, xs)[0]

    program, arrays = lowered(weighted, XS)
    (output,) = program.outputs
    op = output.term.op
    assert isinstance(op, Opaque)
    (axis,) = filter(is_batch, output.term.args[-1].axes)
    assert axis not in op.call.sums
    wrong = program.terms.make(replace(op, call=replace(op.call, sums=frozenset({axis}))), output.term.args)
    term = by_chunks(wrong, axis, program.terms)
    chunked = replace(program, outputs=(replace(output, term=term),))
    with pytest.raises(EqsatError, match="counts along an axis of which only a chunk is given"):
        interpret(chunked, [XS, *arrays], {axis: 3})
