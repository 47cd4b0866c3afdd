"""`Lowered`: a function as a program, and what compiles programs in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from eqsat.compiler.candidate_compiler import CandidateCompiler
from eqsat.compiler.minimum_memory import LeastMemory
from eqsat.ir.program import Program


@dataclass(frozen=True)
class Lowered:
    """A function to be rewritten.

    **Attributes:**

    - `function`: the function as it was lowered.
    - `program`: the same with what is known to be equal, which candidates are made of.
    - `hoisted`, `constants`: the arrays that it closes over, as it has them and as arrays of JAX.
    - `compiler`: compiles candidates in its place.
    - `least`: the programs that need least memory.
    """

    function: Program
    program: Program
    hoisted: Sequence[Any]
    constants: Sequence[jax.Array]
    compiler: CandidateCompiler
    least: LeastMemory
