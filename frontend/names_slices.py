"""Slices of computed arrays, computed from slices of what they are computed from.

    f(a, b)[:m, n:]  =  f(a[:m], b[n:])

With blocks of a kernel matrix, as in a two-sample statistic, nothing needs the matrix as a whole then.
Elementwise functions, and reductions and contractions over other axes, are computed again. Of all else,
slices are taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
from jax import lax

from eqsat.frontend.draft import DraftLayout, View
from eqsat.frontend.registry import Views, names
from eqsat.frontend.resolve import MakeIota, MakeRename, MakeReshape
from eqsat.ir.ops import Call, Dot, Map, Opaque, Reduce

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

MOST_NODES = 64
"""The most nodes that are computed again for a slice."""

SMALLER = 4
"""What is sliced instead has to be so many times smaller than the array."""


@names("slice")
def _slice(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    (view,), (result,) = operands, results
    params = equation.params
    before, after = lowering.shape(view), lowering.shape(result)
    strides = params["strides"] or (1,) * len(before)
    cut: dict[int, Cut] = {}
    for dimension, axis in enumerate(view.layout):
        if before[dimension] == after[dimension]:
            continue
        parts = lowering.draft.axes.atoms(axis) if axis is not None else ()
        if len(parts) != 1 or after[dimension] < 2 or not lowering.has_axis(view, axis):
            return
        cut[parts[0]] = Cut(params["start_indices"][dimension], after[dimension], strides[dimension])
    draft = lowering.draft
    if not cut or not isinstance(draft.op(view.node), Map | Reduce | Dot):
        return
    slicing = Slicing(lowering, cut)
    if not slicing.is_worthwhile(view.node):
        return

    def build() -> View | None:
        node = slicing.sliced(view.node)
        return None if node is None else View(node, tuple(map(slicing.axis, view.layout)), view.dtype)

    lowering.name(equation, result, build)


@dataclass(frozen=True, slots=True)
class Cut:
    """Every `stride`-th entry of an axis from number `start` on, `size` of them."""

    start: int
    size: int
    stride: int


@dataclass
class Slicing:
    """Nodes along cut axes, computed again along new ones.

    **Attributes:**

    - `cuts`: the cuts, by axis.
    - `axes`: the new axes, by the old ones.
    """

    lowering: Lowering
    cuts: dict[int, Cut]
    axes: dict[int, int] = field(default_factory=dict)
    _made: dict[int, int] = field(default_factory=dict)

    def is_worthwhile(self, node: int) -> bool:
        """Whether few nodes have to be computed again, and those that are sliced are small."""
        inner, frontier, stack = set[int](), set[int](), [node]
        while stack:
            at = stack.pop()
            if at in inner or at in frontier or not self._is_cut(at):
                continue
            if not self._is_computed_again(at):
                frontier.add(at)
                continue
            inner.add(at)
            if len(inner) > MOST_NODES:
                return False
            stack.extend(self.lowering.draft.nodes[at].args)
        return sum(map(self._size, frontier)) * SMALLER <= self._size(node)

    def axis(self, axis: int | None) -> int | None:
        """The new axis in place of an axis; the axis itself if it is not cut."""
        return None if axis is None else self.axes.get(self.lowering.draft.axes.find(axis), axis)

    def sliced(self, node: int) -> int | None:
        """The node along the new axes; None if a cut axis has become several since."""
        draft = self.lowering.draft
        if any(len(draft.axes.atoms(axis)) != 1 for axis in self.cuts):
            return None
        self.cuts = {draft.axes.atoms(axis)[0]: cut for axis, cut in self.cuts.items()}
        self.axes = {axis: draft.axes.fresh(cut.size) for axis, cut in self.cuts.items()}
        draft.axes.keep_apart((*self.axes.values(), *draft.node_axes(node)))
        stack = [(node, False)]
        while stack:
            at, leaving = stack.pop()
            if at in self._made:
                continue
            if not self._is_cut(at):
                self._made[at] = at
            elif not self._is_computed_again(at):
                self._made[at] = self._slice_of(at)
            elif leaving:
                self._made[at] = self._again(at)
            else:
                stack.append((at, True))
                stack.extend((arg, False) for arg in draft.nodes[at].args)
        return self._made[node]

    def _is_cut(self, node: int) -> bool:
        return not self.lowering.draft.node_axes(node).isdisjoint(self.cuts)

    def _size(self, node: int) -> int:
        size = 1
        for axis in self.lowering.draft.node_axes(node):
            size *= self.lowering.draft.axes.size(axis)
        return size

    def _is_computed_again(self, node: int) -> bool:
        made = self.lowering.draft.nodes[node]
        if isinstance(made.make, MakeIota | MakeRename | MakeReshape):
            return False
        return isinstance(self.lowering.draft.op(node), Map | Reduce | Dot)

    def _again(self, node: int) -> int:
        draft = self.lowering.draft
        made = draft.nodes[node]
        axes = (self.axes.get(axis, axis) for axis in draft.node_axes(node))
        return draft.add(made.make, [self._made[arg] for arg in made.args], axes)

    def _slice_of(self, node: int) -> int:
        """A slice of a node, by the primitive."""
        lowering, draft = self.lowering, self.lowering.draft
        axes = sorted(draft.node_axes(node))
        dtype = _dtype(lowering, node)
        shape = [draft.axes.size(axis) for axis in axes]
        cuts = [self.cuts.get(axis, Cut(0, size, 1)) for axis, size in zip(axes, shape, strict=True)]
        starts = [cut.start for cut in cuts]
        stops = [cut.start + (cut.size - 1) * cut.stride + 1 for cut in cuts]
        strides = [cut.stride for cut in cuts]
        aval = jax.ShapeDtypeStruct(tuple(shape), dtype)
        closed = jax.make_jaxpr(lambda array: lax.slice(array, starts, stops, strides))(aval)
        (made,) = lowering.inline(closed, [View(node, tuple(axes), dtype)], named=False)
        wanted = [self.axes.get(axis, axis) for axis in axes]
        return draft.rename(made.node, _different(lowering, made.layout, wanted))


def _different(lowering: Lowering, layout: DraftLayout, wanted: Iterable[int]) -> dict[int, int]:
    """The axes that have to be renamed: those that can't be made the same."""
    pairs = zip(layout, wanted, strict=True)
    axes = lowering.draft.axes
    return {own: other for own, other in pairs if own is not None and not axes.unify(own, other)}


def _dtype(lowering: Lowering, node: int) -> str:
    """The dtype of a node."""
    draft = lowering.draft
    while isinstance(draft.nodes[node].make, MakeRename):
        (node,) = draft.nodes[node].args
    op: Any = draft.op(node)
    match op:
        case Opaque(call=Call(out_dtypes=dtypes), result=result):
            return dtypes[result]
        case _:
            return str(getattr(op, "dtype", "bool"))
