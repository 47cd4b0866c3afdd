"""Settings for all tests: they use no cache folder, and plan for a machine of unknown cache size.

Hence no test reads what other processes have stored, and plans don't depend on the machine at hand.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from eqsat.ir.operations import REGISTERED, UNDECLARED
from eqsat.support.cache_folder import VARIABLE
from eqsat.targets import cpu
from tests.nightly import mark_samples

os.environ[VARIABLE] = ""
# The plugins for absent devices are installed, too: JAX is not to look for these.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
cpu.last_level_cache = lambda: None

# No test is about time: a process that holds compiled programs may stop for a second to collect garbage.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the variants of tests that only `make test-all` runs, before pytest selects by marks."""
    mark_samples(items)


@pytest.fixture(autouse=True)
def _own_operations() -> Iterator[None]:
    """Removes the operations that a test registers."""
    registered, undeclared = dict(REGISTERED), dict(UNDECLARED)
    yield
    for table, before in ((REGISTERED, registered), (UNDECLARED, undeclared)):
        table.clear()
        table.update(before)
