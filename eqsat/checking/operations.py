"""Tests whether a user's operation can be traced, and has the shapes and the dtype of its declaration."""

from __future__ import annotations

from collections.abc import Mapping

import jax

from eqsat.ir.operation_function import core_function
from eqsat.ir.operations import OperationSpec, known_operation
from eqsat.language.syntax import Fact, OperationOf, Rule
from eqsat.language.traverse import walk

FIRST_LENGTH = 3
"""The length of the first axis of the operands. Each further axis is one longer, so that no two are equal."""


def broken_declaration(spec: OperationSpec) -> tuple[str, str] | None:
    """Returns how an operation breaks its declaration, and advice; None if it does what it declares."""
    axes = spec.signature.axes
    different = {axis: FIRST_LENGTH + place for place, axis in enumerate(axes)}
    found = _tried(spec, different, 0)
    if found is not None and found[2]:
        # Some operations need square matrices, which a signature can't state.
        alike = dict.fromkeys(axes, FIRST_LENGTH)
        found = None if _tried(spec, alike, 0) is None else found
    else:
        alike = different
    found = found or _tried(spec, alike, 2)
    return found[:2] if found is not None else None


def users_operations(rule: Rule) -> list[OperationOf]:
    """Returns the places where a rule names users' operations."""
    found = []
    for side in (rule.left, rule.right):
        for node in walk(side):
            spec = known_operation(node.name) if isinstance(node, OperationOf) else None
            if isinstance(node, OperationOf) and spec is not None and not spec.text:
                found.append(node)
    return found


def operations_of(rule: Rule | Fact) -> tuple[OperationSpec, ...]:
    """Returns the operations that a rule or a fact names. What it compiles to depends on them."""
    stated = rule.as_rule() if isinstance(rule, Fact) else rule
    names = [node.name for node in users_operations(stated)]
    return tuple(spec for name in names if (spec := known_operation(name)) is not None)


def _tried(spec: OperationSpec, lengths: Mapping[str, int], batch: int) -> tuple[str, str, bool] | None:
    """Traces an operation; returns the problem, advice, and whether it raised; None if all is well.

    **Arguments:**

    - `lengths`: those of the core axes.
    - `batch`: the length of an axis over which `jax.vmap` maps the operation; 0 if there is none.
    """
    arrays = [
        jax.ShapeDtypeStruct((batch,) * bool(batch) + tuple(lengths[axis] for axis in letters), "float32")
        for _, letters in spec.signature.operands
    ]
    function = core_function(spec, lengths)
    shown = ", ".join(
        f"{name} of shape {array.shape}"
        for (name, _), array in zip(spec.signature.operands, arrays, strict=True)
    )
    try:
        result = jax.eval_shape(jax.vmap(function) if batch else function, *arrays)
    except Exception as error:  # a user's function may raise anything
        said = f"{type(error).__name__}: {str(error).strip().split(chr(10))[0]}"
        way = "slice by slice, as `jax.vmap` does, " if batch else ""
        message = f"the operation `{spec.name}` can't be traced {way}for {shown}: {said}"
        return message, "an operation is a function of arrays that JAX can trace and batch", True
    if not isinstance(result, jax.ShapeDtypeStruct):
        message = f"the operation `{spec.name}` returns {_described(result)}"
        return message, "an operation returns one array", False
    expected = (batch,) * bool(batch) + tuple(lengths[axis] for axis in spec.signature.result)
    if result.shape != expected:
        message = (
            f"the operation `{spec.name}` returns an array of shape {result.shape} for {shown}, but its"
            f" declaration says {expected}"
        )
        permuted = sorted(result.shape) == sorted(expected)
        names = {length: axis for axis, length in lengths.items()}
        advice = "make the function and its signature agree"
        if permuted and not batch:
            advice = f"its result is `-> {' '.join(names[length] for length in result.shape)}`"
        return message, advice, False
    if result.dtype != "float32":
        message = f"the operation `{spec.name}` returns {result.dtype} for operands of float32"
        return message, "the result of an operation has the dtype of its first operand", False
    return None


def _described(result: object) -> str:
    return (
        f"{len(result)} values" if isinstance(result, tuple | list) else f"{result!r}, which is not an array"
    )
