"""The names that rules may use for functions, reductions, classes of functions, and guards."""

from __future__ import annotations

from typing import Literal

from eqsat.ir.elementwise import IDENTITIES

REDUCTIONS = (*IDENTITIES, "mean")
"""The kinds of reduction."""

MONOIDS = tuple(IDENTITIES)
"""The reductions whose partial results can be combined by the same function, as a fold does."""

CLASSES = ("elementwise", "commutative", "increasing", "linear") + (
    "reductions",
    "monoids",
    "selections",
    "calls",
)
"""What a function variable may range over; calls are all
primitives that the language has no notation for (a Cholesky factorisation, a sort)."""

ENTRIES: dict[str, Literal["values", "indices"]] = {"top_k": "values", "top_k_indices": "indices"}
"""The selections that rules write by name, with the axis of their entries: `top_k[n, m] a`."""

SELECTIONS = ("argmax", "argmin", "top_k")
"""What the class of selections holds. Rules name them by a variable only: they have parameters."""

APPLIED = frozenset({"elementwise", "commutative", "increasing", "linear", "calls"})
"""The classes whose functions are written `f(a)`."""

REDUCING = frozenset({"reductions", "monoids", "selections"})
"""The classes whose functions are written `f[K] a`."""

FOLDING = frozenset({"monoids", "selections"})
"""The classes whose functions a `fold[n, f]` may combine with."""

GUARDS: dict[str, tuple[str, ...]] = {
    "in": ("axes", "axes or term"),
    "large": ("axis",),
    "stored": ("term",),
    "passes": ("call", "axis"),
    "float": ("term",),
    "integer": ("term",),
    "boolean": ("term",),
    "complex": ("term",),
    "real": ("term",),
    "constant": ("term",),
    "nonempty": ("set",),
}
"""The kinds of each guard's operands."""
