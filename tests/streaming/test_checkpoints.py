"""Runs that go on from a checkpoint: under other options, and when files are damaged."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.errors import EqsatError
from eqsat.streaming import checkpoints
from eqsat.streaming.steps import Streaming
from tests.nightly import nightly_but
from tests.stages import normal

X = normal(20_003, 8)


class Failing:
    """An array of which one slice can't be read."""

    shape, dtype = X.shape, X.dtype

    def __init__(self, at: int) -> None:
        self.left = at

    def __getitem__(self, slices: Any) -> Any:
        self.left -= 1
        if not self.left:
            raise OSError("gone")
        return X[slices]


def function(x: Any) -> Any:
    return jnp.tanh(x).mean(), x * 2, jax.nn.softmax(x, 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkpoint of a run that has failed."""
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    with pytest.raises(EqsatError, match="gone"):
        eqsat.optimize(function, budget="100kB", checkpoint=tmp_path / "c")(Failing(90))
    return tmp_path / "c"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("budget", ["60kB", "150kB", "20MB"])
def test_a_run_goes_on_within_another_budget(budget: str, folder: Path) -> None:
    got = eqsat.optimize(function, budget=budget, checkpoint=folder)(eqsat.on_host(X))
    for mine, theirs in zip(got, function(X), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4)
    assert not folder.exists()


@pytest.mark.parametrize("chunk", nightly_but({60}, [5, 60, 100]))
def test_states_that_a_pass_saves_survive(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both(x: Any) -> Any:
        bits = x.view(jnp.int32)
        return jnp.cumsum(bits, 0) - jax.lax.cumsum(bits, 0, reverse=True)

    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    run = eqsat.optimize(both, budget="60kB", checkpoint=tmp_path / "c")
    assert [one.size // one.length for one in run.plan(eqsat.on_host(X)).passes] >= [51, 51]
    with pytest.raises(EqsatError, match="gone"):
        run(Failing(66 + chunk))
    np.testing.assert_array_equal(run(eqsat.on_host(X)), jax.jit(both)(X))


def test_a_run_does_not_go_on_by_another_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Streaming, "digest", "another")
    with pytest.raises(EqsatError, match="the options that it was made with"):
        eqsat.optimize(function, budget="100kB", checkpoint=folder)(eqsat.on_host(X))
    assert folder.exists()


def test_a_damaged_result_is_said(folder: Path) -> None:
    (unfinished,) = folder.glob("result-1*")
    os.truncate(unfinished, 100)
    with pytest.raises(EqsatError, match="can't be opened"):
        eqsat.optimize(function, budget="100kB", checkpoint=folder)(eqsat.on_host(X))


def test_a_folder_that_can_not_be_written_to_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(EqsatError, match=r"the checkpoint .* can't be"):
        eqsat.optimize(jnp.sum, budget="100kB", checkpoint=tmp_path / "loop")(eqsat.on_host(X))
