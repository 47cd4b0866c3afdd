"""What accumulates may be done piece by piece: each piece of the updates into what came of those before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.backend.calls import Namespace, call_source
from eqsat.frontend.reduction_axes import accumulated_dimensions, summed_dimensions
from tests.stages import normal

AT = np.random.default_rng(0).integers(-2, 9, 11).astype(np.int32)  # some of them nowhere

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], list[tuple[int | None, ...]]]] = {
    "add": (lambda x, u: x.at[AT].add(u), (normal(7), normal(11)), [(None, 0, 0)]),
    "set": (lambda x, u: x.at[AT].set(u), (normal(7), normal(11)), [(None, 0, 0)]),
    "multiply": (lambda x, u: x.at[AT].multiply(u), (normal(7), normal(11)), [(None, 0, 0)]),
    "subtract": (lambda x, u: x.at[AT].subtract(u), (normal(7), normal(11)), [(None, 0, 0)]),
    "max": (lambda x, u: x.at[AT].max(u), (normal(7, 3), normal(11, 3)), [(None, 0, 0)]),
    "min": (lambda x, u: x.at[:, AT].min(u), (normal(3, 7), normal(3, 11)), [(None, 0, 1)]),
    "pairs": (
        lambda x, u: x.at[AT[:, None], np.arange(3)].add(u),
        (normal(7, 5), normal(11, 3)),
        [(None, 0, 0), (None, 1, 1)],
    ),
    "batch": (
        jax.vmap(lambda x, u: x.at[AT].add(u)),
        (normal(4, 7), normal(4, 11)),
        [(None, 0, 1)],
    ),
    "windows": (
        lambda x, u: jax.lax.scatter_add(
            x, AT[:, None], u, jax.lax.ScatterDimensionNumbers((1,), (), (0,)), mode="drop"
        ),
        (normal(9), normal(11, 3)),
        [(None, 0, 0)],
    ),
    "one": (lambda x, u: x.at[2].add(u), (normal(7), normal()), []),
    "none": (
        lambda x, u: jax.lax.scatter_add(
            x, AT[:0, None], u, jax.lax.ScatterDimensionNumbers((1,), (), (0,)), mode="drop"
        ),
        (normal(9), normal(0, 3)),
        [],
    ),
}


def scatter(name: str) -> Any:
    """The scatter of a case, and its operands."""
    fn, args, _ = CASES[name]
    closed = jax.make_jaxpr(fn)(*args)
    (equation,) = (eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name.startswith("scatter"))
    values = jax.core.eval_jaxpr(closed.jaxpr.replace(outvars=list(equation.invars)), closed.consts, *args)
    return equation, values


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CASES)
def test_pieces_one_after_another_make_the_whole(name: str) -> None:
    equation, values = scatter(name)
    found = accumulated_dimensions(equation)
    assert list(found) == CASES[name][2]
    whole = equation.primitive.bind(*values, **equation.params)
    for dimensions in found:
        state = values[0]
        for part in (slice(0, 2), slice(2, None)):
            pieces = [
                value if dim is None else value[(slice(None),) * dim + (part,)]
                for value, dim in zip(values, dimensions, strict=True)
            ]
            names = Namespace()
            shapes = [[str(size) for size in piece.shape] for piece in pieces]
            text = call_source(
                equation.primitive, equation.params, ["s", "i", "u"], shapes, shapes[:1], names
            )
            scope = {"jax": jax, "jnp": jnp, "lax": jax.lax, **names.objects}
            state = eval(text, scope, {"s": state, "i": pieces[1], "u": pieces[2]})
        np.testing.assert_array_equal(state, whole)


def test_what_only_reads_accumulates_nothing() -> None:
    closed = jax.make_jaxpr(lambda x: x[AT])(normal(7))
    assert all(accumulated_dimensions(equation) == () for equation in closed.jaxpr.eqns)


def strided(x: Any, w: Any) -> Any:
    return jax.lax.conv_general_dilated(x, w, (2,), "SAME")


def by_channels_last(x: Any, w: Any) -> Any:
    return jax.lax.conv_general_dilated(x, w, (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC"))


def derivative(x: Any, w: Any) -> Any:
    """By the kernel, for an image and what the derivative of the result is."""
    return jax.vjp(lambda w: by_channels_last(x, w), jnp.ones((3, 5, 2), x.dtype))[1](w)[0]


def depthwise_derivative(x: Any, w: Any) -> Any:
    """The same for a kernel of each feature: the features are groups of the batch."""
    numbers = ("NWC", "WIO", "NWC")
    conv = partial(jax.lax.conv_general_dilated, x, window_strides=(1,), padding="VALID")
    depthwise = partial(conv, dimension_numbers=numbers, feature_group_count=x.shape[2])
    return jax.vjp(depthwise, jnp.ones((3, 1, x.shape[2]), x.dtype))[1](w)[0]


@pytest.mark.parametrize(
    ("fn", "shapes", "expected"),
    [
        (depthwise_derivative, [(4, 9, 5), (4, 7, 5)], (0, 0)),
        (strided, [(4, 5, 9), (2, 5, 3)], (1, 1)),
        (by_channels_last, [(4, 9, 5), (3, 5, 2)], (2, 1)),
        (derivative, [(4, 9, 5), (4, 7, 2)], (0, 0)),
    ],
)
def test_pieces_of_what_is_summed_over_add_up(
    fn: Callable[..., Any], shapes: list[tuple[int, ...]], expected: tuple[int, int]
) -> None:
    args = [normal(*shape) for shape in shapes]
    equations = jax.make_jaxpr(fn)(*args).jaxpr.eqns
    *_, equation = (eqn for eqn in equations if eqn.primitive.name == "conv_general_dilated")
    assert summed_dimensions(equation) == (expected,)
    whole = equation.primitive.bind(*args, **equation.params)
    parts = []
    for part in (slice(0, 2), slice(2, None)):
        pieces = [value[(slice(None),) * dim + (part,)] for value, dim in zip(args, expected, strict=True)]
        parts.append(equation.primitive.bind(*pieces, **equation.params))
    np.testing.assert_allclose(parts[0] + parts[1], whole, rtol=1e-4, atol=1e-4)


def test_features_in_groups_are_not_summed_over() -> None:
    def grouped(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1,), "VALID", feature_group_count=2)

    (equation,) = jax.make_jaxpr(grouped)(normal(4, 6, 9), normal(2, 3, 3)).jaxpr.eqns
    assert summed_dimensions(equation) == ()
