"""Slices and pads of computed arrays, computed from slices and pads of what they are computed from.

    f(a, b)[:m, n:]  =  f(a[:m], b[n:])
    pad(f(a, b), c)_ij  =  f(pad(a), pad(b))_ij where i and j are inside, else c

With blocks of a kernel matrix, as in a two-sample statistic, nothing needs the matrix as a whole then. The
derivative of a slice is a pad.

Elementwise functions, and reductions and contractions over other axes, are computed again. Of all else,
slices or pads are taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from eqsat.frontend.draft import DraftLayout, View
from eqsat.frontend.registry import Views, names
from eqsat.frontend.resolve import MakeIota, MakeRename, MakeReshape
from eqsat.ir.dtypes import is_extended
from eqsat.ir.ops import Call, Dot, Map, Opaque, Reduce

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

MOST_NODES = 64
"""The most nodes that are computed again for a slice."""

SMALLER = 4
"""What is sliced instead has to be so many times smaller than the array."""


@names("slice")
def _slice(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    params = equation.params
    starts = params["start_indices"]
    _name_slice(lowering, equation, operands[0], results[0], starts, params["strides"] or (1,) * len(starts))


@names("split")
def _split(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    rank, axis, start = len(operands[0].layout), equation.params["axis"], 0
    for size, result in zip(equation.params["sizes"], results, strict=True):
        starts = [start if dimension == axis else 0 for dimension in range(rank)]
        _name_slice(lowering, equation, operands[0], result, starts, (1,) * rank)
        start += size


def _name_slice(
    lowering: Lowering,
    equation: Any,
    view: View,
    result: View,
    starts: Sequence[int],
    strides: Sequence[int],
) -> None:
    """Note that `result` is the slice of `view` from `starts` on, with these strides."""
    if is_extended(view.dtype):
        return
    before, after = lowering.shape(view), lowering.shape(result)
    cut: dict[int, Change] = {}
    for dimension, axis in enumerate(view.layout):
        if before[dimension] == after[dimension]:
            continue
        parts = lowering.draft.axes.atoms(axis) if axis is not None else ()
        if len(parts) != 1 or after[dimension] < 2 or not lowering.has_axis(view, axis):
            return
        cut[parts[0]] = Cut(starts[dimension], after[dimension], strides[dimension])
    if not cut:
        return

    def build() -> View | None:
        slicing = Slicing(lowering, cut)
        node = slicing.changed(view.node)
        if node is None:
            return None
        made = View(node, tuple(map(slicing.axis, view.layout)), view.dtype)
        return remade(lowering, result, made)

    lowering.name(equation, result, build)


@names("pad")
def _pad(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    """A pad at the ends of axes, as a choice by index between what is inside and the value outside."""
    (view, value), (result,) = operands, results
    draft, after = lowering.draft, lowering.shape(result)
    if is_extended(view.dtype) or max(after, default=0) > np.iinfo(np.int32).max:
        return
    added: dict[int, Change] = {}
    bounds: dict[int, tuple[int, int]] = {}
    for dimension, (low, high, inner) in enumerate(equation.params["padding_config"]):
        if (low, high, inner) == (0, 0, 0):
            continue
        axis = view.layout[dimension]
        parts = draft.axes.atoms(axis) if axis is not None else ()
        if low < 0 or high < 0 or inner or len(parts) != 1 or not lowering.has_axis(view, axis):
            return
        size = draft.axes.size(parts[0])
        added[parts[0]] = Added(int(low), int(high), size)
        bounds[dimension] = int(low), int(low) + size
    if not added:
        return

    def build() -> View | None:
        slicing = Slicing(lowering, added)
        node = slicing.changed(view.node)
        if node is None:
            return None
        inside = View(node, tuple(map(slicing.axis, view.layout)), view.dtype)

        def chosen(array: jax.Array, outside: jax.Array) -> jax.Array:
            known = jnp.bool_(True)
            for dimension, (start, stop) in bounds.items():
                index = lax.broadcasted_iota(jnp.int32, after, dimension)
                known = known & (index >= start) & (index < stop)
            return lax.select(jnp.broadcast_to(known, after), array, jnp.broadcast_to(outside, after))

        views = [inside, value]
        avals = [jax.ShapeDtypeStruct(lowering.shape(each), each.dtype) for each in views]
        (made,) = lowering.inline(jax.make_jaxpr(chosen)(*avals), views, named=False)
        return remade(lowering, result, made)

    lowering.name(equation, result, build)


def remade(lowering: Lowering, result: View, made: View) -> View:
    """The result in its new form. It is noted, and slices of the result are computed from it."""
    pairs = zip(made.layout, result.layout, strict=True)
    axes = lowering.draft.axes
    names = {
        own: old for own, old in pairs if own is not None and old is not None and not axes.unify(own, old)
    }
    node = lowering.draft.rename(made.node, names)
    lowering.remade[result.node] = node
    return View(node, result.layout, made.dtype)


@dataclass(frozen=True, slots=True)
class Cut:
    """Every `stride`-th entry of an axis from number `start` on, `size` of them."""

    start: int
    size: int
    stride: int

    def of(self, array: jax.Array, dimension: int) -> jax.Array:
        stop = self.start + (self.size - 1) * self.stride + 1
        return lax.slice_in_dim(array, self.start, stop, self.stride, dimension)


@dataclass(frozen=True, slots=True)
class Added:
    """An axis of length `inside` with as many more entries in front of it, and behind it."""

    low: int
    high: int
    inside: int

    @property
    def size(self) -> int:
        return self.low + self.inside + self.high

    def of(self, array: jax.Array, dimension: int) -> jax.Array:
        ends = [(self.low, self.high, 0) if d == dimension else (0, 0, 0) for d in range(array.ndim)]
        return lax.pad(array, jnp.zeros((), array.dtype), ends)


Change = Cut | Added
"""What becomes of an axis."""


@dataclass
class Slicing:
    """Nodes along changed axes, computed again along new ones.

    **Attributes:**

    - `cuts`: what becomes of these axes.
    - `axes`: the new axes, by the old ones.
    """

    lowering: Lowering
    cuts: dict[int, Change]
    axes: dict[int, int] = field(default_factory=dict)
    _made: dict[int, int] = field(default_factory=dict)

    def axis(self, axis: int | None) -> int | None:
        """The new axis in place of an axis; the axis itself if it does not change."""
        return None if axis is None else self.axes.get(self.lowering.draft.axes.find(axis), axis)

    def changed(self, node: int) -> int | None:
        """The node along the new axes.

        None if it is not worth it: if many nodes have to be computed again, or if those that are sliced or
        padded instead are not small. None, too, if a changed axis has become several since.
        """
        draft = self.lowering.draft
        if any(len(draft.axes.atoms(axis)) != 1 for axis in self.cuts):
            return None
        self.cuts = {draft.axes.atoms(axis)[0]: cut for axis, cut in self.cuts.items()}
        if not self._is_worthwhile(node):
            return None
        self.axes = {axis: draft.axes.fresh(cut.size) for axis, cut in self.cuts.items()}
        draft.axes.keep_apart((*self.axes.values(), *draft.node_axes(node)))
        stack = [(self._source(node), False)]
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
                stack.extend((self._source(arg), False) for arg in draft.nodes[at].args)
        return self._made[self._source(node)]

    def _is_worthwhile(self, node: int) -> bool:
        inner, frontier, stack = set[int](), set[int](), [self._source(node)]
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
            stack.extend(map(self._source, self.lowering.draft.nodes[at].args))
        return sum(map(self._size, frontier)) * SMALLER <= self._size(node)

    def _source(self, node: int) -> int:
        """The node as it is computed from slices or pads, if it is one."""
        return self.lowering.remade.get(node, node)

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
        match self.lowering.draft.op(node):
            case Map():
                return True
            case Reduce(axes=gone) | Dot(axes=gone):
                # Along an axis that it sums over, it needs all of its operands.
                return all(axis.id not in self.cuts for axis in gone)
            case _:
                return False

    def _again(self, node: int) -> int:
        draft = self.lowering.draft
        made = draft.nodes[node]
        axes = (self.axes.get(axis, axis) for axis in draft.node_axes(node))
        return draft.add(made.make, [self._made[self._source(arg)] for arg in made.args], axes)

    def _slice_of(self, node: int) -> int:
        """A slice of a node, or the node padded, by the primitive."""
        lowering, draft = self.lowering, self.lowering.draft
        axes = sorted(draft.node_axes(node))
        dtype = _dtype(lowering, node)
        aval = jax.ShapeDtypeStruct(tuple(map(draft.axes.size, axes)), dtype)

        def changed(array: jax.Array) -> jax.Array:
            for dimension, axis in enumerate(axes):
                if axis in self.cuts:
                    array = self.cuts[axis].of(array, dimension)
            return array

        closed = jax.make_jaxpr(changed)(aval)
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
