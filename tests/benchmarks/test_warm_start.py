"""The benchmark of second starts, on the smallest of its programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.warm_start import start, table


@pytest.mark.nightly
def test_only_a_start_that_plans_nothing_counts(tmp_path: Path) -> None:
    assert start("nothing to plan", str(tmp_path)) is None
    found = start("nothing to plan", str(tmp_path))
    assert found is not None
    assert found.besides_tracing == found.importing + found.finding + found.first > 0
    assert table({"nothing": found}).splitlines()[-1].startswith(f"| nothing | {found.importing:.0f} |")
