"""Primitives that another library defines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive

from eqsat.frontend.foreign import implementation_of
from eqsat.ir.ops import Opaque
from tests.stages import check_meaning, lowered, normal, ops


def defined(name: str, implementation: Any) -> Primitive:
    """A primitive of one array, whose result is like it."""
    primitive = Primitive(name)
    primitive.def_impl(implementation)
    primitive.def_abstract_eval(lambda aval: aval)
    return primitive


def test_it_is_what_its_implementation_does() -> None:
    softened = defined("softened", lambda x: jnp.tanh(x) * 2)
    program = check_meaning(lambda x: softened.bind(x) + 1, normal(3, 4))
    assert not ops(program, Opaque)


def test_one_that_looks_at_values_is_called_as_it_is() -> None:
    def looks(x: Any) -> Any:
        return x if float(x[0]) > 0 else -x

    program, _ = lowered(defined("looks", looks).bind, normal(3))
    assert [op.call.primitive.name for op in ops(program, Opaque)] == ["looks"]


def test_one_whose_implementation_calls_it_again_is_called_as_it_is() -> None:
    primitive = Primitive("again")
    primitive.def_abstract_eval(lambda aval: aval)
    primitive.def_impl(lambda x: jax.jit(primitive.bind)(x))
    program, _ = lowered(primitive.bind, normal(3))
    assert [op.call.primitive.name for op in ops(program, Opaque)] == ["again"]


def test_a_primitive_of_jax_is_what_it_expands_to() -> None:
    aval = jax.ShapeDtypeStruct((3,), jnp.float32)
    atom = SimpleNamespace(aval=aval)
    expanded = SimpleNamespace(
        expand=lambda pair: {"sum": pair[0] + pair[1]}, in_tree=jax.tree.structure(((0, 0),))
    )
    equation = SimpleNamespace(
        primitive=SimpleNamespace(name="call_hi_primitive"),
        params={"_prim": expanded},
        effects=frozenset(),
        invars=[atom, atom],
        outvars=[atom],
    )
    inside = implementation_of(equation)
    assert inside is not None
    assert [step.primitive.name for step in inside.jaxpr.eqns] == ["add"]
