"""Results of choices as selections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax

from eqsat.ir.ops import Map, Opaque
from eqsat.planning.branch_values import as_selection
from eqsat.planning.rematerialisation import with_rematerialised_operands
from tests.planning.test_rematerialisation import check_equalities
from tests.stages import lowered, normal


def chosen(p: Any, x: Any, y: Any) -> Any:
    a, s = lax.cond(p[0] > 0, lambda: (x * 2, x.sum()), lambda: (y, y.max()))
    return a + 1, s


def chosen_by_number(p: Any, x: Any, y: Any) -> Any:
    a, s = lax.switch(p[0].astype(int), [lambda u, v: (u, u.sum()), lambda u, v: (v, v.max())], x, y)
    return jnp.tanh(a), s


@pytest.mark.parametrize("p", [-3.0, 0.0, 1.0, 7.0])
def test_a_selection_is_the_choice(p: float) -> None:
    args = normal(1) * 0 + p, normal(50), normal(50)
    program, constants = lowered(chosen_by_number, *args)
    assert check_equalities(program, [*args, *constants], 100)
    selections = [form for _, form in with_rematerialised_operands(program, 100).equalities]
    assert any(isinstance(form.op, Map) and form.op.name == "select_n" for form in selections)


@pytest.mark.parametrize("fn", [chosen])
def test_what_a_branch_computes_stays_in_it(fn: Callable[..., Any]) -> None:
    program, _ = lowered(fn, normal(1), normal(50), normal(50))
    choices = [term for term in program.reachable() if isinstance(term.op, Opaque) and term.op.call.bodies]
    assert choices
    assert not any(as_selection(program.terms, term) for term in choices)
