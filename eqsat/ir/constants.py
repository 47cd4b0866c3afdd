"""Scalar constants: from values to their exact texts, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.ir.ops import Const


def constant_text(value: Any) -> str:
    """The exact text of a scalar: `float('nan')` prints as nan, -0.0 keeps its sign."""
    scalar = np.asarray(value)[()]
    if scalar.dtype.kind == "b":
        return str(bool(scalar))
    if scalar.dtype.kind in "iu":
        return str(int(scalar))
    if scalar.dtype.kind == "c":
        return repr(complex(scalar))
    return repr(float(scalar))


def constant_value(op: Const) -> Any:
    """The value of a constant: a bool, a float or a complex number."""
    if op.text in ("True", "False"):
        return op.text == "True"
    return complex(op.text) if "j" in op.text else float(op.text)
