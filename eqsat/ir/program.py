"""A program: inputs, and outputs as views of terms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eqsat.ir.axis import Axis, Layout, layout_shape
from eqsat.ir.dtypes import itemsize
from eqsat.ir.term import Term, Terms, reachable


@dataclass(frozen=True, slots=True)
class Output:
    """A term laid out as an array.

    An axis of `layout` that the term lacks is broadcast. `origin` says where the user's code made it.
    """

    term: Term
    layout: Layout

    @property
    def shape(self) -> tuple[int, ...]:
        return layout_shape(self.layout)

    @property
    def bytes(self) -> int:
        count = itemsize(self.term.dtype)
        for length in self.shape:
            count *= length
        return count


@dataclass(frozen=True, slots=True)
class Program:
    """A function as terms.

    **Attributes:**

    - `inputs`: one `Leaf` term per flat input of the function, then one per hoisted constant;
      an input that nothing uses is still there.
    - `outputs`: in the function's flat order.
    - `terms`: the table that interns all of them.
    - `origins`: for some terms, by number, where in the user's source they were made.
    """

    inputs: tuple[Term, ...]
    outputs: tuple[Output, ...]
    terms: Terms
    origins: dict[int, str]

    def reachable(self) -> Iterator[Term]:
        """Every term that the outputs need, operands first."""
        return reachable(output.term for output in self.outputs)

    def axes(self) -> frozenset[Axis]:
        """Every axis that occurs in a reachable term's schema."""
        return frozenset().union(*(term.axes for term in self.reachable()))
