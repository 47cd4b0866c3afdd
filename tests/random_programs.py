"""Random array programs for property tests.

Numerically tame: values are scaled to stay near 1, and what is discontinuous (argmax, comparisons) is
only asked of values that every order of evaluation computes exactly: integers, and floats that hold
small integers. A failing example prints as a function that can be pasted.
"""

from __future__ import annotations

import math

from hypothesis import strategies as st

from tests.program_text import ProgramText, Value
from tests.random_steps import MOST_ELEMENTS, STEPS, Draw, reduce_value

SMALL_LENGTHS = (1, 2, 3, 5, 8, 13)
LARGE_LENGTHS = (61, 64, 101, 128, 251, 400)


@st.composite
def random_programs(draw: Draw, most_steps: int = 9, large: bool = True) -> ProgramText:
    """Programs of up to `most_steps` lines.

    **Arguments:**

    - `large`: whether some axes are long enough for intermediates of up to about a megabyte.
    """
    program = ProgramText()
    kinds = SMALL_LENGTHS + LARGE_LENGTHS if large else SMALL_LENGTHS
    lengths = draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=4))
    for number in range(draw(st.integers(1, 3))):
        shape = tuple(draw(st.lists(st.sampled_from(lengths), min_size=1, max_size=3)))
        while math.prod(shape) > MOST_ELEMENTS // 4:
            shape = shape[1:]
        exact = draw(st.booleans())
        dtype = draw(st.sampled_from(["float32", "float32", "int32"])) if exact else "float32"
        program.inputs.append(Value(f"v{number}", shape, dtype, 5 if exact else 2, exact))
    for _ in range(draw(st.integers(min(4, most_steps), most_steps))):
        draw(st.sampled_from(STEPS))(draw, program)
    for value in program.values[:1]:
        if value.elements > 1000 and value.dtype != "bool":
            reduce_value(draw, program, value)
    program.outputs = program.values[:1]
    if draw(st.booleans()):
        program.outputs.append(draw(st.sampled_from(program.values)))
    return program
