"""For all tests: nothing is kept between processes, or read from what a user's processes have kept.

Plans are made for one and the same machine, whatever the caches of the one at hand.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from eqsat.ir.operations import REGISTERED, UNDECLARED
from eqsat.support.cache_folder import VARIABLE
from eqsat.targets import cpu

os.environ[VARIABLE] = ""
cpu.last_level_cache = lambda: None


@pytest.fixture(autouse=True)
def _own_operations() -> Iterator[None]:
    """Operations that a test registers are not there for the next one."""
    registered, undeclared = dict(REGISTERED), dict(UNDECLARED)
    yield
    for table, before in ((REGISTERED, registered), (UNDECLARED, undeclared)):
        table.clear()
        table.update(before)
