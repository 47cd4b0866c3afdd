"""A program under construction: nodes over provisional axes, views of them, and their alignment."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat.frontend.coalesce import AxisClasses, boundaries
from eqsat.frontend.resolve import DraftLayout, MakeIota, MakeOp, MakeRename, MakeReshape, Resolver, make_term
from eqsat.ir.axis import layout_axes
from eqsat.ir.control import Body
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.dtypes import is_inexact
from eqsat.ir.ops import Const, Map, Op, Opaque
from eqsat.ir.program import KnownFact, Output, Program
from eqsat.ir.term import Term, Terms

__all__ = ["Draft", "DraftLayout", "MakeOp", "Node", "Resolver", "View"]


INDEX_NODES = 8
"""How many nodes an index may be computed with to be computed again. `select_n(i < 0, i + n, i)` has six."""


@dataclass(frozen=True, slots=True)
class Node:
    """A term to be: how to make its op once the axes are known, and its schema so far.

    **Attributes:**

    - `bodies`: of a call of control flow, the programs inside.
    """

    make: MakeOp
    args: tuple[int, ...]
    axes: frozenset[int]
    bodies: tuple[DraftBody, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """An array as a node and a layout.

    An axis of the layout that the node lacks is broadcast; `None` is a dimension of length 1.
    """

    node: int
    layout: DraftLayout
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class DraftBody:
    """A body of control flow to be.

    **Attributes:**

    - `inputs`: the nodes that stand for what it is given, one for each of `sources`, operands of the call.
    - `equal`: pairs of nodes of equal values.
    - `facts`: a property of a node, along axes.
    """

    inputs: tuple[int, ...]
    sources: tuple[int, ...]
    outputs: tuple[View, ...]
    equal: tuple[tuple[int, int], ...]
    facts: tuple[tuple[str, int, DraftLayout], ...]

    @property
    def roots(self) -> Iterator[int]:
        """The nodes that have to be there for it."""
        yield from self.inputs
        yield from (view.node for view in self.outputs)
        yield from (node for _, node in self.equal)
        yield from (node for _, node, _ in self.facts)


class Draft:
    """The nodes made so far, in order, and the classes of their axes."""

    def __init__(self) -> None:
        self.axes = AxisClasses()
        self.nodes: list[Node] = []
        self._renamed: dict[int, None] = {}
        self._numbers: dict[Hashable, int] = {}
        self._wholes: dict[tuple[int, int], int] = {}
        self._calls = 0
        self._so_far = Resolver(self.axes, renumber=False)

    def fresh_layout(self, shape: Iterable[int]) -> DraftLayout:
        """A layout of new axes; dimensions of length 1 get none."""
        layout = tuple(None if size == 1 else self.axes.fresh(size) for size in shape)
        self.axes.keep_apart(axis for axis in layout if axis is not None)
        return layout

    def add(
        self, make: MakeOp, args: Sequence[int], axes: Iterable[int], bodies: tuple[DraftBody, ...] = ()
    ) -> int:
        """The number of a node: a new one, unless there is one already that is known to be the same."""
        node = Node(make, tuple(args), frozenset(axes), bodies)
        key = (make(self._so_far), node.args, bodies)
        if key not in self._numbers:
            self._numbers[key] = len(self.nodes)
            self.nodes.append(node)
        return self._numbers[key]

    def node_axes(self, node: int) -> frozenset[int]:
        """The node's schema: representatives of axes that have no parts."""
        return frozenset(self.axes.atoms_of(self.nodes[node].axes))

    def has_axis(self, node: int, axis: int | None) -> bool:
        """Whether the node varies along an axis, or along a part of it."""
        return axis is not None and not self.node_axes(node).isdisjoint(self.axes.atoms(axis))

    def counts_along(self, node: int, axis: int | None) -> bool:
        """Whether the node is the index along that very axis, all of it and nothing else: 0, 1, 2..."""
        make = self.nodes[node].make
        return axis is not None and isinstance(make, MakeIota) and self.axes.same(make.axis, axis)

    def is_index(self, node: int) -> bool:
        """Whether the node is a constant, an index, or a little integer arithmetic on them.

        Such a node is as well computed again as kept.
        """
        needed = {node}
        stack = [node]
        while stack:
            inner = stack.pop()
            if not isinstance(self.nodes[inner].make, MakeIota):
                op = self.op(inner)
                if not isinstance(op, Const) and not (isinstance(op, Map) and not is_inexact(op.dtype)):
                    return False
            new = [arg for arg in self.nodes[inner].args if arg not in needed]
            needed.update(new)
            stack += new
            if len(needed) > INDEX_NODES:
                return False
        return True

    def axes_without(self, node: int, gone: Iterable[int]) -> frozenset[int]:
        """The node's schema less the given axes."""
        return self.node_axes(node) - set(self.axes.atoms_of(gone))

    def op(self, node: int) -> Op:
        """The node's op, its axes numbered as they are so far."""
        return self.nodes[node].make(self._so_far)

    def new_call(self) -> int:
        """A number for a call of a primitive."""
        self._calls += 1
        return self._calls - 1

    def needed(self, roots: Iterable[int], known: set[int] | None = None) -> set[int]:
        """The given nodes and all that they need, added to those that are `known` with all that they need."""
        needed: set[int] = set() if known is None else known
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node not in needed:
                needed.add(node)
                stack.extend(self.nodes[node].args)
                stack.extend(root for body in self.nodes[node].bodies for root in body.roots)
        return needed

    def rename(self, node: int, mapping: Mapping[int, int]) -> int:
        """`node` with the axes of its schema renamed all at once.

        Single renames are put in an order in which no new name is taken; a cycle, as in a transposed
        sum `x + x.T`, goes through a spare axis.
        """
        present = self.node_axes(node)
        pending = {
            old: new
            for axis, target in mapping.items()
            for old, new in zip(self.axes.atoms(axis), self.axes.atoms(target), strict=True)
            if old in present and old != new
        }
        while pending:
            free = [old for old, new in pending.items() if new not in present]
            if free:
                old = free[0]
                new = pending.pop(old)
            else:
                old, target = next(iter(pending.items()))
                new = self.axes.fresh(self.axes.size(old))
                self.axes.keep_apart((new, *present))
                pending = {(new if key == old else key): value for key, value in pending.items()}
                pending[new] = target
            present = present - {old} | {new}
            node = self.add(MakeRename(old, new), [node], present)
            self._renamed.update({old: None, new: None})
            self.axes.keep_apart(present)
            if not self.axes.same(old, new):
                self.axes.keep_apart((old, new))
                self.axes.pair(old, new)
        return node

    def regrouped(self, layout: DraftLayout, shape: Sequence[int], cause: int) -> DraftLayout | None:
        """The layout of a reshape to `shape`, which has no zeros; None if there is none.

        **Arguments:**

        - `cause`: what to call the reshape, should somebody need one of its axes whole.
        """
        causes = frozenset({cause})
        axes = [axis for axis in layout if axis is not None]
        if not self.axes.split(axes, boundaries(shape), causes):
            return None
        atoms = iter(self.axes.atoms_of(axes))
        made: list[int | None] = []
        for size in shape:
            group: list[int] = []
            while math.prod(map(self.axes.size, group)) < size:
                group.append(next(atoms))
            made.append(self.axes.merged(group, causes) if group else None)
        return tuple(made)

    def align(
        self,
        operands: Sequence[tuple[int, Mapping[Hashable, int]]],
        apart_from: Iterable[int] = (),
    ) -> tuple[dict[Hashable, int], list[int]]:
        """Give every label one axis, the same in all operands that have it.

        **Arguments:**

        - `operands`: for each its node, and by label the axis it has there.
        - `apart_from`: axes that no label may get.

        **Returns:** the axis of each label, all different, and each operand's node, renamed where
        coalescing was refused.
        """
        nodes = [node for node, _ in operands]
        held = [dict(by_label) for _, by_label in operands]
        labels = list(dict.fromkeys(label for by_label in held for label in by_label))
        self._split_alike(nodes, held, labels)
        taken = set(self.axes.atoms_of(apart_from))
        targets: dict[Hashable, int] = {}
        renames: list[dict[int, int]] = [{} for _ in operands]
        for label in labels:
            schemas = [self.node_axes(node) for node in nodes]
            holders = self._holders(nodes, held, label)
            causes = self.axes.causes_of(axis for _, axis in holders)
            found: list[int] = []
            for place, size in enumerate(self.axes.sizes(holders[0][1])):
                row = [(index, self.axes.atoms(axis)[place]) for index, axis in holders]
                # An axis that a node really has is a better name than one that is only broadcast.
                row.sort(key=lambda entry: entry[1] not in schemas[entry[0]])
                target = next((atom for _, atom in row if atom not in taken), None)
                if target is None:
                    target = self.axes.fresh(size)
                for index, atom in row:
                    if not (self.axes.find(atom) not in taken and self.axes.unify(atom, target)):
                        renames[index][atom] = target
                # Two targets are never to become one: they stand in one schema.
                for other in taken:
                    self.axes.keep_apart((target, other))
                taken = {self.axes.find(axis) for axis in taken} | {self.axes.find(target)}
                found.append(target)
            targets[label] = self.axes.merged(found, causes)
        renamed = [
            self.rename(node, mapping) if mapping else node
            for node, mapping in zip(nodes, renames, strict=True)
        ]
        return targets, renamed

    def _holders(
        self, nodes: Sequence[int], held: Sequence[Mapping[Hashable, int]], label: Hashable
    ) -> list[tuple[int, int]]:
        """Which operands have a label, and as which axis: those that vary along it, or else all.

        What is only broadcast along it can be so along any other axis of that length; it is among them if
        its axis has parts of the same lengths.
        """
        every = [(index, by_label[label]) for index, by_label in enumerate(held) if label in by_label]
        schemas = {index: self.node_axes(nodes[index]) for index, _ in every}
        varying = [
            (index, axis) for index, axis in every if not schemas[index].isdisjoint(self.axes.atoms(axis))
        ]
        sizes = self.axes.sizes((varying or every)[0][1])
        return varying + [
            entry for entry in every if entry not in varying and self.axes.sizes(entry[1]) == sizes
        ]

    def _split_alike(
        self, nodes: list[int], held: Sequence[dict[Hashable, int]], labels: Sequence[Hashable]
    ) -> None:
        """Have every label's axes consist of parts of the same lengths, in all operands.

        Where that can't be, as (2, 3) and (3, 2) can't, an operand is reshaped: nodes and axes change.
        """
        changed = True
        while changed:
            changed = False
            for label in labels:
                holders = self._holders(nodes, held, label)
                if len({self.axes.sizes(axis) for _, axis in holders}) == 1:
                    continue
                changed = True
                if self.axes.split_alike([axis for _, axis in holders]):
                    continue
                _, model = min(holders, key=lambda entry: len(self.axes.atoms(entry[1])))
                for index, axis in holders:
                    if not self.axes.split_alike([model, axis]):
                        made = [self.axes.fresh(size) for size in self.axes.sizes(model)]
                        held[index][label] = self.axes.merged(made, self.axes.causes_of([model, axis]))
                        self.axes.keep_apart(held[index].values())
                        nodes[index] = self._reshaped(nodes[index], axis, held[index][label])

    def _reshaped(self, node: int, axis: int, made: int) -> int:
        """`node` with an axis that has other parts, by a call."""
        batch = tuple(sorted(self.node_axes(node) - set(self.axes.atoms(axis))))
        make = MakeReshape(self.new_call(), batch, axis, made)
        self.axes.keep_apart((*batch, made))
        return self.add(make, [node], (*batch, made))

    def whole(self, node: int, first: int, second: int) -> int:
        """The merged axis of two axes of a node: the same one for all nodes, if possible."""
        key = (self.axes.find(first), self.axes.find(second))
        known = self._wholes.get(key)
        if known is None or self.has_axis(node, known) or len(self.axes.atoms(known)) > 1:
            known = self._wholes[key] = self.axes.fresh(self.axes.size(first) * self.axes.size(second))
        return known

    def share_names(self) -> None:
        """Make axes one, as far as that may be, between which renamings lead.

        Every renaming brings a name or two of its own. The fewer there are, the more terms are one term,
        and the fewer ways rules have of naming the axes of any other.
        """
        kept: list[int] = []
        for axis in self.axes.atoms_of(self._renamed):
            if not any(self.axes.unify(axis, other) for other in kept):
                kept.append(axis)

    def resolve(self, roots: Iterable[int]) -> tuple[Terms, dict[int, Term], Resolver]:
        """The terms of the given nodes and all they need, and how axes and layouts translate."""
        self.share_names()
        resolver = Resolver(self.axes)
        terms = Terms()
        term_of: dict[int, Term] = {}
        bodies: dict[DraftBody, Body] = {}

        def body_of(body: DraftBody) -> Body:
            if body not in bodies:
                outputs = tuple(
                    Output(term_of[view.node], resolver.layout(view.layout)) for view in body.outputs
                )
                equal = [(term_of[one], term_of[other]) for one, other in body.equal if one in term_of]
                facts = [
                    KnownFact(name, term_of[node], layout_axes(resolver.layout(axes)))
                    for name, node, axes in body.facts
                ]
                inputs = tuple(term_of[node] for node in body.inputs)
                program = Program(inputs, outputs, terms, tuple(equal), tuple(facts))
                bodies[body] = Body(program, body.sources)
            return bodies[body]

        for number in sorted(self.needed(roots)):
            draft = self.nodes[number]
            args = [term_of[arg] for arg in draft.args]
            if draft.bodies:
                op = draft.make(resolver)
                assert isinstance(op, Opaque)
                op = Opaque(with_bodies(op.call, [body_of(body) for body in draft.bodies], args), op.result)
                term_of[number] = terms.make(op, args)
            else:
                term_of[number] = make_term(draft.make, terms, resolver, args)
        return terms, term_of, resolver
