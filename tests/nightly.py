"""Which cases `make test` runs, of tests that would take long; `make test-all` runs all of them."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from typing import Any

import pytest

THOROUGH = "EQSAT_NIGHTLY" in os.environ
"""Whether `make test-all` runs."""


def nightly_but(kept: Container[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases as parameters, all but some for `make test-all` alone; a tuple is several parameters."""

    def parameters(case: Any) -> Any:
        values = case if isinstance(case, tuple) else (case,)
        return pytest.param(*values, marks=() if case in kept else pytest.mark.nightly)

    return [parameters(case) for case in cases]


def one_in(count: int, cases: Iterable[Any]) -> list[Any]:
    """The cases as parameters, of which `make test` runs one in so many."""
    listed = list(cases)
    return nightly_but(listed[::count], listed)
