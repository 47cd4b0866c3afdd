"""The benchmarks of transformers and of chains at a tiny size: within budget, equal to plain JAX, written."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", ["transformer", "chains"])
def test_a_sweep_keeps_to_its_budget_and_is_written(name: str, tmp_path: Path) -> None:
    module = importlib.import_module(f"benchmarks.paper.{name}")
    rows = module.main(["--quick"], tmp_path)
    assert {row.program for row in rows} == set(module.COLUMNS)
    for row in rows:
        assert row.peak is not None
        assert row.peak <= row.budget
        assert row.apart is not None
        assert row.apart < 1e-3
    assert any(row.plain_peak > row.budget for row in rows)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".md", ".png"]
    table = next(tmp_path.glob("*.md")).read_text()
    assert all(f"## {program}" in table for program in module.COLUMNS)
