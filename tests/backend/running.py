"""Emits and runs programs of terms, and compares the results with the interpreter's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from eqsat.backend.codegen_options import CodegenOptions
from eqsat.backend.emit import emit
from eqsat.backend.module import Module
from eqsat.ir.axis import Axis
from eqsat.ir.interpret import interpret
from eqsat.ir.program import Program
from eqsat.ir.spec import check_program
from eqsat.planning.blocks import Schedule
from eqsat.planning.loops import build


def emitted(
    program: Program,
    lengths: Mapping[Axis, int] | None = None,
    makers: Mapping[int, str] | None = None,
    codegen: CodegenOptions | None = None,
) -> Module:
    """Returns the module of a program, whose loops go by chunks of the given lengths."""
    check_program(program)
    block = build(program)
    chunks = {loop.id: (lengths or {}).get(loop.axis, loop.axis.size) for loop in block.loops}
    names = [f"argument_{index}" for index in range(len(program.inputs))]
    return emit(Schedule(program, block, chunks), names, makers, codegen=codegen)


def check_emitted(
    program: Program, arrays: Sequence[Any], lengths: Mapping[Axis, int] | None = None, rtol: float = 2e-5
) -> str:
    """Returns the source of a program, after checking that it computes what the interpreter does."""
    module = emitted(program, lengths)
    inputs = [jnp.asarray(array, term.dtype) for array, term in zip(arrays, program.inputs, strict=True)]
    results = jax.jit(module.function())(*inputs)
    wanted = interpret(program, inputs, lengths)
    for result, value, output in zip(results, wanted, program.outputs, strict=True):
        assert (result.shape, str(result.dtype)) == (value.shape, output.term.dtype), module.source
        exact = value.dtype.kind not in "fc"
        got = np.asarray(result) if exact else np.asarray(result).astype(value.dtype)
        limit = 0.0 if exact else rtol
        np.testing.assert_allclose(got, value, rtol=limit, atol=limit, err_msg=module.source)
    return module.source
