"""The elementwise functions, with their number of operands and their cost, and the monoids."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Elementwise:
    """An elementwise function.

    **Attributes:**

    - `arity`: the number of operands.
    - `cost`: the time per element relative to an addition, vectorised and with operands in cache.
    - `boolean`: whether the result is boolean whatever the dtypes of the operands.
    - `params`: the parameters that are part of the function's identity. All other parameters of the primitive
      must have their default values.
    """

    arity: int
    cost: float = 1.0
    boolean: bool = False
    params: tuple[str, ...] = ()


def _table() -> dict[str, Elementwise]:
    table: dict[str, Elementwise] = {}

    def enter(
        names: str, arity: int, cost: float, boolean: bool = False, params: tuple[str, ...] = ()
    ) -> None:
        for name in names.split():
            table[name] = Elementwise(arity, cost, boolean, params)

    enter("neg abs sign floor ceil real imag conj not copy square one_minus_square stop_gradient", 1, 1.0)
    enter("round", 1, 1.0, params=("rounding_method",))
    enter("is_finite", 1, 1.0, True)
    enter("convert", 1, 1.0)
    enter("reduce_precision", 1, 1.0, params=("exponent_bits", "mantissa_bits"))
    enter("integer_pow", 1, 2.0, params=("y",))
    enter("population_count clz", 1, 2.0)
    enter("sqrt rsqrt", 1, 3.0)
    enter("exp exp2 log log2 logistic tanh", 1, 6.0)
    enter("log1p expm1 sin cos tan sinh cosh cbrt erf erfc", 1, 10.0)
    enter("asin acos atan asinh acosh atanh erf_inv", 1, 20.0)
    enter("lgamma digamma bessel_i0e bessel_i1e", 1, 40.0)
    enter("add sub mul max min add_any and or xor", 2, 1.0)
    enter("shift_left shift_right_logical shift_right_arithmetic mulhi", 2, 1.0)
    enter("eq ne lt le gt ge eq_to lt_to le_to", 2, 1.0, True)
    enter("div", 2, 3.0)
    enter("nextafter complex rem", 2, 5.0)
    enter("pow atan2", 2, 20.0)
    enter("igamma igammac igamma_grad_a polygamma zeta", 2, 200.0)
    enter("select_n clamp", 3, 1.0)
    enter("regularized_incomplete_beta", 3, 200.0)
    return table


ELEMENTWISE: dict[str, Elementwise] = _table()
"""The elementwise functions by the names of JAX's primitives, with a few differences.

`convert` is JAX's `convert_element_type`, `square` also stands for `integer_pow` with exponent 2, and
`one_minus_square` is 1 - x^2.
"""

COMMUTATIVE = frozenset({"add", "mul", "max", "min", "and", "or", "xor", "eq", "ne", "add_any"})
"""The functions of two operands that are commutative."""

INCREASING = frozenset(
    {"exp", "exp2", "expm1", "cbrt", "logistic", "tanh", "sinh", "atan", "asinh", "erf", "copy"}
)
"""Functions of one real operand that are increasing on all real numbers.

Functions that are NaN somewhere, such as log and sqrt, are left out. For them, max(f(x)) can be NaN where
f(max(x)) is a number.
"""

LINEAR = frozenset({"neg", "real", "imag", "conj", "copy", "stop_gradient"})
"""Functions f of one operand with f(a + b) = f(a) + f(b), f(0) = 0 and f(c a) = c f(a) for real c."""

IDENTITIES: dict[str, str] = {
    "sum": "zero",
    "prod": "one",
    "max": "lowest",
    "min": "highest",
    "and": "ones",
    "or": "zero",
    "xor": "zero",
}
"""The reductions that are monoids, each with the name of its identity element."""
