"""More memory is never worse: no failure where less was enough, and no slower prediction."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.planning.ranking import ALIKE
from examples.measure import plain_peak
from tests.program_text import ProgramText
from tests.random_programs import bottlenecks, random_programs
from tests.test_random_programs import budget_between, floor

SHARES = st.lists(st.integers(1, 40).map(lambda part: part / 41), min_size=2, max_size=4, unique=True)
"""Of what plain JAX needs on top of inputs and outputs."""


@pytest.mark.nightly
@settings(
    derandomize=True,
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(bottlenecks() | random_programs(), SHARES)
def test_more_memory_is_never_worse(program: ProgramText, shares: list[float]) -> None:
    function, arrays = program.function(), program.arrays(0)
    before = plain_peak(function, arrays)
    found: eqsat.Plan | None = None
    for share in sorted(shares):
        budget = budget_between(floor(program), before, share)
        try:
            plan = eqsat.optimize(function, budget=budget).plan(*arrays)
        except eqsat.BudgetError:
            assert found is None, f"there is a plan for {found.budget_bytes} B"
            event("refused")
            continue
        assert plan.peak_bytes <= budget
        if not plan.changed:
            return  # what fits is left as it is, unless something else is clearly faster
        event("rewritten")
        if found is not None:
            assert plan.predicted_seconds <= ALIKE * found.predicted_seconds
        found = plan
