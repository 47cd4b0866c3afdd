"""Random programs with control flow: loops and branches between the steps of `random_steps`.

The bodies of loops are contractive, so that rounding errors add up over the iterations but don't grow.
"""

from __future__ import annotations

import math

from hypothesis import strategies as st

from tests.program_text import ProgramText, power_of_two
from tests.random_programs import LARGE_LENGTHS, SMALL_LENGTHS, finish, new_input
from tests.random_steps import MOST_ELEMENTS, STEPS, Draw, pick

_TURNS = (
    "jnp.tanh({c} + {w})",
    "jnp.sin({c} * {w})",
    "jnp.cos({c} - {w})",
    "{c} / (1 + jnp.abs({w}))",
    "jnp.exp(-jnp.abs({c} - {w}))",
)


def _broadcast_to(draw: Draw, program: ProgramText, shape: tuple[int, ...]) -> str:
    """Returns an expression for a scaled value that broadcasts to a shape, or else for a number."""
    value = pick(
        draw,
        program,
        lambda v: (
            v.dtype == "float32"
            and len(v.shape) <= len(shape)
            and v.shape in (shape, shape[-1:], (*shape[:-1], 1))
        ),
    )
    return value.tame(1) if value is not None else "0.5"


def repeat(draw: Draw, program: ProgramText) -> None:
    """Adds a loop of fixed length."""
    value = pick(draw, program, lambda v: v.dtype == "float32")
    if value is None:
        return
    turn = draw(st.sampled_from(_TURNS)).format(c="c", w=_broadcast_to(draw, program, value.shape))
    count = draw(st.integers(0, 4))
    expression = f"repeat({count}, lambda c: {turn}, {value.tame(2)})"
    program.add(expression, value.shape, "float32", max(1, value.tame_bound(2)), False, 4 + value.terms)


def power(draw: Draw, program: ProgramText) -> None:
    """Adds a loop that multiplies by a matrix over all pairs of a vector's elements."""
    value = pick(draw, program, lambda v: v.is_float and len(v.shape) == 1 and v.elements > 1)
    if value is None or value.elements**2 > MOST_ELEMENTS:
        return
    name, n = value.tame(1), value.elements
    matrix = draw(
        st.sampled_from([f"jnp.cos({name}[:, None] - {name})", f"jnp.exp(-({name}[:, None] - {name})**2)"])
    )
    turn = draw(
        st.sampled_from(
            [f"jnp.tanh(k @ c * {power_of_two(1 / n)})", f"jnp.cos(c @ k * {power_of_two(1 / n)})"]
        )
    )
    program.add(f"repeat(3, lambda c, k={matrix}: {turn}, {name})", (n,), "float32", 1, False, 4 * n)


def scan(draw: Draw, program: ProgramText) -> None:
    """Adds a scan over the first axis of a value, and takes its stacked results or its carry."""
    value = pick(draw, program, lambda v: v.is_float and len(v.shape) > 0 and v.shape[0] <= 64)
    if value is None:
        return
    rest = value.shape[1:]
    turn = draw(st.sampled_from(_TURNS)).format(c="c", w="x")
    stacked = draw(st.booleans())
    sequence = draw(st.sampled_from(["{}", "jnp.sin({})", "{} * 0.5"])).format(value.tame(1))
    backwards = draw(st.booleans())
    inside = f"lambda c, x: ({turn}, c * x)"
    expression = f"scan({inside}, jnp.zeros({rest}, float32), {sequence}, {backwards})[{int(stacked)}]"
    shape = value.shape if stacked else rest
    program.add(expression, shape, "float32", 1, False, 4 * max(1, value.shape[0]))


def each(draw: Draw, program: ProgramText) -> None:
    """Adds a map over rows, each of which is reduced over all pairs of its elements."""
    value = pick(draw, program, lambda v: v.is_float and len(v.shape) == 2 and v.shape[0] <= 64)
    if value is None:
        return
    rows, length = value.shape
    expression = (
        f"each(lambda x: jnp.tanh(x[:, None] - x).sum(1) * {power_of_two(1 / length)}, {value.tame(1)})"
    )
    program.add(expression, (rows, length), "float32", 1, False, length)


def branch(draw: Draw, program: ProgramText) -> None:
    """Adds a `cond` whose predicate is an exact value, so that every evaluation takes the same branch."""
    value = pick(draw, program, lambda v: v.is_float)
    decisive = pick(draw, program, lambda v: v.exact and v.elements > 0)
    if value is None or decisive is None:
        return
    first, second = (
        draw(st.sampled_from(_TURNS)).format(c=value.tame(1), w=_broadcast_to(draw, program, value.shape))
        for _ in range(2)
    )
    expression = f"branch({decisive.name}.ravel()[0] > 0, lambda: {first}, lambda: {second})"
    program.add(expression, value.shape, "float32", 1, False, value.terms)


CONTROL = (repeat, power, scan, each, branch)


@st.composite
def random_loops(draw: Draw) -> ProgramText:
    """Draws programs with two to four steps of control flow, and other steps between them."""
    program = ProgramText()
    lengths = draw(st.lists(st.sampled_from(SMALL_LENGTHS + LARGE_LENGTHS), min_size=2, max_size=3))
    for _ in range(draw(st.integers(1, 3))):
        shape = tuple(draw(st.lists(st.sampled_from(lengths), min_size=1, max_size=2)))
        while math.prod(shape) > MOST_ELEMENTS // 4:
            shape = shape[1:]
        new_input(draw, program, shape)
    for _ in range(draw(st.integers(2, 4))):
        draw(st.sampled_from(CONTROL))(draw, program)
        if draw(st.booleans()):
            draw(st.sampled_from(STEPS))(draw, program)
    finish(draw, program)
    return program
