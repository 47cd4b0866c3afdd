"""Folders of programs: what fits, and whether results agree."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.zoo import Row, alone, difference, table

PROGRAM = """
import jax, jax.numpy as jnp
META = dict(scales=(1, 4))
def build(scale):
    x = jax.random.normal(jax.random.key(0), (1000 * scale, 3))
    return lambda x: jnp.exp(-jnp.sum((x[:, None] - x) ** 2, -1)).sum(1), (x,)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kernel_sums.py"
    path.write_text(PROGRAM)
    return path


def test_a_program_is_planned_run_and_compared_on_the_device_at_hand(file: Path) -> None:
    row = alone(file, "cpu", "small", 0.1)
    assert row.outcome == "planned", row.message
    assert row.fits
    assert row.agrees
    assert row.source is not None
    assert row.source <= row.budget < row.plain
    assert row.run is not None


def test_for_an_absent_device_it_is_planned_alone(file: Path) -> None:
    row = alone(file, "h100", "big", 0.1)
    assert row.fits, row.message
    assert row.run is None
    assert row.error is None


def test_what_goes_wrong_is_on_record(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("META = dict(scales=(1, 2))\ndef build(scale):\n    raise ValueError('no data')\n")
    row = alone(broken, "cpu", "small", 0.1)
    assert (row.outcome, row.message) == ("ValueError", "no data")
    assert "0 of 1 programs fit" in table([row])


def test_differences_are_relative_to_the_largest_entry() -> None:
    x = jnp.array([1.0, -4.0, jnp.inf])
    assert difference([x], [x]) == 0
    assert difference([x], [x.at[0].set(1.1)]) == pytest.approx(0.1 / 4)
    assert difference([x], [x.at[2].set(0.0)]) == np.inf
    assert difference([jnp.arange(4)], [jnp.array([0, 1, 2, 9])]) == 0.25
    assert difference([jax.random.key(1)], [jax.random.key(1)]) == 0
    assert difference([x], [x[:2]]) == np.inf


def test_a_plan_counts_if_its_source_fits_by_itself() -> None:
    assert Row("a", "planned", budget=10, peak=9, source=10).fits
    assert not Row("a", "planned", budget=10, peak=9, source=11).fits
    assert not Row("a", "refused", budget=10).fits


def test_results_that_differ_agree_if_they_are_fair() -> None:
    assert Row("a", "planned", error=0.1, fair=True).agrees
    assert not Row("a", "planned", error=0.1, fair=False).agrees
