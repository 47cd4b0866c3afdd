"""Labels of axes for users: the dimensions of the arguments that the axes come from."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.ir.axis import Axis, parts
from eqsat.ir.control import Scan
from eqsat.ir.ops import Leaf, Opaque, Rename
from eqsat.ir.program import Program

ITERATION = "iteration"
"""The label of an axis along which a loop stacks the results of its iterations."""


def axis_labels(program: Program, names: Sequence[str]) -> dict[Axis, str]:
    """Returns labels for the axes of a program, such as "x.0" for the first dimension of the input x.

    The label comes from the first input that has the axis. An axis that is only a part of a dimension is
    numbered within it, as in "x.0.1". The new axis of a `Rename` gets the old axis's label with a prime,
    as in "x.0'"; the pairwise distances between the rows of x need such an axis. An axis along which a scan
    stacks its results is labelled `ITERATION` if it has no other label. All further axes have no label.

    **Arguments:**

    - `names`: the names of the program's inputs, in order.
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
