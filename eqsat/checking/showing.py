"""Formats a failure as text: arrays that can be pasted, and the values of both sides."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.checking.instance import Instance
from eqsat.checking.kinds import kind_of
from eqsat.checking.memberships import axis_sets
from eqsat.checking.oracle import Failure
from eqsat.checking.statement import ENTRIES, loops

Array = np.ndarray[Any, np.dtype[Any]]

MOST_SHOWN = 60
"""How many elements an array may have to be written out. Of a longer array, only the first six are."""


def literal(value: Array) -> str:
    """Formats an array as a NumPy expression.

    >>> print(literal(np.array([[1.0, -2.5]])))
    np.array([[1.0, -2.5]])
    >>> print(literal(np.array([1, 2], np.uint8)))
    np.array([1, 2], np.uint8)
    """
    if value.size > MOST_SHOWN:
        return f"{literal(value.ravel()[:6])}  # ... and so on, of shape {value.shape}"
    dtype = f", np.{value.dtype.name}" if value.dtype.kind in "iu" else ""
    if value.size == 0:
        return f"np.zeros({value.shape}{dtype})"
    return f"np.array({_nested(value)}{dtype})"


def _nested(value: Array) -> str:
    if value.ndim == 0:
        return _number(value.item())
    return f"[{', '.join(_nested(row) for row in value)}]"


def _number(value: Any) -> str:
    if isinstance(value, complex):
        return f"({value.real!r}{value.imag:+}j)"
    text = repr(value)
    return {"nan": "np.nan", "inf": "np.inf", "-inf": "-np.inf"}.get(text, text)


def shown(failure: Failure) -> str:
    """Returns a text that says what is wrong, on which arrays, and what the values of both sides are."""
    instance = failure.instance
    lines = [f"{failure.problem}, {_where(instance)}:"]
    assignments = [
        (name, literal(_presented(value, instance.dtypes.of_variable(name))), _axes_text(instance, name))
        for name, value in instance.values.items()
    ]
    width = max((len(f"{name} = {text}") for name, text, _ in assignments), default=0)
    for name, text, axes in assignments:
        lines.append(f"  {f'{name} = {text}':<{min(width, 60)}}  # {axes}")
    for setting in _settings(instance):
        lines.append(f"  {setting}")
    if failure.left is not None and failure.right is not None:
        axes = " ".join(_result_axes(instance)) or "no axes"
        lines.append(f"  left side:  {literal(_rounded(failure.left))}  # {axes}")
        lines.append(f"  right side: {literal(_rounded(failure.right))}")
    elif failure.left is not None:
        axes = " ".join(_result_axes(instance)) or "no axes"
        lines.append(f"  the term: {literal(_rounded(failure.left))}  # {axes}")
    return "\n".join(lines)


def _where(instance: Instance) -> str:
    found = set(instance.dtypes.of_variables.values())
    dtypes = ", ".join(sorted(found - {"float32"}))
    return (
        f"for {dtypes} among others"
        if "float32" in found and dtypes
        else (f"for {dtypes}" if dtypes else "on these arrays")
    )


def _presented(value: Array, dtype: str) -> Array:
    return value.astype(dtype) if kind_of(dtype) in "iu" and value.dtype.kind not in "iu" else value


def _axes_text(instance: Instance, name: str) -> str:
    if name in instance.constants:
        return "a constant"
    return f"axes {' '.join(instance.axes_of(name))}" if instance.axes_of(name) else "no axes"


def _settings(instance: Instance) -> list[str]:
    """Returns what was chosen besides values: functions, sets of axes, lengths, chunks."""
    found = [f"{variable} is {function}" for variable, function in instance.statement.functions]
    for name in axis_sets(instance.statement.rule):
        axes = sorted(instance.placement.of(name))
        found.append(f"{name} is {{{', '.join(axes)}}}")
    unused = set(instance.lengths) - {axis for name in instance.values for axis in instance.axes_of(name)}
    for axis in sorted(unused - {ENTRIES}):
        found.append(f"{axis} is of length {instance.lengths[axis]}")
    if loops(instance.statement.rule):
        chunk = f"of length {instance.chunk}" if instance.chunk else "of the whole axis"
        found.append(f"chunks are {chunk}")
    return found


def _result_axes(instance: Instance) -> list[str]:
    names = {axis: name for name, axis in instance.axes.items()}
    return [names[axis] for axis in sorted(instance.sides.left.axes)]


def _rounded(value: Array) -> Array:
    """Rounds a result to the digits that are worth showing."""
    if value.dtype.kind not in "fc":
        return value
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log10(np.max(np.abs(value[np.isfinite(value)]), initial=1e-300)))
    digits = int(np.clip(12 - exponent, 0, 300))
    wide = value.astype(np.result_type(value, np.float64))  # float16 can't hold 10^16
    return np.asarray(np.round(wide, min(digits, 16)))
