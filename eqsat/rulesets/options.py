"""What a caller says of the rules to be used: files, and what they may do to rounding.

It is apart from what reads rules, which a second start does not need.
"""

from __future__ import annotations

from os import PathLike

from eqsat.errors import RuleError
from eqsat.language.accuracies import ACCURACIES, Accuracy

RulePath = str | PathLike[str]


def check_accuracy(accuracy: str) -> Accuracy:
    """The accuracy class of that name.

    **Raises:** `RuleError` if there is none.
    """
    for known in ACCURACIES:
        if accuracy == known:
            return known
    raise RuleError(f"accuracy {accuracy!r} is not known: choose one of {', '.join(map(repr, ACCURACIES))}")
