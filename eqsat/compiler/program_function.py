"""A program as a function of arrays, as it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eqsat.backend.codegen_options import CodegenOptions
from eqsat.backend.emission import Emission
from eqsat.ir.program import Program
from eqsat.planning.candidates import as_written
from eqsat.targets.machine import Machine


def program_function(
    program: Program, names: Sequence[str], machine: Machine
) -> Callable[..., Sequence[Any]]:
    """The function that computes a program without loops over chunks, to be traced.

    **Arguments:**

    - `names`: of its inputs.
    """
    written = as_written(program, machine, library=True)
    emission = Emission(written.schedule, {}, 0, CodegenOptions(), {}, {}, {}, {})
    function: Callable[..., Sequence[Any]] = emission.module(names, {}).function()
    return function
