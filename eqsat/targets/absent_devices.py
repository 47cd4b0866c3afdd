"""Devices that programs are compiled for although they are not present.

XLA compiles for a GPU from a description of it, and for a TPU from the name of a topology. The programs can
be looked at, and not run.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
from jax.experimental import topologies

from eqsat.errors import EqsatError

PLUGINS = ("jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13")
"""The modules of JAX's plugins for NVIDIA GPUs, which hold the compiler."""

SETTINGS = {
    # Without it, JAX's plugin refuses to start where there is no driver.
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    # Without it, one process at a time may load libtpu.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    # Without these, libtpu asks the network which TPU it runs on, and complains that there is none.
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_STDERR_LOG_LEVEL": "3",
}
"""Environment variables for compilers whose devices are absent."""


@dataclass(frozen=True)
class AbsentDevice:
    """A device that can be compiled for.

    **Attributes:**

    - `name`: of the target, for messages.
    - `platform`: "cuda" or "tpu".
    - `packages`: the extra of eqsat that installs its compiler.
    - `configuration`: of a GPU, the text of XLA's `GpuTargetConfigProto`.
    - `topology`: the name of a topology, of which the first device is taken: "1x1x1" is one GPU of one host
      of one slice, "v5e:2x2" are four TPUs.
    """

    name: str
    platform: str
    packages: str
    configuration: str = ""
    topology: str = "1x1x1"

    def device(self) -> jax.Device:
        """The device, for shardings.

        **Raises:** `EqsatError` if its compiler is not installed, or refuses the description.
        """
        return self.devices(1)[0]

    def devices(self, count: int) -> tuple[jax.Device, ...]:
        """So many devices that are tied to each other, for meshes.

        **Raises:** `EqsatError` if their compiler is not installed, or knows no such number of them.
        """
        return _devices(self, count)


GPUS = 8
"""The GPUs of a host, in servers of NVIDIA's for training (DGX and HGX)."""


@cache
def _devices(absent: AbsentDevice, count: int) -> tuple[jax.Device, ...]:
    try:
        with _environment():
            found = _topology(replace(absent, topology=_shape(absent, count)))
    except Exception as error:
        raise EqsatError(
            f"{absent.name} is not a device of this machine, and programs can't be compiled for it here:"
            f" {_reason(error)}. Its compiler comes with the extra {absent.packages!r}:"
            f" pip install 'eqsat[{absent.packages}]'"
        ) from error
    devices: tuple[jax.Device, ...] = tuple(found.devices[:count])
    return devices


def _shape(absent: AbsentDevice, count: int) -> str:
    """The name of a topology that has so many devices, or more."""
    if count == 1:
        return absent.topology
    if absent.platform == "tpu":
        # A rectangle of the chips of a generation, as long as it is wide or twice that, of three dimensions
        # where the generation's own topology has three.
        generation, _, own = absent.topology.partition(":")
        sides = [2] * len(own.split("x"))
        if len(sides) == 3:
            sides[-1] = 1
        while math.prod(sides) < count:
            sides[sides.index(min(sides))] *= 2
        return f"{generation}:{'x'.join(map(str, sorted(sides)))}"
    hosts = -(-count // GPUS)
    return f"1x{hosts}x{min(count, GPUS)}"


def _topology(absent: AbsentDevice) -> Any:
    if absent.platform == "tpu":
        return topologies.get_topology_desc(absent.topology, platform="tpu")
    options = {"target_config": absent.configuration, "topology": absent.topology}
    try:
        return topologies.get_topology_desc("", platform="cuda", **options)
    except NotImplementedError:
        # JAX has not loaded the plugin, since it finds no GPU.
        _load_plugin()
        return topologies.get_topology_desc("", platform="cuda", **options)


def _load_plugin() -> None:
    """Load the first of JAX's plugins for NVIDIA GPUs that is installed.

    **Raises:** `ImportError` if there is none.
    """
    missing: ImportError | None = None
    for name in PLUGINS:
        try:
            importlib.import_module(name).initialize()
        except ImportError as error:
            missing = missing or error
        else:
            return
    raise missing or ImportError("no plugin")


@contextmanager
def _environment() -> Iterator[None]:
    """Settings under which compilers start where their devices are absent, and say nothing about it."""
    before = {name: os.environ.get(name) for name in SETTINGS}
    os.environ.update({name: value for name, value in SETTINGS.items() if before[name] is None})
    logger = logging.getLogger("jax._src.xla_bridge")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _reason(error: Exception) -> str:
    """The first line of an error."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
