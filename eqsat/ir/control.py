"""Control flow: calls whose meaning is given by their bodies, which are programs.

The operands of such a call feed the inputs of its bodies (`Body.sources`): unchanged, one slice per
iteration, or as the initial value of a carry. Bodies use the same axes as the call. So an axis that passes
through every body passes through the call, if it is in the same place in the operands and in the inputs that
they feed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eqsat.ir.program import Program

WHILE_ITERATIONS = 10
"""The assumed number of iterations of a while loop, which is unknown before it runs."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A `lax.scan`: one body that runs `length` times.

    The body maps the carries and a slice of each sequence to the next carries and an entry of each stacked
    result. The results of the call are the final carries, and then the stacked results.

    **Arguments:**

    - `carried`: the positions of the operands that are initial carries.
    - `sliced`: the positions of the operands that are sequences, sliced along their first dimension.
    - `reverse`: whether the loop starts with the last slice.
    - `unroll`: the number of iterations to unroll, as given to JAX.
    """

    carried: tuple[int, ...]
    sliced: tuple[int, ...]
    length: int
    reverse: bool
    unroll: int


@dataclass(frozen=True, slots=True)
class While:
    """A `lax.while_loop` with two bodies: the condition and the iteration.

    The results are the final carries.

    **Arguments:**

    - `carried`: the positions of the operands that are initial carries.
    """

    carried: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Switch:
    """A `lax.cond` or `lax.switch`: operand 0 is the number of the body that runs.

    If operand 0 is a bool, False selects body 0 and True body 1.
    """


Control = Scan | While | Switch


@dataclass(frozen=True, slots=True)
class Body:
    """A program inside a call of control flow.

    **Attributes:**

    - `sources`: for each input of the program, the position of the call's operand that feeds it.
    """

    program: Program
    sources: tuple[int, ...]


def carried(control: Control) -> tuple[int, ...]:
    """Returns the positions of the operands that are initial carries."""
    return () if isinstance(control, Switch) else control.carried


def sliced(control: Control) -> tuple[int, ...]:
    """Returns the positions of the operands that are fed slice by slice."""
    return control.sliced if isinstance(control, Scan) else ()


def steady(control: Control, operands: int) -> list[int]:
    """Returns the positions of the operands that every iteration or branch gets whole and unchanged.

    **Arguments:**

    - `operands`: the number of operands of the call.
    """
    moving = {*carried(control), *sliced(control), *([0] if isinstance(control, Switch) else [])}
    return [number for number in range(operands) if number not in moving]


def iterations(control: Control) -> int:
    """Returns how often the bodies run. For a while loop, this is an assumption."""
    match control:
        case Scan(length=length):
            return length
        case While():
            return WHILE_ITERATIONS
        case Switch():
            return 1
