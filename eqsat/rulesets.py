"""Which rules a run uses: the shipped ones and the user's, as far as the accuracy allows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path

import jax

from eqsat.engine.compile import CompiledRule, compile_rule
from eqsat.errors import RuleError
from eqsat.language.parse import load_rules
from eqsat.language.syntax import ACCURACIES, Accuracy
from eqsat.rules import shipped

RulePath = str | PathLike[str]


def check_accuracy(accuracy: str) -> Accuracy:
    """The accuracy class of that name.

    **Raises:** `RuleError` if there is none.
    """
    for known in ACCURACIES:
        if accuracy == known:
            return known
    raise RuleError(f"accuracy {accuracy!r} is not known: choose one of {', '.join(map(repr, ACCURACIES))}")


def rules_for(extra: Sequence[RulePath], accuracy: str) -> tuple[CompiledRule, ...]:
    """The compiled rules of a run.

    **Arguments:**

    - `extra`: paths of the user's `.rules` files.
    - `accuracy`: the most that a rule may do to floating-point results.
    """
    paths = [(str(path), path.stat().st_mtime_ns) for path in shipped()]
    for path in extra:
        file = Path(fspath(path))
        if not file.is_file():
            raise RuleError(f"there is no rules file {str(file)!r}")
        paths.append((str(file), file.stat().st_mtime_ns))
    return _compiled(tuple(paths), check_accuracy(accuracy))


@lru_cache(maxsize=32)
def _compiled(paths: tuple[tuple[str, int], ...], accuracy: Accuracy) -> tuple[CompiledRule, ...]:
    allowed = ACCURACIES[: ACCURACIES.index(accuracy) + 1]
    rules = [rule for path, _ in paths for rule in load_rules(path).rules if rule.accuracy in allowed]
    # Where the default precision of a product is below that of a sum, new products ask for all of it.
    precision = "" if jax.default_backend() == "cpu" else "HIGHEST"
    return tuple(compile_rule(rule, number, precision) for number, rule in enumerate(rules))
