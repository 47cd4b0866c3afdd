"""Chooses the rules of a run: the shipped ones and the user's that the accuracy class allows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from eqsat.engine.compiled import CompiledRule
from eqsat.ir.operations import Declared
from eqsat.language.accuracies import Accuracy
from eqsat.rules import shipped
from eqsat.rulesets.options import RulePath, check_accuracy
from eqsat.storage.rule_texts import rule_texts
from eqsat.storage.values import kept

NONE: frozenset[str] = frozenset()

DECLARATION = re.compile(r"^\s*operation\b", re.MULTILINE)
"""The first word of a declaration of an operation, in the text of a `.rules` file."""


def rules_for(
    extra: Sequence[RulePath], accuracy: str, precision: str = "", of_target: frozenset[str] = NONE
) -> tuple[CompiledRule, ...]:
    """Returns the compiled rules and facts of a run.

    **Arguments:**

    - `extra`: the paths of the user's `.rules` files.
    - `accuracy`: the name of the last accuracy class, in the order of `ACCURACIES`, whose rules are
      used.
    - `precision`: the precision that products made of sums ask for; "" for the compiler's default. It is
      "HIGHEST" where the compiler rounds products more than sums by default.
    - `of_target`: the files of `FOR_TARGETS` that the target names.

    **Raises:** `RuleError` if there is no such class or file, or if something in a file is wrong.
    """
    allowed = check_accuracy(accuracy)
    if extra:
        return _read(extra, allowed, precision, of_target)
    return _shipped(allowed, precision, of_target)


def operations_for(extra: Sequence[RulePath]) -> Declared:
    """Returns the operations that the user's `.rules` files declare, bound to their functions.

    **Raises:** `RuleError` if something in a file is wrong.
    """
    if not any(DECLARATION.search(text) for path in extra for text in rule_texts(Path(path))):
        return {}
    from eqsat.rulesets.files import bound_operations, load_file  # imported late, as below

    return bound_operations([load_file(path) for path in extra])


@cache
def _shipped(accuracy: Accuracy, precision: str, of_target: frozenset[str]) -> tuple[CompiledRule, ...]:
    name = f"rules of {shipped()[0].parent}, compiled: {accuracy}, {precision}, {' '.join(sorted(of_target))}"
    return kept(name, tuple[CompiledRule, ...], lambda: _read((), accuracy, precision, of_target))


def _read(
    extra: Sequence[RulePath], accuracy: Accuracy, precision: str, of_target: frozenset[str]
) -> tuple[CompiledRule, ...]:
    # This import is slow, and not needed if the compiled shipped rules are stored.
    from eqsat.rulesets.files import compiled_rules

    return compiled_rules(extra, accuracy, precision, of_target)
