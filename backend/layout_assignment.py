"""Layout assignment: the order of dimensions that each value should have.

Consumers request orders. A selection requests its axis last, an operation its core axes, what takes slices by
index the axis of the index first, an output the order in which it is returned. An elementwise op passes
requests on to its operands. A contraction can give either of two orders at no cost. If its only consumer is
another contraction, it takes the order that also orders that one's result. The summed axis comes last in a
left operand, and first after the batch in a right one: XLA copies operands in which it lies between other
axes.

Without a request, the longest axis comes last, since XLA on CPU works on neighbours in memory at once. The
accumulator of a loop is transposed once, after the loop.

On a GPU, any order of a reduction is fast, but a product of two transposed matrices is not. There, reductions
request nothing of what is computed from products, and products come out so that they are not of this form.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from eqsat.backend.layout import Emitted, sorted_order
from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.ops import Concat, Dot, Fold, Map, Opaque, Operation, Reduce, Select
from eqsat.ir.program import Program
from eqsat.ir.term import Term

Length = Callable[[Axis], int]
"""How long an axis is, or what loops take of it at once."""

DEEP = 8
"""If a sum has more terms than columns by this factor, the layout of the operand counts, not the result's."""

FEW = 32
"""Products of fewer rows or columns are slow, and slower to add up, if these come last."""


def wanted_orders(
    program: Program, length: Length, transposes_slowly: bool = False
) -> dict[int, tuple[Axis, ...]]:
    """The order wanted of each term, by number, where some consumer has a wish; the first one counts.

    **Arguments:**

    - `transposes_slowly`: whether a product of two transposed matrices is slower than others.
    """
    made_by_products: set[int] = set()
    if transposes_slowly:
        for term in program.reachable():
            if isinstance(term.op, Dot) or (
                isinstance(term.op, Map) and any(arg.number in made_by_products for arg in term.args)
            ):
                made_by_products.add(term.number)
    wanted: dict[int, tuple[Axis, ...]] = {}
    uses = Counter(arg.number for term in program.reachable() for arg in term.args)
    for output in program.outputs:
        returned = tuple(axis for axis in layout_axes(output.layout) if axis in output.term.axes)
        wanted.setdefault(output.term.number, returned)
    for term in reversed(list(program.reachable())):
        order = wanted.get(term.number)
        for arg in term.args:
            wish = _wish(term, order, arg, length)
            if isinstance(term.op, Dot) and uses[arg.number] > 1:
                continue  # What else reads it may be slower for it.
            if isinstance(term.op, Reduce) and arg.number in made_by_products:
                continue
            if wish is not None:
                wanted.setdefault(arg.number, wish)
    return wanted


def read_by_calls(program: Program) -> dict[int, tuple[Axis, ...]]:
    """By number, the order in which calls of primitives read a collected value, if nothing else reads it.

    Chunks that are stored in this order are transposed one by one. In another one, the whole value would be.
    """
    orders: dict[int, set[tuple[Axis, ...] | None]] = {}
    for term in program.reachable():
        layouts = term.op.call.arg_layouts if isinstance(term.op, Opaque) else [None] * len(term.args)
        for arg, layout in zip(term.args, layouts, strict=True):
            if isinstance(arg.op, Concat):
                order = None if layout is None else tuple(a for a in layout_axes(layout) if a in arg.axes)
                orders.setdefault(arg.number, set()).add(order)
    alike = {number: next(iter(found)) for number, found in orders.items() if len(found) == 1}
    return {number: order for number, order in alike.items() if order is not None}


def _wish(term: Term, order: tuple[Axis, ...] | None, arg: Term, length: Length) -> tuple[Axis, ...] | None:
    """The order that `term`, requested in `order`, requests of its operand `arg`."""

    def by_length(axes: frozenset[Axis]) -> tuple[Axis, ...]:
        return tuple(sorted(axes, key=lambda axis: (length(axis), axis.id)))

    match term.op:
        case Select(axis=axis, out_axis=out) | Fold(monoid=Select(axis=axis, out_axis=out)):
            rest = order if order is not None else by_length(arg.axes - {axis})
            return (*(a for a in rest if a != out and a in arg.axes), axis)
        case Reduce(axes=axes):
            rest = order if order is not None else by_length(arg.axes - axes)
            long = math.prod(map(length, axes)) > FEW
            return (*rest, *sorted(axes)) if long else (*sorted(axes), *rest)
        case Operation(spec=spec, axes=(axis,)) if spec.name == "take" and arg is term.args[0]:
            # Slices are copied as they lie.
            rest = order if order is not None else by_length(arg.axes - {axis})
            return (axis, *(a for a in rest if a in arg.axes and a != axis))
        case Operation(axes=axes) | Fold(monoid=Operation(axes=axes)):
            core = tuple(axis for axis in axes if axis in arg.axes)
            rest = order if order is not None else tuple(sorted(arg.axes))
            rest = tuple(axis for axis in rest if axis in arg.axes and axis not in axes)
            # The right-hand sides of linear systems are columns.
            return (*core, *rest) if arg is not term.args[0] and len(core) == 1 else (*rest, *core)
        case Dot(axes=axes):
            free = arg.axes - axes - (term.args[0].axes & term.args[1].axes)
            # An operand with several free axes is copied if the terms of the sum lie between these.
            computed = isinstance(arg.op, Map) and len(free) > 1
            return _as_operand(axes, term, order, arg) if isinstance(arg.op, Dot) or computed else None
        case Fold() if order and length(order[-1]) < FEW:
            return None  # By few columns, adding up is slow.
        case Map() | Concat() | Fold():
            return None if order is None else tuple(axis for axis in order if axis in arg.axes)
        case _:
            return None


def runs_backwards(order: Sequence[Axis] | None, first: AbstractSet[Axis], second: AbstractSet[Axis]) -> bool:
    """Whether a product should be taken the other way round, to come out in the wanted order.

    **Arguments:**

    - `first`, `second`: the axes of its operands.
    """
    free = [axis for axis in order or () if (axis in first) != (axis in second)]
    return bool(free) and free[-1] in first and any(axis in second for axis in free)


def comes_backwards(
    op: Dot,
    left: Emitted,
    right: Emitted,
    wish: tuple[Axis, ...] | None,
    length: Length,
    transposes_slowly: bool = False,
) -> bool:
    """Whether a product of these two should be taken the other way round."""
    if transposes_slowly and not wish:
        return _transposes_both(op, left, right)
    if _batches_vectors(op, left, right) or _batches_vectors(op, right, left):
        return _vectors_backwards(op, left, right, length)
    as_stored = _narrow_backwards(op, left, right, length)
    if as_stored is not None:
        return as_stored
    if wish:
        return runs_backwards(wish, frozenset(left.order), frozenset(right.order))
    several = _several_backwards(op, left, right)
    return longest_last(op, left, right, length) if several is None else several


def _transposes_both(op: Dot, left: Emitted, right: Emitted) -> bool:
    """Whether in both matrices, the terms that are added up are not where a row-major product has them.

    The other way round, they are.
    """
    return left.order[-1] not in op.axes and right.order[-1] in op.axes


def _batches_vectors(op: Dot, vectors: Emitted, matrices: Emitted) -> bool:
    """Whether in a batch, each of some matrices is multiplied by a vector of its own."""
    batch = [axis for axis in vectors.order if axis in matrices.order and axis not in op.axes]
    alike = len(vectors.order) == len(matrices.order)
    return bool(batch) and not alike and all(axis in matrices.order for axis in vectors.order)


def _vectors_backwards(op: Dot, left: Emitted, right: Emitted, length: Length) -> bool:
    """Whether matrices times vectors, in a batch, should be taken the other way round. It comes out the same.

    XLA copies matrices that are not stored one after the other, and the place of an operand says how.
    """
    matrices, vectors = (left, right) if len(left.order) > len(right.order) else (right, left)
    first, *_ = matrices.order
    if first in vectors.order and first not in op.axes:
        return False
    rows = [axis for axis in matrices.order if axis not in vectors.order]
    last = next(axis for axis in reversed(matrices.order) if axis in rows or axis in op.axes)
    before = last in op.axes or math.prod(map(length, rows)) < FEW
    return before == (matrices is right)


def _narrow_backwards(op: Dot, left: Emitted, right: Emitted, length: Length) -> bool | None:
    """Whether a large matrix times a narrow one should be taken the other way round; None if it is neither.

    XLA transposes the large one if its own side would come last in the result and not in itself, or first and
    not in itself: two to nine times slower. To transpose the narrow result instead is little.
    """
    (large, sides), (_, narrow) = sorted(
        (
            (operand, math.prod(length(axis) for axis in operand.order if axis not in op.axes))
            for operand in (left, right)
        ),
        key=lambda pair: -pair[1],
    )
    depth = math.prod(map(length, op.axes))
    alone = set(left.order) & set(right.order) == op.axes
    if not alone or narrow < 2 or narrow > min(FEW, depth // DEEP, sides // 2):
        return None
    if large.order[0] in op.axes:
        return large is left
    return large is right if large.order[-1] in op.axes else None


def _several_backwards(op: Dot, left: Emitted, right: Emitted) -> bool | None:
    """Whether a product should be taken the other way round for an operand with several free axes; or None.

    XLA copies such an operand unless its axes come first in the result and the terms of the sum last in it,
    or the other way round.
    """
    if set(left.order) & set(right.order) != op.axes:
        return None
    several = [value for value in (left, right) if len(value.order) - len(op.axes) > 1]
    if len(several) != 1:
        return None
    (operand,) = several
    inner, outer = operand.order[-1] in op.axes, operand.order[0] in op.axes
    if inner == outer:
        return None
    return (operand is right) == inner


def longest_last(op: Dot, left: Emitted, right: Emitted, length: Length) -> bool:
    """Whether a product in whose order nobody has a say should be taken the other way round.

    Its longer side comes last, if the other one is short; and it is not one of two transposed matrices, which
    is slowest.
    """
    rows = [axis for axis in left.order if axis not in right.order]
    columns = [axis for axis in right.order if axis not in left.order]
    if not (rows and columns):
        return False
    height, width, depth = (math.prod(map(length, axes)) for axes in (rows, columns, op.axes))
    transposed = [left.order[-1] in rows, right.order[-1] in op.axes]
    few = min(height, width) < FEW
    if depth < max(height, width) and (few or not all(transposed)):
        # Taken the other way round, two that are not transposed would be.
        return height > width and (few or any(transposed))
    return all(transposed)


def elementwise_order(
    operands: Sequence[Emitted], wish: tuple[Axis, ...] | None, length: Length
) -> tuple[Axis, ...]:
    """The order of an elementwise result: that of its operands, if they have one."""
    orders = [operand.order for operand in operands]
    if wish is None:
        return sorted_order(orders, length)
    return sorted_order(orders, lambda axis: wish.index(axis) if axis in wish else -1)


def _as_operand(
    added: frozenset[Axis], term: Term, order: tuple[Axis, ...] | None, arg: Term
) -> tuple[Axis, ...]:
    """The order that a contraction requests of an operand: batch, rows, columns."""
    left, right = term.args
    if runs_backwards(order, left.axes, right.axes):
        left, right = right, left
    known = order or tuple(sorted(term.axes))
    shared = left.axes & right.axes
    batch = [axis for axis in known if axis in shared]
    free = [axis for axis in known if axis in arg.axes and axis not in shared]
    return (*batch, *free, *sorted(added)) if arg is left else (*batch, *sorted(added), *free)
