"""From provisional axes to the axes of a program, and from nodes to terms.

An axis may have been split after a node was made that has it. Most ops don't mind: a sum over it is one
over its parts. Those that need it whole refuse it, and the reshapes that split it have to stay calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from jax import lax

from eqsat.frontend.coalesce import AxisClasses
from eqsat.ir.axis import Axis, Dimension, Layout, as_dimension, layout_shape
from eqsat.ir.dtypes import is_inexact
from eqsat.ir.ops import Call, Const, Iota, Map, Op, Opaque, Rename
from eqsat.ir.term import Term, Terms

DraftLayout = tuple[int | None, ...]
"""The provisional axis that each dimension is, perhaps one with parts; `None`: its length is 1."""


class Divided(Exception):
    """An axis is needed whole, but has parts because of the reshapes `causes`."""

    def __init__(self, causes: frozenset[int]) -> None:
        super().__init__(causes)
        self.causes = causes


class Resolver:
    """Maps provisional axes to final ones.

    **Arguments:**

    - `renumber`: whether the axes are final. If not, they keep their numbers, and may be resolved again.

    **Attributes:**

    - `refused`: whether an axis with parts was requested as one axis.
    - `causes`: the reshapes that split it.
    """

    def __init__(self, axes: AxisClasses, renumber: bool = True) -> None:
        self._axes = axes
        self._renumber = renumber
        self._made: dict[int, Axis] = {}
        self.refused = False
        self.causes: frozenset[int] = frozenset()

    def __call__(self, axis: int) -> Axis:
        """The final axis of a provisional one, for a request of the whole axis."""
        atoms = self._axes.atoms(axis)
        if len(atoms) > 1:
            self.refused = True
            self.causes |= self._axes.causes(axis)
            return Axis(self._axes.find(axis), self._axes.size(axis))
        return self._atom(atoms[0])

    def _atom(self, atom: int) -> Axis:
        if not self._renumber:
            return Axis(atom, self._axes.size(atom))
        if atom not in self._made:
            self._made[atom] = Axis(len(self._made), self._axes.size(atom))
        return self._made[atom]

    def parts(self, axis: int) -> tuple[Axis, ...]:
        """The axes that a provisional one is made of, the slowest first."""
        return tuple(map(self._atom, self._axes.atoms(axis)))

    def several(self, axes: Iterable[int]) -> frozenset[Axis]:
        """The axes that provisional ones are made of."""
        return frozenset(part for axis in axes for part in self.parts(axis))

    def dimension(self, axis: int | None) -> Dimension:
        return None if axis is None else as_dimension(self.parts(axis))

    def layout(self, layout: DraftLayout) -> Layout:
        return tuple(map(self.dimension, layout))


MakeOp = Callable[[Resolver], Op]
"""How to make a node's op once the axes are known."""


@dataclass(frozen=True, slots=True)
class MakeRename:
    """A renaming; of an axis that has parts it is one for each of them."""

    old: int
    new: int

    def __call__(self, resolver: Resolver) -> Rename:
        return Rename(resolver(self.old), resolver(self.new))

    def term(self, terms: Terms, resolver: Resolver, args: Sequence[Term]) -> Term:
        (term,) = args
        for old, new in zip(resolver.parts(self.old), resolver.parts(self.new), strict=True):
            term = terms.make(Rename(old, new), [term])
        return term


@dataclass(frozen=True, slots=True)
class MakeIota:
    """The index along an axis; along one that has parts, it is computed from the indices along those."""

    axis: int
    dtype: str

    def __call__(self, resolver: Resolver) -> Iota:
        return Iota(resolver(self.axis), self.dtype)

    def term(self, terms: Terms, resolver: Resolver, args: Sequence[Term]) -> Term:
        """i * 12 + j * 4 + k, for parts of which the last two have lengths 3 and 4."""
        first, *rest = resolver.parts(self.axis)
        index = terms.make(Iota(first, self.dtype))
        for part in rest:
            stride = repr(float(part.size)) if is_inexact(self.dtype) else str(part.size)
            step = terms.make(Const(stride, self.dtype))
            index = terms.make(Map("mul", self.dtype), [index, step])
            index = terms.make(Map("add", self.dtype), [index, terms.make(Iota(part, self.dtype))])
        return index


@dataclass(frozen=True, slots=True)
class MakeReshape:
    """A call that gives an axis other parts.

    **Attributes:**

    - `number`: of the call.
    - `batch`: all other axes of the operand.
    - `before`, `after`: the axis with the parts that it has, and with those that it gets.
    """

    number: int
    batch: tuple[int, ...]
    before: int
    after: int

    def __call__(self, resolver: Resolver) -> Op:
        return self.op(resolver, "")

    def term(self, terms: Terms, resolver: Resolver, args: Sequence[Term]) -> Term:
        return terms.make(self.op(resolver, args[0].dtype), args)

    def op(self, resolver: Resolver, dtype: str) -> Opaque:
        """The call for an operand of that dtype."""
        before, after = (resolver.layout((*self.batch, axis)) for axis in (self.before, self.after))
        call = Call(
            self.number,
            lax.reshape_p,
            {"new_sizes": layout_shape(after), "dimensions": None, "sharding": None},
            (before,),
            (after,),
            (dtype,),
            resolver.several(self.batch),
        )
        return Opaque(call, 0)


def make_term(make: MakeOp, terms: Terms, resolver: Resolver, args: Sequence[Term]) -> Term:
    """The term of a node."""
    if isinstance(make, MakeRename | MakeIota | MakeReshape):
        return make.term(terms, resolver, args)
    return terms.make(make(resolver), args)
