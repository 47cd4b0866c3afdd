"""What planning a program depends on besides the program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax

from eqsat.compiler.observer import Observer
from eqsat.frontend.trace_context import NOWHERE, TraceContext
from eqsat.rulesets.options import RulePath
from eqsat.targets.machine import Machine


def setting(name: str) -> Any:
    """A setting of JAX as it is in this context: "jax_enable_x64"..."""
    return getattr(jax.config, name)


@dataclass(frozen=True)
class Settings:
    """What the caller of `optimize` asks for.

    **Attributes:**

    - `budget`: bytes; None: what the device has free when a program is planned.
    - `rules`: the paths of `.rules` files besides the shipped ones.
    - `accuracy`: which rules are allowed, by what they do to rounding.
    - `machine`: what time is predicted for; None: the machine at hand, as far as it is known.
    - `planning_seconds`: how long to look for a plan of one program; None: as long as it takes.
    - `progress`: whether planning and loops say where they are; None: planning, on a terminal.
    - `max_slowdown`: how many times as long as the program as written a plan may be predicted to take;
      None: any.
    - `double`: whether JAX had 64-bit numbers enabled when the function was traced.
    - `tune`: whether programs are timed before one is chosen; a plan so chosen serves others, too.
    - `observer`: who is told of plans, if anybody. Plans do not depend on it.
    """

    budget: int | None
    rules: tuple[RulePath, ...]
    accuracy: str
    machine: Machine | None
    planning_seconds: float | None = None
    progress: bool | None = None
    max_slowdown: float | None = 10.0
    double: bool = False
    tune: bool = field(default=False, compare=False)
    observer: Observer | None = field(default=None, compare=False)

    @contextlib.contextmanager
    def alone(self, around: TraceContext = NOWHERE) -> Iterator[None]:
        """A context in which programs are traced and compiled by themselves.

        Whatever transformation, or `shard_map`, is under way has nothing to do with them, but for what they
        depend on: that is `around`.
        """
        with (
            jax.core.eval_context(),
            jax.enable_x64(self.double),
            jax.disable_jit(False),
            around.entered(),
        ):
            yield
