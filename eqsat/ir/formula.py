"""Formulas: elementwise expressions over named scalars; and the monoids that are declared by them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scalar:
    """One of the scalars that a formula is over."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A number; it takes the dtype of what stands beside it. "inf" and "-inf" are numbers too."""

    text: str

    @property
    def value(self) -> float:
        return float(self.text)


@dataclass(frozen=True, slots=True)
class Application:
    """An elementwise function (by its name in `eqsat.ir.elementwise`) of formulas."""

    function: str
    operands: tuple[Formula, ...]
    exponent: int | None = None


Formula = Scalar | Constant | Application


@dataclass(frozen=True, slots=True)
class Monoid:
    """A way to combine partial results that have a state of several parts.

    **Attributes:**

    - `name`: how folds refer to it.
    - `state`: the names of the parts.
    - `identity`: the value of each part for nothing at all.
    - `merge`: for each part a formula over `p1` and `p2`, for every part p: that of the earlier and of
      the later partial result. A formula may also use the new values of the parts before it, by the
      names of those parts.
    - `finish`: a formula over the parts: what a fold returns.

    The result has the dtype of the last part.
    """

    name: str
    state: tuple[str, ...]
    identity: tuple[Constant, ...]
    merge: tuple[Formula, ...]
    finish: Formula


def names_in(formula: Formula) -> Iterator[str]:
    """The names that a formula is over, as they occur.

    >>> list(names_in(Application("add", (Scalar("m1"), Constant("2")))))
    ['m1']
    """
    match formula:
        case Scalar(name=name):
            yield name
        case Application(operands=operands):
            for operand in operands:
                yield from names_in(operand)
