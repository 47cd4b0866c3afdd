"""The budget of a program: the caller's, or what its devices have free; and where these are by default."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax

from eqsat.compiler.settings import Settings
from eqsat.errors import EqsatError
from eqsat.support.units import format_bytes
from eqsat.targets.catalogue import smallest_with
from eqsat.targets.device_memory import free_budget
from eqsat.targets.target import Target


def budget_bytes(
    settings: Settings, target: Target, devices: Iterable[jax.Device], present: Sequence[Any]
) -> int:
    """The budget in bytes: the caller's, or the free memory of the devices.

    **Arguments:**

    - `present`: arrays of the program that are in memory: the free memory is that without them.

    **Raises:** `EqsatError` if the caller's exceeds the memory of the target, or if that is unknown.
    """
    named = settings.budget
    if named is not None:
        if settings.target is not None and target.memory is not None and named > target.memory:
            raise EqsatError(
                f"the budget of {format_bytes(named)} exceeds the memory of {target},"
                f" {format_bytes(target.memory)}"
            )
        return named
    if target.absent is not None:
        if target.usable_memory is None:
            raise EqsatError(f"the memory of {target} is unknown: name a budget")
        return target.usable_memory
    return free_budget(devices, sum(map(_share, present)))


def origin_of_budget(settings: Settings, target: Target, peak: int | None) -> str:
    """Sentences on the origin of a budget that the caller has not named, for errors.

    **Arguments:**

    - `peak`: the smallest peak reached, in bytes; None if unknown.
    """
    if settings.budget is not None:
        return ""
    if target.absent is None:
        return "\nThe budget is what the device had free, less a reserve, since none was named."
    other = None if peak is None else smallest_with(peak, target.platform)
    fits = f" It fits {other}." if other else ""
    return f"\nThe budget is what JAX lets programs have on {target}, since none was named.{fits}"


def _share(value: Any) -> int:
    """The bytes of a value on each of its devices."""
    if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
        return 0
    return value.nbytes * math.prod(value.sharding.shard_shape(value.shape)) // max(value.size, 1)


@functools.cache
def home(device: Any) -> jax.sharding.Sharding:
    """The sharding on one device: JAX's default device for None, the first one for the name of a platform."""
    one = device if isinstance(device, jax.Device) else jax.devices(device)[0]
    return jax.sharding.SingleDeviceSharding(one)
