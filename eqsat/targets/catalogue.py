"""The targets by name: one file for each device in `devices/`, and files of the user.

A description is a TOML file:

    platform = "cuda"                           # or "tpu"
    description = "NVIDIA H100 80GB HBM3"       # what XLA calls the device
    kinds = ["NVIDIA H100 80GB HBM3"]           # what JAX calls it, if that is something else
    memory = 84_942_979_072                     # bytes
    topology = "1x1x1"                          # the name of a topology of such devices

    [facts]                                     # of a GPU, the fields of XLA's GpuDeviceInfoProto;
    core_count = 132                            # of a TPU, the names in TPU_FACTS
    …
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

import jax

from eqsat.errors import EqsatError
from eqsat.targets import cpu, gpu, tpu
from eqsat.targets.absent_devices import AbsentDevice
from eqsat.targets.compiler_profile import CompilerProfile
from eqsat.targets.machine import Machine
from eqsat.targets.target import Target

SUFFIX = ".toml"

TargetName = str | PathLike[str]
"""The name of a target, or the path of a description."""

GPU_FACTS = (
    "compute_capability_major",
    "compute_capability_minor",
    "core_count",
    "fpus_per_core",
    "shared_memory_per_core",
    "shared_memory_per_block_optin",
    "threads_per_core_limit",
    "memory_bandwidth",
    "l2_cache_size",
    "clock_rate_ghz",
    "threads_per_block_limit",
    "threads_per_warp",
    "shared_memory_per_block",
    "block_dim_limit_x",
    "block_dim_limit_y",
    "block_dim_limit_z",
    "registers_per_core_limit",
    "registers_per_block_limit",
    "thread_dim_limit_x",
    "thread_dim_limit_y",
    "thread_dim_limit_z",
)
"""The facts in the description of a GPU."""

TPU_FACTS = ("bfloat16_flops", "memory_bandwidth", "clock_rate_ghz")
"""The facts in the description of a TPU."""


@dataclass(frozen=True)
class Platform:
    """What is common to all devices of a platform.

    **Attributes:**

    - `facts`: the names of the facts in descriptions.
    - `machine`: from the facts to the machine.
    - `unknown`: the machine of a device without a description.
    - `topology`: the usual name of a topology.
    """

    compiler: CompilerProfile
    facts: tuple[str, ...]
    machine: Callable[[Mapping[str, Any]], Machine]
    unknown: Machine
    topology: str = ""


DESCRIBED = {
    "cuda": Platform(gpu.COMPILER, GPU_FACTS, gpu.gpu_machine, gpu.GPU, "1x1x1"),
    "tpu": Platform(tpu.COMPILER, TPU_FACTS, tpu.tpu_machine, tpu.TPU),
}
"""By platform of descriptions."""


def target_names() -> list[str]:
    """The names of all targets that need no file of the user."""
    return ["cpu", *sorted(_shipped())]


def find_target(name: TargetName) -> Target:
    """The target of that name, or of a description in a file.

    If a device of this kind is present, programs for the target run on it.

    **Raises:** `EqsatError` if there is no such target, or if the file makes no sense.
    """
    text = str(name)
    if text == "cpu":
        return _on(jax.devices("cpu")[0])
    known = _shipped()
    if text in known:
        return _present(known[text])
    if not isinstance(name, (str, PathLike)):
        raise TypeError(f"target is the name of a device, or the path of a description, not {name!r}")
    if text.endswith(SUFFIX) or isinstance(name, PathLike):
        return _present(described(Path(name)))
    raise EqsatError(
        f"there is no target {text!r}. The targets are {', '.join(target_names())}, or the path of a"
        f" description that ends in {SUFFIX}"
    )


def target_of(device: jax.Device) -> Target:
    """The target that a present device is: as described, or with rates of its kind."""
    if device.platform == "cpu":
        return Target("cpu", device.device_kind, "cpu", cpu.host_machine(), None, cpu.COMPILER)
    for target in _shipped().values():
        if device.device_kind in target.kinds:
            return replace(target, absent=None)
    version = str(getattr(device.client, "platform_version", "")).lower()
    platform = "rocm" if "rocm" in version else {"gpu": "cuda"}.get(device.platform, device.platform)
    known = DESCRIBED.get("tpu" if platform == "tpu" else "cuda")
    assert known is not None
    return Target(platform, device.device_kind, platform, known.unknown, None, known.compiler)


def smallest_with(memory: int, platform: str) -> Target | None:
    """The target of a platform with the least usable memory that is enough; None if none has as much."""
    found = [target for target in _shipped().values() if target.platform == platform]
    enough = [target for target in found if (target.usable_memory or 0) >= memory]
    return min(enough, key=lambda target: target.usable_memory or 0, default=None)


def described(path: Path) -> Target:
    """The target that a file describes.

    **Raises:** `EqsatError` that says what is wrong with the file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise EqsatError(f"the description of a target can't be read: {path}: {error}") from None
    return parsed(text, path.stem, str(path))


def parsed(text: str, name: str, source: str) -> Target:
    """The target that a text describes.

    **Arguments:**

    - `source`: where the text is from, for messages.

    **Raises:** `EqsatError` that says what is wrong with the text.
    """

    def wrong(message: str) -> EqsatError:
        return EqsatError(f"{source} describes no target: {message}")

    try:
        content: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise wrong(str(error)) from None
    platform, facts = content.get("platform"), content.get("facts")
    if not isinstance(platform, str) or platform not in DESCRIBED:
        raise wrong(f"platform is {' or '.join(map(repr, DESCRIBED))}, not {platform!r}")
    known = DESCRIBED[platform]
    if not isinstance(content.get("description"), str):
        raise wrong("description is what XLA calls the device, as text")
    if not isinstance(facts, dict):
        raise wrong("there is no table [facts]")
    numbers = {"memory": content.get("memory"), **{name: facts.get(name) for name in known.facts}}
    for key, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise wrong(f"{key} is a number, not {value!r}")
    topology = content.get("topology", known.topology)
    if not isinstance(topology, str) or not topology:
        raise wrong('topology is the name of a topology of such devices, such as "v5e:2x2"')
    kinds = content.get("kinds", [content["description"]])
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        raise wrong(f"kinds is a list of names that JAX has for the device, not {kinds!r}")
    unknown = [*content.keys() - {"platform", "description", "kinds", "memory", "topology", "facts"}]
    unknown += facts.keys() - set(known.facts)
    if unknown:
        raise wrong(f"it has no {', '.join(sorted(unknown))}")
    description, memory = content["description"], int(content["memory"])
    configuration = gpu.configuration(facts, memory, description) if platform == "cuda" else ""
    absent = AbsentDevice(name, platform, known.compiler.packages, configuration, topology)
    machine = known.machine(facts)
    return Target(
        name, description, platform, machine, memory, known.compiler, kinds=tuple(kinds), absent=absent
    )


@cache
def _shipped() -> Mapping[str, Target]:
    """By name, the targets that are described in eqsat's own files."""
    found = {}
    for file in files("eqsat.targets").joinpath("devices").iterdir():
        if file.name.endswith(SUFFIX):
            name = file.name.removesuffix(SUFFIX)
            found[name] = parsed(file.read_text(encoding="utf-8"), name, file.name)
    return found


def _present(target: Target) -> Target:
    """The target on a present device of its kind, if there is one."""
    for device in jax.devices():
        if device.device_kind in target.kinds:
            return _on(device, target)
    return target


def _on(device: jax.Device, target: Target | None = None) -> Target:
    """The target, or that which a device is, on a present device."""
    found = target or target_of(device)
    return replace(found, absent=None, device=None if device == jax.devices()[0] else device)
