"""The order in which the axes of a value lie in memory, where it is given: of inputs and slices of them."""

from __future__ import annotations

from collections.abc import Collection

from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.ops import Chunk, Leaf, Op, Rename
from eqsat.ir.term import Term

Order = tuple[Axis, ...]


def passed_on(op: Op, order: Order | None) -> Order | None:
    """The order of what an op makes of its operand, if it is given."""
    match op:
        case Leaf(layout=layout):
            return layout_axes(layout)
        case Rename(old=old, new=new) if order is not None:
            return tuple(new if axis == old else axis for axis in order)
        case Chunk():
            return order
        case _:
            return None


def memory_order(term: Term) -> Order | None:
    """The order of a term's axes, if it is given."""
    passed: list[Op] = []
    while isinstance(term.op, (Rename, Chunk)):
        passed.append(term.op)
        (term,) = term.args
    order = passed_on(term.op, None)
    for op in reversed(passed):
        order = passed_on(op, order)
    return order


def multiplies_as_it_lies(order: Order, contracted: Collection[Axis], shared: Collection[Axis]) -> bool:
    """Whether an operand of a product is a batch of matrices as it lies in memory: nothing has to be moved.

    **Arguments:**

    - `contracted`: the axes that are summed over; `shared`: those that the operands share, these included.
    """
    kinds = ["terms" if axis in contracted else "batch" if axis in shared else "free" for axis in order]
    runs = [kind for place, kind in enumerate(kinds) if place == 0 or kinds[place - 1] != kind]
    return len(runs) == len(set(runs)) and "batch" not in runs[1:]
