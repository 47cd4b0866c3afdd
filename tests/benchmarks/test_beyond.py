"""The benchmarks of what the paper could not do, at small sizes: all ways agree, and budgets are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.beyond import attention, conjugate_gradients, histories, own_identity, tiles
from benchmarks.beyond.table import PLAIN, Case, measure, table
from eqsat.testing import check_rules

MODULES = (attention, conjugate_gradients, histories, own_identity, tiles)


SLOW = (attention, tiles)
"""Modules whose cases take minutes; the others stand for them in the ordinary tests."""


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.nightly if module in SLOW else ())
        for module in MODULES
        for case in module.QUICK
    ],
    ids=lambda case: case.title,
)
def test_all_ways_agree(case: Case) -> None:
    rows = measure(case, runs=1)
    assert [row.way for row in rows][: 1 + len(case.by_hand)] == [PLAIN, *case.by_hand]
    plain, *others = rows
    assert plain.error is not None
    for row in others:
        assert row.error is not None
        assert row.error < 4 * plain.error + 1e-6
        assert row.peak < plain.peak / 2
    assert len(table(rows).splitlines()) == 2 + len(rows)


def test_the_page_shows_the_rule_that_is_measured() -> None:
    (rules,) = own_identity.RULES
    page = Path(__file__).parent.parent.parent / "docs" / "own-identity.md"
    assert rules.read_text() in page.read_text()
    check_rules(rules, examples=5)
