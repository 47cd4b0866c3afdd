"""Checkpoints that go on elsewhere: other folders, other numbers of devices, less memory."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.errors import BudgetError, EqsatError
from eqsat.streaming import checkpoints
from tests.stages import normal
from tests.streaming.test_checkpoints import Failing

X = normal(20_003, 8)


def centred(x: Any) -> Any:
    """Expensive values, which two passes need."""
    values = jnp.sum(jnp.tanh(x[:, :, None] * jnp.linspace(0, 1, 99)), -1)
    return values - values.mean(0)


def here(folder: Path, **options: Any) -> Any:
    return eqsat.optimize(centred, budget="100kB", checkpoint=folder / "checkpoint", **options)


def check(found: Any) -> None:
    np.testing.assert_allclose(found, centred(X), rtol=1e-4, atol=1e-4)


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the checkpoint of a run that has failed, which keeps values in a scratch file."""
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    folder = tmp_path / "begun"
    run = here(folder, scratch=folder / "scratch")
    assert run.plan(eqsat.on_host(X)).read == {"x": 1, "what was kept": 1}
    with pytest.raises(EqsatError, match="gone"):
        run(Failing(90))
    return folder


@pytest.mark.nightly
def test_all_folders_may_be_others(begun: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "elsewhere.npy", X)
    moved = tmp_path / "moved"
    shutil.copytree(begun, moved)
    shutil.rmtree(begun)
    x = np.load(tmp_path / "elsewhere.npy", mmap_mode="r")
    check(here(moved, scratch=tmp_path / "another")(x))
    assert not (moved / "checkpoint").exists()


@pytest.mark.nightly
def test_a_machine_with_less_memory_says_how_much_is_needed(begun: Path) -> None:
    for host, message in (
        (X.nbytes + 5_000, "chunks as its checkpoint has them .* they take"),
        (X.nbytes - 5_000, "results in arrays of NumPy take 640 kB"),
    ):
        with pytest.raises(BudgetError, match=message):
            here(begun, scratch=begun, host_budget=host)(eqsat.on_host(X))
    check(here(begun, scratch=begun)(eqsat.on_host(X)))


def test_without_scratch_files_it_says_what_to_do(begun: Path) -> None:
    with pytest.raises(EqsatError, match="call it with the options that it was made with"):
        here(begun)(eqsat.on_host(X))


def test_a_result_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    with pytest.raises(EqsatError, match="gone"):
        here(tmp_path, out=tmp_path / "one.npy")(Failing(90 + 90))
    with pytest.raises(EqsatError, match=r"other\.npy\.part can't be opened.*Move it there"):
        here(tmp_path, out=tmp_path / "other.npy")(eqsat.on_host(X))
    (tmp_path / "one.npy.part").rename(tmp_path / "other.npy.part")
    check(here(tmp_path, out=tmp_path / "other.npy")(eqsat.on_host(X)))


def test_an_array_in_memory_is_no_place_for_a_long_run(tmp_path: Path) -> None:
    with pytest.raises(EqsatError, match="would not find"):
        here(tmp_path, out=np.empty_like(X))(eqsat.on_host(X))
    mapped = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", X.dtype, X.shape)
    check(here(tmp_path, out=mapped)(eqsat.on_host(X)))


SCRIPT = """
    import sys
    from pathlib import Path
    import jax, numpy as np
    import eqsat
    from tests.streaming.test_moved_checkpoints import X, check, here

    folder = Path(sys.argv[1])
    assert jax.device_count() == 4
    check(here(folder, scratch=folder, mesh=eval(sys.argv[2]))(eqsat.on_host(X)))
    assert not (folder / "checkpoint").exists()
"""


@pytest.mark.nightly
@pytest.mark.parametrize("mesh", [pytest.param(None, marks=pytest.mark.nightly), {"data": 4}])
def test_there_may_be_more_devices(mesh: Any, begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(begun), repr(mesh)]
    subprocess.run(command, check=True)
