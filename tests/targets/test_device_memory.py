"""What a device has free: read from its allocator, from the system, and from control groups."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

import eqsat
from eqsat.targets.device_memory import free_budget, free_bytes, free_host_bytes

AVAILABLE = "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\n"
UNLIMITED = 9223372036854771712  # what version 1 says


def machine(root: Path, files: dict[str, object]) -> Path:
    """A system with these files, and 8 GB (of 1024) available."""
    for name, text in {"proc/meminfo": AVAILABLE, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text))
    return root


def test_without_control_groups_it_is_what_is_available(tmp_path: Path) -> None:
    assert free_host_bytes(machine(tmp_path, {})) == 8_000_000 * 1024


def test_this_machine_says_something() -> None:
    assert 0 < free_host_bytes() < 1 << 50


def second(root: Path, path: str, groups: dict[str, tuple[object, int, int]]) -> Path:
    """A system with control groups of version 2: by their path, limit, use, and cached files."""
    files: dict[str, object] = {"proc/self/cgroup": f"0::{path}\n"}
    for name, (limit, used, cached) in groups.items():
        folder = f"sys/fs/cgroup/{name}"
        files |= {f"{folder}/memory.max": limit, f"{folder}/memory.current": used}
        files[f"{folder}/memory.stat"] = f"anon 7\ninactive_file {cached}\n"
    return machine(root, files)


def test_a_group_leaves_its_limit_less_its_use_but_not_less_what_is_cached(tmp_path: Path) -> None:
    root = second(tmp_path, "/job", {"job": (1_000_000, 600_000, 100_000)})
    assert free_host_bytes(root) == 500_000


def test_the_tightest_of_nested_groups_counts(tmp_path: Path) -> None:
    groups: dict[str, tuple[object, int, int]] = {
        "user/job": ("max", 10, 0),
        "user": (900_000, 800_000, 0),
        "user/job/step": (500_000, 0, 0),
    }
    assert free_host_bytes(second(tmp_path, "/user/job/step", groups)) == 100_000


def test_what_a_group_would_allow_is_not_there_if_it_is_not_available(tmp_path: Path) -> None:
    root = second(tmp_path, "/job", {"job": (1 << 50, 0, 0)})
    assert free_host_bytes(root) == 8_000_000 * 1024


def test_throttling_counts_as_a_limit(tmp_path: Path) -> None:
    root = second(tmp_path, "/job", {"job": (1_000_000, 0, 0)})
    (root / "sys/fs/cgroup/job/memory.high").write_text("300000\n")
    assert free_host_bytes(root) == 300_000


@pytest.mark.parametrize("path", ["/job", "/docker/0123/job", "/../job", ""])
def test_a_container_that_does_not_see_its_group_sees_the_root_of_it(tmp_path: Path, path: str) -> None:
    assert free_host_bytes(second(tmp_path, path, {".": (700_000, 0, 0)})) == 700_000


def test_version_one(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/memory"
    files = {
        "proc/self/cgroup": "12:cpu,cpuacct:/a\n4:memory:/batch/job\n0::/x\n",
        f"{folder}/memory.limit_in_bytes": UNLIMITED,
        f"{folder}/memory.usage_in_bytes": 5,
        f"{folder}/batch/job/memory.limit_in_bytes": 2_000_000,
        f"{folder}/batch/job/memory.usage_in_bytes": 1_500_000,
        f"{folder}/batch/job/memory.stat": "inactive_file 1\ntotal_inactive_file 400000\n",
    }
    assert free_host_bytes(machine(tmp_path, files)) == 900_000


@pytest.mark.parametrize(
    "files",
    [
        {"proc/self/cgroup": "nonsense"},
        {"proc/self/cgroup": "::::\n0\n\n0:\n0::"},
        {"proc/self/cgroup": "0::/a\x00b\n"},
        {"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/memory.max": "lots"},
        {"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/memory.max": "5"},
        {"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/memory.max": "-5"},
        {
            "proc/self/cgroup": "0::/job\n",
            "sys/fs/cgroup/job/memory.max": "9" * 5000,
            "sys/fs/cgroup/job/memory.current": "٣",
            "sys/fs/cgroup/job/memory.stat": "inactive_file\n\n",
        },
        {"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/memory.max/a": "a folder"},
    ],
)
def test_malformed_control_groups_are_passed_over(tmp_path: Path, files: dict[str, object]) -> None:
    assert free_host_bytes(machine(tmp_path, files)) == 8_000_000 * 1024


@pytest.mark.parametrize("text", ["", "MemAvailable:\n", "MemAvailable: some kB\n"])
def test_other_systems_know_the_number_of_their_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    known = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}
    monkeypatch.setattr("os.sysconf_names", known)
    monkeypatch.setattr("os.sysconf", known.get)
    assert free_host_bytes(machine(tmp_path, {"proc/meminfo": text})) == 4096 * 500
    known["SC_AVPHYS_PAGES"] = 300
    assert free_host_bytes(tmp_path) == 4096 * 300


def test_a_system_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sysconf_names")
    with pytest.raises(eqsat.EqsatError, match="name a budget"):
        free_host_bytes(tmp_path)


def accelerator(stats: dict[str, int] | None) -> Any:
    return SimpleNamespace(platform="gpu", memory_stats=lambda: stats)


def test_an_accelerator_has_what_its_allocator_has() -> None:
    assert free_bytes(accelerator({"bytes_limit": 1000, "bytes_in_use": 300})) == 700


def test_an_accelerator_that_says_nothing() -> None:
    with pytest.raises(eqsat.EqsatError, match="name a budget"):
        free_bytes(accelerator(None))


def test_the_fullest_device_counts_and_a_reserve_is_kept() -> None:
    devices = [accelerator({"bytes_limit": limit, "bytes_in_use": 0}) for limit in (80_000, 8_000)]
    assert free_budget(devices) == 7_000
    assert free_budget(devices, present=123) == 7_123


def test_devices_of_one_cpu_share_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqsat.targets.device_memory.free_host_bytes", lambda: 80_000)
    cpus = [SimpleNamespace(platform="cpu") for _ in range(2)]
    assert free_budget(cpus[:1]) == 70_000
    assert free_budget(cpus) == 35_000


def test_a_full_device_leaves_what_the_arguments_have() -> None:
    full = accelerator({"bytes_limit": 1000, "bytes_in_use": 1200})
    assert free_budget([full], present=500) == 500


def test_the_cpu_device_is_the_host() -> None:
    assert free_bytes(jax.devices("cpu")[0]) == pytest.approx(free_host_bytes(), rel=0.2)
