"""The monoids of reductions: what each kind starts from, and the function that adds an entry."""

from __future__ import annotations

import numpy as np

from eqsat.ir.dtypes import is_inexact, is_real_float, numpy_dtype

MERGES = {
    "sum": "add",
    "prod": "mul",
    "max": "max",
    "min": "min",
    "and": "and",
    "or": "or",
    "xor": "xor",
}
"""For each kind, the elementwise function that combines partial results."""


def identity_text(kind: str, dtype: str) -> str:
    """Returns the identity of a reduction, as the text of a constant.

    >>> identity_text("max", "float32"), identity_text("min", "int8"), identity_text("sum", "bool")
    ('-inf', '127', 'False')
    """
    if dtype == "bool":
        return str(kind in ("and", "min", "prod"))
    if kind in ("max", "min"):
        if is_real_float(dtype):
            return "-inf" if kind == "max" else "inf"
        limits = np.iinfo(numpy_dtype(dtype))
        return str(limits.min if kind == "max" else limits.max)
    if kind == "and":
        return "-1" if not dtype.startswith("u") else str(np.iinfo(numpy_dtype(dtype)).max)
    number = 1 if kind == "prod" else 0
    if not is_inexact(dtype):
        return str(number)
    return repr(float(number) if is_real_float(dtype) else complex(number))
