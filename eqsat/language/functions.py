"""The names that rules may use for functions, reductions, classes of functions, and guards."""

from __future__ import annotations

from typing import Literal

from eqsat.ir.elementwise import IDENTITIES

REDUCTIONS = (*IDENTITIES, "mean")
"""The kinds of reduction."""

MONOIDS = tuple(IDENTITIES)
"""The reductions whose partial results can be combined by the same function, as a fold does."""

UNROUNDED = ("max", "min", "and", "or", "xor")
"""The monoids that round nothing: in any order, the same comes out."""

ARITIES: dict[str, int | None] = {
    "elementwise": None,
    "commutative": 2,
    "increasing": 1,
    "linear": 1,
    "operations": None,
    "calls": None,
}
"""The classes whose functions are written `f(a)`, and of how many operands they are, if all of as many."""

CLASSES = (*ARITIES, "reductions", "monoids", "unrounded", "selections")
"""What a function variable may range over; calls are all primitives that the language has no notation for
(a cumulative sum, a scatter), operations are the named ones."""

CALLED = frozenset({"calls", "operations"})
"""The classes whose functions may need some axes of their operands whole."""

ENTRIES: dict[str, Literal["values", "indices"]] = {"top_k": "values", "top_k_indices": "indices"}
"""The selections that rules write by name, with the axis of their entries: `top_k[n, m] a`."""

PLACES = ("argmax", "argmin")
"""The selections that rules write by name, without an axis of entries: `argmax[n] a` is an index."""

SELECTIONS = (*PLACES, *ENTRIES)
"""What the class of selections holds."""

REDUCING = frozenset({"reductions", "monoids", "unrounded", "selections"})
"""The classes whose functions are written `f[K] a`."""

FOLDING = frozenset({"monoids", "unrounded", "selections"})
"""The classes whose functions a `fold[n, f]` may combine with; a call only combines with itself."""

REDUCED = ("accumulates", "sums")
"""The guards that say of an axis of a call's operands that its results lack it."""

ALONG = ("passes", *REDUCED)
"""The guards that say what a call does along an axis."""

GUARDS: dict[str, tuple[str, ...]] = {
    "in": ("axes", "axes or term"),
    "large": ("axis",),
    "tiled": ("axis",),
    "stored": ("term",),
    "called": ("term",),
    "passes": ("call", "axis"),
    "accumulates": ("call", "axis"),
    "sums": ("call", "axis"),
    "nonempty": ("set",),
    "constant": ("term",),
    "float": ("term",),
    "integer": ("term",),
    "boolean": ("term",),
    "complex": ("term",),
    "real": ("term",),
    "wide": ("term",),
}
"""The kinds of each guard's operands."""
