"""The text of compiled programs as data."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.backend.hlo import Array, arrays, itemsize, parse


def test_arrays_have_dtype_shape_and_order() -> None:
    (array,) = arrays("bf16[2,3,5]{1,2,0:T(8,128)}")
    assert array == Array("bf16", (2, 3, 5), (1, 2, 0))
    assert array.bytes == 60
    assert arrays("f32[]") == (Array("f32", (), ()),)
    assert [part.dtype for part in arrays("(f32[2]{0}, /*index=1*/pred[3]{0}, token[])")] == [
        "f32",
        "pred",
        "token",
    ]


@pytest.mark.parametrize(("dtype", "size"), [("s4", 1), ("u8", 1), ("f8e4m3fn", 1), ("f64", 8), ("c64", 8)])
def test_sizes_of_entries(dtype: str, size: int) -> None:
    assert itemsize(dtype) == size


def test_every_instruction_of_a_compiled_program_is_read() -> None:
    def function(x: jax.Array) -> tuple[jax.Array, ...]:
        turned = lax.while_loop(lambda s: s[1] < 3, lambda s: (jnp.sort(s[0] @ s[0]), s[1] + 1), (x, 0))
        return lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, turned[0]), jnp.linalg.svd(x)[1]

    text = jax.jit(function).lower(jax.ShapeDtypeStruct((50, 50), np.float32)).compile().as_text()
    module = parse(text)
    found = [
        instruction
        for computation in module.computations.values()
        for instruction in computation.instructions.values()
    ]
    assert len(found) == sum(line.startswith("  ") and " = " in line for line in text.splitlines())
    assert {"while", "dot", "sort", "conditional", "custom-call"} <= {line.opcode for line in found}
    for computation in module.computations.values():
        assert sum(instruction.is_root for instruction in computation.instructions.values()) == 1
        for instruction in computation.instructions.values():
            assert set(instruction.operands) <= set(computation.instructions)
            assert set(instruction.calls()) <= set(module.computations)
    assert module.entry in module.computations


def test_the_computations_that_a_loop_and_a_branch_run_are_known() -> None:
    text = (
        "ENTRY %main (x: f32[]) -> f32[] {\n"
        "  %x = f32[] parameter(0)\n"
        "  %w = f32[] while(%x), condition=%cond.1, body=%body.1\n"
        "  ROOT %c = f32[] conditional(%x, %w, %w), branch_computations={%one, %two}\n"
        "}\n"
    )
    instructions = parse(text).computations["main"].instructions
    assert instructions["w"].calls() == ("cond.1", "body.1")
    assert instructions["c"].calls() == ("one", "two")
    assert instructions["c"].is_root
