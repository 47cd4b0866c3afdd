"""Describes terms and axes in words: the argument dimension of an axis, the op of a term, its source line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from eqsat.engine.storage_model import StorageModel
from eqsat.ir.axis import Axis
from eqsat.ir.control import Scan
from eqsat.ir.labels import axis_labels
from eqsat.ir.ops import (
    Chunk,
    Concat,
    Const,
    Delta,
    Dot,
    Fold,
    Iota,
    Leaf,
    Map,
    Opaque,
    Operation,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.program import Program
from eqsat.ir.term import Term
from eqsat.planning.blocks import combination
from eqsat.planning.provenance import places
from eqsat.support.records import AxisRecord, Place, TensorRecord
from eqsat.targets.machine import Machine

LONG_LABEL = 24
"""The number of characters to which longer labels are shortened, from the left, if they stay distinct."""


class Describer:
    """Describes the terms of one program.

    **Arguments:**

    - `names`: the names of the program's inputs.
    """

    def __init__(self, program: Program, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._labels = shortened(axis_labels(program, names))
        self._places = places(program)

    def label(self, axis: Axis) -> str:
        """The argument dimension that an axis comes from ("x.0" is dimension 0 of x), or else its name."""
        return self._labels.get(axis, axis.name)

    def place(self, term: Term) -> Place | None:
        """The line of the user's source that a term comes from, if known."""
        return self._places.get(term.number)

    def axis(self, axis: Axis, chunk: int | None = None) -> AxisRecord:
        """The record of an axis, or of a chunk of it."""
        return AxisRecord(axis.name, axis.size, self.label(axis), None if chunk == axis.size else chunk)

    def axes(self, axes: Iterable[Axis]) -> str:
        """The labels of several axes, separated by commas."""
        return ", ".join(self.label(axis) for axis in sorted(axes))

    def tensor(
        self, term: Term, machine: Machine, lengths: Mapping[Axis, int], size: int = -1
    ) -> TensorRecord:
        """The record of a term inside loops with chunks of these lengths.

        **Arguments:**

        - `size`: bytes of its buffer, if that differs from the size of its value.
        """
        axes = tuple(
            self.axis(axis, lengths.get(axis) if axis in term.open else None) for axis in sorted(term.axes)
        )
        if size < 0:
            size = StorageModel(machine, lengths).bytes(term)
        place = None if isinstance(term.op, Leaf) else self.place(term)
        return TensorRecord(size, term.dtype, axes, self.op(term), place)

    def op(self, term: Term) -> str:
        """The op of a term in words."""
        match term.op:
            case Leaf(index=index):
                return (
                    f"argument {self._names[index]}" if 0 <= index < len(self._names) else "value of a loop"
                )
            case Const(text=text):
                return text
            case Iota(axis=axis):
                return f"indices of {self.label(axis)}"
            case Delta():
                return "identity matrix"
            case Map(name="convert", dtype=dtype):
                return f"convert to {dtype}"
            case Map(name=name):
                return name
            case Reduce(kind=kind, axes=axes):
                return f"{kind} over {self.axes(axes)}"
            case Dot(axes=axes):
                return f"contraction over {self.axes(axes)}"
            case Select(kind=kind, axis=axis):
                return f"{kind} along {self.label(axis)}"
            case Operation(spec=spec):
                return spec.name
            case Rename():
                return self.op(term.args[0])
            case Opaque(call=call, result=result):
                name = str(call.primitive.name)
                if isinstance(call.control, Scan):
                    name += ": carried" if result < len(call.control.carried) else ": stacked"
                return name
            case Chunk(axis=axis):
                return f"slice along {self.label(axis)}" if axis in term.axes else self.op(term.args[0])
            case Concat(axis=axis):
                return f"collected over {self.label(axis)}"
            case Fold(axis=axis):
                return f"{combination(term)} over {self.label(axis)}, chunk by chunk"


def shortened(labels: Mapping[Axis, str]) -> dict[Axis, str]:
    """Labels of axes, with long ones shortened to their ends where these are distinct.

    Arguments in trees have long names, such as "parameters_encoder_dense_kernel.0".
    """
    short = {
        axis: label if len(label) <= LONG_LABEL else f"…{label[1 - LONG_LABEL :]}"
        for axis, label in labels.items()
    }
    alike = Counter(short.values())
    return {axis: short[axis] if alike[short[axis]] == 1 else label for axis, label in labels.items()}
