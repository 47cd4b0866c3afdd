"""The options with which a caller chooses rules: files of rules, and an accuracy class.

They are not in the modules that read rules, so that a process that finds its plans stored need not
import those.
"""

from __future__ import annotations

from os import PathLike

from eqsat.errors import RuleError
from eqsat.language.accuracies import ACCURACIES, Accuracy

RulePath = str | PathLike[str]


def check_accuracy(accuracy: str) -> Accuracy:
    """Returns the accuracy class with that name.

    **Raises:** `RuleError` if there is none.
    """
    for known in ACCURACIES:
        if accuracy == known:
            return known
    raise RuleError(f"accuracy {accuracy!r} is not known: choose one of {', '.join(map(repr, ACCURACIES))}")
