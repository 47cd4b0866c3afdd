"""Parses and formats amounts of memory and time as people write them."""

from __future__ import annotations

import math
import re
from numbers import Real

from eqsat.errors import BudgetError

UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}

UNLIMITED = 1 << 62
"""A budget that everything fits, in bytes."""

_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?(?:[eE]\d{1,2})?)\s*([a-zA-Z]*)\s*")


def parse_budget(budget: object) -> int:
    """The bytes of a budget given as a whole number or as text; "2G" means "2GB", and "2Gi" means "2GiB".

    **Raises:** `BudgetError` for anything else.

    >>> parse_budget("2GB"), parse_budget("512MiB"), parse_budget(2e9)
    (2000000000, 536870912, 2000000000)
    """
    if not isinstance(budget, bool) and isinstance(budget, Real) and budget % 1 == 0:
        try:
            amount = min(int(float(budget)), UNLIMITED)
        except OverflowError:  # it is too large for a float
            amount = UNLIMITED
    elif isinstance(budget, str) and (found := _AMOUNT.fullmatch(budget)):
        unit = found.group(2).lower().removesuffix("b") + "b"
        if unit not in UNITS:
            raise BudgetError(
                f"budget {budget!r} has the unknown unit {found.group(2)!r}: use B, KB, MB, GB, TB or"
                " KiB, MiB, GiB, TiB"
            )
        amount = int(min(float(found.group(1)) * UNITS[unit], UNLIMITED))
    else:
        raise BudgetError(
            f"budget {budget!r} is not an amount of memory: give bytes as an int, or text such as"
            " '2GB' or '512MiB'"
        )
    if amount <= 0:
        raise BudgetError(f"budget {budget!r} is not positive")
    return amount


def format_bytes(count: float, enough: bool = False) -> str:
    """A number of bytes as text, in decimal units.

    **Arguments:**

    - `enough`: whether to round up, for an amount that must be enough.

    >>> format_bytes(1234), format_bytes(2.5e9), format_bytes(1234, enough=True)
    ('1.23 kB', '2.5 GB', '1.24 kB')
    """
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= factor:
            amount = count / factor
            if enough:
                digits = 2 - math.floor(math.log10(amount))
                amount = math.ceil(amount * 10**digits) / 10**digits
            return f"{amount:.3g} {unit}"
    return f"{int(count)} B"


def format_seconds(seconds: float) -> str:
    """A number of seconds as text.

    >>> format_seconds(1.23e-05), format_seconds(0.0451), format_seconds(7.25), format_seconds(5400)
    ('12.3 us', '45.1 ms', '7.25 s', '1.5 h')
    """
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
