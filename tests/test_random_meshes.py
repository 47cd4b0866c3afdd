"""Random programs on random meshes, with arguments and results anywhere on them, agree with one device.

`tests/test_meshes.py` runs this file with eight devices. `python -m tests.fuzzing --mesh` tries more.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eqsat
from examples.measure import plain_peak
from tests.fuzzing.meshes import drawn
from tests.fuzzing.oracle import fuzz
from tests.nightly import THOROUGH
from tests.program_text import ProgramText
from tests.random_control import random_loops
from tests.random_programs import bottlenecks, random_programs
from tests.test_random_programs import UNHURRIED, check_results

pytestmark = pytest.mark.skipif(len(jax.devices()) < 8, reason="it needs eight devices")


@pytest.mark.filterwarnings("ignore:eqsat does not split")
@settings(UNHURRIED, max_examples=40 if THOROUGH else 2)
@given(random_programs(6) | bottlenecks() | random_loops(), st.integers(0, 2**16))
def test_tame_programs(program: ProgramText, seed: int) -> None:
    function, arrays = program.function(), program.arrays(seed % 4)
    plain = jax.jit(function)(*arrays)
    where = drawn(np.random.default_rng(seed), arrays, jax.tree.leaves(plain))
    options = where.options
    if "out_shardings" in options:
        options["out_shardings"] = jax.tree.unflatten(jax.tree.structure(plain), options["out_shardings"])
    optimized = eqsat.optimize(function, budget=4 * plain_peak(function, arrays), **options)
    results = optimized(*where.placed(arrays))
    check_results(program, arrays, jax.tree.leaves(results), jax.tree.leaves(plain))
    wanted = where.options.get("out_shardings")
    if wanted is not None:
        wanted = jax.tree.leaves(wanted, is_leaf=lambda one: one is None)
        for one, result in zip(wanted, jax.tree.leaves(results), strict=True):
            assert one is None or result.sharding.is_equivalent_to(one, result.ndim)


@pytest.mark.nightly
def test_hostile_programs() -> None:
    findings = [fuzz(seed, "reassociates", several=True) for seed in range(200, 240)]
    assert not [str(finding) for finding in findings if finding.wrong]
    assert any("axis" in finding.devices for finding in findings)
