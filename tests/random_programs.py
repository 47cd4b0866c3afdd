"""Random array programs for property tests.

The programs are numerically tame: values are scaled to stay near 1. Discontinuous functions (argmax,
comparisons) are applied only to values that every order of evaluation computes exactly: integers, and floats
that hold small integers. A failing example prints as a function that can be pasted.
"""

from __future__ import annotations

import math

from hypothesis import strategies as st

from tests.program_text import ProgramText, Value
from tests.random_steps import MOST_ELEMENTS, STEPS, Draw, combine, reduce_value

SMALL_LENGTHS = (1, 2, 3, 5, 8, 13)
LARGE_LENGTHS = (61, 64, 101, 128, 251, 400)


@st.composite
def random_programs(draw: Draw, most_steps: int = 9, large: bool = True) -> ProgramText:
    """Draws programs of up to `most_steps` steps and a final reduction.

    **Arguments:**

    - `large`: whether some axes are long enough for intermediates of up to about a megabyte.
    """
    program = ProgramText()
    kinds = SMALL_LENGTHS + LARGE_LENGTHS if large else SMALL_LENGTHS
    lengths = draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=4))
    for _ in range(draw(st.integers(1, 3))):
        shape = tuple(draw(st.lists(st.sampled_from(lengths), min_size=1, max_size=3)))
        while math.prod(shape) > MOST_ELEMENTS // 4:
            shape = shape[1:]
        new_input(draw, program, shape)
    for _ in range(draw(st.integers(min(4, most_steps), most_steps))):
        draw(st.sampled_from(STEPS))(draw, program)
    finish(draw, program)
    return program


@st.composite
def bottlenecks(draw: Draw) -> ProgramText:
    """Draws programs with an intermediate value that is much larger than their inputs and results.

    It is a function of all pairs of two sets of numbers or points, or their inner products. A few steps
    follow, and then a reduction.
    """
    program = ProgramText()
    n, m = draw(st.sampled_from(LARGE_LENGTHS[2:])), draw(st.sampled_from(LARGE_LENGTHS[2:]))
    points = (draw(st.sampled_from([2, 3, 5])),) if draw(st.booleans()) else ()
    x, y = new_input(draw, program, (n, *points)), new_input(draw, program, (m, *points))
    kind = draw(st.sampled_from(["pairs", "product"])) if points else "pairs"
    if kind == "product":
        program.add(f"{x.tame(1)} @ {y.tame(1)}.T", (n, m), "float32", points[0], False, points[0])
    elif x.dtype == y.dtype:
        combine(draw, program, x, y, ("[:, None]", "[None]", (n, m, *points)))
    else:
        combine(draw, program, x, x, ("[:, None]", "[None]", (n, n, *points)))
    for _ in range(draw(st.integers(0, 4))):
        draw(st.sampled_from(STEPS))(draw, program)
    finish(draw, program)
    return program


def new_input(draw: Draw, program: ProgramText, shape: tuple[int, ...]) -> Value:
    """Adds and returns an input of a shape."""
    exact = draw(st.booleans())
    dtype = draw(st.sampled_from(["float32", "float32", "int32"])) if exact else "float32"
    value = Value(f"v{len(program.inputs)}", shape, dtype, 5 if exact else 2, exact)
    program.inputs.append(value)
    return value


def finish(draw: Draw, program: ProgramText) -> None:
    """Reduces the last value if it is large, and chooses the outputs."""
    for value in program.values[:1]:
        if value.elements > 1000 and value.dtype != "bool":
            reduce_value(draw, program, value)
    program.outputs = program.values[:1]
    small = [value for value in program.values if value.elements <= 1000]
    if small and draw(st.booleans()):
        program.outputs.append(draw(st.sampled_from(small)))
