"""The interpreter: one pass over a jaxpr, equation by equation, into a draft of named-axis nodes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Literal
from jax.sharding import NamedSharding

# Imported for what they register.
from eqsat.frontend import handlers as handlers
from eqsat.frontend import names_arrays as names_arrays
from eqsat.frontend import names_batches as names_batches
from eqsat.frontend import names_entries as names_entries
from eqsat.frontend import names_factors as names_factors
from eqsat.frontend import names_known_scatters as names_known_scatters
from eqsat.frontend import names_linalg as names_linalg
from eqsat.frontend import names_picks as names_picks
from eqsat.frontend import names_scatters as names_scatters
from eqsat.frontend import names_slices as names_slices
from eqsat.frontend import names_updates as names_updates
from eqsat.frontend.broadcast_calls import called_once
from eqsat.frontend.canonical import Recogniser
from eqsat.frontend.control import Enclosure
from eqsat.frontend.draft import Draft, DraftLayout, MakeOp, View
from eqsat.frontend.foreign import inline_foreign
from eqsat.frontend.handlers_layouts import is_empty, without_entries
from eqsat.frontend.known import Known
from eqsat.frontend.names_ranks import Order
from eqsat.frontend.naming import Claim, Made, OperationName, build_names, with_whole_axis
from eqsat.frontend.opaque_calls import opaque_call
from eqsat.frontend.placements import Constraint
from eqsat.frontend.registry import HANDLERS, NAMERS
from eqsat.frontend.resolve import Divided, Resolver
from eqsat.frontend.source import place_of
from eqsat.frontend.tile_scopes import TileScopes
from eqsat.frontend.value_numbering import Numbering
from eqsat.ir.axis import layout_axes
from eqsat.ir.constants import constant_text, constant_value
from eqsat.ir.dtypes import is_extended, numpy_dtype
from eqsat.ir.numpy_functions import OWN, apply
from eqsat.ir.ops import Const, Leaf, Map
from eqsat.ir.program import KnownFact, Output, Program
from eqsat.support.records import Place

HOST = frozenset({"cpu"})
"""The names of the platform that programs are for unless another one is named."""

MOST_STEPS = 16
"""In so many steps at most, an index is computed of constants."""


class Lowering:
    """Turns one jaxpr into one `Program`.

    **Attributes:**

    - `made`: of calls, and what namers note, by node: where it comes from.
    - `claims`: what the user says of values.
    - `constrained`: values with constraints on where they lie, and these, with where they are written.
    - `remade`: slices, pads and scatters in the form that gives any chunk of them.
    - `sorts`: sorted arrays whose entries can be found without sorting, by node.
    - `recogniser`: which calls are which operations.
    - `enclosures`: the bodies of control flow that are being lowered, outermost first.
    - `reshapes`: whether reshapes may change layouts only, but for those whose ids are in `calls`.
    - `platforms`: the names of the platform that the program is for.
    - `streamed`: whether arguments are read from files, in each pass over them.
    """

    def __init__(
        self,
        calls: frozenset[int] = frozenset(),
        reshapes: bool = True,
        platforms: frozenset[str] = HOST,
        streamed: bool = False,
    ) -> None:
        self.calls = calls
        self.streamed = streamed
        self.platforms = platforms
        self.reshapes = reshapes
        self.draft = Draft()
        self.made: dict[int, Made] = {}
        self.claims: list[Claim] = []
        self.constrained: list[tuple[View, NamedSharding, Place | None]] = []
        self.constraints: list[Constraint] = []
        self.sorts: dict[int, Order] = {}
        self.remade: dict[int, int] = {}
        self.recogniser = Recogniser()
        self.known = Known(self)
        self.enclosures: list[Enclosure] = []
        self.noted: list[OperationName] = []
        self._naming = True
        self._origin: Place | None = None
        self._origins: dict[int, Place] = {}
        self._numbering = Numbering()
        self._calls_made: dict[Hashable, list[View]] = {}
        self._hoisted: list[tuple[Any, View]] = []
        self._tiles = TileScopes(self)
        self._inputs = 0
        self._places: dict[int, int] = {}
        self._body_inputs = 0

    # What handlers build with.

    def view(self, node: int, layout: Iterable[int | None], dtype: Any) -> View:
        """A view whose layout's axes are kept apart from now on."""
        entries: DraftLayout = tuple(layout)
        self.draft.axes.keep_apart(axis for axis in entries if axis is not None)
        return View(node, entries, str(dtype))

    def shape(self, view: View) -> tuple[int, ...]:
        return tuple(1 if axis is None else self.draft.axes.size(axis) for axis in view.layout)

    def constant(self, value: Any, dtype: Any) -> View:
        """A scalar constant of that dtype."""
        name = str(dtype)
        with np.errstate(all="ignore"):  # too large a number is infinite, and that is all
            text = constant_text(np.asarray(value).astype(numpy_dtype(name)))
        return View(self.draft.add(lambda _: Const(text, name), (), ()), (), name)

    def constant_value(self, view: View) -> Any | None:
        """The scalar that the view's node is, or None if it is no constant."""
        node = self.draft.nodes[view.node]
        if node.args or node.axes:
            return None
        op = self.draft.op(view.node)
        return constant_value(op) if isinstance(op, Const) else None

    def known_index(self, node: int, depth: int = MOST_STEPS) -> Any | None:
        """The integer or truth value that a node is, if it is computed from constants alone; else None."""
        found, op = self.draft.nodes[node], self.draft.op(node)
        if found.axes or not depth or not isinstance(op, (Const, Map)) or is_extended(op.dtype):
            return None
        if isinstance(op, Const):
            return np.asarray(constant_value(op)).astype(numpy_dtype(op.dtype))
        if numpy_dtype(op.dtype).kind not in "iub":
            return None  # A float may be rounded otherwise.
        known = [self.known_index(arg, depth - 1) for arg in found.args]
        operands = [operand for operand in known if operand is not None]
        if len(operands) < len(known):
            return None
        return apply(op.name, op.dtype, operands, dict(op.params), OWN)

    def has_axis(self, view: View, axis: int | None) -> bool:
        """Whether the view's node really varies along that axis of its layout, or along a part of it."""
        return self.draft.has_axis(view.node, axis)

    def elementwise(self, make: MakeOp, operands: Sequence[View], dtype: Any) -> View:
        """An elementwise op of operands of one shape, or scalars."""
        rank = max(len(view.layout) for view in operands)
        targets, nodes = self.draft.align([(view.node, _by_dimension(view)) for view in operands])
        axes = frozenset[int]().union(*(self.draft.node_axes(node) for node in nodes))
        node = self.draft.add(make, nodes, axes)
        return self.view(node, (targets.get(dimension) for dimension in range(rank)), dtype)

    def name(
        self, equation: Any, body: View, build: Callable[[], View | None], unless: Sequence[View] = ()
    ) -> None:
        """Note that `body`, a result of `equation`, is the operation that `build` will make."""
        self.noted.append(OperationName(body, build, place_of(equation), tuple(unless)))

    def note_origin(self, first_new: int, origin: Place | None) -> None:
        """Say where the nodes from number `first_new` on come from, but for those that know it.

        Equations inside of others don't know that they are part of a gradient.
        """
        if origin is None:
            return
        for node in range(first_new, len(self.draft.nodes)):
            known = self._origins.setdefault(node, origin)
            if origin.gradient and not known.gradient:
                self._origins[node] = replace(known, gradient=True)

    # The pass itself.

    def program(self, closed: ClosedJaxpr) -> tuple[Program, list[Any]]:
        """The program of a closed jaxpr, and the constants hoisted to be its last inputs.

        **Raises:** `Divided` if some op needs an axis whole that a reshape has split.
        """
        arguments = [self._input(aval.shape, str(aval.dtype)) for aval in closed.in_avals]
        results = [self.known.simplified(view) for view in self.inline(closed, arguments)]
        pairs = build_names(self, self.noted, results)
        needed = [view.node for view in (*arguments, *results)] + [node for _, node in pairs]
        hoisted = self._needed_constants(needed, len(arguments))
        inputs = [*arguments, *(view for _, view in hoisted)]
        roots = [*needed, *(view.node for view in inputs)]
        claimed = list(self.facts(self.claims, roots))
        terms, term_of, resolver = self.draft.resolve([*roots, *(node for _, node, _ in claimed)])
        if resolver.refused:
            raise Divided(resolver.causes)
        outputs = tuple(Output(term_of[view.node], resolver.layout(view.layout)) for view in results)
        equalities = [(term_of[body], term_of[name]) for body, name in pairs]
        facts = [
            KnownFact(name, term_of[node], layout_axes(resolver.layout(axes))) for name, node, axes in claimed
        ]
        terms.origins.update(
            (term_of[node].number, origin) for node, origin in self._origins.items() if node in term_of
        )
        self.constraints = [
            Constraint(resolver.layout(view.layout), sharding, place)
            for view, sharding, place in self.constrained
        ]
        program = Program(
            tuple(term_of[view.node] for view in inputs),
            outputs,
            terms,
            tuple(dict.fromkeys(pair for pair in equalities if pair[0] is not pair[1])),
            tuple(dict.fromkeys(facts)),
        )
        return program, [value for value, _ in hoisted]

    def _needed_constants(self, roots: Sequence[int], first: int) -> list[tuple[Any, View]]:
        """The hoisted constants that `roots` need. They are the inputs from number `first` on."""
        needed = self.draft.needed(roots)
        kept = [(value, view) for value, view in self._hoisted if view.node in needed]
        places = (self.draft.op(view.node) for _, view in kept)
        self._places = {op.index: place for place, op in enumerate(places, first) if isinstance(op, Leaf)}
        return kept

    def inline(
        self,
        closed: ClosedJaxpr,
        arguments: Sequence[View],
        named: bool = True,
        origin: Place | None = None,
    ) -> list[View]:
        """The views of a jaxpr's results, its equations added to the draft, and to the names if `named`.

        **Arguments:**

        - `origin`: where all of it comes from, if its equations do not know.
        """
        before = self._naming, self._origin
        self._naming, self._origin = self._naming and named, origin or self._origin
        try:
            return self._inline(closed, arguments)
        finally:
            self._naming, self._origin = before

    def _inline(self, closed: ClosedJaxpr, arguments: Sequence[View]) -> list[View]:
        jaxpr = closed.jaxpr
        views: dict[Any, View] = dict(zip(jaxpr.invars, arguments, strict=True))
        for var, value in zip(jaxpr.constvars, closed.consts, strict=True):
            views[var] = self._hoist(value, var.aval)

        def read(atom: Any) -> View:
            if isinstance(atom, Literal):
                aval: Any = atom.aval
                return self._hoist(atom.val, aval)
            return views[atom]

        with self._tiles.inside(jaxpr, views, self._naming):
            for equation in jaxpr.eqns:
                operands = self.known.before(equation, [read(atom) for atom in equation.invars])
                first_new = len(self.draft.nodes)
                self._tiles.at(equation)
                results = self._results(equation, operands)
                if first_new < len(self.draft.nodes):
                    self.note_origin(first_new, self._origin or place_of(equation))
                for namer in NAMERS.get(equation.primitive.name, ()) if self._naming else ():
                    namer(self, equation, operands, results)
                for var, view in zip(equation.outvars, results, strict=True):
                    views[var] = view
                    if self._naming:
                        self._tiles.name(equation, var, view)
        return [read(atom) for atom in jaxpr.outvars]

    def _results(self, equation: Any, operands: Sequence[View]) -> Sequence[View]:
        avals = [var.aval for var in equation.outvars]
        if avals and not equation.effects and all(map(is_empty, avals)):
            return [without_entries(self, aval) for aval in avals]
        handler = HANDLERS.get(equation.primitive.name, inline_foreign)
        results = called_once(self, equation, operands)
        if results is None:
            results = handler(self, equation, operands)
        return self._called(equation, operands) if results is None else results

    def facts(self, claims: Iterable[Claim], roots: Iterable[int]) -> Iterator[tuple[str, int, DraftLayout]]:
        """Of claims about what `roots` need: the property, the node, and the axes, if the node has them."""
        needed = self.draft.needed(roots)
        for claim in claims:
            view: View | None = claim.view if claim.view.node in needed else None
            for dimension in claim.dimensions:
                view = view and with_whole_axis(self.draft, view, dimension)
            if view is not None:
                yield claim.property, view.node, tuple(view.layout[d] for d in claim.dimensions)

    def _input(self, shape: tuple[int, ...], dtype: str) -> View:
        index = self._inputs
        self._inputs += 1
        return self._leaf(index, self.draft.fresh_layout(shape), dtype)

    def body_input(self, layout: DraftLayout, dtype: str, flat: bool = False) -> View:
        """An input of a body of control flow.

        **Arguments:**

        - `flat`: whether an axis that is split in the end has a dimension for each of its parts.
        """
        self._body_inputs += 1
        return self._leaf(-self._body_inputs, layout, dtype, flat)

    def _leaf(self, index: int, layout: DraftLayout, dtype: str, flat: bool = False) -> View:
        def make(axis_of: Resolver) -> Leaf:
            given = axis_of.layout(layout)
            return Leaf(self._places.get(index, index), layout_axes(given) if flat else given, dtype)

        node = self.draft.add(make, (), (axis for axis in layout if axis is not None))
        return View(node, layout, dtype)

    def _hoist(self, value: Any, aval: Any) -> View:
        """A constant array becomes an input; a constant scalar is written into the program."""
        if aval.shape == () and not is_extended(str(aval.dtype)):
            return self.constant(value, aval.dtype)
        return self.hoisted(value, aval.shape, str(aval.dtype))

    def hoisted(self, value: Any, shape: tuple[int, ...], dtype: str) -> View:
        """A constant array as an input of the program, and of the bodies that are being lowered."""
        view = next((view for seen, view in self._hoisted if seen is value), None)
        if view is None:
            view = self._input(shape, dtype)
            self._hoisted.append((value, view))
            self.known.captures(view.node, value)
        for enclosure in self.enclosures:
            view = enclosure.captured(self, view)
        return view

    def _called(self, equation: Any, operands: Sequence[View]) -> list[View]:
        """Any other primitive; one that is called alike twice is called once."""
        if equation.effects:
            return opaque_call(self, equation, operands)
        atoms = self.draft.axes.atoms
        given = tuple(
            (view.node, tuple(None if axis is None else atoms(axis) for axis in view.layout))
            for view in operands
        )
        key = (equation.primitive, self._numbering.parameter(equation.params), given)
        if key not in self._calls_made:
            self._calls_made[key] = opaque_call(self, equation, operands)
        return self._calls_made[key]


def _by_dimension(view: View) -> Mapping[Hashable, int]:
    return {dimension: axis for dimension, axis in enumerate(view.layout) if axis is not None}


def lower(
    closed: ClosedJaxpr,
    reshapes: bool = True,
    platforms: frozenset[str] = HOST,
    streamed: bool = False,
) -> tuple[Program, list[Any]]:
    """The program of a closed jaxpr, and the constant arrays that are its last inputs.

    **Arguments:**

    - `reshapes`: whether reshapes that merge or split axes may be changes of layouts, not calls.
    - `platforms`: the names of the platform that the program is for. They choose among the branches of
      `lax.platform_dependent`.
    - `streamed`: whether arguments are read from files, so that few passes over them are worth more work.
    """
    program, hoisted, _ = lower_placed(closed, reshapes, platforms, streamed)
    return program, hoisted


def lower_placed(
    closed: ClosedJaxpr,
    reshapes: bool = True,
    platforms: frozenset[str] = HOST,
    streamed: bool = False,
) -> tuple[Program, list[Any], list[Constraint]]:
    """The same, and the constraints on where values lie, which are not in the program."""
    calls: frozenset[int] = frozenset()
    while True:
        lowering = Lowering(calls, reshapes, platforms, streamed)
        try:
            program, hoisted = lowering.program(closed)
            return program, hoisted, lowering.constraints
        except Divided as error:
            # These reshapes are in the way of what rules, or selections, do with an axis as a whole.
            reshapes = bool(error.causes - calls)
            calls |= error.causes
