"""Primitives without a handler: called as they are, in chunks along the axes that pass through."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Any

from eqsat.frontend.draft import Draft, DraftLayout, MakeOp, View
from eqsat.frontend.naming import Made
from eqsat.frontend.passing import SHAPE_PRESERVING, passing_dimensions
from eqsat.frontend.passing_registry import Dims, Passing
from eqsat.frontend.reduction_axes import accumulated_dimensions, summed_dimensions
from eqsat.frontend.resolve import Resolver
from eqsat.ir.ops import Call, Opaque

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering


@dataclass(frozen=True, slots=True)
class Groups:
    """A dimension that consists of groups: the axis that counts them, and the axis of each, if it is one."""

    count: int
    each: int | None


GroupsByDimension = Mapping[tuple[int, int], Groups]
"""By the number of the operand, and of its dimension."""


def opaque_call(lowering: Lowering, equation: Any, operands: Sequence[View]) -> list[View]:
    """The results of an equation as those of one call."""
    draft = lowering.draft
    passing, grouped = _passing(lowering, equation, operands)
    accumulated, summed = (
        [dims for dims in found if _varies(lowering, operands, dims)]
        for found in (accumulated_dimensions(equation), summed_dimensions(equation))
    )
    labels: list[dict[Hashable, int]] = [{} for _ in operands]
    passes: list[dict[int, int]] = [{} for _ in operands]
    for number, dims in enumerate([*(group.args for group in passing), *accumulated, *summed]):
        for index, dimension in enumerate(dims):
            if dimension is not None:
                axis = operands[index].layout[dimension]
                assert axis is not None
                groups = grouped.get((index, dimension))
                labels[index][number] = groups.count if groups else axis
                passes[index][dimension] = number
    targets, nodes = draft.align(
        [(view.node, by_label) for view, by_label in zip(operands, labels, strict=True)],
        _barriers(operands, passes, grouped),
    )
    layouts = [
        tuple(
            _joined(draft, targets[passes[index][dimension]], grouped.get((index, dimension)))
            if dimension in passes[index]
            else axis
            for dimension, axis in enumerate(view.layout)
        )
        for index, view in enumerate(operands)
    ]
    main = SHAPE_PRESERVING.get(equation.primitive.name)
    results: list[DraftLayout] = []
    for index, out in enumerate(equation.outvars):
        if main is not None and lowering.shape(operands[main]) == out.aval.shape:
            results.append(layouts[main])
            continue
        passed = {
            group.outs[index]: _of_result(draft, targets[number], group, out.aval.shape[group.outs[index]])
            for number, group in enumerate(passing)
        }
        fresh = draft.fresh_layout(out.aval.shape)
        results.append(tuple(passed.get(dimension, axis) for dimension, axis in enumerate(fresh)))
    dtypes = tuple(str(out.aval.dtype) for out in equation.outvars)
    number = draft.new_call()
    # A part of an axis along which all operands are only broadcast gives no chunks either.
    varying = frozenset[int]().union(*map(draft.node_axes, nodes))
    first, second = len(passing), len(passing) + len(accumulated)
    chosen = [varying.intersection(draft.axes.atoms(targets[place])) for place in range(second + len(summed))]

    def make_call(axis_of: Resolver) -> Call:
        return Call(
            number,
            equation.primitive,
            equation.params,
            tuple(map(axis_of.layout, layouts)),
            tuple(map(axis_of.layout, results)),
            dtypes,
            axis_of.several(frozenset[int]().union(*chosen[:first])),
            axis_of.several(frozenset[int]().union(*chosen[first:second])),
            axis_of.several(frozenset[int]().union(*chosen[second:])),
        )

    made: list[View] = []
    for index, entries in enumerate(results):
        axes = (axis for axis in entries if axis is not None)
        node = draft.add(_opaque_maker(make_call, index), nodes, axes)
        made.append(lowering.view(node, entries, dtypes[index]))
        lowering.made[node] = Made(equation.primitive.name, index, tuple(operands), made[-1])
    return made


def _passing(
    lowering: Lowering, equation: Any, operands: Sequence[View]
) -> tuple[list[Passing], GroupsByDimension]:
    """What passes through the equation, and the dimensions of which only the axis of the groups does.

    What is only broadcast along a dimension gives no chunk of it: the call would be the same.
    """
    passing: list[Passing] = []
    grouped: dict[tuple[int, int], Groups] = {}
    for group in passing_dimensions(equation):
        if not group.groups:
            if _varies(lowering, operands, group.args):
                passing.append(group)
            continue
        found = _groups(lowering.draft, operands, group)
        if any(lowering.has_axis(operands[index], groups.count) for (index, _), groups in found.items()):
            passing.append(group)
            grouped |= found
    return passing, grouped


def _varies(lowering: Lowering, operands: Sequence[View], dims: Dims) -> bool:
    pairs = zip(operands, dims, strict=True)
    return any(d is not None and lowering.has_axis(view, view.layout[d]) for view, d in pairs)


def _groups(draft: Draft, operands: Sequence[View], group: Passing) -> dict[tuple[int, int], Groups]:
    """The parts of the dimensions of `group`, if all of them have an axis that counts the groups."""
    found: dict[tuple[int, int], Groups] = {}
    for index, dimension in enumerate(group.args):
        axis = None if dimension is None else operands[index].layout[dimension]
        if dimension is None or axis is None:
            continue
        atoms = draft.axes.atoms(axis)
        counted = list(accumulate(map(draft.axes.size, atoms), mul))
        if group.groups not in counted:
            return {}
        place = counted.index(group.groups) + 1
        causes = draft.axes.causes(axis)
        parts = [draft.axes.merged(part, causes) for part in (atoms[:place], atoms[place:]) if part]
        found[index, dimension] = Groups(parts[0], parts[1] if len(parts) > 1 else None)
    return found


def _barriers(
    operands: Sequence[View], passes: Sequence[Mapping[int, int]], grouped: GroupsByDimension
) -> list[int]:
    """The axes that nothing that passes may become."""
    barriers = [
        axis
        for index, view in enumerate(operands)
        for dimension, axis in enumerate(view.layout)
        if axis is not None and dimension not in passes[index]
    ]
    return barriers + [groups.each for groups in grouped.values() if groups.each is not None]


def _joined(draft: Draft, passed: int, groups: Groups | None) -> int:
    """The axis of a dimension that passes, or whose groups do."""
    if groups is None or groups.each is None:
        return passed
    return draft.axes.merged([passed, groups.each], draft.axes.causes_of([passed, groups.each]))


def _of_result(draft: Draft, passed: int, group: Passing, length: int) -> int:
    """The axis of a result's dimension of that length."""
    each = length // group.groups if group.groups else 1
    return _joined(draft, passed, Groups(passed, draft.axes.fresh(each)) if each > 1 else None)


def _opaque_maker(make_call: Any, result: int) -> MakeOp:
    return lambda axis_of: Opaque(make_call(axis_of), result)
