"""A machine is measured when asked for; plans are made for it from then on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import eqsat
from eqsat.targets import calibration, cpu
from eqsat.targets.calibration import calibrate, default_target
from eqsat.targets.cpu import CPU
from eqsat.targets.gpu import GPU

FAST = replace(CPU, flops=1e12, cache=1 << 20)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_measured", lambda known, platform: FAST)


@pytest.mark.usefixtures("measured")
def test_what_was_measured_is_kept_for_later() -> None:
    assert default_target().machine == CPU
    assert calibrate() == FAST
    assert default_target().machine == FAST


@pytest.mark.usefixtures("measured")
def test_figures_of_another_processor_or_version_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    calibrate()
    with monkeypatch.context() as patch:
        patch.setattr(calibration, "_processor", lambda: "another one")
        assert default_target().machine == CPU
    with monkeypatch.context() as patch:
        patch.setattr(jax, "__version__", "0.0")
        assert default_target().machine == CPU
    assert default_target().machine == FAST


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("damage", ["", "{}", "[1]", "not json", "negative", "more", "text"])
def test_a_file_that_makes_no_sense_is_ignored(folder: Path, damage: str) -> None:
    calibrate()
    (path,) = folder.rglob("*.json")
    found = json.loads(path.read_bytes())
    changes = {"negative": {"flops": -1.0}, "more": {"extra": 1.0}, "text": {"call": "1"}}
    path.write_text(json.dumps(found | changes[damage]) if damage in changes else damage)
    assert default_target().machine == CPU


@pytest.mark.usefixtures("measured")
def test_nothing_is_kept_where_nothing_is_to_be(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", "")
    assert calibrate() == FAST
    assert default_target().machine == CPU
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("measured")
def test_plans_are_made_for_the_machine_as_calibrated() -> None:
    def f(x: jax.Array) -> jax.Array:
        return jnp.exp(-((x[:, None] - x[None]) ** 2)) @ x

    x = jnp.linspace(0.0, 1.0, 3000)
    before = eqsat.optimize(f, budget="20MB").plan(x).loops
    calibrate()
    after = eqsat.optimize(f, budget="20MB").plan(x).loops
    named = eqsat.optimize(f, budget="20MB", machine=CPU).plan(x).loops
    assert after[0].chunk < before[0].chunk == named[0].chunk, "blocks of 1 MB, not of 8"


def test_measuring_gives_every_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "RUNS", 1)
    found = calibrate()
    known = [name for name in calibration.MEASURED if getattr(CPU, name) and name != "iteration"]
    assert all(getattr(found, name) > 0 for name in known)
    assert [name for name in known if getattr(found, name) == getattr(CPU, name)] == []
    assert found == replace(CPU, **{name: getattr(found, name) for name in known})


def test_accelerators_have_rates_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "RUNS", 1)
    found = calibration._measured(replace(CPU, reduced_flops=1.0), "cpu")
    assert found.reduced_flops > 0
    assert found.reduced_flops != 1.0
    call, iteration = calibration._kernel_starts()
    assert calibration.LEAST <= iteration < 1e-3
    assert calibration.LEAST <= call < 1e-3


def caches(folder: Path, *sizes: tuple[str, str]) -> int | None:
    for number, (level, size) in enumerate(sizes):
        cache = folder / f"index{number}"
        cache.mkdir()
        (cache / "level").write_text(level + "\n")
        (cache / "size").write_text(size + "\n")
    return max(cpu._caches(folder), default=(0, None))[1]


def test_the_last_level_cache_is_the_one_that_the_system_tells(tmp_path: Path) -> None:
    assert caches(tmp_path, ("1", "32K"), ("3", "36M"), ("2", "1024K"), ("x", "?")) == 36 << 20


def test_without_any_known_cache_there_is_none(tmp_path: Path) -> None:
    assert caches(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("cache", "block"), [(None, 8 << 20), (24 << 20, 6 << 20), (256 << 20, 8 << 20), (1 << 20, 4 << 20)]
)
def test_blocks_are_a_quarter_of_the_last_level_cache_but_not_huge(
    monkeypatch: pytest.MonkeyPatch, cache: int | None, block: int
) -> None:
    monkeypatch.setattr(cpu, "last_level_cache", lambda: cache)
    assert cpu.host_machine().cache == block


def test_memory_that_a_process_keeps_costs_nothing_to_take() -> None:
    assert CPU.taking(CPU.kept) == 0
    assert CPU.taking(CPU.fresh) == pytest.approx(1)
    assert CPU.taking(CPU.kept + 1) == pytest.approx(CPU.kept / CPU.fresh)  # all of it, not what is above
    assert GPU.taking(100e9) == 0


def test_blocks_of_a_gpu_fill_it() -> None:
    assert GPU.cache // jnp.dtype("float64").itemsize >= 1 << 22
