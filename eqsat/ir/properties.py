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
"""By name, along how many axes: a matrix property `lower[i, j](a)` has rows along i, columns along j.

spd: symmetric positive definite; orthogonal: the columns are orthonormal, sum_i a_ij a_ik = delta_jk
(so there are no more columns than rows).
"""
