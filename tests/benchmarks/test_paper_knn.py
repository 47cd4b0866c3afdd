"""The benchmark of nearest neighbours at tiny size: all ways find the same ones, eqsat in its budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.paper import knn, knn_methods
from eqsat.support.units import parse_budget


@pytest.mark.parametrize(
    "metric",
    [
        metric if metric == "L2" else pytest.param(metric, marks=pytest.mark.nightly)
        for metric in knn_methods.FUNCTIONS
    ],
)
def test_rows_of_a_small_case(metric: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = {name: make for name, make in knn_methods.METHODS.items() if name not in knn_methods.PEERS}
    monkeypatch.setattr(knn, "METHODS", own)
    case = knn.Case("random", metric, 3_000, 5, 40, "400kB")
    rows = {row.method: row for row in knn.rows_of(case, None, runs=1)}
    assert list(rows) == ["plain", "eqsat", "by hand"]
    assert rows["eqsat"].peak is not None
    assert rows["eqsat"].peak <= parse_budget(case.budget)
    for row in rows.values():
        assert row.seconds is not None
        assert row.error is not None
        assert row.error < 1e-3
    assert knn.table(list(rows.values())).count(f"| {metric} |") == 2
