"""Calls of elementwise primitives, each with operands of all dtypes that the primitive takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import primitives

from eqsat.frontend.primitives import PRIMITIVES, Kind
from eqsat.ir.elementwise import ELEMENTWISE
from tests.primitives.case import arr, case

WIDE = ("float64", "complex128", "int64", "uint64")
NARROW = ("float32", "bfloat16", "float8_e4m3fn", "complex64", "int32", "int4", "uint4", "bool")
COSTLY = 40.0
"""From this cost on, functions are tried in one dtype only, and not on slices.

They are long formulas, whose rounding depends on the lengths of vectors.
"""

LOOPS = 200.0
"""From this cost on, functions are not run, since they take seconds to compile."""
ELEMENTS = 7  # a prime, so only chunks of one element divide it


def _accuracy(name: str) -> dict[str, Any]:
    """Returns the parameter `accuracy` if this version of JAX gives it to the primitive of that name."""
    function = getattr(lax, name, None)
    if function is None:
        return {}
    (equation,) = jax.make_jaxpr(function)(0.5).eqns
    return {"accuracy": None} if "accuracy" in equation.params else {}


PARAMETERS: dict[str, dict[str, Any]] = {
    "conj": {"input_dtype": np.dtype("complex64")},
    "integer_pow": {"y": 3},
    "reduce_precision": {"exponent_bits": 5, "mantissa_bits": 7},
    "round": {"rounding_method": lax.RoundingMethod.AWAY_FROM_ZERO},
    **{
        name: _accuracy(name)
        for name in [
            "cbrt",
            "cos",
            "erf",
            "erf_inv",
            "erfc",
            "exp",
            "exp2",
            "expm1",
            "log",
            "log1p",
            "log2",
            "logistic",
            "rsqrt",
            "sin",
            "sqrt",
            "tan",
            "tanh",
        ]
    },
    **{name: {"out_dtype": None} for name in ("add", "sub", "mul")},
}
"""The parameters of the primitives that have any."""

NOT_ON_CPU = {("eq_to", "complex64"), ("eq_to", "complex128"), ("erfc", "float8_e4m3fn")}
"""The primitives and dtypes that JAX traces but XLA does not compile on CPUs."""

ABOVE_ONE = {"acosh", "zeta"}


def operand(name: str, dtype: str, position: int) -> Any:
    """Returns elements of a dtype within the domain of the primitive."""
    if name == "select_n" and position == 0:
        return arr(ELEMENTS, dtype=bool)
    kind = jnp.dtype(dtype)
    if dtype == "bool":
        return arr(ELEMENTS + position, dtype=bool)[:ELEMENTS]
    if jnp.issubdtype(kind, jnp.integer):
        return ((np.arange(ELEMENTS) * (2 + position) + position) % 5 + 1).astype(kind)
    parts = np.linspace(0.15, 0.85, ELEMENTS)[:: (-1) ** position] + (name in ABOVE_ONE) + 0.01 * position
    return (parts + 0.5j * parts if jnp.issubdtype(kind, jnp.complexfloating) else parts).astype(kind)


def exported(name: str) -> Any:
    """Returns the primitive of that name, or None if this version of JAX does not have it."""
    name = {"add_any": "add_jaxvals"}.get(name, name)
    return getattr(primitives, f"{name}_p", None) or getattr(lax, f"{name}_p", None)


def taken(bind: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Returns whether the primitive takes operands of these dtypes."""
    try:
        jax.eval_shape(bind, *args)
    except Exception:
        return False
    return True


def enter(name: str, dtypes: tuple[str, ...], wide: bool) -> None:
    primitive, arity = exported(name), ELEMENTWISE[name].arity
    cost = ELEMENTWISE[name].cost
    params = PARAMETERS.get(name, {})

    def bind(*operands: Any) -> Any:
        return primitive.bind(*operands, **params)

    dtypes = tuple(dtype for dtype in dtypes if (name, dtype) not in NOT_ON_CPU)
    with jax.enable_x64(wide):
        groups = [
            tuple(operand(name, dtype, position) for position in range(arity))
            for dtype in dtypes[: 1 if cost >= COSTLY else None]
        ]
        groups = [group for group in groups if taken(bind, group)]
    if groups or not wide:
        case(
            name + ":wide" * wide, lambda *groups: [bind(*group) for group in groups], *groups,
            passing={(0,) * arity: (0,)}, primitive=name, x64=wide, runs=cost < LOOPS,
            slices=not wide and cost < COSTLY,
        )  # fmt: skip


for _name, _entry in PRIMITIVES.items():
    if _entry.kind is Kind.ELEMENTWISE and _name in ELEMENTWISE and exported(_name) is not None:
        enter(_name, NARROW, False)
        enter(_name, WIDE, True)


def converted(*operands: Any) -> list[Any]:
    """Converts each operand to two other dtypes."""
    kinds = [x.dtype for x in operands]
    return [
        lax.convert_element_type(x, kinds[(place + step) % len(kinds)])
        for place, x in enumerate(operands)
        for step in (1, 3)
    ]


REAL = [operand("", dtype, 0) for dtype in NARROW if dtype != "complex64"]
case("convert_element_type", converted, *REAL, passing={(0,): (0,)})
case("convert_element_type:complex", lambda x: x.astype(np.complex64), REAL[0], passing={(0,): (0,)})
for _name in ("copy", "stop_gradient"):
    case(_name, exported(_name).bind, operand("", "float32", 0), passing={(0,): (0,)})
