"""The operations in NumPy are those of JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from eqsat.ir import numpy_linalg
from eqsat.ir.axis import Axis
from eqsat.ir.numpy_operations import in_numpy
from eqsat.ir.operation_function import applied
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.ops import Operation

LENGTHS = {
    "kron": (2, 3, 4, 5, 8, 15),
    "merge": (3, 4, 12),
    "split": (12, 3, 4),
    "head": (5, 3),
    "append": (4, 5),
}
"""Of the core axes, where they are not all 4."""


def drawn(name: str, letters: tuple[str, ...], shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    if name == "take" and not letters:
        return rng.integers(-1, 6, shape)
    value = rng.normal(size=shape)
    if name == "cholesky":
        return value @ np.swapaxes(value, -1, -2) + 0.1 * np.eye(shape[-1])
    return value


def both(name: str, dtype: str, edit: Any = None) -> tuple[Any, Any]:
    """What NumPy says and what JAX says, of operands of which only the first has a batch axis."""
    spec = OPERATIONS[name]
    signature = spec.signature
    lengths = LENGTHS.get(name, (4,) * len(signature.axes))
    axes = tuple(Axis(number, length) for number, length in enumerate(lengths, start=2))
    batch = [Axis(0, 2), Axis(1, 3)]
    op = Operation(spec, axes, dtype)
    rng = np.random.default_rng(0)
    arrays, orders = [], []
    for place, (_, letters) in enumerate(signature.operands):
        order = [*(batch if place == 0 else batch[1:]), *op.core(letters)]
        value = drawn(name, letters, tuple(axis.size for axis in order), rng)
        arrays.append(value.astype(dtype) if value.dtype.kind == "f" else value)
        orders.append(order)
    if edit is not None:
        edit(arrays[0])
    with jax.enable_x64(True):
        expected = np.asarray(applied(op, list(map(jax.numpy.asarray, arrays)), orders, batch))
    return in_numpy(op, arrays, orders, batch), expected


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_numpy_agrees_with_jax(name: str) -> None:
    found, expected = both(name, "float64")
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["inv", "solve", "solve_lower", "cholesky", "softmax", "logdet"])
def test_single_precision_is_kept(name: str) -> None:
    found, expected = both(name, "float32")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-5)


def test_a_matrix_without_a_factor_gives_nan() -> None:
    def edit(value: Any) -> None:
        value[0, 0] = -np.eye(4)

    found, expected = both("cholesky", "float64", edit)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["softmax", "logsumexp", "sort", "argsort"])
def test_masked_rows(name: str) -> None:
    def edit(value: Any) -> None:
        value[0, :, :] = -np.inf
        value[1, 1, 2] = np.nan

    found, expected = both(name, "float64", edit)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["inv", "solve", "det", "logdet"])
def test_a_singular_matrix(name: str) -> None:
    def edit(value: Any) -> None:
        value[0] = 0

    found, expected = both(name, "float64", edit)
    finite = np.isfinite(expected)
    assert np.array_equal(np.isfinite(found), finite)
    np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-10)


def test_single_precision_is_not_computed_in_double() -> None:
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    matrix = (rotation * np.geomspace(1, 1e-5, 6)) @ rotation.T
    a = matrix.astype(np.float32)
    error = np.abs(numpy_linalg.inv(a) - np.linalg.inv(a.astype(np.float64)))
    assert error.max() > 1e-4 * np.abs(np.linalg.inv(matrix)).max()
