"""The elementwise functions in NumPy, for the reference interpreter.

Floats and complex numbers have the precision of the run, whatever their dtype in the program. Functions that
NumPy lacks, such as `erf`, `lgamma` and bit counts, are evaluated by JAX with x64 enabled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from eqsat.errors import EqsatError
from eqsat.ir.dtypes import is_extended, is_inexact, numpy_dtype

Array = np.ndarray[Any, np.dtype[Any]]
Function = Callable[..., Any]

ROUND_HALF_EVEN = 1

PRECISIONS: dict[str, tuple[type[np.floating[Any]], type[np.complexfloating[Any, Any]]]] = {
    "double": (np.float64, np.complex128),
    "single": (np.float32, np.complex64),
    "extended": (np.longdouble, np.clongdouble),
}
"""The dtypes of floats and complex numbers in a run, by precision, whatever their width in the program."""

OWN = "own"
"""The precision of a run in which each term has its own dtype, except that bfloat16 is held as float32."""


def reference_dtype(name: str, precision: str = "double") -> np.dtype[Any]:
    """Returns the dtype in which the reference interpreter holds values of dtype `name`.

    Raises an `EqsatError` if the dtype is one of JAX's extended dtypes.

    >>> reference_dtype("bfloat16"), reference_dtype("complex64"), reference_dtype("int8")
    (dtype('float64'), dtype('complex128'), dtype('int8'))
    """
    if is_extended(name):
        raise EqsatError(f"the reference interpreter has no arrays of dtype {name}")
    dtype = numpy_dtype(name)
    if not is_inexact(name):
        return dtype
    if precision == OWN:
        return np.dtype(np.float32) if name == "bfloat16" else dtype
    real, complex_ = PRECISIONS[precision]
    return np.dtype(complex_ if jax.numpy.issubdtype(dtype, np.complexfloating) else real)


def for_jax(value: Array) -> Array:
    """Converts a value to a dtype that JAX has. NumPy's long doubles become doubles."""
    wide = {np.dtype(np.longdouble): np.float64, np.dtype(np.clongdouble): np.complex128}
    return value.astype(wide.get(value.dtype, value.dtype), copy=False)


def _div(x: Array, y: Array) -> Array:
    if x.dtype.kind in "fc":
        return np.asarray(np.divide(x, y))
    # XLA rounds quotients of integers towards zero. Its quotients by zero have all bits set.
    quotient = np.floor_divide(x, np.where(y == 0, 1, y).astype(y.dtype))
    inexact = (quotient * y != x) & ((x < 0) != (y < 0)) & (y != 0)
    return np.where(y == 0, np.asarray(-1).astype(x.dtype), quotient + inexact.astype(x.dtype))


def _rem(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.asarray(np.fmod(x, y))
    if x.dtype.kind not in "iu":
        return np.asarray(_from_jax("rem")(x, y))
    # XLA's remainder of a division by zero is what was divided. NumPy's of one by -1 may overflow.
    trivial = (y == 0) | (y == -1) if y.dtype.kind == "i" else y == 0
    return np.where(y == 0, x, np.fmod(x, np.where(trivial, 1, y).astype(y.dtype)))


def _round(x: Array, rounding_method: Any) -> Array:
    if int(rounding_method) == ROUND_HALF_EVEN:
        return np.rint(x)
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole)


def _pow(x: Array, y: Array) -> Array:
    return np.asarray(np.power(x, y.astype(x.dtype) if x.dtype.kind in "fc" else y))


def _max(x: Array, y: Array) -> Array:
    """Returns the larger operand. XLA orders 0 above -0, and NumPy may take either."""
    found = np.maximum(x, y)
    return np.where((x == 0) & (y == 0), x + y, found) if found.dtype.kind == "f" else found


def _min(x: Array, y: Array) -> Array:
    found = np.minimum(x, y)
    return np.where((x == 0) & (y == 0), -(-x - y), found) if found.dtype.kind == "f" else found


def _atan2(y: Array, x: Array) -> Array:
    return np.asarray(np.arctan2(y, x) if y.dtype.kind == "f" else _from_jax("atan2")(y, x))


def _select_n(which: Array, *cases: Array) -> Array:
    if which.dtype == np.bool_ and len(cases) == 2:
        return np.where(which, *reversed(cases))
    which, *cases_ = np.broadcast_arrays(which.astype(np.int64), *cases)
    return np.asarray(np.select([which == i for i in range(len(cases_))], cases_))


def _from_jax(name: str) -> Function:
    """Returns the JAX primitive or `jax.lax` function `name` as a function of NumPy arrays."""
    primitive = getattr(jax.lax, f"{name}_p", None)

    def call(*operands: Array, **params: Any) -> Array:
        if primitive is None and not hasattr(jax.lax, name):
            raise EqsatError(f"the reference interpreter does not know the elementwise function {name!r}")
        with jax.enable_x64(True):
            arrays = np.broadcast_arrays(*map(for_jax, operands))
            if primitive is None:
                return np.asarray(getattr(jax.lax, name)(*arrays, **params))
            return np.asarray(primitive.bind(*arrays, **params))

    return call


NUMPY_FUNCTIONS: dict[str, Function] = {
    # one operand
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": _round,
    "real": np.real,
    "imag": np.imag,
    "conj": np.conj,
    "not": np.bitwise_not,
    "copy": np.asarray,
    "stop_gradient": np.asarray,
    "square": np.square,
    "one_minus_square": lambda x: 1 - x * x,
    "integer_pow": lambda x, y: np.power(x, np.asarray(y, x.dtype)) if y >= 0 else 1 / np.power(x, -y),
    "is_finite": np.isfinite,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    # two operands
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _div,
    "rem": _rem,
    "pow": _pow,
    "max": _max,
    "min": _min,
    "atan2": _atan2,
    "complex": lambda x, y: x + 1j * y,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    # three operands
    "select_n": _select_n,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
}
"""The NumPy functions by their names in `eqsat.ir.elementwise`. JAX evaluates those that are not here."""


def _convert(x: Array, dtype: np.dtype[Any]) -> Array:
    """Converts `x` to another dtype as XLA does.

    Floats are rounded towards zero and saturate when they become integers. Complex numbers lose their
    imaginary part when they become real numbers, integers or bools.
    """
    if x.dtype.kind == "c" and dtype.kind != "c":
        x = x.real
    if x.dtype.kind == "f" and dtype.kind in "iu":
        with jax.enable_x64(True):
            return np.asarray(jax.lax.convert_element_type(for_jax(x), dtype))
    if jax.numpy.issubdtype(x.dtype, np.integer) and dtype.itemsize == x.dtype.itemsize == 1:
        x = x.astype(np.int64)  # NumPy cannot convert int4 to uint4
    return x.astype(dtype)


def apply(
    name: str, dtype: str, operands: list[Array], params: dict[str, Any], precision: str = "double"
) -> Array:
    """Applies the elementwise function `name` to operands that broadcast.

    **Arguments:**

    - `dtype`: the dtype of the result in the program. The array has its `reference_dtype`.
    - `params`: the static parameters of the function.
    """
    target = reference_dtype(dtype, precision)
    with np.errstate(all="ignore"):
        if name == "convert":
            return _convert(operands[0], target)
        function = NUMPY_FUNCTIONS.get(name) or _from_jax(name)
        return np.asarray(function(*operands, **params)).astype(target, copy=False)
