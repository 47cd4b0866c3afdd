"""Products in the form that compilers of accelerators fuse, on targets that name the file."""

from __future__ import annotations

import pytest

from eqsat.rules import FOR_TARGETS
from eqsat.rulesets.selection import rules_for
from eqsat.targets.catalogue import find_target
from tests.rules.proving import cannot_prove, prove

ARRAYS = "x: i k   y: i k   d: k   b: k j   c: j k"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("x @ d", "sum(x * d, 1)"),
        ("einsum('ik,ik->i', x, y)", "sum(x * y, 1)"),
        ("x @ b", "sum(x[:, :, None] * b, 1)"),
    ],
)
def test_a_product_is_a_sum(left: str, right: str) -> None:
    prove(left, right, ARRAYS, "product-as-sum")


def test_a_product_is_no_sum_over_another_axis() -> None:
    cannot_prove("x @ d", "sum(x * d, 0)[:, None] * d", ARRAYS, "product-as-sum")


def test_only_targets_that_name_the_file_use_its_rules() -> None:
    def names(target: str) -> set[str]:
        rules = find_target(target).compiler.rules
        return {rule.name for rule in rules_for((), "reassociates", of_target=rules)}

    assert find_target("h100").compiler.rules <= FOR_TARGETS
    assert names("h100") - names("tpu-v5e") == {"product-as-sum"}
    assert names("cpu") - names("tpu-v5e") == {"right-singular-vectors-of-factor"}
