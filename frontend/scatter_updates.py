"""What a scatter makes of an entry and of its update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jax import lax

Combination = Callable[[Any, Any], Any]
"""From an entry and its update to what is there afterwards."""

COMBINED: Mapping[str, Combination] = {
    "scatter": lambda _, update: update,
    "scatter-add": lax.add,
    "scatter-sub": lax.sub,
    "scatter-mul": lax.mul,
    "scatter-min": lax.min,
    "scatter-max": lax.max,
}
"""By the name of a primitive."""


def combination(name: str, params: Mapping[str, Any]) -> Combination | None:
    """What becomes of an entry and of its update; None if a function of the user says so.

    `x.at[i].apply(f)` is a scatter, too, whose updates are zeros.
    """
    return None if name == "scatter" and params["update_jaxpr"] is not None else COMBINED[name]
