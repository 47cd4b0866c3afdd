"""The ops of the IR. An op holds everything static about a node; its operands are the term's args.

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
| Rename    | the same array, one axis under another name; costs nothing at run time          |
| Opaque    | any other JAX primitive, called on arrays of given layouts                  |
| Chunk     | `a` on the current chunk of n; the axis keeps its name, its length shrinks  |
| Concat    | run the body once per chunk of n, concatenate along n                       |
| Fold      | run the body once per chunk of n, combine with a monoid                     |
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
    """An input of a program; `layout` names the dimensions of the array passed in.

    Inputs of the function are numbered from 0, those of bodies from -1 downwards: no two are one term.
    """

    index: int
    layout: Layout
    dtype: str


@dataclass(frozen=True, slots=True)
class Const:
    """A scalar. `text` is its exact value as `repr` prints it, so that -0.0 and NaN keep their identity."""

    text: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Iota:
    """0, 1, ..., size-1 along `axis`."""

    axis: Axis
    dtype: str


@dataclass(frozen=True, slots=True)
class Delta:
    """Whether the index along `first` is that along `second`, two axes of one length. Its dtype is bool."""

    first: Axis
    second: Axis


@dataclass(frozen=True, slots=True)
class Map:
    """Elementwise function `name` (a JAX primitive's name) with static parameters.

    `dtype` is the result's. Conversions are the map `convert`; a power with a constant integer
    exponent is `integer_pow` with parameter `y`, except the second power, which is `square`.
    """

    name: str
    dtype: str
    params: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Reduce:
    """Reduction over `axes` (not empty) by `kind`: sum, prod, max, min, and, or, xor, mean."""

    kind: str
    axes: frozenset[Axis]
    dtype: str


@dataclass(frozen=True, slots=True)
class Dot:
    """Contraction of two operands over `axes` (not empty).

    `precision` is None or the repr of what `lax.dot_general` was given ("HIGHEST", ...).
    """

    axes: frozenset[Axis]
    dtype: str
    precision: str | None = None


@dataclass(frozen=True, slots=True)
class Select:
    """The best entries along `axis` and where they are, first wins.

    **Arguments:**

    - `kind`: "argmax", "argmin" (an index, no `out_axis`, `k` is 1) or "top_k".
    - `out_axis`: the axis of the k entries of a top_k; `None` when k is 1.
    - `result`: "values" or "indices"; argmax and argmin have only indices.
    """

    kind: str
    axis: Axis
    k: int
    out_axis: Axis | None
    result: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Rename:
    """The operand with its axis `old` called `new`. They have one length; `new` is not in the operand."""

    old: Axis
    new: Axis


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a JAX primitive on whole arrays, shared by the Opaque ops of its results.

    **Arguments:**

    - `primitive`: the JAX primitive object.
    - `params`: its parameters as in the jaxpr, compared by identity of the call.
    - `arg_layouts`, `out_layouts`: the dimensions it expects and returns. An axis of an argument's
      layout that the argument's term lacks is broadcast before the call.
    - `passing`: axes along which the call may be done by chunks: a slice of the operands that have
      it gives that slice of every result.
    - `accumulates`: axes along which it may be done a chunk at a time, each into the result of the one
      before, in place of the first operand: those of a scatter's updates. The only result has none of them.
    - `sums`: axes of operands over which the results are sums: those of chunks add up to those of the whole.
      Results of control flow that have such an axis are sliced along it, as along one that passes.
    - `control`, `bodies`: of control flow, what kind it is and the programs inside, which are what it means.
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

    @property
    def cut(self) -> frozenset[Axis]:
        """The axes of which it may be given a chunk at a time, by itself."""
        return self.passing | self.sums

    @property
    def whole(self) -> frozenset[Axis]:
        """The axes that the call needs whole, or makes."""
        layouts = (*self.arg_layouts, *self.out_layouts)
        mentioned = frozenset(axis for layout in layouts for axis in layout_axes(layout))
        return mentioned - self.passing - self.accumulates - self.sums

    def renamed(self, names: Mapping[Axis, Axis]) -> Call:
        """The same call on axes of other names; those that are not in `names` keep theirs."""

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
        )


@dataclass(frozen=True, slots=True)
class Opaque:
    """Result number `result` of a primitive's `call`."""

    call: Call
    result: int


@dataclass(frozen=True, slots=True)
class Operation:
    """A named operation along its core `axes`, which are in the order of its signature.

    Every operand has the core axes that the signature gives it and no other ones of them. Along all
    other axes, the operation is done for each slice by itself.
    """

    spec: OperationSpec
    axes: tuple[Axis, ...]
    dtype: str

    def core(self, letters: tuple[str, ...]) -> tuple[Axis, ...]:
        """The axes that letters of the signature stand for."""
        found = dict(zip(self.spec.signature.axes, self.axes, strict=True))
        return tuple(found[letter] for letter in letters)


@dataclass(frozen=True, slots=True)
class Chunk:
    """The operand on the current chunk of `axis`."""

    axis: Axis


@dataclass(frozen=True, slots=True)
class Concat:
    """The body's values for all chunks of `axis`, laid side by side."""

    axis: Axis


@dataclass(frozen=True, slots=True)
class Fold:
    """The body's values for all chunks of `axis`, combined by `monoid`.

    A reduction's kind combines values of the body's own shape. A `Select` finds the best entries
    along `axis` of all chunks: its body still has the axis. A declared `Monoid` has an operand for
    each part of its state, which broadcast over each other. A call that accumulates along `axis` is
    done for each chunk of its operands, with what came of the chunks before as its first one.
    """

    axis: Axis
    monoid: str | Select | Monoid | Opaque


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
