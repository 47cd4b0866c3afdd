"""The checker is checked: it has to catch rules that were broken on purpose.

A sample of rules is broken in every way that `mutations` knows. Each mutant has to be refused by the load
check or found out by a tier, but for those that are no worse than the rule, each with its reason.

    EQSAT_MUTATIONS=all python -m pytest tests/checking/test_mutations.py -s

breaks all shipped rules, and prints what survives.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from eqsat.checking.accuracy import measure
from eqsat.checking.tiers import Trial
from eqsat.errors import RuleError
from eqsat.language.accuracies import ACCURACIES
from eqsat.language.check import check_file
from eqsat.language.syntax import Rule, RuleFile
from eqsat.rule_files import shipped_files
from tests.checking.mutations import EDITS, Mutant, equivalent, mutants

EXAMPLES = 30

SAMPLE = """
contraction: pull-factor pull-divisor sum-of-product sum-through-dot pull-negation-from-dot
reductions: sum-of-addition sum-of-subtraction shift-out-of-maximum factor-out-of-maximum sum-of-outer-product
diagonal: diagonal-times-matrix added-to-diagonal matrix-plus-diagonal-times diagonal-of-product
determinants: trace-of-product logdet-of-triangular logdet-of-scaled
low_rank: woodbury sherman-morrison determinant-lemma push-through
solves: solve-product solve-scaled quadratic-form solve-triangular inverse-of-inverse
softmax: split-exponentials split-weighted-safe-exponentials
statistics: variance-by-moments
distance: sum-with-negation
arithmetic: product-of-exponentials logarithm-of-outer-product cube
sorting: head-of-sorted one-hot-product
kronecker: kronecker-times-vector
split: split-reduction split-contraction split-selection
chunk: chunk-map chunk-contraction chunk-reduction
rename: rename-map rename-reduction
"""
"""Rules of every kind, by file."""

NO_WORSE = {
    (
        "split-exponentials",
        "operand dropped",
        "max",
    ): "a maximum is finite if and only if no entry is infinite",
    ("split-weighted-safe-exponentials", "operand dropped", "max"): "as above",
    (
        "split-exponentials",
        "wrong constant",
        "0",
    ): "what is subtracted from an infinite exponent does not matter",
    ("split-weighted-safe-exponentials", "wrong constant", "0"): "as above",
}
"""Mutants that are no worse than the rule, for reasons other than their form: by rule, kind and change."""


def known_reason(mutant: Mutant) -> str:
    for (name, kind, change), reason in NO_WORSE.items():
        if (mutant.rule.name, mutant.kind) == (name, kind) and mutant.change.startswith(change):
            return reason
    return ""


@cache
def caught_by(mutant: Mutant, file: RuleFile) -> str:
    """What refuses a mutant; nothing if it survives."""
    others = [other for other in shipped_files() if other is not file]
    try:
        check_file(replace(file, rules=(replace(mutant.rule, examples=()),), facts=()), others)
    except RuleError:
        return "load check"
    trial = Trial(mutant.rule, EXAMPLES)
    failure = trial.failure()
    if failure is not None:
        return failure.criterion.name
    if not trial.tally.drawn or not trial.tally.finite:
        return "no instance"
    measured = measure(mutant.rule)
    if measured.negative:
        return "sign"
    worse = measured.accuracy and ACCURACIES.index(measured.accuracy) > ACCURACIES.index(mutant.rule.accuracy)
    return "accuracy" if worse else ""


def sampled() -> Iterator[tuple[RuleFile, Rule]]:
    everything = os.environ.get("EQSAT_MUTATIONS") == "all"
    names = {name for line in SAMPLE.strip().split("\n") for name in line.split(": ")[1].split()}
    for file in shipped_files():
        for rule in file.rules:
            if everything or rule.name in names:
                yield file, rule


def broken(kind: str) -> list[tuple[RuleFile, Rule, Mutant]]:
    return [
        (file, rule, mutant) for file, rule in sampled() for mutant in mutants(rule) if mutant.kind == kind
    ]


KINDS = (*EDITS, "factor doubled", "condition removed", "accuracy")


@pytest.mark.parametrize("kind", KINDS)
def test_broken_rules_are_caught(kind: str) -> None:
    survivors: list[str] = []
    found: Counter[str] = Counter()
    for file, rule, mutant in broken(kind):
        reason = equivalent(rule, mutant) or known_reason(mutant)
        if not reason and kind == "accuracy" and deserves(rule, mutant):
            reason = "the rule deserves the better class, and is careful"
        if reason:
            found["no worse"] += 1
            continue
        catcher = caught_by(mutant, file)
        found[catcher or "survived"] += 1
        if not catcher:
            survivors.append(str(mutant))
    print(kind, dict(found))
    if os.environ.get("EQSAT_MUTATIONS") == "all":
        print("\n".join(survivors))
        assert len(survivors) <= 0.2 * sum(found.values())  # each was looked at: none is worse
    else:
        assert survivors == []


@cache
def deserves(rule: Rule, mutant: Mutant) -> bool:
    """Whether a rule could claim what the mutant claims."""
    measured = measure(rule).accuracy
    return measured is None or ACCURACIES.index(measured) <= ACCURACIES.index(mutant.rule.accuracy)


def test_there_are_enough_of_them() -> None:
    assert sum(len(broken(kind)) for kind in KINDS) >= 400
