"""The settings that planning depends on, besides the program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax

from eqsat.compiler.observer import Observer
from eqsat.frontend.trace_context import NOWHERE, TraceContext
from eqsat.ir.operations import operations_in_scope
from eqsat.rulesets.options import RulePath
from eqsat.rulesets.selection import operations_for
from eqsat.targets.machine import Machine
from eqsat.targets.target import Target


def setting(name: str) -> Any:
    """A setting of JAX as it is in this context: "jax_enable_x64"..."""
    return getattr(jax.config, name)


@dataclass(frozen=True)
class Settings:
    """The options of `optimize`.

    **Attributes:**

    - `budget`: bytes; None for the device's free memory when a program is planned.
    - `rules`: the paths of `.rules` files besides the shipped ones.
    - `accuracy`: the widest accuracy class of rules that may be used.
    - `machine`: the machine that times are predicted for; None for that of the target.
    - `target`: the device that programs are for; None for JAX's default device.
    - `planning_seconds`: the time limit for one plan; None for no limit.
    - `progress`: whether planning and loops show their progress; None for planning only, on a terminal.
    - `max_slowdown`: the largest predicted time of a plan, relative to the program as written; None for any.
    - `double`: whether JAX had 64-bit numbers enabled when the function was traced.
    - `mesh`: the devices that share out the function; None for one device.
    - `tune`: whether programs are timed before one is chosen.
    - `observer`: is notified of plans, which do not depend on it.
    """

    budget: int | None
    rules: tuple[RulePath, ...]
    accuracy: str
    machine: Machine | None
    planning_seconds: float | None = None
    progress: bool | None = None
    max_slowdown: float | None = 10.0
    double: bool = False
    target: Target | None = None
    mesh: jax.sharding.Mesh | None = None
    tune: bool = field(default=False, compare=False)
    observer: Observer | None = field(default=None, compare=False)

    @contextlib.contextmanager
    def alone(self, around: TraceContext = NOWHERE) -> Iterator[None]:
        """A context in which programs are traced and compiled by themselves.

        The operations that its files of rules declare are known in it, and those of other files are not.

        Transformations and `shard_map`s in progress do not apply to them, except those in `around`, on which
        they depend.
        """
        with (
            jax.core.eval_context(),
            jax.enable_x64(self.double),
            jax.disable_jit(False),
            around.entered(),
            operations_in_scope(partial(operations_for, self.rules)),
        ):
            yield
