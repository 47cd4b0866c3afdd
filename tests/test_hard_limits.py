"""Under a hard limit just above what is certified, the planned program finishes, and the plain one dies."""

from __future__ import annotations

import pytest

from benchmarks.fresh import in_fresh_process
from benchmarks.memory_programs import PROGRAMS
from tests.nightly import nightly_but


@pytest.mark.parametrize("name", nightly_but(("gradient of a sparse GP",), PROGRAMS))
def test_a_hard_limit_is_kept(name: str) -> None:
    """`RLIMIT_DATA` of a fresh process: what it has, what is certified beside the arguments, and 20 MB."""
    code, lines, complaint = in_fresh_process(name, "--limited")
    assert lines, complaint
    assert lines[0]["finished"]
    assert len(lines) == 1, "plain JAX should have needed more"
    assert code != 0
    assert "RESOURCE_EXHAUSTED" in complaint or "YNNPACK" in complaint or "bad_alloc" in complaint, complaint
