"""A program under construction: nodes over provisional axes, views of them, and their alignment."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat.frontend.coalesce import AxisClasses
from eqsat.ir.axis import Axis, Layout
from eqsat.ir.control import Body
from eqsat.ir.control_axes import with_bodies
from eqsat.ir.ops import Op, Opaque, Rename
from eqsat.ir.program import KnownFact, Output, Program
from eqsat.ir.term import Term, Terms

Resolve = Callable[[int], Axis]
"""From a provisional axis to the axis it became."""

MakeOp = Callable[[Resolve], Op]

DraftLayout = tuple[int | None, ...]


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


class Draft:
    """The nodes made so far, in order, and the classes of their axes."""

    def __init__(self) -> None:
        self.axes = AxisClasses()
        self.nodes: list[Node] = []
        self._renamed: dict[int, None] = {}
        self._numbers: dict[Hashable, int] = {}

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

    def _so_far(self, axis: int) -> Axis:
        """What an axis is called so far."""
        root = self.axes.find(axis)
        return Axis(root, self.axes.size(root))

    def node_axes(self, node: int) -> frozenset[int]:
        """The node's schema, as representatives."""
        return frozenset(self.axes.find(axis) for axis in self.nodes[node].axes)

    def op(self, node: int) -> Op:
        """The node's op, its axes numbered as they are so far."""
        return self.nodes[node].make(self._so_far)

    def needed(self, roots: Iterable[int]) -> set[int]:
        """The given nodes and all that they need."""
        needed: set[int] = set()
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
            self.axes.find(old): self.axes.find(new)
            for old, new in mapping.items()
            if self.axes.find(old) in present and not self.axes.same(old, new)
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
            node = self.add(_rename_maker(old, new), [node], present)
            self._renamed.update({old: None, new: None})
            self.axes.keep_apart(present)
            if not self.axes.same(old, new):
                self.axes.keep_apart((old, new))
        return node

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
        taken = {self.axes.find(axis) for axis in apart_from}
        targets: dict[Hashable, int] = {}
        renames: list[dict[int, int]] = [{} for _ in operands]
        labels = dict.fromkeys(label for _, by_label in operands for label in by_label)
        schemas = [self.node_axes(node) for node, _ in operands]
        for label in labels:
            held = [
                (index, by_label[label]) for index, (_, by_label) in enumerate(operands) if label in by_label
            ]
            # An axis that a node really has is a better name than one that is only broadcast.
            held.sort(key=lambda entry: self.axes.find(entry[1]) not in schemas[entry[0]])
            target = next((axis for _, axis in held if self.axes.find(axis) not in taken), None)
            if target is None:
                target = self.axes.fresh(self.axes.size(held[0][1]))
            for index, axis in held:
                free = self.axes.find(axis) not in taken
                if not (free and self.axes.unify(axis, target)):
                    renames[index][axis] = target
            # Two targets are never to become one: they stand in one schema.
            for other in taken:
                self.axes.keep_apart((target, other))
            taken = {self.axes.find(axis) for axis in taken} | {self.axes.find(target)}
            targets[label] = target
        nodes = [
            self.rename(node, mapping) if mapping else node
            for (node, _), mapping in zip(operands, renames, strict=True)
        ]
        return targets, nodes

    def share_names(self) -> None:
        """Make axes one, as far as that may be, between which renamings lead.

        Every renaming brings a name or two of its own. The fewer there are, the more terms are one term,
        and the fewer ways rules have of naming the axes of any other.
        """
        kept: list[int] = []
        for axis in self._renamed:
            if not any(self.axes.unify(axis, other) for other in kept):
                kept.append(axis)

    def resolve(
        self, roots: Iterable[int], origins: dict[int, str]
    ) -> tuple[Terms, dict[int, Term], Callable[[DraftLayout], Layout]]:
        """The terms of the given nodes and all they need, and how layouts translate.

        **Arguments:**

        - `origins`: what bodies take for the origins of their terms.
        """
        self.share_names()
        made: dict[int, Axis] = {}

        def axis_of(provisional: int) -> Axis:
            root = self.axes.find(provisional)
            if root not in made:
                made[root] = Axis(len(made), self.axes.size(root))
            return made[root]

        def layout_of(layout: DraftLayout) -> Layout:
            return tuple(None if axis is None else axis_of(axis) for axis in layout)

        terms = Terms()
        term_of: dict[int, Term] = {}
        bodies: dict[DraftBody, Body] = {}

        def body_of(body: DraftBody) -> Body:
            if body not in bodies:
                outputs = tuple(Output(term_of[view.node], layout_of(view.layout)) for view in body.outputs)
                equal = [(term_of[one], term_of[other]) for one, other in body.equal if one in term_of]
                facts = [
                    KnownFact(
                        name, term_of[node], tuple(axis for axis in layout_of(axes) if axis is not None)
                    )
                    for name, node, axes in body.facts
                    if node in term_of
                ]
                inputs = tuple(term_of[node] for node in body.inputs)
                program = Program(inputs, outputs, terms, origins, tuple(equal), tuple(facts))
                bodies[body] = Body(program, body.sources)
            return bodies[body]

        for number in sorted(self.needed(roots)):
            draft = self.nodes[number]
            op, args = draft.make(axis_of), [term_of[arg] for arg in draft.args]
            if draft.bodies:
                assert isinstance(op, Opaque)
                op = Opaque(with_bodies(op.call, [body_of(body) for body in draft.bodies], args), op.result)
            term_of[number] = terms.make(op, args)
        return terms, term_of, layout_of


def _rename_maker(old: int, new: int) -> MakeOp:
    return lambda axis_of: Rename(axis_of(old), axis_of(new))
