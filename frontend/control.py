"""Control flow: scan, while and cond become calls with bodies that are programs themselves.

A body's inputs bear the axes of the operands that feed them, so that loop and surroundings agree on names
as far as they can: an axis that passes through the body can then be split outside of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from eqsat.frontend.draft import DraftBody, DraftLayout, MakeOp, Resolver, View
from eqsat.frontend.handlers_elementwise import map_maker
from eqsat.frontend.naming import Made, build_names
from eqsat.frontend.registry import Views, handles
from eqsat.frontend.scan_groups import scan_groups
from eqsat.ir.axis import layout_axes
from eqsat.ir.control import Control, Scan, Switch, While, carried, sliced
from eqsat.ir.ops import Call, Opaque, Reduce

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering


@dataclass
class Enclosure:
    """A body that is being lowered.

    **Attributes:**

    - `operands`: the operands of the call. Captured values are added when the body uses them.
    - `inputs`: the nodes that stand for operands inside, with the operands.
    """

    operands: list[View]
    inputs: list[int] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)

    def given(self, lowering: Lowering, source: int, layout: DraftLayout, flat: bool = False) -> View:
        """The input of the body for an operand, or for a slice of it, of that layout."""
        view = lowering.body_input(layout, self.operands[source].dtype, flat)
        self.inputs.append(view.node)
        self.sources.append(source)
        return view

    def steady(self, lowering: Lowering, source: int) -> View:
        """The input of the body for a loop-invariant operand. Constants and indices stand for themselves.

        So does what is known of every index.
        """
        view = self.operands[source]
        if lowering.draft.is_index(view.node):
            return view
        known = lowering.known.inside(view, lambda table: self.captured(lowering, table))
        if known is not None:
            return known
        inside = self.given(lowering, source, compact(lowering, view), flat=True)
        return View(inside.node, view.layout, view.dtype)

    def captured(self, lowering: Lowering, view: View) -> View:
        """The input of the body for a captured value."""
        for place, operand in enumerate(self.operands):
            if operand.node == view.node and operand.layout == view.layout and place in self.sources:
                return View(self.inputs[self.sources.index(place)], view.layout, view.dtype)
        self.operands.append(view)
        return self.steady(lowering, len(self.operands) - 1)


def compact(lowering: Lowering, view: View) -> DraftLayout:
    """The axes of the layout, one by one, without those that the view is only broadcast along."""
    present = lowering.draft.node_axes(view.node)
    return tuple(axis for axis in lowering.draft.axes.atoms_of(view.layout) if axis in present)


def lower_body(
    lowering: Lowering,
    operands: list[View],
    control: Control,
    inside: Callable[[list[View]], Sequence[View]],
    sources: Sequence[int],
) -> DraftBody:
    """The body that gives what `inside` does, whose arguments are fed by the operands `sources`."""
    enclosure = Enclosure(operands)
    noted, claims = lowering.noted, len(lowering.claims)
    lowering.noted = []
    arguments = []
    for source in sources:
        layout = operands[source].layout
        if source in carried(control):
            arguments.append(enclosure.given(lowering, source, layout))
        elif source in sliced(control):
            arguments.append(enclosure.given(lowering, source, layout[1:]))
        else:
            arguments.append(enclosure.steady(lowering, source))
    lowering.enclosures.append(enclosure)
    try:
        results = inside(arguments)
        equal = build_names(lowering, lowering.noted, results)
    finally:
        lowering.enclosures.pop()
        lowering.noted = noted
    roots = [*(view.node for view in results), *(node for _, node in equal)]
    facts = tuple(lowering.facts(lowering.claims[claims:], roots))
    del lowering.claims[claims:]
    return DraftBody(tuple(enclosure.inputs), tuple(enclosure.sources), tuple(results), tuple(equal), facts)


def controlled(
    lowering: Lowering,
    equation: Any,
    operands: list[View],
    control: Control,
    bodies: tuple[DraftBody, ...],
    layouts: Sequence[DraftLayout],
) -> list[View]:
    """The results, of those layouts, of a call with bodies."""
    moving = {*carried(control), *sliced(control)}
    read = moving.union(*(body.sources for body in bodies)) | ({0} if isinstance(control, Switch) else set())
    operands = [
        view if place in read else lowering.constant(0, "int32") for place, view in enumerate(operands)
    ]
    nodes = [view.node for view in operands]
    arg_layouts = [
        view.layout if place in moving else compact(lowering, view) for place, view in enumerate(operands)
    ]
    dtypes = tuple(str(out.aval.dtype) for out in equation.outvars)
    number = lowering.draft.new_call()

    def make_call(axis_of: Resolver) -> Call:
        given = map(axis_of.layout, arg_layouts)
        return Call(
            number,
            equation.primitive,
            {},
            tuple(one if place in moving else layout_axes(one) for place, one in enumerate(given)),
            tuple(map(axis_of.layout, layouts)),
            dtypes,
            frozenset(),
            control=control,
        )

    views = []
    for result, entries in enumerate(layouts):
        axes = [axis for axis in entries if axis is not None]
        node = lowering.draft.add(_result_maker(make_call, result), nodes, axes, bodies)
        views.append(lowering.view(node, entries, dtypes[result]))
        lowering.made[node] = Made(equation.primitive.name, result, tuple(operands), views[-1])
    return views


def _result_maker(make_call: Any, result: int) -> MakeOp:
    return lambda axis_of: Opaque(make_call(axis_of), result)


def agree(lowering: Lowering, first: DraftLayout, second: DraftLayout) -> None:
    """Make the axes of two layouts of one shape the same where that may be."""
    for one, other in zip(first, second, strict=True):
        if one is not None and other is not None:
            lowering.draft.axes.unify(one, other)


def _known_outside(lowering: Lowering, operands: Sequence[View], layout: DraftLayout) -> DraftLayout:
    """A result's layout: the body's axes that operands have too, and new ones for the rest."""
    axes = lowering.draft.axes
    outside = set(axes.atoms_of(axis for view in operands for axis in view.layout))
    return tuple(
        axis if axis is None or outside.issuperset(axes.atoms(axis)) else axes.fresh(axes.size(axis))
        for axis in layout
    )


# The primitives.


@handles("scan")
def scan(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """A loop; one of a single iteration is that iteration."""
    params = equation.params
    constants, carries = scan_groups(equation)
    stop = constants + carries
    if params["length"] == 1:
        slices = [View(view.node, view.layout[1:], view.dtype) for view in operands[stop:]]
        results = lowering.inline(params["jaxpr"], [*operands[:stop], *slices])
        stacked = [View(view.node, (None, *view.layout), view.dtype) for view in results[carries:]]
        return [*results[:carries], *stacked]
    control = Scan(
        tuple(range(constants, stop)),
        tuple(range(stop, len(operands))),
        params["length"],
        params["reverse"],
        params["unroll"],
    )
    views = list(operands)
    inside = partial(lowering.inline, params["jaxpr"])
    body = lower_body(lowering, views, control, inside, range(len(operands)))
    for place, output in zip(control.carried, body.outputs[:carries], strict=True):
        agree(lowering, views[place].layout, output.layout)
    layouts = [views[place].layout for place in control.carried]
    for output in body.outputs[carries:]:
        (iterations,) = lowering.draft.fresh_layout((control.length,))
        layouts.append((iterations, *_known_outside(lowering, views, output.layout)))
    return controlled(lowering, equation, views, control, (body,), layouts)


@handles("while")
def while_loop(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """A loop. A batch of them goes on while any does, and those that are done stay as they are."""
    params = equation.params
    first, stop = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    control = While(tuple(range(stop, len(operands))))
    batch = params["cond_jaxpr"].jaxpr.outvars[0].aval.shape
    if batch and 0 in batch:
        return None
    views = list(operands)

    def unfinished(arguments: list[View]) -> list[View]:
        (predicate,) = lowering.inline(params["cond_jaxpr"], arguments)
        return [any_of(lowering, predicate)] if batch else [predicate]

    def iteration(arguments: list[View]) -> list[View]:
        carry = arguments[stop:]
        new = lowering.inline(params["body_jaxpr"], [*arguments[first:stop], *carry])
        if not batch:
            return new
        (predicate,) = lowering.inline(params["cond_jaxpr"], [*arguments[:first], *carry])
        return [
            lowering.elementwise(map_maker("select_n", old.dtype), (predicate, old, value), old.dtype)
            for old, value in zip(carry, new, strict=True)
        ]

    condition = lower_body(lowering, views, control, unfinished, [*range(first), *control.carried])
    body = lower_body(lowering, views, control, iteration, range(len(operands)))
    for place, output in zip(control.carried, body.outputs, strict=True):
        agree(lowering, views[place].layout, output.layout)
    layouts = [views[place].layout for place in control.carried]
    return controlled(lowering, equation, views, control, (condition, body), layouts)


def any_of(lowering: Lowering, view: View) -> View:
    """Whether any of an array of truth values is true."""
    axes = compact(lowering, view)
    if not axes:
        return View(view.node, (), view.dtype)

    def make(axis_of: Resolver) -> Reduce:
        return Reduce("or", axis_of.several(axis for axis in axes if axis is not None), view.dtype)

    return View(lowering.draft.add(make, [view.node], ()), (), view.dtype)


@handles("cond")
def cond(lowering: Lowering, equation: Any, operands: Views) -> Views | None:
    """A conditional; one whose branch is known is that branch."""
    branches = equation.params["branches"]
    index = lowering.known_index(operands[0].node)
    if index is not None:
        return lowering.inline(branches[min(max(int(index), 0), len(branches) - 1)], operands[1:])
    views = list(operands)
    control = Switch()
    sources = range(1, len(operands))
    bodies = tuple(
        lower_body(lowering, views, control, partial(lowering.inline, branch), sources) for branch in branches
    )
    layouts = []
    for outputs in zip(*(body.outputs for body in bodies), strict=True):
        for other in outputs[1:]:
            agree(lowering, outputs[0].layout, other.layout)
        layouts.append(_known_outside(lowering, views, outputs[0].layout))
    return controlled(lowering, equation, views, control, bodies, layouts)
