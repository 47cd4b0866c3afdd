"""Which rules a run uses: the shipped ones and the user's, as far as the accuracy allows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from eqsat.engine.compiled import CompiledRule
from eqsat.language.accuracies import Accuracy
from eqsat.rules import shipped
from eqsat.rulesets.options import RulePath, check_accuracy
from eqsat.storage.values import kept


def rules_for(extra: Sequence[RulePath], accuracy: str, precision: str = "") -> tuple[CompiledRule, ...]:
    """The compiled rules and facts of a run.

    **Arguments:**

    - `extra`: paths of the user's `.rules` files.
    - `accuracy`: the most that a rule may do to floating-point results.
    - `precision`: of products that rules make; "" for the compiler's default.
    """
    allowed = check_accuracy(accuracy)
    return _read(extra, allowed, precision) if extra else _shipped(allowed, precision)


@cache
def _shipped(accuracy: Accuracy, precision: str) -> tuple[CompiledRule, ...]:
    name = f"rules of {shipped()[0].parent}, compiled: {accuracy}, {precision}"
    return kept(name, tuple[CompiledRule, ...], lambda: _read((), accuracy, precision))


def _read(extra: Sequence[RulePath], accuracy: Accuracy, precision: str) -> tuple[CompiledRule, ...]:
    # Imported late: where the shipped rules are found compiled, nothing is parsed, checked or compiled.
    from eqsat.rulesets.files import compiled_rules

    return compiled_rules(extra, accuracy, precision)
