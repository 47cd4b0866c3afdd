"""The names that rules may use for functions, reductions, classes of functions, and guards."""

from __future__ import annotations

from typing import Literal

from eqsat.ir.elementwise import IDENTITIES
from eqsat.ir.operations import OPERATIONS

REDUCTIONS = (*IDENTITIES, "mean")
"""The kinds of reduction."""

MONOIDS = tuple(IDENTITIES)
"""The reductions whose partial results the same function can combine, as a fold does."""

UNROUNDED = ("max", "min", "and", "or", "xor")
"""The monoids that do not round, so that their result does not depend on the order of the entries."""

ARITIES: dict[str, int | None] = {
    "elementwise": None,
    "commutative": 2,
    "increasing": 1,
    "linear": 1,
    "operations": None,
    "calls": None,
}
"""The classes whose functions are written `f(a)`, with their number of operands; None if it varies."""

CLASSES = (*ARITIES, "reductions", "monoids", "unrounded", "selections")
"""The classes that a function variable may range over.

"operations" holds the named operations. "calls" holds the primitives that the language has no
notation for, such as a cumulative sum or a scatter.
"""

CALLED = frozenset({"calls", "operations"})
"""The classes whose functions may need their operands whole along some axes."""

ENTRIES: dict[str, Literal["values", "indices"]] = {"top_k": "values", "top_k_indices": "indices"}
"""The selections with an axis of entries, `top_k[n, m] a`, with what each gives of the selected entries."""

PLACES = ("argmax", "argmin")
"""The selections without an axis of entries: `argmax[n] a` is an index."""

SELECTIONS = (*PLACES, *ENTRIES)
"""All selections that rules can name."""

REDUCING = frozenset({"reductions", "monoids", "unrounded", "selections"})
"""The classes whose functions are written `f[K] a`."""

FOLDING = frozenset({"monoids", "unrounded", "selections"})
"""The classes that the function of a `fold[n, f]` may range over; a call may only be folded with itself."""

FOLDED = frozenset(name for name, spec in OPERATIONS.items() if spec.folds)
"""The operations that may be folded along their first axis: `fold[n, f] f[n, ...] chunk[n] a`."""

REDUCED = ("accumulates", "sums")
"""The guards that choose an axis n of the operands of a call f, which the results of f lack."""

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
"""The guards, each with the kinds of its operands."""
