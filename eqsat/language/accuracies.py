"""The accuracy classes of rules."""

from __future__ import annotations

from typing import Literal

Accuracy = Literal["exact", "reassociates", "cancels", "amplifies"]
ACCURACIES: tuple[Accuracy, ...] = ("exact", "reassociates", "cancels", "amplifies")
"""From harmless to harmful: what a rule may do to floating-point results."""
