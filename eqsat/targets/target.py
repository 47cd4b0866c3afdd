"""`Target`: what programs are planned, compiled and certified for: a device and its compiler."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import jax

from eqsat.errors import EqsatError
from eqsat.targets.absent_devices import AbsentDevice
from eqsat.targets.compiler_profile import CompilerProfile
from eqsat.targets.machine import Machine

PLATFORMS = {"cuda": ("cuda", "gpu"), "rocm": ("rocm", "gpu")}
"""By platform, all names that JAX has for it, if it has several."""


@dataclass(frozen=True)
class Target:
    """A device that programs are for, whether it is present or not.

    **Attributes:**

    - `name`: "h100"; of a device that no description is known of, its platform.
    - `description`: what XLA calls the device: "NVIDIA H100 80GB HBM3".
    - `platform`: JAX's name of the platform that programs are lowered for: "cpu", "cuda", "rocm" or "tpu".
    - `machine`: its rates and sizes, and what its compiler stores.
    - `memory`: bytes of the device's memory; None if they are unknown, or shared with the system.
    - `compiler`: the profile of its compiler.
    - `kinds`: what JAX calls such a device, where it is present.
    - `device`: the device, if it is present and not JAX's default device.
    - `absent`: how the device is compiled for although it is not present; None if it is.
    """

    name: str
    description: str
    platform: str
    machine: Machine
    memory: int | None = None
    compiler: CompilerProfile = field(default_factory=CompilerProfile, compare=False, repr=False)
    kinds: tuple[str, ...] = field(default=(), compare=False, repr=False)
    device: jax.Device | None = field(default=None, compare=False, repr=False)
    absent: AbsentDevice | None = field(default=None, compare=False, repr=False)

    @property
    def platforms(self) -> frozenset[str]:
        """The names that JAX has for the platform."""
        return frozenset(PLATFORMS.get(self.platform, (self.platform,)))

    @property
    def usable_memory(self) -> int | None:
        """Bytes that programs may have: the memory without the reserve of JAX; None if unknown."""
        return None if self.memory is None else int(self.memory * self.compiler.memory_share)

    @cached_property
    def sharding(self) -> jax.sharding.Sharding | None:
        """Where arguments and results are; None for JAX's default device.

        **Raises:** `EqsatError` if what compiles for the device is not installed.
        """
        device = self.absent.device() if self.absent else self.device
        return None if device is None else jax.sharding.SingleDeviceSharding(device)

    def devices(self, count: int) -> tuple[jax.Device, ...]:
        """So many devices of the kind, for meshes.

        **Raises:** `EqsatError` if there are not so many, or if what compiles for them is not installed.
        """
        if self.absent is not None:
            return self.absent.devices(count)
        found = tuple(jax.devices() if self.device is None else jax.devices(self.device.platform))
        if len(found) < count:
            raise EqsatError(f"the mesh has {count} devices, and there are {len(found)}")
        return found[:count]

    @property
    def exact(self) -> Target:
        """The target with a compiler that rounds as XLA does by itself, for results of the same bits.

        Sums keep the order that XLA gives them. Wide vectors are not asked for: in jaxlib 0.12, exponentials
        of 512 bits round otherwise.
        """
        machine = replace(self.machine, emits_steps=False, shifted_taps=0)
        return replace(self, machine=machine, compiler=replace(self.compiler, wide={}))

    @property
    def new_product_precision(self) -> str:
        """The precision that products made by rules ask for; "" where the default is full precision."""
        return "HIGHEST" if self.compiler.reduces_precision else ""

    def __str__(self) -> str:
        return self.name
