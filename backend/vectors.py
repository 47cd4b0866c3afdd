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

WIDTH = "xla_cpu_prefer_vector_width"
"""The option that says how wide they are, in bits."""

SAVED: dict[str, tuple[float, float]] = {
    "atan": (2.4, 3.0),
    "atan2": (2.4, 3.0),
    "cosh": (0.1, 0.5),
    "erf": (0.02, 0.0),
    "erfc": (0.1, 0.6),
    "exp": (0.1, 0.25),
    "exp2": (0.1, 0.35),
    "expm1": (0.2, 0.4),
    "logistic": (0.09, 0.24),
    "reduce_max": (-0.02, 0.0),
    "reduce_min": (-0.02, 0.0),
    "rsqrt": (-0.04, 0.1),
    "sinh": (0.18, 0.6),
    "tanh": (0.07, 0.18),
}
"""By primitive: nanoseconds that an entry of its operand takes less with vectors of 512 bits, in float32 and
in float64. Two cores of an AMD EPYC (Zen 4), operands in cache. In float32, XLA refines the estimate of rsqrt
once more; arithmetic, logarithms, sines, powers and roots take as long either way (docs/performance.md)."""


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

    A body of a `while` is taken to run once, and of a choice all branches.

    >>> import jax, jax.numpy as jnp
    >>> round(1e9 * saved(jax.make_jaxpr(jnp.exp)(jnp.ones(10)).jaxpr), 3)
    1.0
    """
    known: dict[int, float] = {}

    def total(jaxpr: Jaxpr) -> float:
        if id(jaxpr) not in known:
            known[id(jaxpr)] = sum(
                _own(equation) + _turns(equation) * sum(map(total, jaxprs_in_params(equation.params)))
                for equation in jaxpr.eqns
            )
        return known[id(jaxpr)]

    return total(jaxpr)


def _turns(equation: Any) -> int:
    """How often what is inside of an equation runs, as far as is known."""
    return int(equation.params["length"]) if equation.primitive.name == "scan" else 1


def _own(equation: Any) -> float:
    """Seconds saved by an equation itself."""
    if equation.primitive.name not in SAVED:
        return 0.0
    aval = equation.invars[0].aval
    single, double = SAVED[equation.primitive.name]
    if not jnp.issubdtype(aval.dtype, jnp.floating) and not equation.primitive.name.startswith("reduce"):
        return 0.0
    return float(1e-9 * math.prod(aval.shape) * (double if aval.dtype.itemsize == 8 else single))
