"""Elementwise functions as JAX expressions."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.backend.layout import Emitted, Lengths, broadcast, broadcastable
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import is_inexact
from eqsat.ir.ops import Const, Map

INFIX = {
    "add": "+",
    "add_any": "+",
    "sub": "-",
    "mul": "*",
    "and": "&",
    "or": "|",
    "xor": "^",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
BROADCASTING = {"max": "jnp.maximum", "min": "jnp.minimum"}
PREFIX = {"neg": "-", "not": "~"}
INT32_MAX = 2**31 - 1
KEYS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}
"""The dtypes of random keys: JAX has no names for these, but for what implements them."""


def dtype_text(dtype: str) -> str:
    """A dtype as the emitted program spells it.

    >>> dtype_text("float32"), dtype_text("bool")
    ('jnp.float32', 'jnp.bool_')
    """
    if dtype in KEYS:
        return f'jax.random.key(0, impl="{KEYS[dtype]}").dtype'
    return "jnp.bool_" if dtype == "bool" else f"jnp.{dtype}"


def scalar_text(op: Const) -> str:
    """A constant's bare value, as Python prints it."""
    special = {"inf": "jnp.inf", "-inf": "-jnp.inf", "nan": "jnp.nan", "-nan": "jnp.nan"}
    if op.text in special:
        return special[op.text]
    if "j" in op.text and ("nan" in op.text or "inf" in op.text):
        value = complex(op.text)
        return f"complex(float({str(value.real)!r}), float({str(value.imag)!r}))"
    return op.text


def constant_text(op: Const) -> str:
    """A constant as an array of its dtype."""
    return f"{dtype_text(op.dtype)}({scalar_text(op)})"


def operand_text(op: Const, dtype: str) -> str:
    """A constant as an operand beside arrays of `dtype`: a bare number where that means the same."""
    if op.dtype != dtype or op.dtype == "bool":
        return constant_text(op)
    if not is_inexact(op.dtype) and abs(int(op.text)) > INT32_MAX:
        return constant_text(op)
    return scalar_text(op)


def takes_bare_numbers(op: Map, dtypes: Sequence[str]) -> bool:
    """Whether a bare number in the function's text takes the dtype of the array beside it."""
    match op.name:
        case "div":
            return is_inexact(op.dtype)
        case "select_n":
            return dtypes[0] == "bool"
        case name:
            return name in INFIX or name in BROADCASTING


def map_text(
    op: Map,
    operands: Sequence[Emitted],
    dtypes: Sequence[str],
    lengths: Lengths,
    order: tuple[Axis, ...],
) -> Emitted:
    """`op` applied to operands, as an expression.

    **Arguments:**

    - `dtypes`: of the operands.
    - `order`: of the result's axes.
    """
    loose = [broadcastable(operand, order) for operand in operands]

    def full() -> str:
        return ", ".join(broadcast(operand, order, lengths) for operand in operands)

    params = dict(op.params)
    match op.name:
        case name if name in INFIX:
            text = f"{loose[0]} {INFIX[name]} {loose[1]}"
        case name if name in PREFIX:
            text = f"{PREFIX[name]}{loose[0]}"
        case name if name in BROADCASTING:
            text = f"{BROADCASTING[name]}({loose[0]}, {loose[1]})"
        case "div" if is_inexact(op.dtype):
            text = f"{loose[0]} / {loose[1]}"
        case "select_n" if dtypes[0] == "bool":
            text = f"jnp.where({loose[0]}, {loose[2]}, {loose[1]})"
        case "clamp" if not operands[0].order and not operands[2].order:
            text = f"lax.clamp({', '.join(loose)})"
        case "convert":
            # JAX warns of a conversion that drops the imaginary part; where it was asked for, it is meant.
            drops = dtypes[0].startswith("complex") and not op.dtype.startswith("complex")
            real = f"lax.real({loose[0]})" if drops else loose[0]
            text = f"lax.convert_element_type({real}, {dtype_text(op.dtype)})"
        case "square" if op.dtype.startswith("complex"):
            # As powers are written; `lax.square` of complex numbers is computed in another way.
            text = f"lax.integer_pow({loose[0]}, 2)"
        case "integer_pow":
            text = f"lax.integer_pow({loose[0]}, {params['y']})"
        case "round":
            text = f"lax.round({loose[0]}, lax.RoundingMethod({params['rounding_method']}))"
        case "reduce_precision":
            bits = f"exponent_bits={params['exponent_bits']}, mantissa_bits={params['mantissa_bits']}"
            text = f"lax.reduce_precision({loose[0]}, {bits})"
        case "eq_to" | "lt_to" | "le_to" | "mulhi" | "regularized_incomplete_beta" as name:
            text = f"lax.{name}_p.bind({full()})"
        case name:
            text = f"lax.{name}({full()})"
    return Emitted(text, order)
