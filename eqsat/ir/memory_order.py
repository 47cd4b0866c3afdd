"""The order in which the axes of a value lie in memory, where it is given: of inputs and slices of them.

An array whose axes are renamed, or of which one dimension is counted as two or two neighbours as one, is the
same array.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.ops import Chunk, Leaf, Op, Opaque, Operation, Rename
from eqsat.ir.term import Term

Order = tuple[Axis, ...]


def passed_on(op: Op, order: Order | None) -> Order | None:
    """The order of what an op makes of its operand, if it is given."""
    match op:
        case Leaf(layout=layout):
            return layout_axes(layout)
        case Rename(old=old, new=new) if order is not None:
            return tuple(new if axis == old else axis for axis in order)
        case Operation(axes=(whole, outer, inner)) if is_same_array(op) and order is not None:
            pairs = ((outer, inner) if axis == whole else (axis,) for axis in order)
            return tuple(axis for pair in pairs for axis in pair)
        case Chunk():
            return order
        case _:
            return None


def is_same_array(op: Op) -> bool:
    """Whether what an op makes is the array that it is given, with other names for its dimensions."""
    return isinstance(op, Rename) or (isinstance(op, Operation) and op.spec.name == "split")


def array_of(term: Term) -> Term:
    """The term whose array a term is."""
    while is_same_array(term.op) or _merges_neighbours(term):
        (term,) = term.args
    return term


def _merges_neighbours(term: Term) -> bool:
    """Whether two dimensions of an array, one behind the other, are counted as one."""
    if not isinstance(term.op, Operation) or term.op.spec.name != "merge":
        return False
    outer, inner, _ = term.op.axes
    match term.args[0].op:
        case Opaque(call=call, result=result) if call.control is not None:
            order: Order = layout_axes(call.out_layouts[result])
        case _:
            order = memory_order(term.args[0]) or ()
    return (outer, inner) in pairwise(order)


def memory_order(term: Term) -> Order | None:
    """The order of a term's axes, if it is given."""
    passed: list[Op] = []
    while isinstance(term.op, Chunk) or is_same_array(term.op):
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
