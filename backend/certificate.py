"""Compilation, and what the compiled program needs. The only module that compiles with XLA.

On CPU, XLA's default fusions hide their scratch from its own memory analysis, and its default
scheduler does not let large independent values share a buffer. Programs are therefore compiled with
options under which the analysis tells the truth, and run under the same options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

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

    - `peak`: arguments + outputs + temporaries - aliased, as XLA assigned buffers.
    """

    executable: Any
    arguments: int
    outputs: int
    temporaries: int
    aliased: int

    @property
    def peak(self) -> int:
        return self.arguments + self.outputs + self.temporaries - self.aliased

    def __call__(self, *args: Any) -> list[Any]:
        return list(self.executable(*args))


def compiler_options() -> dict[str, str | bool]:
    """The options that programs for the default device are compiled with."""
    return dict(HONEST_OPTIONS.get(jax.default_backend(), {}))


def certify(function: Callable[..., Sequence[Any]], avals: Sequence[Any]) -> Certified:
    """Compile a function of flat arguments and read off what it needs.

    **Arguments:**

    - `avals`: the arguments' shapes and dtypes.
    """
    lowered = jax.jit(function, keep_unused=True).lower(*avals)
    executable = lowered.compile(compiler_options=compiler_options())
    memory = executable.memory_analysis()
    return Certified(
        executable,
        int(memory.argument_size_in_bytes),
        int(memory.output_size_in_bytes),
        int(memory.temp_size_in_bytes),
        int(memory.alias_size_in_bytes),
    )
