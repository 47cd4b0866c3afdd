"""Terms that are one expression, written twice: alpha-equivalence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.ir.alpha_equivalence import alpha_equivalent
from eqsat.ir.term import Term
from tests.stages import lowered

X = np.arange(12.0, dtype=np.float32).reshape(4, 3)


def looked_up(x: Any, shift: int = 1, index: int = 2) -> Any:
    """A value at a computed place: calls make an axis for the places."""
    place = jnp.stack([x[:, 0].astype(int) + shift, jnp.full(4, 1)], 1)
    return (
        lax.gather(
            x,
            place,
            lax.GatherDimensionNumbers((), (0, 1), (0, 1)),
            (1, 1),
            mode="clip",
        )
        + x[:, index]
    )


def pairs(x: Any, turned: bool = False) -> Any:
    """Sums of products of pairs of entries, which calls put side by side along axes of their own."""
    one, other = (jnp.concatenate([x[:, 0], x[:, k]]) for k in (1, 2))
    products = one[:, None] * other[None, :]
    return lax.cumsum(products, axis=int(turned)).max()


def terms(one: Callable[[Any], Any], other: Callable[[Any], Any]) -> list[Term]:
    """The terms of two functions in one table."""
    program, _ = lowered(lambda x: (one(x), other(x)), X)
    return [output.term for output in program.outputs]


def test_what_is_traced_twice_is_one_expression() -> None:
    one, other = terms(looked_up, looked_up)
    assert one is not other
    assert alpha_equivalent(one, other)
    assert alpha_equivalent(other, one)
    assert alpha_equivalent(one, one)


@pytest.mark.parametrize("other", [{"shift": 2}, {"index": 1}])
def test_expressions_that_differ_are_not(other: dict[str, int]) -> None:
    assert not alpha_equivalent(*terms(looked_up, lambda x: looked_up(x, **other)))


def test_axes_are_renamed_one_to_one() -> None:
    assert alpha_equivalent(*terms(pairs, pairs))
    # The same calls on the same values, but it adds along the axis of the other operand.
    assert not alpha_equivalent(*terms(pairs, lambda x: pairs(x, turned=True)))


def test_a_square_is_no_product_of_pairs() -> None:
    def joined(x: Any) -> Any:
        return jnp.concatenate([x[:, 0], x[:, 1]])

    def squares(x: Any) -> Any:
        return lax.cumsum(joined(x) * joined(x)).max()

    def products(x: Any) -> Any:
        return lax.cumsum(joined(x)[:, None] * joined(x)[None, :]).max()

    assert alpha_equivalent(*terms(squares, squares))
    assert not alpha_equivalent(*terms(squares, products))
