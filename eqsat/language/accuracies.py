"""The accuracy classes of rules: how a rewrite may change floating-point results."""

from __future__ import annotations

from typing import Literal

Accuracy = Literal["exact", "reassociates", "rescales", "cancels", "amplifies"]
ACCURACIES: tuple[Accuracy, ...] = ("exact", "reassociates", "rescales", "cancels", "amplifies")
"""The accuracy classes, ordered from the one that changes results least to the one that changes them most."""

MEANINGS: dict[Accuracy, str] = {
    "exact": "it gives the same bits, whatever the data; only the payload of a NaN may differ",
    "reassociates": "it rounds as sums in another order do, and neither overflows nor underflows where the"
    " left side does not",
    "rescales": "it may overflow, underflow, or change the sign of a zero, where the left side does not",
    "cancels": "it loses digits where nearly equal numbers are subtracted",
    "amplifies": "it multiplies errors by a condition number more than the left side does",
}
"""What each accuracy class says of a rule, for messages to users."""
