"""`Planned`: a plan and its executable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
from jax.sharding import NamedSharding

from eqsat.backend.certificate import Certified
from eqsat.backend.emission import Emission
from eqsat.backend.module import Module
from eqsat.frontend.trace import Traced
from eqsat.ir.program import Program
from eqsat.reports.plan import Plan


@dataclass(frozen=True)
class Derivation:
    """The origin of a plan's source.

    **Attributes:**

    - `program`: the function as it was lowered.
    - `emission`: the input of the emitter.
    """

    program: Program
    emission: Emission


@dataclass(frozen=True)
class Planned:
    """A plan and its executable.

    **Attributes:**

    - `traced`: the function as written.
    - `module`: the rewritten program, or None if the function is left as written. It takes the plan's
      constants after the arguments.
    - `certified`: the executable.
    - `hoisted`: the plan's constants, as the traced function has them.
    - `donated`: the numbers of the donated arguments, whose place results take.
    - `placement`: the shardings that it takes its arguments in, if it is for a mesh.
    - `derivation`: the origin of the source, until the plan is on disk; None if it has none.
    """

    plan: Plan
    traced: Traced
    module: Module | None
    certified: Certified
    hoisted: Sequence[Any] = ()
    donated: Sequence[int] = ()
    derivation: Derivation | None = None
    placement: tuple[NamedSharding, ...] = ()

    def run(self, *leaves: Any) -> Sequence[Any]:
        """The results on flat arrays of the traced dtypes, by the certified executable."""
        if self.placement:
            given = tuple(number in self.donated for number in range(len(leaves)))
            leaves = tuple(jax.device_put(leaves, self.placement, donate=given))
        return self.certified(*leaves, *self.constants)

    def inline(self, *leaves: Any) -> Sequence[Any]:
        """The results on flat tracers: the same program, staged into an enclosing one."""
        return self.program(*leaves, *self.constants)

    def program(self, *values: Any) -> Sequence[Any]:
        """The function that is compiled: results on flat tracers of the arguments and of `constants`."""
        if self.module is None:
            return self.traced.call_flat(*values)
        return self.traced.typed(self._function(*values))

    @cached_property
    def constants(self) -> tuple[Any, ...]:
        """The arrays that the program takes after the arguments."""
        return () if self.module is None else self.plan.constants

    @cached_property
    def _function(self) -> Callable[..., Sequence[Any]]:
        assert self.module is not None
        function: Callable[..., Sequence[Any]] = self.module.function()
        return function
