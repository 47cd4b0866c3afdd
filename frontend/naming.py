"""Names beside bodies: what a program computes, as the named operations that rules know.

A call that is an operation is lowered to its body, which is what everything else refers to. In
addition its name is noted: how to build the operation's term from the operands. That is done when the
body of the whole program is finished, so that names never cost it a renaming: axes of the two are made
the same where that is still possible, and renamed on the operation's side where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eqsat.frontend.draft import Draft, MakeOp, View
from eqsat.frontend.resolve import Resolver
from eqsat.ir.dtypes import is_extended, numpy_dtype
from eqsat.ir.operations import OPERATIONS, OperationSpec
from eqsat.ir.ops import Map, Operation
from eqsat.support.records import Place

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

Labels = tuple[Hashable, ...]
"""A label for each dimension of an array: a letter of a signature, or anything else for a batch axis."""


@dataclass(frozen=True, slots=True)
class OperationName:
    """That a value is an operation.

    **Attributes:**

    - `body`: the value.
    - `build`: builds the operation.
    - `origin`: where it is in the source.
    - `unless`: values, none of which the program may need for the name to hold.
    """

    body: View
    build: Callable[[], View | None]
    origin: Place | None
    unless: tuple[View, ...] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """Where a node comes from: result number `result` of a primitive, with that layout, of operands."""

    primitive: str
    result: int
    operands: tuple[View, ...]
    view: View


@dataclass(frozen=True, slots=True)
class Claim:
    """That a value has a property, along some of its dimensions, as the user says."""

    property: str
    view: View
    dimensions: tuple[int, ...]


def applied(
    lowering: Lowering,
    spec: OperationSpec,
    operands: Sequence[tuple[View, Labels]],
    labels: Labels,
    shape: Sequence[int],
    dtype: str,
) -> View | None:
    """An operation of views; None if it can't be applied to them.

    **Arguments:**

    - `operands`: each with what its dimensions are. Equal labels are one axis.
    - `labels`, `shape`, `dtype`: of the result.
    """
    draft = lowering.draft
    whole: list[tuple[View, Labels]] = []
    for (view, of_view), (_, core) in zip(operands, spec.signature.operands, strict=True):
        ready: View | None = view
        for core_axis in core:
            ready = ready and with_whole_axis(draft, ready, of_view.index(core_axis))
        if ready is None:
            return None
        whole.append((ready, of_view))
    operands = whole
    arrays = [(lowering.shape(view), of_view) for view, of_view in operands]
    lengths = _core_lengths(spec, [*arrays, (shape, labels)])
    own = _own_dtype(spec, operands[0][0].dtype, dtype)
    if lengths is None or own is None:
        return None
    targets, nodes = draft.align([(view.node, _by_label(view, of_view)) for view, of_view in operands])
    for letter, length in lengths.items():
        if letter not in targets:
            targets[letter] = draft.axes.fresh(length)
    draft.axes.keep_apart(targets.values())
    schema = frozenset[int]().union(*(draft.node_axes(node) for node in nodes))
    schema -= set(draft.axes.atoms_of(targets[letter] for letter in spec.signature.axes))
    schema |= set(draft.axes.atoms_of(targets[letter] for letter in spec.signature.result))
    core_axes = [targets[letter] for letter in spec.signature.axes]
    node = draft.add(_operation_maker(spec, core_axes, own), nodes, schema)
    if own != dtype:
        node = draft.add(lambda _: Map("convert", dtype), [node], schema)
    return lowering.view(node, (targets.get(label) for label in labels), dtype)


def _by_label(view: View, labels: Labels) -> dict[Hashable, int]:
    return {label: axis for label, axis in zip(labels, view.layout, strict=True) if axis is not None}


def _core_lengths(
    spec: OperationSpec, arrays: Sequence[tuple[Sequence[int], Labels]]
) -> dict[Hashable, int] | None:
    """The length of each core axis; None if one has two lengths, or 1: such a dimension is no axis."""
    lengths: dict[Hashable, int] = {}
    for shape, labels in arrays:
        for label, length in zip(labels, shape, strict=True):
            if label in spec.signature.axes and lengths.setdefault(label, length) != length:
                return None
    if len(lengths) < len(spec.signature.axes) or any(length < 2 for length in lengths.values()):
        return None
    return lengths


def _own_dtype(spec: OperationSpec, first: str, wanted: str) -> str | None:
    """The dtype to give to the operation so that its result, perhaps converted, has the wanted one."""
    own = spec.dtype or first
    if own == wanted or not spec.text:
        return wanted
    integers = not any(is_extended(name) or numpy_dtype(name).kind not in "iu" for name in (own, wanted))
    return own if integers else None


def _operation_maker(spec: OperationSpec, axes: Sequence[int], dtype: str) -> MakeOp:
    def make(axis_of: Resolver) -> Operation:
        return Operation(spec, tuple(axis_of(axis) for axis in axes), dtype)

    return make


# Operations need their core axes whole. Of a value that has parts of one, they are told what it is with the
# parts merged; and what they return is split again, so that it is equal to their body.


def with_whole_axis(draft: Draft, view: View, dimension: int) -> View | None:
    """The view with a dimension that is one axis, or None if it does not vary along all of it."""
    axis = view.layout[dimension]
    if axis is None or not draft.node_axes(view.node).issuperset(draft.axes.atoms(axis)):
        return None
    node = view.node
    first, *rest = draft.axes.atoms(axis)
    for part in rest:
        whole = draft.whole(node, first, part)
        node = _regrouped(draft, node, "merge", (first, part), (whole,), view.dtype)
        first = whole
    return _with_axis(view, node, dimension, first)


def _with_parts(draft: Draft, view: View, dimension: int, sizes: Sequence[int]) -> View:
    """The view with a dimension that has parts of these lengths, and now is one axis."""
    node, whole = view.node, view.layout[dimension]
    assert whole is not None
    parts: list[int] = []
    for count in range(len(sizes) - 1, 0, -1):
        # The last part first, so that merging undoes it step by step.
        first, last = draft.axes.fresh(math.prod(sizes[:count])), draft.axes.fresh(sizes[count])
        node = _regrouped(draft, node, "split", (whole,), (first, last), view.dtype)
        parts.insert(0, last)
        whole = first
    return _with_axis(view, node, dimension, draft.axes.merged([whole, *parts], frozenset()))


def _regrouped(
    draft: Draft, node: int, operation: str, gone: tuple[int, ...], made: tuple[int, ...], dtype: str
) -> int:
    """The node with axes merged or split by an operation."""
    axes = draft.axes_without(node, gone).union(made)
    draft.axes.keep_apart(axes)
    return draft.add(_operation_maker(OPERATIONS[operation], (*gone, *made), dtype), [node], axes)


def _with_axis(view: View, node: int, dimension: int, axis: int) -> View:
    layout = (*view.layout[:dimension], axis, *view.layout[dimension + 1 :])
    return View(node, layout, view.dtype)


def called_alike(draft: Draft, body: View, name: View) -> int | None:
    """The node of `name` with the axes that `body` has, or None if only one of them has some axis."""
    pairs: list[tuple[int, int]] = []
    for dimension in reversed(range(len(body.layout))):  # what is merged again, is so from the first on
        own, wanted = name.layout[dimension], body.layout[dimension]
        varies = draft.has_axis(name.node, own)
        if varies != draft.has_axis(body.node, wanted):
            return None
        if own is not None and wanted is not None and varies:
            if draft.axes.sizes(own) != draft.axes.sizes(wanted):
                merged = with_whole_axis(draft, name, dimension)
                if merged is None:
                    return None
                name = _with_parts(draft, merged, dimension, draft.axes.sizes(wanted))
                own = name.layout[dimension]
                assert own is not None
            pairs.append((own, wanted))
    node = draft.rename(
        name.node, {own: wanted for own, wanted in pairs if not draft.axes.unify(own, wanted)}
    )
    return node if draft.node_axes(node) == draft.node_axes(body.node) else None


def build_names(
    lowering: Lowering, names: Iterable[OperationName], results: Iterable[View]
) -> list[tuple[int, int]]:
    """Build the operations whose bodies the results need: pairs of nodes of equal values."""
    draft = lowering.draft
    needed = draft.needed(view.node for view in results)
    pairs = []
    for name in names:
        if name.body.node in needed and needed.isdisjoint(other.node for other in name.unless):
            first_new = len(draft.nodes)
            view = name.build()
            node = None if view is None else called_alike(draft, name.body, view)
            lowering.note_origin(first_new, name.origin)
            if node is not None:
                pairs.append((name.body.node, node))
                # What it is made of may have names, too.
                draft.needed([node], needed)
    return pairs
