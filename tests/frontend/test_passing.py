"""Passing dimensions are true: a slice of the operands gives, through the call, that slice of the results.

Each case names what passes, exactly, so that it also says what must not. The calls on slices are
made from source text, as the emitted module makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core

from eqsat.backend.calls import Namespace, call_source
from eqsat.frontend.passing import Passing, passing_dimensions
from tests.primitives.table import CASES, equations


def printed(eqn: Any, args: list[Any], outs: list[Any]) -> Callable[..., Any]:
    """The equation's call, printed for arrays of these shapes, as a function; its results are a list."""
    names = Namespace()
    variables = [f"arg{number}" for number in range(len(args))]
    shapes = [[[str(length) for length in a.shape] for a in group] for group in (args, outs)]
    text = call_source(eqn.primitive, eqn.params, variables, *shapes, names)
    scope = {"jax": jax, "jnp": jnp, "lax": lax, **names.objects}
    for source in names.imports:
        exec(source, scope)
    function = eval(f"lambda {', '.join(variables)}: {text}", scope)
    return lambda *values: list(function(*values)) if eqn.primitive.multiple_results else [function(*values)]


def results(eqns: list[Any], operands: list[list[Any]], outs: list[list[Any]]) -> list[list[Any]]:
    """The results of all calls, for operands and results of those shapes."""
    calls = [printed(*group) for group in zip(eqns, operands, outs, strict=True)]
    run = jax.jit(lambda groups: [call(*g) for call, g in zip(calls, groups, strict=True)])
    return jax.tree.map(on_host, run(operands))


def sliced(array: Any, dim: int | None, groups: int, start: int, stop: int) -> Any:
    """Some entries of an array along a dimension, or some of the groups that it consists of."""
    if dim is None:
        return array
    each = array.shape[dim] // groups if groups else 1
    return array[(slice(None),) * dim + (slice(start * each, stop * each),)]


def on_host(array: Any) -> Any:
    """Slices of these need not be compiled."""
    return array if jnp.issubdtype(array.dtype, jax.dtypes.extended) else np.asarray(array)


@pytest.mark.one_in(18)
@pytest.mark.parametrize("name", CASES)
def test_passing(name: str) -> None:
    case = CASES[name]
    with jax.enable_x64(case.x64):
        closed = jax.make_jaxpr(case.fn)(*case.args)
        eqns = list(equations(closed.jaxpr, case.primitive))
        assert eqns, closed
        for eqn in eqns:
            assert {passing.args: passing.outs for passing in passing_dimensions(eqn)} == case.passing
        if case.passing and case.runs and case.slices:
            few = eqns[:2]  # of many dtypes, two will do
            passing = passing_dimensions(few[0])
            check_slices(passing, case.exact, few, operands_of(closed, few, case.args))


def check_slices(passing: Sequence[Passing], exact: bool, eqns: list[Any], operands: list[list[Any]]) -> None:
    operands = jax.tree.map(on_host, operands)
    whole = results(eqns, operands, [[v.aval for v in eqn.outvars] for eqn in eqns])
    parts: list[list[Any]] = []
    wanted: list[list[Any]] = []
    for each in passing:
        length = each.groups or whole[0][0].shape[each.outs[0]]
        for ends in {(0, 1), (1, length)}:
            for groups, dims, cut in ((operands, each.args, parts), (whole, each.outs, wanted)):
                cut += [
                    [sliced(a, d, each.groups, *ends) for a, d in zip(g, dims, strict=True)] for g in groups
                ]
    found = results(eqns * (len(parts) // len(eqns)), parts, wanted)
    for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert got.dtype == want.dtype
        if exact:
            np.testing.assert_array_equal(got, want)
        else:  # a library may add up in another order for another shape
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def operands_of(closed: Any, eqns: list[Any], args: tuple[Any, ...]) -> list[list[Any]]:
    """What the equations get when the function is called with `args`."""
    seen: dict[int, list[Any]] = {}

    def evaluate(jaxpr: Any, consts: Any, values: Any) -> list[Any]:
        env = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *values), strict=True))

        def read(atom: Any) -> Any:
            return jnp.asarray(atom.val, atom.aval.dtype) if isinstance(atom, core.Literal) else env[atom]

        for step in jaxpr.eqns:
            inputs = [read(atom) for atom in step.invars]
            seen[id(step)] = inputs
            if len(seen) == len(eqns) and all(id(eqn) in seen for eqn in eqns):
                return []  # nobody asks for more
            inner = step.params.get("jaxpr") if step.primitive.name == "jit" else None
            if inner is not None:
                out = evaluate(inner.jaxpr, inner.consts, inputs)
            else:
                out = step.primitive.bind(*inputs, **step.primitive.get_bind_params(step.params))
                out = out if step.primitive.multiple_results else [out]
            env.update(zip(step.outvars, out, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(args))
    return [seen[id(eqn)] for eqn in eqns]


def test_an_unknown_primitive_passes_nothing() -> None:
    x = np.ones((4, 5), np.float32)
    closed = jax.make_jaxpr(lambda x: jax.pure_callback(np.sin, x, x))(x)
    assert all(passing_dimensions(eqn) == () for eqn in equations(closed.jaxpr, "pure_callback"))
