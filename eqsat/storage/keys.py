"""Keys of plans: digests of everything that a plan depends on."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from os import PathLike
from pathlib import Path

import jax
import jaxlib.version
import numpy as np
from jax.extend.core import ClosedJaxpr

from eqsat.ir.operations import REGISTERED, UNDECLARED
from eqsat.storage.files import KeptFiles
from eqsat.storage.fingerprints import Fingerprint
from eqsat.storage.rule_texts import rule_texts

SOURCES = (".py", ".rules", ".lark")

OF_HOSTS = frozenset({"jax_platforms", "jax_platform_name", "jax_default_device", "jax_num_cpu_devices"})
"""The settings of JAX that say which devices there are."""

VERSIONS = KeptFiles("versions", 1 << 16)
"""Digests of eqsat, cached by the sizes and times of its files."""

PROCESSOR = (b"flags", b"Features", b"model name", b"CPU part")
"""The lines of /proc/cpuinfo that identify a processor as a target of machine code."""


def plan_key(
    program: ClosedJaxpr, asked: object, rules: Sequence[str | PathLike[str]], platform: str = "cpu"
) -> str:
    """The key of a program's plan.

    **Arguments:**

    - `asked`: the caller's request: the budget and so on.
    - `rules`: the paths of `.rules` files besides the shipped ones.
    - `platform`: that programs are for. The host matters for plans for CPUs only: others are made wherever
      their compiler is.

    **Raises:** `Unidentified` if the program cannot be identified in another process.
    """
    found = Fingerprint()
    found.add(program)
    found.add(asked)
    for path in rules:
        found.add(list(rule_texts(Path(path))))
    found.add([str(spec.signature) for _, spec in sorted(REGISTERED.items())])
    found.add(sorted(UNDECLARED))
    settings = {name: str(getattr(jax.config, name, value)) for name, value in jax.config.values.items()}
    host = _device() if platform == "cpu" else ()
    found.add({name: value for name, value in settings.items() if host or name not in OF_HOSTS})
    found.add([*_versions(), *host])
    return found.hexdigest()


@cache
def _versions() -> tuple[str, ...]:
    """The versions of all software that plans and executables depend on."""
    others = (metadata.version(name) for name in ("egglog", "opt_einsum", "lark"))
    return (
        eqsat_version(),
        jax.__version__,
        jaxlib.version.__version__,
        np.__version__,
        sys.version,
        *others,
    )


@cache
def eqsat_version() -> str:
    """A digest of eqsat's files, shipped rules included, since they may have been edited after a release.

    It is cached by the sizes and times of the files, since reading all of them takes longer than loading a
    plan.
    """
    name = eqsat_edition()
    known = VERSIONS.read(name)
    if known is not None:
        return known.decode()
    paths = [Path(path) for path, _ in _files()]
    version = _digest(part for path in paths for part in (path.name.encode(), path.read_bytes()))
    VERSIONS.write(name, version.encode())
    return version


@cache
def eqsat_edition() -> str:
    """A digest of the paths, sizes and times of eqsat's files, which differs for every copy and change."""
    return _digest(f"{path} {edition}".encode() for path, edition in _files())


def _files() -> list[tuple[str, str]]:
    """The files of eqsat, with their editions."""
    packages = ("eqsat", "eqsat.frontend", "eqsat.backend", "eqsat.rules")
    found = [spec for name in packages if (spec := find_spec(name)) is not None]
    folders = {folder for spec in found for folder in spec.submodule_search_locations or ()}
    return sorted({file for folder in folders for file in sources(folder)})


def sources(folder: str) -> Iterator[tuple[str, str]]:
    """The source files of eqsat below a folder, each with a text that changes when the file is written to."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir() and entry.name != "__pycache__":
                yield from sources(entry.path)
            elif entry.name.endswith(SOURCES):
                found = entry.stat()
                edition = f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"
                yield entry.path, edition


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=20)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


@cache
def _device() -> tuple[str, ...]:
    """The device and the settings that programs are compiled for."""
    device = jax.devices()[0]
    return (
        device.platform,
        device.device_kind,
        device.client.platform_version,
        str(jax.device_count()),
        str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        os.environ.get("XLA_FLAGS", ""),
        platform.machine(),
        *(_processor() or [platform.processor()]),  # this starts a process
    )


def _processor() -> list[str]:
    """The processor's model and instruction sets, if the system tells them."""
    try:
        with open("/proc/cpuinfo", "rb") as file:
            lines = file.read(1 << 14).split(b"\n\n")[0].split(b"\n")
    except OSError:
        return []
    return [line.decode() for line in lines if line.startswith(PROCESSOR)]
