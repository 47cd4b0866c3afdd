"""What a draft says of memory is looked at again before anybody relies on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest

import eqsat
from eqsat.backend.certificate import certify
from tests.stages import normal

MORE = 6_000
"""Bytes that programs need and that drafts do not tell of: a quarter of these here."""


@pytest.fixture(autouse=True)
def _modest_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    def modest(*args: Any, draft: bool = False, **keywords: Any) -> Any:
        found = certify(*args, draft=draft, **keywords)
        return replace(found, temporaries=found.temporaries + (0 if draft else MORE), draft=draft)

    monkeypatch.setattr("eqsat.compiler.candidate_compiler.certify", modest)
    monkeypatch.setattr("eqsat.compiler.baseline.certify", modest)


def kernel(x: Any, v: Any) -> Any:
    return jnp.exp(-((x[:, None] - x) ** 2)) @ v


def test_there_is_a_plan_for_the_smallest_budget() -> None:
    x = normal(2000)
    least = eqsat.minimum_budget(kernel)(x, x)
    plan = eqsat.optimize(kernel, budget=least, max_slowdown=None).plan(x, x)
    assert plan.peak_bytes <= least


@pytest.mark.nightly
def test_the_smallest_peak_that_an_error_names_is_enough() -> None:
    x = normal(2000)
    with pytest.raises(eqsat.BudgetError) as refused:
        eqsat.optimize(kernel, budget=3 * x.nbytes + 100).plan(x, x)
    smallest = refused.value.smallest_peak
    assert smallest is not None
    assert eqsat.optimize(kernel, budget=smallest).plan(x, x).peak_bytes <= smallest
