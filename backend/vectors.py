"""How wide the vectors are that a program is compiled for.

XLA on CPU compiles for vectors of 256 bits where the processor has 512, too. Exponentials take two thirds of
the time with the wide ones; a few other operations take longer. So it depends on what a program computes.
"""

from __future__ import annotations

import math
import os
from functools import cache
from typing import Any

import jax.numpy as jnp
from jax.extend.core import Jaxpr, jaxprs_in_params

from eqsat.targets.cpu import WIDTH

SAVED: dict[str, tuple[float, float]] = {
    "exp": (0.1, 0.25),
    "exp2": (0.1, 0.35),
    "logistic": (0.09, 0.24),
    "reduce_max": (-0.02, 0.0),
    "reduce_min": (-0.02, 0.0),
    "rsqrt": (-0.04, 0.1),
    "tanh": (0.07, 0.18),
}
"""By primitive: nanoseconds that an entry of its operand takes less with vectors of 512 bits, in float32 and
in float64. Two cores of an AMD EPYC (Zen 4), operands in cache. In float32, XLA refines the estimate of rsqrt
once more; arithmetic, logarithms, sines, powers and roots take as long in both (docs/log/elementwise.md)."""

ELEMENTWISE = """
    abs add add_any and bitcast_convert_type cbrt ceil clamp convert_element_type copy cos cosh div
    eq erf erf_inv erfc exp exp2 expm1 floor ge gt integer_pow is_finite le log log1p logistic lt
    max min mul ne neg nextafter not or pow reduce_precision rem round rsqrt select_n shift_left
    shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh
    xor
"""

REDUCTIONS = """
    argmax argmin cumlogsumexp cummax cummin cumprod cumsum reduce_and reduce_max reduce_min
    reduce_or reduce_prod reduce_sum reduce_xor sort top_k
"""

MOVES = """
    broadcast_in_dim concatenate dynamic_slice dynamic_update_slice gather iota name
    optimization_barrier pad reshape rev scatter scatter-add scatter-max scatter-min scatter-mul
    scatter-sub slice split squeeze transpose
"""

CALLS = """
    cholesky conv_general_dilated debug_callback debug_print dot_general eigh fft
    householder_product io_callback lu lu_pivots_to_permutation pure_callback qr svd
    triangular_solve
"""

NESTED = """
    closed_call cond custom_jvp_call custom_vjp_call eval_jaxpr jit remat2 scan while
"""

REAL = frozenset(ELEMENTWISE.split())
RIGHT = REAL | frozenset(f"{REDUCTIONS} {MOVES} {CALLS} {NESTED}".split())
"""Primitives that are compiled rightly for 512 bits: of elementwise ones and reductions, a test compares them
with XLA's choice; others move numbers, call libraries or hold programs that are looked at themselves. In
jaxlib 0.10 arc tangents of that width are wrong, as the call of a function that was compiled for less. So
what is not known to be right, complex numbers included, is compiled as XLA would."""


@cache
def has_wide() -> bool:
    """Whether the processor has vectors of 512 bits, as Linux tells, and the user sets no width."""
    if WIDTH in os.environ.get("XLA_FLAGS", ""):
        return False
    try:
        with open("/proc/cpuinfo", "rb") as file:
            return b" avx512f " in file.read(1 << 14)
    except OSError:
        return False


def saved(jaxpr: Jaxpr) -> float:
    """Seconds that a program takes less if it is compiled for wide vectors; negative if it takes longer.

    A body of a `while` is taken to run once, and of a choice all branches. What may not be compiled rightly
    is infinitely slow.

    >>> import jax, jax.numpy as jnp
    >>> round(1e9 * saved(jax.make_jaxpr(jnp.exp)(jnp.ones(10)).jaxpr), 3)
    1.0
    """
    known: dict[int, float] = {}

    def total(jaxpr: Jaxpr) -> float:
        if id(jaxpr) not in known:
            known[id(jaxpr)] = sum(
                _own(equation) + _iterations(equation) * sum(map(total, jaxprs_in_params(equation.params)))
                for equation in jaxpr.eqns
            )
        return known[id(jaxpr)]

    return total(jaxpr)


def _iterations(equation: Any) -> int:
    """How often what is inside of an equation runs, as far as is known."""
    return int(equation.params["length"]) if equation.primitive.name == "scan" else 1


def _own(equation: Any) -> float:
    """Seconds saved by an equation itself, without what is within."""
    name = equation.primitive.name
    if name not in RIGHT or (name in REAL and any(map(_is_complex, equation.invars + equation.outvars))):
        return -math.inf
    if name not in SAVED:
        return 0.0
    aval = equation.invars[0].aval
    single, double = SAVED[name]
    if not jnp.issubdtype(aval.dtype, jnp.floating) and not name.startswith("reduce"):
        return 0.0
    return float(1e-9 * math.prod(aval.shape) * (double if aval.dtype.itemsize == 8 else single))


def _is_complex(value: Any) -> bool:
    dtype = getattr(value.aval, "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jnp.complexfloating))
