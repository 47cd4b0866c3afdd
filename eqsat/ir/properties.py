"""The properties that a term may be known to have."""

from __future__ import annotations

PROPERTIES: dict[str, int] = {
    "symmetric": 2,
    "spd": 2,
    "diagonal": 2,
    "lower": 2,
    "upper": 2,
    "orthogonal": 2,
    "nonnegative": 0,
    "positive": 0,
    "nonzero": 0,
}
"""The number of axes that each property is stated along, by the property's name.

A matrix property such as `lower[i, j](a)` has the rows along i and the columns along j. `spd` means symmetric
positive definite. `orthogonal` means that the columns are orthonormal, sum_i a_ij a_ik = delta_jk, so there
are at most as many columns as rows.
"""
