"""The programs for accelerators, small and on the CPU."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

from benchmarks.accelerators.__main__ import OWN_OPTIONS, make, measured, used
from benchmarks.accelerators.programs import PROGRAMS, Program
from benchmarks.accelerators.table import Row, table
from benchmarks.zoo import difference

BY_HAND = {program.name: program for program in PROGRAMS if program.by_hand}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", BY_HAND)
def test_loops_by_hand_compute_the_same(name: str) -> None:
    program = BY_HAND[name]
    assert program.by_hand is not None
    arguments = program.arguments(small=True)
    expected = jax.jit(program.function)(*arguments)
    found = jax.jit(program.by_hand(program.length(small=True) // 5))(*arguments)
    assert difference(expected, found) < (3e-2 if program.dtype == jax.numpy.bfloat16 else 1e-4)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_arguments_are_numbers_of_their_shapes(program: Program) -> None:
    for shape, argument in zip(program.shapes(small=True), program.arguments(small=True), strict=True):
        assert (argument.shape, argument.dtype) == (shape.shape, shape.dtype)
        assert np.isfinite(np.asarray(argument, np.float32)).all()
        assert len(np.unique(np.asarray(argument, np.float32))) > 1


def test_a_program_is_measured_in_all_forms() -> None:
    rows = measured(0, None, small=True)
    assert [row.form for row in rows] == [
        "as written",
        *["plan", OWN_OPTIONS] * 2,
        "by hand",
        "by hand",
    ]
    assert all(row.seconds and row.error is not None and row.error < 1e-4 for row in rows)
    assert all(row.peak <= row.budget for row in rows if row.form == "plan" and row.peak and row.budget)
    assert "2 of 2 plans fit" in table(rows)


def test_plans_are_made_elsewhere_and_run_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "cpu", [0], small=True)
    assert len(list(tmp_path.glob("*.plan"))) == 2
    rows = [row for row in measured(0, tmp_path, small=True) if row.form == "plan"]
    assert all(row.stated == row.peak for row in rows)
    assert used(0, 0.1, tmp_path, small=True) == 0  # CPUs have no figures


def test_what_was_not_planned_is_on_record(tmp_path: Path) -> None:
    refused = [row for row in measured(0, tmp_path, small=True) if row.form == "plan"]
    assert len(refused) == 2
    assert all("it was not planned" in row.note and row.seconds is None for row in refused)


def test_speeds_are_those_beside_the_same_budget() -> None:
    rows = [
        Row("p", "as written", seconds=1.0),
        Row("p", "plan", 0.1, 100, 90, seconds=2.0),
        Row("p", "plan", 0.01, 10, 20, seconds=8.0),
        Row("p", "by hand", 0.1, 100, 80, seconds=4.0),
    ]
    text = table(rows)
    assert "1 of 2 plans fit" in text
    assert "beside plain JAX is 0.50" in text
    assert "beside loops by hand is 2.00" in text
