"""Compilation, and what the compiled program needs. The only module that compiles with XLA.

On CPU, XLA's default fusions hide their scratch from its own memory analysis, and its default
scheduler does not let large independent values share a buffer. Programs are therefore compiled with
options under which the analysis tells the truth, and run under the same options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from eqsat.errors import EqsatError

HONEST_OPTIONS: dict[str, dict[str, str | bool]] = {
    "cpu": {
        "xla_cpu_experimental_ynn_fusion_type": "",
        "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    },
}
"""By platform: compiler options under which `memory_analysis` counts every buffer."""


@dataclass(frozen=True)
class Certified:
    """A compiled program and its memory, in bytes.

    **Attributes:**

    - `bound`: what the program needs whatever fusions hide from XLA's analysis, if it was compiled
      with such fusions.
    """

    executable: Any
    arguments: int
    outputs: int
    temporaries: int
    aliased: int
    bound: int = 0

    @property
    def peak(self) -> int:
        """Arguments + outputs + temporaries - aliased, as XLA assigned buffers, or the bound if larger."""
        return max(self.arguments + self.outputs + self.temporaries - self.aliased, self.bound)

    @property
    def fixed(self) -> int:
        """Arguments + outputs - aliased: what no rewriting can avoid."""
        return self.arguments + self.outputs - self.aliased

    def __call__(self, *args: Any) -> list[Any]:
        return list(self.executable(*args))

    def revived(self, executable: Any) -> Certified:
        """The same with an executable that was made of this one's bytes.

        **Raises:** `EqsatError` if it does not need what this one does.
        """
        memory = executable.memory_analysis()
        needs = (memory.output_size_in_bytes, memory.temp_size_in_bytes, memory.alias_size_in_bytes)
        if needs != (self.outputs, self.temporaries, self.aliased):
            raise EqsatError("an executable is not the one that was certified")
        return replace(self, executable=executable)


def compiler_options() -> dict[str, str | bool]:
    """The options that programs for the default device are compiled with.

    A `jit` of one's own around optimised functions takes them too; then its figure is as true as a plan's.

    >>> import jax, jax.numpy as jnp
    >>> jax.jit(jnp.sin, compiler_options=compiler_options())(0.0).item()
    0.0
    """
    return dict(HONEST_OPTIONS.get(jax.default_backend(), {}))


def certify(
    function: Callable[..., Sequence[Any]],
    avals: Sequence[Any],
    fused_bound: int = 0,
    captured: int = 0,
    donated: Sequence[int] = (),
) -> Certified:
    """Compile a function of flat arguments and read off what it needs.

    **Arguments:**

    - `avals`: the arguments' shapes and dtypes.
    - `fused_bound`: if not 0, compile with XLA's own options, whose fusions may hide scratch; the
      program is known to need no more than this, in bytes, all the same.
    - `captured`: bytes of the arrays that the function closes over, which XLA does not count.
    - `donated`: the numbers of the arguments whose memory results may take; a call deletes them.
    """
    lowered = jax.jit(function, keep_unused=True, donate_argnums=donated).lower(*avals)
    executable = lowered.compile(compiler_options={} if fused_bound else compiler_options())
    memory = executable.memory_analysis()
    if memory is None:
        raise EqsatError(f"the compiler for {jax.default_backend()} does not say what its programs need")
    return Certified(
        executable,
        int(memory.argument_size_in_bytes) + captured,
        int(memory.output_size_in_bytes),
        int(memory.temp_size_in_bytes),
        int(memory.alias_size_in_bytes),
        fused_bound,
    )
