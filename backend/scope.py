"""Scopes: the variables that are visible at a point of the emitted program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eqsat.backend.layout import Emitted, Lengths
from eqsat.ir.axis import Axis
from eqsat.ir.term import Term


@dataclass
class Scope:
    """The variables that are visible at a point of the emitted program.

    **Attributes:**

    - `values`: emitted values by term number, those of enclosing scopes included.
    - `calls`: the results of primitive calls so far, so that one call serves all its results.
    - `results`: the results of control flow, one text each.
    - `lengths`: the length, as text, of each axis that is being chunked.
    - `starts`: the first index of its current chunk.
    - `depth`: of indentation.
    - `in_body`: whether it is in a body of control flow.
    - `copies`: copies of values in another order of their axes, by number and order.
    """

    values: dict[int, Emitted]
    lengths: dict[Axis, str]
    starts: dict[Axis, str]
    depth: int
    in_body: bool = False
    calls: dict[Any, str] = field(default_factory=dict)
    results: dict[Any, list[str]] = field(default_factory=dict)
    copies: dict[tuple[int, tuple[Axis, ...]], Emitted] = field(default_factory=dict)

    def lengths_of(self, term: Term) -> Lengths:
        """The lengths of the axes along which a term is a chunk: others are whole, even inside a loop."""
        return {axis: text for axis, text in self.lengths.items() if axis in term.open}

    def inner(self, axis: Axis, start: str, length: str, open_in: Mapping[int, frozenset[Axis]]) -> Scope:
        """The scope of a loop's body. `open_in`: by term number, the loops that it varies with."""
        again = axis in self.starts
        values = self.values
        copies = self.copies
        if again:
            # Inside a loop over the same axis: what varies with the outer one is computed anew.
            values = {number: value for number, value in values.items() if axis not in open_in[number]}
            copies = {key: value for key, value in copies.items() if axis not in open_in[key[0]]}
        return Scope(
            dict(values),
            {**self.lengths, axis: length},
            {**self.starts, axis: start},
            self.depth + 1,
            self.in_body,
            {} if again else dict(self.calls),
            {} if again else dict(self.results),
            dict(copies),
        )

    def of_body(self) -> Scope:
        """The scope of a body of control flow, which has its own terms."""
        return Scope({}, self.lengths, self.starts, self.depth + 1, in_body=True)
