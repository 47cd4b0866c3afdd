"""The checker is checked: it has to catch rules that were broken on purpose.

A sample of rules, facts and monoids is broken in every way that `mutations` and `hostile_mutations` know.
What is no worse for it is excused, each with its reason; all else `eqsat check` itself has to refuse.

    EQSAT_MUTATIONS=all python -m pytest tests/checking/test_mutations.py -s

breaks all that is shipped, and prints what survives.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from eqsat.checking.filecheck import FileCheck
from eqsat.checking.kinds import words
from eqsat.errors import RuleError
from eqsat.language.check import check_file
from eqsat.language.syntax import Fact, MonoidDeclaration, Rule, RuleFile
from eqsat.rulesets.files import shipped_files
from tests.checking import hostile_mutations as hostile
from tests.checking.mutations import EDITS, Mutant, edited, equivalent, mutants
from tests.nightly import nightly_but

EXAMPLES = 40

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
arithmetic: product-of-exponentials logarithm-of-outer-product cube max-of-nonnegative
arithmetic: square-of-absolute-value absolute-value-of-nonnegative
arithmetic: quotient-of-negation square-of-root choice-of-negative power-half
sorting: head-of-sorted one-hot-product
kronecker: kronecker-times-vector
split: split-reduction split-unrounded split-integers split-contraction split-selection
chunk: chunk-map chunk-contraction chunk-reduction
rename: rename-map rename-reduction
"""
"""Rules of every kind, by file."""

BETWEEN = "the sum is between 1 and the number of terms, or NaN"

NO_WORSE: dict[tuple[str, str, str], str] = {
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
    ("power-half", "accuracy", "exact"): "NumPy takes a root for the power: that XLA rounds it otherwise"
    " is not for the check to see",
    ("diagonal-of-product", "accuracy", "exact"): "the products and their order are the same: that XLA has"
    " other kernels for them is not for the check to see",
    ("split-exponentials", "range", ""): BETWEEN,
    ("split-exponentials", "infinity", ""): BETWEEN,
    ("split-exponentials", "sign of zero", ""): BETWEEN,
    ("split-exponentials", "negated difference", ""): "exp(-0) is exp(0)",
    **{
        (name, "sign of zero", "zero made positive"): "what is not negative is never -0"
        for name in words(
            "power-half square-of-root square-of-absolute-value absolute-value-of-nonnegative"
            " max-of-nonnegative"
        )
    },
    **{
        (name, "wrapping", "no less than a smaller one"): "what is not negative can be less by 8"
        for name in words("absolute-value-of-nonnegative max-of-nonnegative")
    },
    **{
        ("rescaled_or_nan", "monoid", f"s begins as {number}"): "a sum is multiplied by exp(-inf), or is NaN"
        for number in ("1", "-1")
    },
    **{
        ("averaged", "monoid", f"{part} begins as {number}"): "as above"
        for part in "sa"
        for number in ("1", "-1")
    },
    ("rescaled_logarithm", "monoid", "s begins as 1"): "its logarithm is added to -inf",
}
"""Mutants that are no worse than the rule, for reasons other than their form: by rule, kind and change."""


def known_reason(mutant: Mutant) -> str:
    for (name, kind, change), reason in NO_WORSE.items():
        if (mutant.rule.name, mutant.kind) == (name, kind) and mutant.change.startswith(change):
            return reason
    return ""


LOADED = "load check"


@cache
def caught_by(mutant: Rule | Fact, file: RuleFile) -> str:
    """What `eqsat check` says of a broken rule or fact; nothing if it survives."""
    rules = (replace(mutant, examples=()),) if isinstance(mutant, Rule) else ()
    facts = (replace(mutant, examples=()),) if isinstance(mutant, Fact) else ()
    alone = replace(file, rules=rules, facts=facts, monoids=())
    try:
        check_file(alone, [other for other in shipped_files() if other is not file])
    except RuleError:
        return LOADED
    report = FileCheck(alone, shipped_files(), EXAMPLES, brief=True).checked((*rules, *facts)[0])
    return report.failures[0] if report.failures else ""


def broken_monoid_caught(declared: MonoidDeclaration, mutant: MonoidDeclaration, file: RuleFile) -> bool:
    """Whether `eqsat check` refuses a broken monoid, or a rule that folds with it."""

    def changed(rule: Rule) -> Rule:
        known = ((name, mutant.monoid if one == declared.monoid else one) for name, one in rule.monoids)
        return replace(rule, monoids=tuple(known))

    files = [replace(other, rules=tuple(map(changed, other.rules))) for other in shipped_files()]
    check = FileCheck(next(one for one in files if one.file == file.file), files, EXAMPLES, brief=True)
    if check.checked(mutant).failures:
        return True
    return any(
        FileCheck(one, files, EXAMPLES, brief=True).checked(rule).failures
        for one in files
        for rule in one.rules
        if any(found == mutant.monoid for _, found in rule.monoids)
    )


def sampled() -> Iterator[tuple[RuleFile, Rule]]:
    names = {name for line in SAMPLE.strip().split("\n") for name in line.split(": ")[1].split()}
    for file in shipped_files():
        for rule in file.rules:
            if EVERYTHING or rule.name in names:
                yield file, rule


def broken(kind: str) -> list[tuple[RuleFile, Rule, Mutant]]:
    return [
        (file, rule, mutant) for file, rule in sampled() for mutant in mutants(rule) if mutant.kind == kind
    ]


KINDS = (*EDITS, "factor doubled", "condition removed", "accuracy")

EVERYTHING = os.environ.get("EQSAT_MUTATIONS") == "all"

TRIED: Counter[str] = Counter()
"""How many mutants each test has had judged: those that load, and are not excused."""


def judged(kind: str, found: Iterator[tuple[str, str, str]]) -> None:
    """Judge mutants: by words for each, why it is excused, and what caught it."""
    survivors: list[str] = []
    count: Counter[str] = Counter()
    for mutant, excuse, catcher in found:
        how = "no worse" if excuse else LOADED if catcher == LOADED else "caught" if catcher else "survived"
        count[how] += 1
        if how == "survived":
            survivors.append(mutant)
    TRIED[kind] = count["caught"]
    print(kind, dict(count))
    print("\n".join(survivors))
    assert survivors == []


@pytest.mark.parametrize("kind", nightly_but(sorted(set(KINDS) - {"accuracy"})[::2], KINDS))
def test_broken_rules_are_caught(kind: str) -> None:
    def found() -> Iterator[tuple[str, str, str]]:
        for file, rule, mutant in broken(kind):
            excuse = equivalent(rule, mutant) or known_reason(mutant)
            yield str(mutant), excuse, "" if excuse else caught_by(mutant.rule, file)

    judged(kind, found())


HOSTILE = ("range", "not a number", "infinity", "sign of zero", "wrapping", *hostile.NODES, "guard")


def hostile_mutants(rule: Rule) -> Iterator[Mutant]:
    for kind, change, mutant in hostile.whole_sides(rule):
        yield Mutant(mutant, kind, change)
    for kind, edit in hostile.NODES.items() if hostile.keeps_specials(rule) else ():
        for number, (change, right) in enumerate(
            edited(rule.right, lambda node, edit=edit: edit(node, rule))  # type: ignore[misc]
        ):
            yield Mutant(replace(rule, right=right), kind, f"{change} ({number})")
    for change, mutant in hostile.guards(rule):
        yield Mutant(mutant, "guard", change)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "kind", nightly_but(set(HOSTILE) - {"guard", "range", "sign of zero", "wrapping"}, HOSTILE)
)
def test_rules_that_hostile_data_breaks_are_caught(kind: str) -> None:
    def found() -> Iterator[tuple[str, str, str]]:
        for file, rule in sampled():
            for mutant in hostile_mutants(rule):
                if mutant.kind == kind:
                    excuse = known_reason(mutant) or hostile.equivalent(rule, mutant.kind, mutant.change)
                    yield str(mutant), excuse, "" if excuse else caught_by(mutant.rule, file)

    judged(kind, found())


def test_broken_facts_are_caught() -> None:
    def found() -> Iterator[tuple[str, str, str]]:
        for file in shipped_files():
            for fact in file.facts if EVERYTHING or file.file.endswith("properties.rules") else ():
                for change, mutant in hostile.facts(fact):
                    excuse = NO_WORSE.get((fact.name, "fact", change), "")
                    yield f"{fact.name}: {change}", excuse, "" if excuse else caught_by(mutant, file)

    judged("fact", found())


MONOIDS = ("rescaled", "rescaled_or_nan", "averaged", "rescaled_logarithm")


def test_broken_monoids_are_caught() -> None:
    def found() -> Iterator[tuple[str, str, str]]:
        for file in shipped_files():
            for declared in file.monoids:
                if not EVERYTHING and declared.monoid.name not in MONOIDS:
                    continue
                for change, mutant in hostile.monoids(declared):
                    excuse = NO_WORSE.get((declared.monoid.name, "monoid", change), "")
                    changed = replace(declared, monoid=mutant)
                    caught = not excuse and broken_monoid_caught(declared, changed, file)
                    yield f"{declared.monoid.name}: {change}", excuse, "monoid" if caught else ""

    judged("monoid", found())


def test_there_are_enough_of_them() -> None:
    """Run after the others: it looks at what they judged."""
    if set(TRIED) != {*KINDS, *HOSTILE, "fact", "monoid"}:
        pytest.skip("the other tests of this file were not run with it")
    about_data = sum(TRIED[kind] for kind in (*HOSTILE, "fact", "monoid", "accuracy"))
    assert sum(TRIED.values()) >= 300
    assert about_data >= sum(TRIED.values()) / 3
