"""Control flow: calls that mean what their bodies do, programs that run once per iteration or by choice.

The operands of such a call feed inputs of its bodies (`Body.sources`): as they are, one slice for each
iteration, or as the first value of what is carried from iteration to iteration. A body's axes are the call's:
where a dimension of an input is the same axis as that of the operand, an axis that passes through the body
passes through the call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eqsat.ir.program import Program

WHILE_ITERATIONS = 10
"""How many iterations a loop is taken for that ends when it likes."""


@dataclass(frozen=True, slots=True)
class Scan:
    """One body, run `length` times: what is carried, and a slice of each sequence, to what is carried next
    and an entry of each further result.

    **Arguments:**

    - `carried`: which operands are the first values of what is carried; the first results are the last ones.
    - `sliced`: which operands are sequences along their first dimension.
    - `reverse`: whether it starts with the last slice.
    - `unroll`: how many iterations to write out, as JAX was told.
    """

    carried: tuple[int, ...]
    sliced: tuple[int, ...]
    length: int
    reverse: bool
    unroll: int


@dataclass(frozen=True, slots=True)
class While:
    """Two bodies: whether there is another iteration, and the iteration; results are the last carries."""

    carried: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Switch:
    """The body whose number operand 0 is, 0 or 1 if that is a truth value; only that one runs."""


Control = Scan | While | Switch


@dataclass(frozen=True, slots=True)
class Body:
    """A program inside of a call.

    **Attributes:**

    - `sources`: for each input of the program, which operand of the call feeds it.
    """

    program: Program
    sources: tuple[int, ...]


def carried(control: Control) -> tuple[int, ...]:
    """Which operands are first values of what is carried."""
    return () if isinstance(control, Switch) else control.carried


def sliced(control: Control) -> tuple[int, ...]:
    """Which operands are fed slice by slice."""
    return control.sliced if isinstance(control, Scan) else ()


def steady(control: Control, operands: int) -> list[int]:
    """Which of so many operands every iteration, or every choice, is given whole and unchanged."""
    moving = {*carried(control), *sliced(control), *([0] if isinstance(control, Switch) else [])}
    return [number for number in range(operands) if number not in moving]


def iterations(control: Control) -> int:
    """How often the bodies run, as far as that is known."""
    match control:
        case Scan(length=length):
            return length
        case While():
            return WHILE_ITERATIONS
        case Switch():
            return 1
