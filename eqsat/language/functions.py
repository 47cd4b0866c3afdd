"""The function names that rules may use."""

from __future__ import annotations

REDUCTIONS = ("sum", "prod", "max", "min", "and", "or", "xor", "mean")
"""The kinds of reduction."""
