"""One slice of a call along an axis that passes through it is the call on slices of its operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.device_terms import Numbers
from eqsat.ir.interpret import interpret
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.ops import Call, Iota, Opaque, Operation
from eqsat.ir.program import Output
from eqsat.ir.single_entries import entry_at
from eqsat.ir.sliced_calls import SlicedTerms, sliced_call
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term
from tests.stages import lowered, normal

ROWS = np.random.default_rng(0).integers(0, 24, (3, 5, 2)).astype(np.int32)


def gathers(x: Any) -> Any:
    numbers = lax.GatherDimensionNumbers((2,), (0, 1), (0, 1))
    return lax.gather(x, jnp.asarray(ROWS), numbers, (1, 1, x.shape[2]), mode="clip")


def gathers_windows(x: Any) -> Any:
    numbers = lax.GatherDimensionNumbers((2, 3), (0,), (0,))
    return lax.gather(x, jnp.asarray(ROWS[..., :1]), numbers, (1, 2, x.shape[2]), mode="fill")


def transforms(x: Any) -> Any:
    return jnp.real(jnp.fft.rfft(x, axis=1))


CALLS: list[Callable[[Any], Any]] = [
    gathers,
    gathers_windows,
    transforms,
    lambda x: jnp.cumsum(x, axis=1),
    lambda x: lax.cummax(x, axis=2),
    lambda x: lax.sort((x, x * 2), dimension=1)[1],
    lambda x: lax.slice(x * 2, (0, 1, 0), (4, 5, 7), (1, 2, 1)),
    lambda x: jnp.linalg.cholesky(x @ x.mT + 5 * jnp.eye(6)),
    lambda x: x[:, ::-1],
    lambda x: lax.conv_general_dilated(
        x, jnp.ones((3, 6, 2)), (1,), "SAME", None, None, ("NCH", "OIH", "NCH")
    ),
]


@pytest.mark.parametrize("fn", CALLS)
def test_a_slice_of_a_call_is_the_call_on_slices(fn: Callable[[Any], Any]) -> None:
    x = normal(4, 6, 7)
    program, constants = lowered(fn, x)
    (term,) = {each.number: each for each in program.reachable() if is_call(each)}.values()
    assert isinstance(term.op, Opaque)
    call, terms = term.op.call, program.terms
    assert call.passing
    for axis in sorted(call.passing):
        made = sliced_call(call, axis, [arg.dtype for arg in term.args])
        assert made is not None
        made = replace(made, id=99)
        place = axis.size - 1
        slices = [entry_at(terms, arg, axis, place) if axis in arg.axes else arg for arg in term.args]
        one = terms.make(Opaque(made, term.op.result), slices)
        wanted = entry_at(terms, term, axis, place)
        assert one.axes == wanted.axes == term.axes - {axis}
        both = replace(
            program, outputs=tuple(Output(each, tuple(sorted(one.axes))) for each in (one, wanted))
        )
        check_program(both)
        got, expected = interpret(both, [x, *constants])
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("fn", CALLS)
def test_a_call_on_slices_of_any_length_is_the_call_on_an_operand_of_that_length(
    fn: Callable[[Any], Any],
) -> None:
    x = normal(4, 6, 7)
    program, constants = lowered(fn, x)
    terms, numbers = program.terms, Numbers.after(program)
    (term,) = {each.number: each for each in program.reachable() if is_call(each)}.values()
    assert isinstance(term.op, Opaque)
    for axis in sorted(term.op.call.passing):
        other = numbers.axis(5)
        places = terms.make(Iota(other, "int32"))

        def taken(value: Term, axis: Axis = axis, places: Term = places) -> Term:
            take = Operation(OPERATIONS["take"], (axis,), value.dtype)
            return terms.make(take, [value, places]) if axis in value.axes else value

        slices = SlicedTerms(terms, numbers.numbered)
        made = slices.of(term, axis, [taken(arg) for arg in term.args], other)
        wanted = taken(term)
        assert made.axes == wanted.axes
        both = replace(
            program, outputs=tuple(Output(each, tuple(sorted(made.axes))) for each in (made, wanted))
        )
        check_program(both)
        # Where the axis is shorter, its last entry is taken again.
        got, expected = interpret(both, [x, *constants])
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def is_call(term: Term) -> bool:
    return isinstance(term.op, Opaque) and term.op.call.primitive.name != "mul"


def test_what_does_not_pass_has_no_slices() -> None:
    program, _ = lowered(lambda x: jnp.cumsum(x, axis=1), normal(4, 6))
    (term,) = (each for each in program.reachable() if isinstance(each.op, Opaque))
    assert isinstance(term.op, Opaque)
    (along,) = set(layout_axes(term.op.call.arg_layouts[0])) - term.op.call.passing
    assert sliced_call(term.op.call, along, ["float32"]) is None


def test_parameters_that_say_more_of_a_length_leave_no_slices() -> None:
    n, m = Axis(0, 4), Axis(1, 6)
    params = {"shape": (4, 6), "broadcast_dimensions": (0,), "sharding": None}
    call = Call(0, lax.broadcast_in_dim_p, params, ((n,),), ((n, m),), ("float32",), frozenset({n}))
    assert sliced_call(call, n, ["float32"]) is None
