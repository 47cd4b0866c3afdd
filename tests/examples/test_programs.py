"""The demo's programs at a small size: within budget, right, and their source runs by itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import eqsat
from examples.comparison import in_double_precision
from examples.data import images
from examples.measure import difference, plain_peak
from examples.programs import (
    attention,
    attention_data,
    chain,
    chain_data,
    kernel_data,
    kernel_matvec,
    nearest_neighbours,
    sparse_gp,
    sparse_gp_data,
)
from tests.nightly import nightly_but

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], float]] = {
    "kernel matvec": (kernel_matvec, kernel_data(1501, seed=1), 0.1),
    "nearest neighbours": (nearest_neighbours, images(None, 3001, 211, 16, seed=1), 0.3),
    "attention": (attention, attention_data(1009, 32, seed=1), 0.25),
    "chain": (chain, chain_data(1201, 50, seed=1), 0.25),
    "sparse GP": (sparse_gp, sparse_gp_data(3001, 40, 3, seed=1), 0.4),
}
"""With arguments, and a budget as a share of what plain JAX needs."""


@cache
def optimized_within_budget(name: str) -> tuple[eqsat.Optimized[..., Any], int]:
    function, arguments, share = PROGRAMS[name]
    budget = int(share * plain_peak(function, arguments))
    return eqsat.optimize(function, budget=budget), budget


def check_as_right_as_plain(name: str, results: list[Any]) -> None:
    """Results are as close to the reference as plain JAX's; the sparse GP's gradient is ill-conditioned."""
    function, arguments, _ = PROGRAMS[name]
    plain = jax.tree.leaves(jax.jit(function)(*arguments))
    reference = jax.tree.leaves(in_double_precision(function)(*arguments))
    assert len(results) == len(plain)
    if name == "nearest neighbours":  # positions may differ where distances tie
        results, plain, reference = results[:1], plain[:1], reference[:1]
    assert difference(results, reference) <= max(2 * difference(plain, reference), 1e-5)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", nightly_but(set(PROGRAMS) - {"sparse GP"}, PROGRAMS))
def test_an_example_fits_its_budget_and_is_as_right_as_plain_jax(name: str) -> None:
    function, arguments, _ = PROGRAMS[name]
    optimized, budget = optimized_within_budget(name)
    plan = optimized.plan(*arguments)
    assert plan.peak_bytes <= budget < plan.original_peak_bytes
    result, plain = optimized(*arguments), jax.jit(function)(*arguments)
    assert jax.tree.structure(result) == jax.tree.structure(plain)
    check_as_right_as_plain(name, jax.tree.leaves(result))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", nightly_but(("attention", "chain"), PROGRAMS))
def test_the_source_of_a_plan_runs_with_jax_alone(name: str, tmp_path: Path) -> None:
    arguments = PROGRAMS[name][1]
    optimized, _ = optimized_within_budget(name)
    source = optimized.plan(*arguments).source
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
    np.savez(tmp_path / "arguments.npz", *leaves)
    script = (
        f"{source}\nimport sys, numpy\narguments = numpy.load('arguments.npz').values()\n"
        "numpy.savez('results.npz', *map(numpy.asarray, optimized(*arguments)))\n"
        "assert 'eqsat' not in sys.modules\n"
    )
    (tmp_path / "program.py").write_text(script)
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, check=True)
    check_as_right_as_plain(name, list(np.load(tmp_path / "results.npz").values()))
