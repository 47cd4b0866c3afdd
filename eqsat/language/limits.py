"""How much a file of rules may ask of its reader; `rules/README.md` states these limits."""

from __future__ import annotations

MOST_CHARACTERS = 500_000
"""Of a file and of all that it includes, together."""

MOST_INCLUDED = 50
"""Files that include one another, in a chain."""

MOST_NESTED = 100
"""Terms that are in one another; a sum of n terms is n - 1 sums in one another."""

MOST_DIGITS = 9
"""Of an integer exponent, or of a number of axis entries."""

MOST_COMMUTING = 8
"""Operators of a left side whose operands matching tries in both orders: each doubles the work."""

MOST_PROBLEMS = 20
"""Errors that are shown of one file, and of those that it includes."""
