"""Products of matrices of which the library packs little: the same numbers, in less scratch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.backend import packing
from eqsat.backend.certificate import certify
from eqsat.backend.contractions import contraction_text
from eqsat.backend.layout import Emitted
from eqsat.backend.packing import packing_little
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Dot
from eqsat.targets.compiler_profile import HONEST
from tests.nightly import nightly_but

AXES = {"a": Axis(0, 120), "b": Axis(1, 221), "k": Axis(2, 300), "g": Axis(3, 3), "h": Axis(4, 7)}
DEPTH = 4 * AXES["k"].size
"""Bytes of a column."""


def axes(word: str) -> tuple[Axis, ...]:
    return tuple(AXES[letter] for letter in word)


def written(left: str, right: str, panel: int | None, over: str = "k") -> Emitted:
    """The product over some axes of two arrays, which packs at most so many bytes."""
    op = Dot(frozenset(axes(over)), "float32")
    product = partial(contraction_text, op, dtypes=["float32"] * 2, chunked={})
    operands = Emitted("x", axes(left)), Emitted("y", axes(right))
    if panel is None:
        return product(*operands)
    return packing_little(op, *operands, product=product, chunks={}, panel=panel, lengths={})


def function(found: Emitted, order: Sequence[Axis]) -> Any:
    """The text as a function of both operands, its result in that order."""
    scope: dict[str, Any] = {"jax": jax, "jnp": jnp, "lax": jax.lax}
    exec(packing.FUNCTION, scope)
    places = [found.order.index(axis) for axis in order]
    return lambda x, y: (jnp.transpose(eval(found.text, {**scope, "x": x, "y": y}), places),)


def drawn(word: str) -> np.ndarray:
    return np.random.default_rng(len(word)).normal(size=[axis.size for axis in axes(word)]).astype(np.float32)


@pytest.mark.parametrize("left", ["ak", "ka"])
@pytest.mark.parametrize("right", ["bk", "kb"])
@pytest.mark.parametrize("columns", nightly_but({8}, [4, 8, 60]))
def test_a_product_packs_so_many_columns_at_most(left: str, right: str, columns: int) -> None:
    x, y = drawn(left), drawn(right)
    little = function(written(left, right, columns * DEPTH), axes("ab"))
    as_it_is = function(written(left, right, None), axes("ab"))
    scratch = certify(little, [x, y], HONEST).scratch
    assert scratch <= columns * DEPTH < certify(as_it_is, [x, y], HONEST).scratch
    (found,) = jax.jit(little)(x, y)
    np.testing.assert_allclose(found, np.einsum(f"{left},{right}->ab", x, y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("left", ["akh", "kha"])
@pytest.mark.parametrize("right", ["bkh", "khb"])
def test_columns_of_a_product_over_several_axes(left: str, right: str) -> None:
    """The axes are one, of as many columns as there are at a time."""
    x, y = drawn(left), drawn(right)
    found = written(left, right, 8 * 7 * DEPTH, "kh")
    assert packing.BY_COLUMNS in found.text
    (product,) = jax.jit(function(found, axes("ab")))(x, y)
    np.testing.assert_allclose(product, np.einsum(f"{left},{right}->ab", x, y), rtol=1e-4, atol=2e-4)


def test_what_packs_little_anyway_is_no_loop() -> None:
    assert packing.BY_COLUMNS in written("ka", "kb", 119 * DEPTH).text
    assert packing.BY_COLUMNS not in written("ka", "kb", 128 * DEPTH).text


def test_a_turn_is_worth_its_while() -> None:
    """Of three rows, 18 columns are about as fast as one."""
    assert written("kg", "kb", 4 * DEPTH).text.endswith(", 18)")
    assert written("ka", "kb", 4 * DEPTH).text.endswith(", 4)")


@pytest.mark.parametrize(("left", "right"), [("k", "kb"), ("kb", "k"), ("gka", "gkb")])
def test_vectors_and_batches_are_left_as_they_are(left: str, right: str) -> None:
    assert written(left, right, 1) == written(left, right, None)
