"""Each dtype has its turn with every rule that takes it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from eqsat.checking.arithmetic import DtypeArithmetic
from eqsat.checking.dtypes import in_turn
from eqsat.checking.oracle import PROMISES
from eqsat.checking.regimes import Trial
from eqsat.checking.statement import is_slow
from eqsat.checking.typing import kinds_of
from eqsat.language.parse import parse_rules
from eqsat.language.syntax import Rule
from eqsat.rulesets.files import shipped_files
from eqsat.testing import check_rules

FLOATS = {"float16", "bfloat16", "float32", "float64"}
SIGNED = {"int8", "int16", "int32", "int64"}
UNSIGNED = {"uint8", "uint16", "uint32", "uint64"}


def rule(text: str) -> Rule:
    return parse_rules(f"rule r  {text}", "r").rules[0]


def drawn(one: Rule, promises: bool, examples: int = 40) -> set[str]:
    """The dtypes that instances of a rule have, in the regimes of promises or in the exact ones."""
    trial = Trial(one, examples)
    found: Counter[str] = Counter()
    for regime in trial.regimes():
        if (regime.criterion in PROMISES) == promises and (promises or regime.name == "exact"):
            for instance in trial.instances(regime):
                found.update(instance.dtypes.of_variables.values())
    return set(found)


@pytest.mark.parametrize(
    ("text", "promised", "exact"),
    [
        ("a + b  =>  b + a", FLOATS | {"complex64"}, SIGNED | UNSIGNED | {"complex64", "float32"}),
        ("a + b  =>  b + a  where wide(a), float(a)", {"float32", "float64"}, {"float32"}),
        ("exp(a + b)  =>  exp(b + a)", FLOATS | {"complex64"}, set()),
        ("and(a, b)  =>  and(b, a)", set(), SIGNED | UNSIGNED | {"bool"}),
        ("select_n(m, a, a)  =>  a  where M = axes(m), M in a", FLOATS | {"complex64", "bool"}, None),
        ("select_n(lt(a, 0), b, c)  =>  select_n(ge(a, 0), c, b)  where integer(a), float(b)", None, None),
    ],
)
@pytest.mark.parametrize("examples", [6, 40])
def test_each_dtype_has_its_turn(
    text: str, promised: set[str] | None, exact: set[str] | None, examples: int
) -> None:
    if promised is not None:
        assert drawn(rule(text), True, examples) == promised
    if exact is not None:
        assert drawn(rule(text), False, examples) == exact


def test_each_dtype_has_its_turn_with_every_shipped_rule_of_a_few_files() -> None:
    for file in shipped_files():
        if not file.file.endswith(("reductions.rules", "statistics.rules")):
            continue
        for one in file.rules:
            trial = Trial(one, 8)
            if one.classes or is_slow(trial.sources[0][0].rule):
                continue
            for regime in trial.regimes():
                if regime.criterion in PROMISES and "f" in regime.kinds:
                    found = {
                        dtype
                        for instance in trial.instances(regime)
                        for dtype in instance.dtypes.of_variables.values()
                    }
                    wanted = FLOATS if regime.narrow else {"float32", "float64"}
                    assert not found & FLOATS or wanted <= found, one.name


def test_terms_that_a_rule_does_not_tie_may_have_several_dtypes() -> None:
    statement = Trial(rule("lt(convert(a), b)  =>  gt(b, convert(a))  where float(a), float(b)")).sources[0][
        0
    ]
    (kinds,) = (one for one in kinds_of(statement) if set(one.nodes.values()) == {"f", "b"})
    pairs = [in_turn(kinds, turn, "f").of_variables for turn in range(12)]
    assert any(pair["a"] == pair["b"] for pair in pairs)
    assert any(pair["a"] != pair["b"] for pair in pairs)


def test_results_have_the_digits_and_the_range_of_their_dtype() -> None:
    trial = Trial(rule("a * b  =>  b * a  where float(a)"), 200)
    (regime,) = (one for one in trial.regimes() if one.criterion in PROMISES and "f" in one.kinds)
    seen = set()
    for instance in trial.instances(regime):
        dtype = instance.dtypes.of_variable("a")
        (left, _), bounded = (
            instance.sides.run(DtypeArithmetic()),
            instance.sides.run_left(DtypeArithmetic(rounds=False)),
        )
        if dtype == "bfloat16":
            bits = left.view(np.uint32) & 0xFFFF
            assert np.all((bits == 0) | np.isnan(left))
        elif dtype != "float16":
            assert left.dtype == dtype
        np.testing.assert_array_equal(np.isinf(left), np.isinf(bounded.astype(left.dtype)))
        seen |= {dtype} if np.isinf(left).any() else set()
    assert seen == FLOATS


@pytest.mark.parametrize("number", ["255"])
def test_no_integer_is_made_that_the_dtype_lacks(number: str) -> None:
    report = check_rules(
        f"rule bound [exact]  min(max(a, {number}), {number})  =>  max(min(a, {number}), {number})"
    )
    assert report.ok
