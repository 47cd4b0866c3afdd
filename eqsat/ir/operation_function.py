"""Named operations as functions of arrays, with the shapes of their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import jax

from eqsat.errors import EqsatError
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import numpy_dtype
from eqsat.ir.operations import OperationSpec
from eqsat.ir.ops import Operation


def operand_names(spec: OperationSpec) -> list[str]:
    """Returns the names of the operands, in the order of the signature."""
    return [name for name, _ in spec.signature.operands]


def filled(spec: OperationSpec, operands: Sequence[str], sizes: Mapping[str, str]) -> str:
    """Returns the operation's JAX expression, with the given expressions for its operands.

    **Arguments:**

    - `operands`: the expressions, in the order of the signature.
    - `sizes`: the lengths of the core axes as text, by their letters.
    """
    named = dict(zip(operand_names(spec), operands, strict=True))
    return spec.text.format(**named, **{f"size_{letter}": size for letter, size in sizes.items()})


def core_function(spec: OperationSpec, sizes: Mapping[str, int]) -> Callable[..., Any]:
    """Returns the operation as a function of arrays that have only core axes, of these lengths."""
    if spec.function is not None:
        return spec.function
    names = operand_names(spec)
    text = filled(spec, names, {letter: str(size) for letter, size in sizes.items()})
    namespace = {"jax": jax, "jnp": jax.numpy, "lax": jax.lax}
    function: Callable[..., Any] = eval(f"lambda {', '.join(names)}: {text}", namespace)
    return function


def core_sizes(op: Operation) -> dict[str, int]:
    """Returns the lengths of the core axes by their letters."""
    return {letter: axis.size for letter, axis in zip(op.spec.signature.axes, op.axes, strict=True)}


def applied(
    op: Operation, arrays: Sequence[Any], operand_axes: Sequence[Sequence[Axis]], batch: Sequence[Axis]
) -> Any:
    """Applies the operation to arrays with JAX, to each slice along `batch`.

    **Arguments:**

    - `operand_axes`: the axes of the dimensions of each array: those of `batch` that it has, in their order,
      and then its core axes in the order of the signature.

    **Returns:**

    An array with the axes of `batch`, and then the result's core axes in the order of the signature.
    """
    function = core_function(op.spec, core_sizes(op))
    for axis in reversed(batch):
        function = jax.vmap(function, in_axes=tuple(0 if axis in axes else None for axes in operand_axes))
    return function(*arrays)


def check_shapes(op: Operation, dtypes: Sequence[str]) -> None:
    """Raises an `EqsatError` unless the op gives a result of the right shape for operands of these dtypes."""
    sizes = core_sizes(op)
    shape = _result_shape(op.spec, tuple(sizes.items()), tuple(dtypes))
    expected = tuple(axis.size for axis in op.core(op.spec.signature.result))
    if isinstance(shape, str):
        raise EqsatError(f"{op.spec.name} cannot be applied: {shape}")
    if shape != expected:
        raise EqsatError(f"{op.spec.name} gives an array of shape {shape}, not {expected}")


@cache
def _result_shape(
    spec: OperationSpec, sizes: tuple[tuple[str, int], ...], dtypes: tuple[str, ...]
) -> tuple[int, ...] | str:
    """Returns the shape of the result for core axes of those lengths, or an error message."""
    lengths = dict(sizes)
    arrays = [
        jax.ShapeDtypeStruct(tuple(lengths[letter] for letter in letters), numpy_dtype(dtype))
        for (_, letters), dtype in zip(spec.signature.operands, dtypes, strict=True)
    ]
    with jax.enable_x64(True):
        try:
            result = jax.eval_shape(core_function(spec, lengths), *arrays)
        except Exception as error:  # a user's function may raise anything
            return str(error)
    return tuple(result.shape)
