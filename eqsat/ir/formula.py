"""Formulas, which are elementwise expressions over named scalars, and the monoids that they declare."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scalar:
    """A named scalar in a formula."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A number, which takes the dtype of its context. The text may be "inf" or "-inf"."""

    text: str

    @property
    def value(self) -> float:
        return float(self.text)


@dataclass(frozen=True, slots=True)
class Application:
    """An elementwise function applied to formulas.

    **Attributes:**

    - `function`: the function's name in `eqsat.ir.elementwise`.
    - `exponent`: the exponent of an `integer_pow`.
    """

    function: str
    operands: tuple[Formula, ...]
    exponent: int | None = None


Formula = Scalar | Constant | Application


@dataclass(frozen=True, slots=True)
class Monoid:
    """A way to combine partial results whose state has one or more parts.

    The result of a fold with this monoid has the dtype of the last part.

    **Attributes:**

    - `name`: the monoid's name in rules.
    - `state`: the names of the parts.
    - `identity`: the initial value of each part.
    - `merge`: one formula per part, for its value in the merged state. For every part p, `p1` is its value
      in the earlier partial result, and `p2` its value in the later one. A formula may also use the new
      values of the parts before it, by the names of those parts.
    - `finish`: a formula over the parts, for the result of the fold.
    """

    name: str
    state: tuple[str, ...]
    identity: tuple[Constant, ...]
    merge: tuple[Formula, ...]
    finish: Formula


def names_in(formula: Formula) -> Iterator[str]:
    """Yields the names of the scalars in a formula, in order and with repetitions.

    >>> list(names_in(Application("add", (Scalar("m1"), Constant("2")))))
    ['m1']
    """
    match formula:
        case Scalar(name=name):
            yield name
        case Application(operands=operands):
            for operand in operands:
                yield from names_in(operand)
