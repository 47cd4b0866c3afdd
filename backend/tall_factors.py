"""The triangular factor of a tall matrix as a state that a loop carries (`eqsat/ir/row_factors.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from eqsat.backend.declared_folds import Carried
from eqsat.backend.elementwise import dtype_text
from eqsat.backend.layout import Emitted, Lengths, broadcast, dimension_text, shape_text, tuple_text
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Fold, Operation
from eqsat.ir.row_factors import MOST_LEVELS
from eqsat.ir.term import Term


@dataclass
class _Part:
    """What has the rows of one operand: its dimensions are those of a batch, the rows, and the columns."""

    value: Emitted
    columns: tuple[Axis, ...]


class TallFactors:
    """The folds with `qr_r` and `qr_qt` of one loop that are about one matrix, as one state.

    **Arguments:**

    - `results`: the folds, and the chunks of their operands.
    - `hint`: the name of the state.
    """

    def __init__(
        self, results: Sequence[tuple[Term, Sequence[Emitted]]], name: str, lengths: Lengths
    ) -> None:
        self.name = name
        self.lengths = lengths
        self.results = [result for result, _ in results]
        operation = _operation(self.results[0])
        self.rows, _, self.column = operation.axes
        matrix = results[0][1][0]
        self.batch = tuple(axis for axis in matrix.order if axis not in operation.axes)
        self.dtype = dtype_text(self.results[0].dtype)
        self.parts = [_Part(matrix, (self.column,))]
        self.place: dict[int, int] = {}
        for result, values in results:
            self.place[result.number] = 0
            if len(values) > 1:
                self.place[result.number] = len(self.parts)
                others = {*self.batch, self.rows}
                self.parts.append(_Part(values[1], tuple(a for a in values[1].order if a not in others)))

    def carried(self, chunks: int) -> Carried:
        """The state, ahead of so many chunks."""
        levels = min((chunks - 1).bit_length() + 1, MOST_LEVELS)
        firsts, factors, lost = [], [], []
        for part in self.parts:
            sizes = [*self._sizes(self.batch), str(self.column.size), self._width(part)]
            firsts.append(f"jnp.zeros({tuple_text(sizes)}, {self.dtype})")
            factors.append(f"jnp.zeros({tuple_text([str(levels), *sizes])}, {self.dtype})")
            lost.append(f"jnp.zeros({tuple_text([*sizes[:-2], sizes[-1]])}, bool)")
        end = f"jnp.full({shape_text(self.batch, self.lengths)}, {self.column.size})"
        end = end if self.batch else f"jnp.full((), {self.column.size})"
        initial = f"([{', '.join(firsts)}], [{', '.join(factors)}], [{', '.join(lost)}], {end})"
        return Carried(self.name, initial, (), self.name)

    def update(self, start: str, length: str, chunk: int) -> str:
        """The line that takes a chunk into the state.

        **Arguments:**

        - `start`, `length`: the variables that hold the number of its first row, and how many rows it has.
        - `chunk`: how many rows all chunks have, but for the last.
        """
        inside = {**self.lengths, self.rows: length}
        texts = []
        for part in self.parts:
            order = (*self.batch, self.rows, *part.columns)
            text = broadcast(part.value, order, inside)
            if len(part.columns) != 1:
                sizes = [*self._sizes(self.batch), length, self._width(part)]
                text = f"jnp.reshape({text}, {tuple_text(sizes)})"
            texts.append(text)
        return f"{self.name} = add_rows({self.name}, {tuple_text(texts)}, {start}, {start} // {chunk})"

    def readers(self, line: Callable[[str], None]) -> list[tuple[Term, Callable[[], Emitted]]]:
        """How each fold's result is read after the loop; the first that is read writes the factors down."""
        written: list[str] = []

        def read(result: Term) -> Emitted:
            if not written:
                written.append(f"whole_{self.name}")
                line(f"{written[0]} = factors({self.name})")
            place = self.place[result.number]
            columns = self.parts[place].columns
            text = f"{written[0]}[{place}]"
            order = (*self.batch, _operation(result).axes[1], *columns)
            if len(columns) != 1:
                text = f"jnp.reshape({text}, {shape_text(order, self.lengths)})"
            return Emitted(text, order)

        return [(result, partial(read, result)) for result in self.results]

    def _sizes(self, axes: Sequence[Axis]) -> list[str]:
        return [dimension_text(axis, self.lengths) for axis in axes]

    def _width(self, part: _Part) -> str:
        varying = [self.lengths[axis] for axis in part.columns if axis in self.lengths]
        fixed = math.prod(axis.size for axis in part.columns if axis not in self.lengths)
        return " * ".join([str(fixed), *varying])


def _operation(result: Term) -> Operation:
    assert isinstance(result.op, Fold)
    assert isinstance(result.op.monoid, Operation)
    return result.op.monoid
