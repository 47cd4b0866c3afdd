"""Which cases `make test` runs, of tests that would take long; `make test-all` runs all of them."""

from __future__ import annotations

import os
from collections import Counter
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


def mark_samples(items: Iterable[pytest.Item]) -> None:
    """Leaves all but one in so many variants of the tests marked `one_in` to `make test-all`.

    Which ones are left changes from row to row, so that no variant of another parameter is always left out.
    """
    seen: Counter[str] = Counter()
    for item in items:
        marker = item.get_closest_marker("one_in")
        if marker is None or item.get_closest_marker("nightly") is not None:
            continue
        test, (count,) = item.nodeid.split("[")[0], marker.args
        number = seen[test]
        seen[test] += 1
        if (number + number // count) % count:
            item.add_marker(pytest.mark.nightly)
