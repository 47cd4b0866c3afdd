"""The benchmark beside others at tiny size: ways agree, ratios are of what they say, files are written."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.loops import BLOCKS, FORMS, lengths, loops, pullback
from benchmarks.records import write
from benchmarks.speed import neighbours
from benchmarks.speed.__main__ import merged, places
from benchmarks.speed.case import AMPLE, HAND, PLAIN, TIGHT, Case, Row
from benchmarks.speed.growth import beside_a_law
from benchmarks.speed.table import figure, summary, text


def products(x: Any, y: Any) -> Any:
    return jnp.tanh(x @ y.T) @ y


def data() -> tuple[Any, Any]:
    return tuple(np.random.default_rng(0).normal(size=(2, 600, 2)).astype(np.float32))


def double_of(function: Any) -> Any:
    """A peer that gives twice the result: every one of its errors is 1."""
    return lambda *_: lambda *arguments: 2 * function(*arguments)


def missing(*_: Any) -> Any:
    raise ImportError


def test_a_case_compares_what_was_run_within_what_was_certified() -> None:
    case = Case(
        "group",
        "title",
        products,
        data,
        loops({"": products}, (0,), (30, 60), ("scan",)),
        lambda arguments: (arguments[0][:60], arguments[1]),
        {"wrong": double_of(products), "missing": missing},
    )
    rows = {row.way: row for row in case.measure(runs=2)}
    assert list(rows) == [PLAIN, AMPLE, HAND, TIGHT, "wrong", "missing"]
    plain, ample, hand, tight, wrong, absent = rows.values()
    for row in (plain, ample, hand, tight):
        assert row.calls == 2
        assert row.error is not None
        assert row.error < 1e-5
        assert row.peak is not None
    assert ample.budget == 2 * plain.peak
    assert tight.budget == hand.peak
    assert tight.peak <= tight.budget < plain.peak
    assert (plain.base, hand.base, wrong.base) == (AMPLE, TIGHT, TIGHT)
    assert wrong.error == pytest.approx(1)
    assert absent.seconds is None
    assert "not installed" in absent.note


def test_what_was_found_of_other_cases_is_kept() -> None:
    """In the order of the cases, and each with its day."""
    first, second = (case.title for case in islice(neighbours.cases(False), 2))
    before = [
        Row("neighbours", second, "eqsat", 1.0, day="2020-01-01"),
        Row("neighbours", first, "eqsat", 2.0, day="2020-01-01"),
        Row("growth", "kernel matrix times vector in 20MB", "eqsat", 4.0),
    ]
    again = [Row("neighbours", second, "eqsat", 3.0)]
    rows = sorted(merged(before, again), key=places(False))
    assert [(row.case, row.seconds) for row in rows[:2]] == [(first, 2.0), (second, 3.0)]
    assert rows[0].day == "2020-01-01" < rows[1].day
    assert rows[2].group == "growth"
    assert f"Measured: 2020-01-01, {rows[1].day}." in text(rows)


@pytest.mark.parametrize("form", FORMS)
def test_loops_by_hand_compute_the_whole(form: str) -> None:
    x, y = data()
    (loop,) = loops({"": products}, (0,), (60,), (form,)).values()
    np.testing.assert_allclose(loop(x, y), products(x, y), rtol=1e-4, atol=1e-4)


def test_a_loop_can_be_pulled_back_through() -> None:
    x, y = data()
    (loop,) = loops({"": products}, (0,), (60,), ("scan",)).values()
    for ours, theirs in zip(pullback(loop)(x, y, x), pullback(products)(x, y, x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-2)


def test_lengths_divide_the_rows_and_fit_their_blocks() -> None:
    found = lengths(1_000, BLOCKS[0] // 10)
    assert found == [10, 40, 125]
    assert lengths(1_000, 10 * BLOCKS[-1]) == [1]


def row(case: str, way: str, seconds: float, ratio: float | None = None) -> Row:
    return Row("group", case, way, seconds, calls=5, base=AMPLE, ratio=ratio)


def test_a_summary_says_what_misses_its_target() -> None:
    rows = [row("a", PLAIN, 2, 2.0), row("a", AMPLE, 1), row("b", PLAIN, 1, 0.5), row("b", AMPLE, 2)]
    (line,) = summary(rows).splitlines()[2:]
    assert line == f"| group | {PLAIN} | 2 | 1.00 | – | 0.50 | b | 1 below 0.95 |"


def test_growth_is_beside_its_law() -> None:
    rows = [row("n = 1", "eqsat", 1), row("n = 2", "eqsat", 8)]
    ratios = [found.ratio for found in beside_a_law(rows, (1, 2), "as n²", 2) if found.way == "as n²"]
    assert ratios == [1.0, 0.5]


def test_what_was_found_is_written_and_can_be_read_back(tmp_path: Path) -> None:
    rows = [row("a", PLAIN, 2, 2.0), row("a", AMPLE, 0.001)]
    stem = write("speed", rows, text(rows), figure(rows), tmp_path)
    record = json.loads(stem.with_suffix(".json").read_text())
    assert [Row(**found) for found in record["rows"]] == rows
    assert "| a | 2.0 s (2×) | 1.0 ms |" in stem.with_suffix(".md").read_text()
    assert stem.with_suffix(".png").stat().st_size > 5_000
