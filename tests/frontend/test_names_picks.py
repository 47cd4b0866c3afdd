"""One entry of what a call computes is also a reduction over all of them, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Map, Reduce
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term, reachable
from tests.stages import lowered, normal

N = 130


def running(x: Any) -> Any:
    """Sums along the second axis, or whether any is true so far, by calls."""
    combined = jnp.logical_or if x.dtype == bool else jnp.add
    return jax.vmap(lambda row: lax.associative_scan(combined, row))(x)


def table(dtype: str) -> Any:
    if dtype == "bool":
        return normal(N, N) > 0
    if dtype != "float32":
        return np.resize(np.arange(-5, 250, 7), (N, N)).astype(dtype)
    x = normal(N, N)
    x[17], x[0], x[N - 1, 3], x[127, 2] = -0.0, np.nan, -np.inf, np.inf
    return x


def picks(program: Program) -> list[tuple[Term, Term]]:
    """The values that are known to be reductions that look for one entry."""
    return [
        pair
        for pair in program.equalities
        if any(isinstance(term.op, Reduce) for term in reachable([pair[1]]))
        and any(isinstance(term.op, Map) and term.op.name == "eq" for term in reachable([pair[1]]))
        and not any(isinstance(term.op, Reduce) for term in reachable([pair[0]]))
    ]


INDICES = [np.int32(17), np.int8(-1), np.int32(0), np.int32(N), np.int8(127), np.uint8(255)]

READ: dict[str, Callable[[Any, Any], Any]] = {
    "an index that is given": lambda x, i: lax.dynamic_index_in_dim(running(x), i, 0),
    "a column": lambda x, i: lax.dynamic_index_in_dim(running(x), i, 1, keepdims=False),
    "at a known place": lambda x, i: running(x)[17],
    "of a function": lambda x, i: lax.dynamic_index_in_dim(running(x) * 2, i, 0),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool"])
def test_an_entry_of_a_call_is_a_reduction(name: str, dtype: str) -> None:
    x = table(dtype)
    for index in INDICES if dtype == "float32" else INDICES[:2]:
        program, constants = lowered(READ[name], x, index)
        ((value, pick),) = picks(program)
        layout = tuple(sorted(value.axes))
        both = Program(program.inputs, (Output(value, layout), Output(pick, layout)), program.terms)
        check_program(both)
        one, other = interpret(both, [x, index, *constants])
        np.testing.assert_array_equal(one, other)
        if dtype == "float32":
            np.testing.assert_array_equal(np.signbit(one), np.signbit(other))


OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "of an argument": lambda x, i: x[i],
    "of functions of arguments": lambda x, i: jnp.exp(x * 2)[i],
    "several": lambda x, i: running(x)[3:5],
    "of a small array": lambda x, i: running(x[:9])[i],
    "one of few coordinates": lambda x, i: running(x).reshape(-1, 10)[:, 3],
    "of complex numbers": lambda x, i: running(lax.complex(x, x))[i],
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_entry_is_none(name: str) -> None:
    program, _ = lowered(OTHERS[name], normal(N, N), np.int32(3))
    assert picks(program) == []


def test_the_best_of_many_trajectories_is_never_beside_all_others() -> None:
    def best(x: Any, forces: Any) -> Any:
        def trajectory(forces: Any) -> Any:
            return lax.scan(lambda s, force: (jnp.sin(s + force),) * 2, x, 2 * forces)[1]

        all_ = jax.vmap(trajectory)(forces)
        weights = jax.nn.softmax(jnp.sum(all_**2, (1, 2)))
        return all_[jnp.argmax(weights)], jnp.einsum("s,stx->tx", weights, all_)

    x, forces = normal(5), normal(4000, 20, 5)
    optimised = eqsat.optimize(best, budget=forces.nbytes + 400_000)
    plan = optimised.plan(x, forces)
    # The last pass makes the average of all, and picks the best.
    assert len(plan.loops) == 2
    assert {loop.size for loop in plan.loops} == {4000}
    for one, other in zip(optimised(x, forces), best(x, forces), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
