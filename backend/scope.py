"""Scopes: the variables that are visible at a point of the emitted program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eqsat.backend.layout import Emitted, Lengths
from eqsat.ir.axis import Axis
from eqsat.ir.term import Term

NARROW = frozenset({f"jnp.{name}" for name in ("bool_", "int2", "uint2", "int4", "uint4")})
"""Dtypes that do not hold all numbers up to 127."""


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
    - `initial`: by shape and dtype, as text, the number of arrays that loops have started from.
    - `ended`: the variable that holds where the latest loop ended; empty if there was none.
    """

    values: dict[int, Emitted]
    lengths: dict[Axis, str]
    starts: dict[Axis, str]
    depth: int
    in_body: bool = False
    calls: dict[Any, str] = field(default_factory=dict)
    results: dict[Any, list[str]] = field(default_factory=dict)
    copies: dict[tuple[int, tuple[Axis, ...]], Emitted] = field(default_factory=dict)
    initial: Counter[str] = field(default_factory=Counter)
    ended: str = ""

    def lengths_of(self, term: Term) -> Lengths:
        """The lengths of the axes along which a term is a chunk: others are whole, even inside a loop."""
        return {axis: text for axis, text in self.lengths.items() if axis in term.open}

    def initial_array(self, shape: str, number: str | None, dtype: str) -> str:
        """An array of one number that a loop starts from.

        XLA makes one array of all that it knows to be equal, and keeps that until the last loop has begun. So
        arrays after the first are of other numbers, or of one that depends on where the latest loop ended.

        **Arguments:**

        - `number`: as text; None if all entries are written before they are read.
        """
        array = f"{shape}, {dtype}"
        alike = self.initial[array] + bool(self.results)
        self.initial[array] += 1
        if number is None:
            # The narrowest dtypes hold 0 and 1.
            any_number = alike % (2 if dtype in NARROW else 128)
            if dtype.startswith("jax."):
                any_number = 0  # Keys are no numbers.
            return f"jnp.full({shape}, {any_number}, {dtype})" if any_number else f"jnp.zeros({array})"
        if alike and self.ended:
            other = "0" if number in ("1", "True") else "1"
            return f"jnp.full({shape}, jnp.where({self.ended} < 0, {dtype}({other}), {dtype}({number})))"
        return f"jnp.full({shape}, {number}, {dtype})"

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
