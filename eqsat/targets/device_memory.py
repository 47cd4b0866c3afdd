"""The free memory of a device: the default budget."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import jax

from eqsat.errors import EqsatError

KEPT_BACK = 1 / 8
"""The share of the free memory that is kept in reserve: for the compiler, fragmentation and others."""

DIGITS = 2
"""The number of digits to which a budget is rounded down, so that plans made a moment apart have the same."""


def free_budget(devices: Iterable[jax.Device], present: int = 0) -> int:
    """The default budget of a program, in bytes.

    It is seven eighths of the free memory of the fullest device, rounded down to two digits, plus the memory
    of the program's arguments, since a budget includes these. CPU devices share one memory.

    **Arguments:**

    - `present`: bytes of the arguments that are in memory, on each device.
    """
    found = list(devices)
    sharing = sum(device.platform == "cpu" for device in found)
    free = min(free_bytes(device) // (sharing if device.platform == "cpu" else 1) for device in found)
    return present + rounded_down(int(free * (1 - KEPT_BACK)))


def rounded_down(count: int) -> int:
    """
    >>> rounded_down(23_499_440), rounded_down(42), rounded_down(-5)
    (23000000, 42, 0)
    """
    count = max(count, 0)
    unit: int = 10 ** max(len(str(count)) - DIGITS, 0)
    return count // unit * unit


def free_bytes(device: jax.Device) -> int:
    """The bytes that a device has free now.

    For an accelerator, they are its allocator's limit less the memory in use. For a CPU, see
    `free_host_bytes`.

    **Raises:** `EqsatError` if the device does not say.
    """
    if device.platform == "cpu":
        return free_host_bytes()
    try:
        known = device.memory_stats() or {}
    except Exception:  # some platforms raise errors of their own where they keep no figures
        known = {}
    if "bytes_limit" not in known:
        raise EqsatError(
            f'{device} does not say how much memory it has: name a budget, as in optimize(f, budget="2GB")'
        )
    return int(known["bytes_limit"]) - int(known.get("bytes_in_use", 0))


def free_host_bytes(root: Path = Path("/")) -> int:
    """The bytes that this process can still get.

    On Linux, this is the memory available without swapping, or the remaining limit of the process's control
    groups, whichever is less. Elsewhere, it is the memory that the system calls available, or half of all
    memory if the system does not say.

    **Arguments:**

    - `root`: the folder with `proc` and `sys`.

    **Raises:** `EqsatError` if there is no way to know.
    """
    free = [group.free for group in _groups(root)]
    available = _available(root)
    if available is None:
        available = _available_pages()
    if available is not None:
        free.append(available)
    if not free:
        raise EqsatError(
            'this system does not say how much memory is free: name a budget, as in optimize(f, budget="2GB")'
        )
    return min(free)


def _available(root: Path) -> int | None:
    for line in _text(root / "proc/meminfo").splitlines():
        words = line.split()
        if words[:1] == ["MemAvailable:"] and words[1:] and (kibibytes := _number(words[1])) is not None:
            return kibibytes * 1024
    return None


def _available_pages() -> int | None:
    known = getattr(os, "sysconf_names", {})
    for name, part in (("SC_AVPHYS_PAGES", 1), ("SC_PHYS_PAGES", 2)):
        if name in known and (pages := os.sysconf(name)) > 0:
            return pages * os.sysconf("SC_PAGE_SIZE") // part
    return None


# Control groups.


@dataclass(frozen=True, slots=True)
class Files:
    """The names of a control group's files in one version of control groups.

    **Attributes:**

    - `mounts`: the folders of groups, below the root.
    - `limits`: the files with limits, of which the lowest applies.
    - `used`: the file with the memory in use, cached files included.
    - `cached`: the line of `memory.stat` with the part of it that can be reclaimed.
    """

    mounts: tuple[str, ...]
    limits: tuple[str, ...]
    used: str
    cached: str


FIRST = Files(
    ("sys/fs/cgroup/memory",), ("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"
)
SECOND = Files(
    ("sys/fs/cgroup", "sys/fs/cgroup/unified"),
    ("memory.max", "memory.high"),
    "memory.current",
    "inactive_file",
)


@dataclass(frozen=True, slots=True)
class Group:
    """A control group that has a limit, in bytes."""

    limit: int
    used: int
    cached: int

    @property
    def free(self) -> int:
        return self.limit - (self.used - self.cached)


def _groups(root: Path) -> Iterator[Group]:
    """The groups with limits that contain this process, directly or not.

    Lines that are not in the kernel's format are ignored.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            files = SECOND
        elif "memory" in controllers.split(","):
            files = FIRST
        else:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        if ".." in inside.parts:  # a group outside of what a container sees: its root stands for it
            inside = PurePosixPath()
        for mount in files.mounts:
            for folder in (inside, *inside.parents):
                group = _group(root / mount / folder, files)
                if group is not None:
                    yield group


def _group(folder: Path, files: Files) -> Group | None:
    limits = [limit for name in files.limits if (limit := _number(_text(folder / name))) is not None]
    used = _number(_text(folder / files.used))
    if not limits or used is None:
        return None
    entries = (line.split() for line in _text(folder / "memory.stat").splitlines())
    cached = next((_number(words[1]) for words in entries if words[:1] == [files.cached] and words[1:]), 0)
    return Group(min(limits), used, cached or 0)


def _number(text: str) -> int | None:
    """A number of bytes; None for "max", and whatever else is no number."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 30 else None


def _text(path: Path) -> str:
    """A file's text, or nothing if it can't be read."""
    try:
        return path.read_text(errors="replace")
    except (OSError, ValueError):  # ValueError: a path with a null byte
        return ""
