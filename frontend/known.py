"""Integers that are known when a program is planned, as expressions of the position.

`i, j = jnp.triu_indices(n, 1)` computes n (n - 1) / 2 indices from nothing, by way of cumulative sums and
scatters of n^2 entries, which cannot be had in chunks. What they are is evaluated here, and where it is a
sequence of few runs, an expression of the position takes its place. So does one of an index array that a
function captures. What is no such sequence becomes a captured array if it was computed, and stays one if it
was captured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from eqsat.frontend.draft import DraftLayout, View
from eqsat.frontend.evaluation import MOST_KEPT, Evaluation, TooLarge
from eqsat.frontend.registry import Views
from eqsat.frontend.resolve import Resolver, make_term
from eqsat.frontend.runs import Differences, Integers
from eqsat.frontend.sequences import Described, Table, described, function_of, tables_of
from eqsat.frontend.value_numbering import CALLS
from eqsat.ir.dtypes import is_extended, itemsize, numpy_dtype
from eqsat.ir.numpy_arrays import as_value
from eqsat.ir.ops import Const, Delta, Iota, Leaf, Map, Op, Opaque, Reduce, Rename
from eqsat.ir.term import Term, Terms

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

LEAST = 1 << 14
"""Entries. Smaller arrays are not worth the trouble."""

TABLES = 4
"""The tables of an expression take at most this share of the array's memory."""

MOST_CAPTURED = 1 << 25
"""Bytes of a computed array that is kept as it is."""

FLOATS = frozenset({"bfloat16", "float16", "float32", "float64"})
"""Dtypes of constants that may be compared and chosen among."""

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})

WHOLE = frozenset(
    {
        "concatenate", "cummax", "cummin", "cumprod", "cumsum", "dynamic_slice", "dynamic_update_slice",
        "gather", "pad", "rev", "reshape", "scatter", "scatter-add", "scatter-max", "scatter-min",
        "scatter-mul", "scatter-sub", "slice", "sort", "tile",
    }
)  # fmt: skip
"""Calls that are evaluated, of integers and truth values: what they give does not depend on the device."""

LAYOUTS = frozenset({"broadcast_in_dim", "copy", "expand_dims", "reshape", "squeeze", "transpose"})
"""Primitives after which an array is still to be used, if it was known before."""


@dataclass(frozen=True)
class Restated:
    """A node that an expression of the position has become.

    **Attributes:**

    - `axes`: the axes along which positions are counted, the slowest first.
    - `source`: a node of the same values, from which they can be evaluated.
    """

    sequence: Described
    axes: tuple[int, ...]
    dtype: str
    source: int | None = None


class Known:
    """What a lowering knows of its nodes."""

    def __init__(self, lowering: Lowering) -> None:
        self._lowering = lowering
        self._arrays: dict[int, Any] = {}
        self._known: list[bool] = []
        self._largest: list[int] = []
        self._found: dict[tuple[int, tuple[int, ...]], Described | Table | None] = {}
        self._restated: dict[int, Restated] = {}
        self._made: list[Table] = []
        self._terms = Terms()
        self._evaluation = Evaluation()

    def captures(self, node: int, value: Any) -> None:
        """Note what an array is that the function captures, if it can be read without much memory.

        NumPy's arrays are read in place, unless their dtype is another one.
        """
        made = self._lowering.draft.op(node)
        in_place = isinstance(value, np.ndarray) and isinstance(made, Leaf) and str(value.dtype) == made.dtype
        if in_place or (_is_here(value) and value.nbytes <= MOST_KEPT):
            self._arrays[node] = value

    def is_known(self, node: int) -> bool:
        """Whether a node is of integers or truth values, and of nothing that is given when it is run."""
        self._look()
        return self._known[node]

    def before(self, equation: Any, operands: Views) -> Views:
        """The operands of an equation: those that are known, and the result is not, in their new form."""
        if equation.primitive.name in CALLS or not any(self._is_large(view.node) for view in operands):
            return operands
        if self._stays_known(equation, operands):
            return operands
        return [self.simplified(view) for view in operands]

    def simplified(self, view: View) -> View:
        """A view of the same values: an expression of the position, a captured array, or the view itself."""
        if not self._is_large(view.node) or view.node in self._restated:
            return view
        draft = self._lowering.draft
        present = draft.node_axes(view.node)
        axes = tuple(axis for axis in draft.axes.atoms_of(view.layout) if axis in present)
        key = (view.node, axes)
        if key not in self._found:
            self._found[key] = self._sequence(view.node, axes, view.dtype)
        found = self._found[key]
        if found is None:
            return view
        if isinstance(found, np.ndarray):
            node = self._on(self._captured(found), axes).node
        else:
            node = self._expression(Restated(found, axes, view.dtype, view.node), lambda table: table)
        return View(node, view.layout, view.dtype)

    def integers(self, view: View) -> Integers | None:
        """The entries of a known view along its one dimension; None if that takes too much."""
        draft = self._lowering.draft
        (axis,) = view.layout
        axes = draft.axes.atoms(axis) if axis is not None else ()
        resolver = Resolver(draft.axes, renumber=False)
        order = [resolver(axis) for axis in axes]
        if not draft.node_axes(view.node).issuperset(axes):
            return None
        try:
            term = self._term(view.node, resolver)
            pieces = [] if term is None else list(self._evaluation.pieces(term, order))
        except TooLarge:
            return None
        return np.concatenate(pieces).astype(np.int64) if pieces else None

    def sequence(self, sequence: Described, shape: Sequence[int]) -> View:
        """A sequence as an array of int32 of that shape, in row-major order."""
        axes = tuple(self._lowering.draft.axes.fresh(size) for size in shape)
        self._lowering.draft.axes.keep_apart(axes)
        node = self._expression(Restated(sequence, axes, "int32"), lambda table: table)
        return View(node, axes, "int32")

    def inside(self, view: View, capture: Callable[[View], View]) -> View | None:
        """The same view in a body of control flow, if it is an expression of the position.

        **Arguments:**

        - `capture`: from a table outside of the body to the body's input for it.
        """
        restated = self._restated.get(view.node)
        if restated is None:
            return None
        node = self._expression(restated, capture)
        return View(node, view.layout, view.dtype)

    def _expression(self, restated: Restated, capture: Callable[[View], View]) -> int:
        lowering = self._lowering
        shape = tuple(map(lowering.draft.axes.size, restated.axes))
        tables = list(tables_of(restated.sequence))
        function = function_of(restated.sequence, shape, numpy_dtype(restated.dtype))
        avals = [jax.ShapeDtypeStruct(table.shape, table.dtype) for table in tables]
        views = [capture(self._captured(table)) for table in tables]
        (made,) = lowering.inline(jax.make_jaxpr(function)(*avals), views, named=False)
        node = self._on(made, restated.axes).node
        self._restated[node] = restated
        self._look()
        self._known[node] = self._known[node] or restated.source is not None
        return node

    def _on(self, view: View, axes: Sequence[int]) -> View:
        """The view with its axes made, or renamed to, the given ones. Reshapes may have split either."""
        draft = self._lowering.draft
        pairs = zip((axis for axis in view.layout if axis is not None), axes, strict=True)
        names = {own: wanted for own, wanted in pairs if not draft.axes.unify(own, wanted)}
        layout: DraftLayout = tuple(axes)
        return View(draft.rename(view.node, names), layout, view.dtype)

    # What is known.

    def _is_large(self, node: int) -> bool:
        """Whether a node is known, and takes more than elementwise functions of indices."""
        return self.is_known(node) and self._largest[node] >= LEAST

    def _stays_known(self, equation: Any, operands: Views) -> bool:
        """Whether all results of an equation will be known: then it is they that may be used."""
        name = equation.primitive.name
        if not all(self.is_known(view.node) for view in operands) or name in ("scan", "while", "cond"):
            return False
        if name == "concatenate" and self._puts_columns_together(equation):
            return False
        dtypes = [str(out.aval.dtype) for out in equation.outvars]
        return all(map(is_whole, dtypes)) or name in LAYOUTS | {"select_n"}

    @staticmethod
    def _puts_columns_together(equation: Any) -> bool:
        """Whether a concatenation makes rows of few indices: as a sequence, they are no runs."""
        dimension = equation.params["dimension"]
        shapes = [atom.aval.shape for atom in equation.invars]
        return dimension == len(shapes[0]) - 1 > 0 and all(shape[dimension] == 1 for shape in shapes)

    def _look(self) -> None:
        """Look at the nodes that were added since."""
        draft = self._lowering.draft
        for node in range(len(self._known), len(draft.nodes)):
            made = draft.nodes[node]
            known = not made.bodies and all(self._known[arg] for arg in made.args)
            largest = max((self._largest[arg] for arg in made.args), default=0)
            if known:
                op = draft.op(node)
                known = self._is_evaluated(node, op)
                if isinstance(op, Opaque | Leaf) and known:
                    around = (node, *made.args)
                    largest = max(largest, *(self._size(near) for near in around))
            self._known.append(known)
            self._largest.append(largest)

    def _size(self, node: int) -> int:
        """How many entries a node has."""
        axes = self._lowering.draft.node_axes(node)
        return math.prod(map(self._lowering.draft.axes.size, axes))

    def _is_evaluated(self, node: int, op: Op) -> bool:
        """Whether an op of known operands is evaluated. Floats are only compared, and chosen among."""
        match op:
            case Leaf(dtype=dtype):
                return node in self._arrays and is_whole(dtype)
            case Const(text=text, dtype=dtype):
                return is_whole(dtype) or (dtype in FLOATS and _is_normal(float(text)))
            case Iota(dtype=dtype) | Reduce(dtype=dtype):
                return is_whole(dtype)
            case Map(name="select_n"):
                return True
            case Map(name=name, dtype=dtype):
                args = self._lowering.draft.nodes[node].args
                exact = name in COMPARISONS or all(is_whole(self._dtype(arg)) for arg in args)
                return is_whole(dtype) and exact
            case Delta() | Rename():
                return True
            case Opaque(call=call):
                if len(call.out_dtypes) != 1 or not is_whole(call.out_dtypes[0]):
                    return False
                name = call.primitive.name
                ordered = name != "scatter" or call.params["unique_indices"]
                columns = name == "concatenate" and all(layout[-1] is None for layout in call.arg_layouts)
                return name in WHOLE and ordered and not columns
            case _:
                return False

    def _dtype(self, node: int) -> str:
        """The dtype of a known node."""
        draft = self._lowering.draft
        op = draft.op(node)
        while isinstance(op, Rename):
            (node,) = draft.nodes[node].args
            op = draft.op(node)
        match op:
            case Leaf(dtype=dtype) | Const(dtype=dtype) | Iota(dtype=dtype) | Map(dtype=dtype):
                return dtype
            case Reduce(dtype=dtype):
                return dtype
            case Opaque(call=call, result=result):
                return call.out_dtypes[result]
            case _:
                return "bool"

    # What it is.

    def _sequence(self, node: int, axes: Sequence[int], dtype: str) -> Described | Table | None:
        """A node as an expression of the position along axes, or as an array; None if it stays as it is.

        It stays so if it is larger than what calls give and captured arrays are: then it is elementwise.
        """
        resolver = Resolver(self._lowering.draft.axes, renumber=False)
        order = [resolver(axis) for axis in axes]
        count = math.prod(axis.size for axis in order)
        if not axes or count > self._largest[node] or not is_whole(dtype):
            return None
        try:
            term = self._term(node, resolver)
            if term is None:
                return None
            found = self._as_sequence(term, order) if count >= LEAST else None
            if found is None:
                return self._as_array(node, term, order, dtype)
        except TooLarge:
            return None
        tables = list(tables_of(found))
        fewer = sum(table.nbytes for table in tables) * TABLES <= count * itemsize(dtype)
        # To look in tables takes longer than to read an array that is there already.
        there = any(2 * self._size(leaf) >= count for leaf in self._needed(node, Leaf))
        if tables and (there or not fewer):
            return self._as_array(node, term, order, dtype)
        return found

    def _as_sequence(self, term: Term, order: Sequence[Any]) -> Described | None:
        differences = Differences()
        for piece in self._evaluation.pieces(term, order):
            if not differences.add(piece.astype(np.int64)):
                return None
        return described(differences)

    def _as_array(self, node: int, term: Term, order: Sequence[Any], dtype: str) -> Table | None:
        """The array, if calls are needed to compute it."""
        count = math.prod(axis.size for axis in order)
        if not self._needed(node, Opaque) or count * itemsize(dtype) > MOST_CAPTURED:
            return None
        pieces = list(self._evaluation.pieces(term, order))
        array = np.concatenate(pieces).reshape([axis.size for axis in order])
        return array.astype(numpy_dtype(dtype), copy=False)

    def _captured(self, array: Table) -> View:
        """An array as an input of the program: an equal one, if there is one."""
        for other in self._made:
            if other.dtype == array.dtype and np.array_equal(other, array):
                return self._lowering.hoisted(other, other.shape, str(other.dtype))
        self._made.append(array)
        return self._lowering.hoisted(array, array.shape, str(array.dtype))

    def _needed(self, node: int, kind: type[Leaf | Opaque]) -> list[int]:
        """The captured arrays, or the calls, among what a node is made of."""
        draft = self._lowering.draft
        return [need for need in draft.needed([node]) if isinstance(draft.op(need), kind)]

    def _term(self, node: int, resolver: Resolver) -> Term | None:
        """The term of a node; None if reshapes have split an axis that it needs whole."""
        draft = self._lowering.draft
        term_of: dict[int, Term] = {}
        sources = {made: each.source for made, each in self._restated.items() if each.source is not None}
        needed = draft.needed([node])
        needed |= draft.needed(source for made, source in sources.items() if made in needed)
        for number in sorted(needed):
            if number in sources:
                term_of[number] = term_of[sources[number]]
                continue
            made = draft.nodes[number]
            term = make_term(made.make, self._terms, resolver, [term_of[arg] for arg in made.args])
            term_of[number] = term
            if number in self._arrays and isinstance(term.op, Leaf):
                array = np.asarray(self._arrays[number]).astype(numpy_dtype(term.op.dtype), copy=False)
                self._evaluation.holds(term, as_value(array, term.op.layout, None))
        return None if resolver.refused else term_of[node]


def is_whole(dtype: str) -> bool:
    """Whether a dtype is one of integers, of at least a byte, or of truth values."""
    return not is_extended(dtype) and numpy_dtype(dtype).kind in "biu"


def _is_here(value: Any) -> bool:
    """Whether something is an array of values that this process has, not one that is yet to be computed."""
    if isinstance(value, jax.core.Tracer) or not isinstance(value, np.ndarray | jax.Array):
        return False
    return not is_extended(str(value.dtype)) and getattr(value, "is_fully_addressable", True) is True


def _is_normal(number: float) -> bool:
    """Whether a number is none that some devices take for 0."""
    return number == 0 or not abs(number) < 2.0**-14
