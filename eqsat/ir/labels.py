"""What to call axes in front of people: by the dimensions of the arguments that they are."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.ir.axis import Axis, parts
from eqsat.ir.control import Scan
from eqsat.ir.ops import Leaf, Opaque, Rename
from eqsat.ir.program import Program

ITERATION = "iteration"
"""What an axis is called along which a loop stacks what its iterations make."""


def axis_labels(program: Program, names: Sequence[str]) -> dict[Axis, str]:
    """For the axes of a program's inputs, of which dimension they are: of the first input that has them.

    An axis that is part of a dimension is numbered within it: "x.0.1". The other of two that stand for one
    dimension, as in the distances of the rows of x from one another, has a prime: "x.0'". What a loop stacks,
    it stacks along its iterations.
    """
    labels: dict[Axis, str] = {}
    for term, name in zip(program.inputs, names, strict=True):
        assert isinstance(term.op, Leaf)
        for number, dimension in enumerate(term.op.layout):
            axes = parts(dimension)
            for position, axis in enumerate(axes):
                label = f"{name}.{number}" + (f".{position}" if len(axes) > 1 else "")
                labels.setdefault(axis, label)
    for term in program.terms:
        if isinstance(term.op, Rename) and term.op.old in labels:
            labels.setdefault(term.op.new, f"{labels[term.op.old]}'")
        elif isinstance(term.op, Opaque) and isinstance(term.op.call.control, Scan):
            for layout in term.op.call.out_layouts[len(term.op.call.control.carried) :]:
                labels.update((axis, ITERATION) for axis in parts(layout[0]) if axis not in labels)
    return labels
