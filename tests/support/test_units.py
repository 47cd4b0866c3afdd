"""Amounts of memory, as people write them and as they are printed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.support.units import format_bytes, parse_budget


@pytest.mark.parametrize(
    ("budget", "amount"),
    [
        (1, 1),
        (np.int64(5), 5),
        ("17", 17),
        ("17B", 17),
        ("2GB", 2 * 10**9),
        ("2 gb", 2 * 10**9),
        (" 1.5 GiB ", 3 * 2**29),
        ("0.5kB", 500),
        ("3TiB", 3 * 2**40),
        ("2G", 2 * 10**9),
        ("2gi", 2 * 2**30),
        ("1e9", 10**9),
        ("1.5e3 kB", 1_500_000),
        (2e9, 2 * 10**9),
        (np.float32(1024), 1024),
        (9**400, 1 << 62),
        ("9" * 400 + "GB", 1 << 62),
    ],
)
def test_budgets(budget: object, amount: int) -> None:
    assert parse_budget(budget) == amount


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("2 XB", r"unknown unit 'XB': use B, KB"),
        ("2 gigs", r"unknown unit 'gigs': use B, KB"),
        ("2 Gb/s", "not an amount of memory"),
        ("-1GB", "not an amount of memory"),
        ("50%", "not an amount of memory"),
        ("1e400", "not an amount of memory"),
        ("", "not an amount of memory"),
        ("much", "not an amount of memory"),
        (1.5, "not an amount of memory"),
        (float("inf"), "not an amount of memory"),
        (float("nan"), "not an amount of memory"),
        (1 + 0j, "not an amount of memory"),
        (True, "not an amount of memory"),
        (b"2GB", "not an amount of memory"),
        (0, "not positive"),
        (-5, "not positive"),
        ("0.1B", "not positive"),
    ],
)
def test_what_is_no_budget(budget: Any, message: str) -> None:
    with pytest.raises(eqsat.BudgetError, match=message):
        eqsat.optimize(abs, budget=budget)


@pytest.mark.parametrize("amount", [1, 999, 1234, 10**6, 2_500_000_000, 10**13])
def test_printed_amounts_can_be_read_back(amount: int) -> None:
    assert parse_budget(format_bytes(amount)) == pytest.approx(amount, rel=5e-3)
