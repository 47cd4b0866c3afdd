"""The ops of the IR.

An op holds everything about a term that is static. The term's operands are its `args`.

| op        | meaning (a, b are terms, n an axis, K a set of axes)                        |
|-----------|-----------------------------------------------------------------------------|
| Leaf      | an input of the program                                                     |
| Const     | a scalar constant                                                           |
| Iota      | the index along an axis                                                     |
| Map       | an elementwise function of its operands, which broadcast over each other    |
| Reduce    | a reduction of `a` over K                                                   |
| Dot       | sum over K of a * b; K is in both operands, all other axes stay             |
| Select    | argmax, argmin or top-k along one axis: values or indices                   |
| Delta     | whether the indices along two axes are equal                                |
| Operation | a named operation along core axes, for each slice along all other axes      |
| Rename    | `a` with one axis under another name; costs nothing at run time             |
| Opaque    | any other JAX primitive, called on arrays of given layouts                  |
| Chunk     | `a` on the current chunk of n, which keeps its name but is shorter          |
| Concat    | runs the body once per chunk of n and concatenates the values along n       |
| Fold      | runs the body once per chunk of n and combines the values with a monoid     |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from eqsat.ir.axis import Axis, Layout, as_dimension, layout_axes, parts
from eqsat.ir.control import Body, Control
from eqsat.ir.formula import Monoid
from eqsat.ir.operations import OperationSpec


@dataclass(frozen=True, slots=True)
class Leaf:
    """An input of a program. `layout` gives the dimensions of the array that is passed in.

    Inputs of the function are numbered 0, 1, ..., and inputs of bodies -1, -2, .... So no two inputs are the
    same term.
    """

    index: int
    layout: Layout
    dtype: str


@dataclass(frozen=True, slots=True)
class Const:
    """A scalar constant. `text` is its exact value as `repr` prints it, which tells -0.0 from 0.0."""

    text: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Iota:
    """The indices 0, 1, ..., size-1 along `axis`."""

    axis: Axis
    dtype: str


@dataclass(frozen=True, slots=True)
class Delta:
    """Whether the index along `first` equals the index along `second`, as an array of bools.

    The two axes have the same length.
    """

    first: Axis
    second: Axis


@dataclass(frozen=True, slots=True)
class Map:
    """An elementwise function with static parameters. `name` is a key of `eqsat.ir.elementwise.ELEMENTWISE`.

    `dtype` is the dtype of the result. Conversions between dtypes are the function `convert`. A power with a
    constant integer exponent is `integer_pow` with the parameter `y`, and the second power is `square`.
    """

    name: str
    dtype: str
    params: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Reduce:
    """A reduction over `axes`, of which there is at least one.

    `kind` is sum, prod, max, min, and, or, xor or mean.
    """

    kind: str
    axes: frozenset[Axis]
    dtype: str


@dataclass(frozen=True, slots=True)
class Dot:
    """A contraction of two operands over `axes`, of which there is at least one.

    `precision` is None or the `repr` of the precision given to `lax.dot_general`.
    """

    axes: frozenset[Axis]
    dtype: str
    precision: str | None = None


@dataclass(frozen=True, slots=True)
class Select:
    """The best entries along `axis`, or their indices. Of equal entries, the first is the best.

    **Arguments:**

    - `kind`: "argmax", "argmin" or "top_k". For argmax and argmin, `k` is 1.
    - `out_axis`: the axis of the k entries in the result. It is None if k is 1.
    - `result`: "values" or "indices". An argmax or argmin has indices only.
    """

    kind: str
    axis: Axis
    k: int
    out_axis: Axis | None
    result: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Rename:
    """The operand with its axis `old` replaced by `new`.

    Both axes have the same length, and the operand does not have `new`.
    """

    old: Axis
    new: Axis


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a JAX primitive on arrays. The `Opaque` ops of all its results share it.

    **Arguments:**

    - `id`: the number that tells calls apart. Comparisons ignore `primitive` and `params`.
    - `primitive`: the JAX primitive object.
    - `params`: the primitive's parameters, as in the jaxpr.
    - `arg_layouts`, `out_layouts`: the layouts of the arguments and results. An argument is broadcast along
      the axes of its layout that its term lacks.
    - `out_dtypes`: the dtypes of the results.
    - `passing`: the axes that pass through the call. A slice of the operands along such an axis gives the
      same slice of every result, so the call can be evaluated in chunks.
    - `ordered`: those of them of which the chunks must be taken in order, with a state from one to the next.
      No axis of control flow is one, whatever its bodies are.
    - `accumulates`: the axes along which the call can be evaluated in chunks that accumulate, such as the
      axes of a scatter's updates. Each chunk takes the result of the one before as its first operand. The
      call has one result, which has none of these axes.
    - `sums`: the axes of operands that the results sum over. The results of chunks add up to the result of
      the whole. Results of control flow that have such an axis are sliced along it instead.
    - `control`, `bodies`: the kind of control flow, if the call is that, and the programs of its bodies.
    - `unread`: the results of control flow that nothing reads. An axis passes through whatever they are.
    """

    id: int
    primitive: Any = field(compare=False)
    params: Any = field(compare=False, repr=False)
    arg_layouts: tuple[Layout, ...]
    out_layouts: tuple[Layout, ...]
    out_dtypes: tuple[str, ...]
    passing: frozenset[Axis]
    accumulates: frozenset[Axis] = frozenset()
    sums: frozenset[Axis] = frozenset()
    control: Control | None = None
    bodies: tuple[Body, ...] = field(default=(), repr=False)
    unread: frozenset[int] = frozenset()
    ordered: frozenset[Axis] = frozenset()

    @property
    def cut(self) -> frozenset[Axis]:
        """The axes of which the call may be given one chunk at a time, independently of the other chunks."""
        return self.passing | self.sums

    @property
    def whole(self) -> frozenset[Axis]:
        """The axes of arguments and results along which the call cannot be evaluated in chunks."""
        layouts = (*self.arg_layouts, *self.out_layouts)
        mentioned = frozenset(axis for layout in layouts for axis in layout_axes(layout))
        return mentioned - self.passing - self.accumulates - self.sums

    def renamed(self, names: Mapping[Axis, Axis]) -> Call:
        """Returns the call with its axes replaced as `names` says. Axes that are not in `names` stay.

        The bodies keep their axes.
        """

        def layouts(old: tuple[Layout, ...]) -> tuple[Layout, ...]:
            return tuple(
                tuple(as_dimension(names.get(axis, axis) for axis in parts(d)) for d in layout)
                for layout in old
            )

        return replace(
            self,
            arg_layouts=layouts(self.arg_layouts),
            out_layouts=layouts(self.out_layouts),
            passing=frozenset(names.get(axis, axis) for axis in self.passing),
            accumulates=frozenset(names.get(axis, axis) for axis in self.accumulates),
            sums=frozenset(names.get(axis, axis) for axis in self.sums),
            ordered=frozenset(names.get(axis, axis) for axis in self.ordered),
        )


@dataclass(frozen=True, slots=True)
class Opaque:
    """The result number `result` of a call of a primitive."""

    call: Call
    result: int


@dataclass(frozen=True, slots=True)
class Operation:
    """A named operation along its core `axes`, which are in the order of its signature.

    Every operand has those core axes that the signature gives it, and none of the others. The operation is
    applied separately to each slice along all other axes.
    """

    spec: OperationSpec
    axes: tuple[Axis, ...]
    dtype: str

    def core(self, letters: tuple[str, ...]) -> tuple[Axis, ...]:
        """Returns the axes that letters of the signature stand for."""
        found = dict(zip(self.spec.signature.axes, self.axes, strict=True))
        return tuple(found[letter] for letter in letters)


@dataclass(frozen=True, slots=True)
class Chunk:
    """The operand on the current chunk of `axis`.

    An operand that lacks the axis stays as it is, but is read anew for each chunk, so that what is computed
    from it is computed inside the loop.
    """

    axis: Axis


@dataclass(frozen=True, slots=True)
class Concat:
    """The body's values for all chunks of `axis`, concatenated along it."""

    axis: Axis


@dataclass(frozen=True, slots=True)
class Fold:
    """The body's values for all chunks of `axis`, combined by `monoid`.

    - The name of a reduction combines the values elementwise. The body does not have the axis.
    - A `Select` finds the best entries along `axis` over all chunks. The body still has the axis.
    - A declared `Monoid` has one operand per part of its state. The operands broadcast over each other.
    - A call that accumulates along `axis` runs once per chunk of its operands. Its first operand is the
      result for the chunks before.
    - An `Operation` that folds (`OperationSpec.folds`) is applied to the rows of all chunks along `axis`, its
      first core axis. The body still has the axis.
    """

    axis: Axis
    monoid: str | Select | Monoid | Opaque | Operation


Op = (
    Leaf
    | Const
    | Iota
    | Delta
    | Map
    | Reduce
    | Dot
    | Select
    | Operation
    | Rename
    | Opaque
    | Chunk
    | Concat
    | Fold
)
