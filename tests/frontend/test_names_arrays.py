"""The names of what rearranges arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.frontend.names_arrays import groups
from eqsat.ir.ops import Map, Opaque, Operation
from tests.frontend.named import named, names
from tests.stages import check_meaning, normal, ops, result_text

X, V, BATCH = normal(4, 6), normal(6), normal(3, 4, 6)


# Sorting.


@pytest.mark.parametrize(
    ("fn", "wanted"),
    [
        (lambda x: jnp.sort(x), ["sort[6](0)"]),
        (lambda x: jnp.sort(x, axis=0), ["sort[4](0)"]),
        (lambda x: jnp.sort(x, stable=False), ["sort[6](0)"]),
        (lambda x: jnp.argsort(x), ["argsort[6](0)"]),
        (lambda x: jnp.argsort(x, axis=0), ["argsort[4](0)"]),
        (lambda x: jnp.argsort(-x), ["argsort[6](neg(0))"]),
        (jax.vmap(jnp.sort, in_axes=1), ["sort[4](0)"]),
        (jax.vmap(jnp.argsort, in_axes=1, out_axes=1), ["argsort[4](0)"]),
        (lambda x: jnp.sort(x, descending=True), ["sort[6](0)", "reverse[6](sort(0))"]),
        (lambda x: lax.sort_key_val(x, x * 2)[0], ["sort[6](0)"]),
        (lambda x: jnp.sort(x)[:, :2], ["sort[6](0)", "head[6 2](sort(0))"]),
    ],
)
def test_sorting(fn: Callable[..., Any], wanted: list[str]) -> None:
    assert names(fn, X) == wanted


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.argsort(x, stable=False),
        lambda x: lax.sort_key_val(x, x * 2)[1],
        lambda x: lax.sort((x, x * 2), num_keys=2)[0],
        lambda x: jnp.sort(jnp.broadcast_to(x[:, :1], (4, 5))),
    ],
)
def test_sorting_that_has_no_name(fn: Callable[..., Any]) -> None:
    assert not [name for name in names(fn, X) if "sort" in name.split("[")[0]]


@pytest.mark.parametrize(
    "payload",
    [
        lambda: jnp.arange(30).reshape(5, 6),  # the entries of other rows have other numbers
        lambda: lax.broadcasted_iota(jnp.int32, (5, 6), 0),
        lambda: jnp.broadcast_to(jnp.arange(3), (5, 2, 3)).reshape(5, 6),  # 0 1 2 0 1 2
        lambda: jnp.broadcast_to(jnp.arange(3)[:, None], (5, 3, 2)).reshape(5, 6),  # 0 0 1 1 2 2
        lambda: jnp.broadcast_to(jnp.arange(6).reshape(2, 3).T.reshape(6), (5, 6)),  # 0 3 1 4 2 5
        lambda: jnp.broadcast_to(jnp.concatenate([jnp.arange(3), jnp.arange(3)]), (5, 6)),
        lambda: jnp.broadcast_to(jnp.arange(6)[::-1], (5, 6)),
        lambda: jnp.broadcast_to(jnp.arange(1, 7), (5, 6)),
    ],
)
@pytest.mark.parametrize("reshapes", [False, True])
def test_only_places_are_an_argsort(payload: Callable[[], Any], reshapes: bool) -> None:
    def places(x: Any) -> Any:
        return lax.sort((x, payload()), dimension=1, num_keys=1)[1]

    assert argsorts(places, normal(5, 6), reshapes) == []


@pytest.mark.parametrize("reshapes", [False, True])
def test_places_along_an_axis_that_has_parts_are_an_argsort(reshapes: bool) -> None:
    def places(x: Any) -> Any:
        indices = jnp.broadcast_to(jnp.arange(6), (4, 6))
        return lax.sort((x.reshape(4, 6), indices), dimension=1, num_keys=1)[1]

    assert argsorts(places, normal(4, 2, 3), reshapes) == ["argsort"]


def argsorts(fn: Callable[..., Any], x: Any, reshapes: bool) -> list[str]:
    """The `argsort`s of a program, which is what the function is."""
    program = check_meaning(fn, x, reshapes=reshapes)
    operations = [term.op for term in program.known() if isinstance(term.op, Operation)]
    return [op.spec.name for op in operations if op.spec.name == "argsort"]


def test_indices_of_another_width() -> None:
    with jax.enable_x64(True):
        program = named(jnp.argsort, X.astype(np.float64))
    ((_, name),) = program.equalities
    assert name.op == Map("convert", "int64")
    assert name.args[0].dtype == "int32"


# Reversing, and first and last entries.


@pytest.mark.parametrize(
    ("fn", "wanted"),
    [
        (lambda x: x[::-1], ["reverse[4](0)"]),
        (lambda x: jnp.flip(x, 1), ["reverse[6](0)"]),
        (lambda x: jnp.flip(x), ["reverse[6](reverse[4](0))"]),
        (lambda x: x[None, ::-1], ["reverse[4](0)"]),
        (lambda x: x[:2], ["head[4 2](0)"]),
        (lambda x: x[:, :5], ["head[6 5](0)"]),
        (lambda x: x[:2, :3], ["head[6 3](head[4 2](0))"]),
        (lambda x: x[2:], ["reverse[2](head[4 2](reverse[4](0)))"]),
        (lambda x: x[-3:, :2], ["head[6 2](reverse[3](head[4 3](reverse[4](0))))"]),
        (lambda x: x[:1], ["take[4](0, 0)"]),
        (lambda x: x[:, -1], ["take[6](0, 5)"]),
        (lambda x: x[2, 3:], ["reverse[3](head[6 3](reverse[6](take[4](0, 2))))"]),
    ],
)
def test_reversing_and_taking_parts(fn: Callable[..., Any], wanted: list[str]) -> None:
    assert names(fn, X) == wanted


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[1:3],
        lambda x: x[::2],
        lambda x: x[:0],
        lambda x: x[:2, 1:3],
        lambda x: jnp.broadcast_to(x[:, :1], (4, 9))[:, :5],
    ],
)
def test_parts_that_have_no_name(fn: Callable[..., Any]) -> None:
    assert not [name for name in names(fn, X) if not name.startswith(("head[6 1", "take", "merge", "split"))]


# Merging and splitting axes.


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ((4, 6), (24,), "merge[4 6 24](0)"),
        ((2, 3, 4), (6, 4), "merge[2 3 6](0)"),
        ((2, 3, 4), (2, 12), "merge[3 4 12](0)"),
        ((2, 3, 4), (24,), "merge[6 4 24](merge[2 3 6](0))"),
        ((24,), (4, 6), "split[24 4 6](0)"),
        ((24,), (2, 3, 4), "split[12 3 4](split[24 2 12](0))"),
        ((6, 4), (2, 3, 4), "split[6 2 3](0)"),
        ((6, 5), (2, 3, 5), "split[6 2 3](0)"),
        ((2, 3, 8), (6, 2, 4), "split[8 2 4](merge[2 3 6](0))"),
        ((4, 6), (8, 3), "split[24 8 3](merge[4 6 24](0))"),
        ((2, 1, 3, 4), (6, 1, 1, 4), "merge[2 3 6](0)"),
        ((1, 24, 1), (1, 4, 1, 6), "split[24 4 6](0)"),
        ((4, 4), (16,), "merge[4 4 16](0)"),
    ],
)
def test_reshapes(old: tuple[int, ...], new: tuple[int, ...], wanted: str) -> None:
    assert names(lambda x: x.reshape(new), normal(*old)) == [wanted]


def test_a_reshape_of_a_transposed_array() -> None:
    assert names(lambda x: x.T.reshape(-1), X) == ["merge[6 4 24](0)"]
    assert names(lambda x: x.reshape(-1, order="F"), X) == ["merge[6 4 24](0)"]
    assert names(jax.vmap(lambda x: x.reshape(24), in_axes=2), normal(4, 6, 3)) == ["merge[4 6 24](0)"]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.reshape(1, 4, 6),
        lambda x: x[:, None].reshape(4, 6),
        lambda x: jnp.broadcast_to(x[:1], (4, 6)).reshape(24),
    ],
)
def test_reshapes_that_have_no_name(fn: Callable[..., Any]) -> None:
    assert not [name for name in names(fn, X) if "merge" in name]


def test_a_reshape_to_nothing() -> None:
    check_meaning(lambda x: x.reshape(0, 7), np.zeros((3, 0), np.float32))


def test_groups() -> None:
    assert list(groups((4, 6), (24,))) == [([4, 6], [24])]
    assert list(groups((2, 2, 2), (2, 4))) == [([2], [2]), ([2, 2], [4])]
    assert list(groups((), ())) == []


# What is seen through: padding by nothing, and indices from 0.


def test_padding_by_nothing_is_nothing() -> None:
    assert result_text(lambda x: lax.pad(x, np.float32(0), ((0, 0, 0), (0, 0, 0))), X) == "0{6 4}"
    check_meaning(lambda x: lax.pad(x, np.float32(0), ((0, 0, 0), (0, 0, 1))), X)
    check_meaning(lambda x: lax.pad(x, np.float32(0), ((-1, 0, 0), (0, 1, 0))), X)


@pytest.mark.parametrize(
    "fn",
    [
        lambda: jnp.eye(4),
        lambda: jnp.diag(jnp.ones(4)),
        lambda: jnp.tri(4),
        lambda: jax.nn.one_hot(jnp.asarray([1, 2, 0]), 4),
    ],
)
def test_identities_and_triangles_compare_indices(fn: Callable[..., Any]) -> None:
    program = check_meaning(fn)
    assert ops(program, Opaque) == []
    assert not [op for op in ops(program, Map) if op.name == "add"]


def test_adding_zero_to_integers_is_nothing() -> None:
    whole = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert result_text(lambda n: n + 0, whole) == "0{3 2}"
    assert result_text(lambda n: 0 + n, whole) == "0{3 2}"
    assert result_text(lambda n: n + jnp.zeros((2, 3), np.int32), whole) == "0{3 2}"
    check_meaning(lambda n: n + jnp.zeros((2, 3), np.int32), np.int32(3))
    assert result_text(lambda x: x + 0, X) == "add(0.0, 0{6 4})"  # -0.0 + 0 is 0.0


# A difference of neighbours, as in any finite-difference code, is named and still the same.


def test_neighbours() -> None:
    check_meaning(lambda x: x[1:] - x[:-1], V)
    assert names(lambda x: x[1:] - x[:-1], V) == [
        "reverse[5](head[6 5](reverse[6](0)))",
        "head[6 5](0)",
    ]
