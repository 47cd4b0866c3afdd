"""Another revision beside this one: what a worker answers, and the table."""

from __future__ import annotations

import pytest

from benchmarks.revision_worker import Worker, case_named
from benchmarks.revisions import text

TITLE = "tensor train, xa,aib,bjc,ckd,dy->xijky"


def test_a_worker_plans_a_case_and_calls_it() -> None:
    worker = Worker(case_named("contractions", TITLE))
    needed = worker.needed(own=False)["needed"]
    plan = worker.plan(2 * needed)
    assert 0 < plan["peak"] <= 2 * needed
    assert "def optimized" in plan["source"]
    assert worker.call()["seconds"] > 0
    assert 1 < worker.plan(1)["smallest"] <= needed


def test_a_case_that_a_revision_lacks_is_an_error() -> None:
    with pytest.raises(StopIteration):
        case_named("contractions", "no such case")


def test_means_are_of_the_timed_rows_and_failures_are_shown() -> None:
    timed = {"group": "models", "kind": "ample", "processor_ratio": 1.0, "seconds": 0.5, "same": False}
    rows = [
        {**timed, "case": "one", "ratio": 0.5},
        {**timed, "case": "other", "ratio": 2.0},
        {"group": "models", "case": "third", "kind": "tight", "note": "its process ended"},
    ]
    table = text(rows)
    assert "| models | 2 | 1.000 | 1.000 |" in table
    assert "| all | 2 | 1.000 | 1.000 |" in table
    assert "| third | tight | – | its process ended |" in table
