"""Slices of a call along an axis that passes through it, as a call of its own, on slices of its operands.

    gather(table, indices)[i]  =  gather(table, indices[i])

What the parameters of the call say of the lengths of the axis's dimensions is changed. A primitive whose
parameters say more of them has no such slices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import jax

from eqsat.ir.axis import Axis, Layout, as_dimension, layout_shape, parts
from eqsat.ir.dtypes import is_extended, numpy_dtype
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.substitution import substituted
from eqsat.ir.term import Term, Terms

OF_OPERAND = {"slice": "limit_indices", "dynamic_slice": "slice_sizes", "gather": "slice_sizes"}
"""By primitive: the parameter that has the lengths of those dimensions of the first operand that it keeps."""


def sliced_call(call: Call, axis: Axis, dtypes: Sequence[str], other: Axis | None = None) -> Call | None:
    """The call on slices of its operands along an axis, with its number; None if it has no slices.

    **Arguments:**

    - `dtypes`: those of the operands.
    - `other`: the axis of the slices, which may have any length. None if each is a single entry: then the
      dimensions of the axis have length 1.
    """
    if axis not in call.passing or axis in call.ordered:
        return None
    return _with_axis(call, axis, dtypes, other)


def partial_call(call: Call, axis: Axis, dtypes: Sequence[str]) -> Call | None:
    """The call on one slice of the operands that it accumulates along an axis; None if there is none."""
    return _with_axis(call, axis, dtypes, None) if axis in call.accumulates else None


def _with_axis(call: Call, axis: Axis, dtypes: Sequence[str], other: Axis | None) -> Call | None:
    """The call on operands with another axis, or none, in place of one; None if it does not take them."""
    if call.bodies or any(map(is_extended, (*dtypes, *call.out_dtypes))):
        return None
    arguments = tuple(_replaced(layout, axis, other) for layout in call.arg_layouts)
    results = tuple(_replaced(layout, axis, other) for layout in call.out_layouts)
    params = dict(call.params)
    name = OF_OPERAND.get(call.primitive.name)
    if name is not None:
        before, after = layout_shape(call.arg_layouts[0]), layout_shape(arguments[0])
        params[name] = tuple(
            length if value == whole else value
            for value, whole, length in zip(params[name], before, after, strict=True)
        )
    made = replace(
        call,
        params=params,
        arg_layouts=arguments,
        out_layouts=results,
        passing=_renamed(call.passing, axis, other),
        accumulates=_renamed(call.accumulates, axis, other),
        sums=_renamed(call.sums, axis, other),
    )
    return made if _shapes(made, dtypes) == [layout_shape(layout) for layout in results] else None


def _renamed(axes: frozenset[Axis], axis: Axis, other: Axis | None) -> frozenset[Axis]:
    return (axes - {axis}) | frozenset(parts(other)) if axis in axes else axes


def has_slices(term: Term, axis: Axis) -> bool:
    """Whether a term is a result of a call that has slices along an axis."""
    dtypes = [arg.dtype for arg in term.args]
    return isinstance(term.op, Opaque) and sliced_call(term.op.call, axis, dtypes) is not None


@dataclass
class SlicedTerms:
    """Terms on slices of their operands.

    **Attributes:**

    - `numbered`: returns a call that was made of another one with a number of its own.
    """

    terms: Terms
    numbered: Callable[[Call, Call], Call]
    _made: dict[tuple[Call, Axis, Axis | None, tuple[Term, ...]], Call] = field(default_factory=dict)

    def of(self, term: Term, axis: Axis, args: Sequence[Term], other: Axis | None = None) -> Term:
        """A term of which there are slices along an axis, on slices of its operands.

        **Arguments:**

        - `other`: the axis of the slices; None if each is a single entry.
        """
        if not isinstance(term.op, Opaque):
            return self.terms.make(term.op, args)
        key = term.op.call, axis, other, tuple(args)
        if key not in self._made:
            sliced = sliced_call(term.op.call, axis, [arg.dtype for arg in args], other)
            assert sliced is not None
            self._made[key] = self.numbered(sliced, term.op.call)
        return self.terms.make(Opaque(self._made[key], term.op.result), args)

    def moved(self, roots: Sequence[Term], known: Mapping[int, Term], axis: Axis, other: Axis) -> list[Term]:
        """Terms along another axis, given what some of them are along it.

        **Arguments:**

        - `known`: what is along `other`, by the numbers of the terms along `axis` that it replaces.
        """

        def made(term: Term, args: Sequence[Term]) -> Term:
            if axis not in term.axes or tuple(args) == term.args:
                # What an earlier pass gives may be computed from other slices along this axis.
                return self.terms.make(term.op, args)
            return self.of(term, axis, args, other)

        return substituted(self.terms, roots, known, made)


def _replaced(layout: Layout, axis: Axis, other: Axis | None) -> Layout:
    """A layout with another axis, or none, in place of one."""
    kept = [[parts(other) if part == axis else (part,) for part in parts(d)] for d in layout]
    return tuple(as_dimension(chain(*dimension)) for dimension in kept)


def _shapes(call: Call, dtypes: Sequence[str]) -> list[tuple[int, ...]] | None:
    """The shapes of what a primitive gives for operands of a call's shapes; None if it does not take them."""
    operands = [
        jax.ShapeDtypeStruct(layout_shape(layout), numpy_dtype(dtype))
        for layout, dtype in zip(call.arg_layouts, dtypes, strict=True)
    ]

    def bound(*arrays: Any) -> Any:
        return call.primitive.bind(*arrays, **call.primitive.get_bind_params(dict(call.params)))

    try:
        with jax.enable_x64(True):
            results = jax.eval_shape(bound, *operands)
    except Exception:  # whatever a primitive raises for shapes that it does not take
        return None
    found = results if call.primitive.multiple_results else [results]
    return [tuple(result.shape) for result in found]
