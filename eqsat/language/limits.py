"""Limits on the size of a rules file, which `rules/README.md` states."""

from __future__ import annotations

MOST_CHARACTERS = 500_000
"""The most characters in a file and all that it includes."""

MOST_INCLUDED = 50
"""The most files in a chain in which each includes the next."""

MOST_NESTED = 100
"""The deepest nesting of terms. A sum of n terms is a nest of n - 1 sums."""

MOST_DIGITS = 9
"""The most digits of an integer exponent, and of the number of entries that `copy(k) + 1` adds."""

MOST_COMMUTING = 8
"""The most operators on a matched side whose operands commute.

Matching tries both orders of each, so each doubles the work.
"""

MOST_PROBLEMS = 20
"""The most errors that are shown of one file and all that it includes."""
