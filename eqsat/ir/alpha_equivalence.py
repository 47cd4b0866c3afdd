"""Alpha-equivalence of terms: whether two terms are one expression, written twice.

An expression that is traced twice makes its calls twice, with other numbers, and each call makes axes of its
own for dimensions that no operand has. Two terms are alpha-equivalent if one becomes the other by renaming
the axes inside, one to one. Then they have the same value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from eqsat.ir.axis import NO_AXES, Axis, Layout, layout_axes
from eqsat.ir.ops import Call, Dot, Map, Opaque, Reduce, Rename
from eqsat.ir.term import Term


def alpha_equivalent(one: Term, other: Term) -> bool:
    """Returns whether two terms have the same value, since they only differ in the axes inside.

    Calls of control flow are equivalent only to themselves.
    """
    return _Renaming().matches(one, other)


class _Renaming:
    """A renaming of the axes of one term to those of another, one to one.

    **Attributes:**

    - `names`, `back`: the axes of the other term, by those of the first one, and the other way round.
    """

    def __init__(self) -> None:
        self.names: dict[Axis, Axis] = {}
        self.back: dict[Axis, Axis] = {}

    def matches(self, one: Term, other: Term) -> bool:
        """Whether there is a renaming with which the terms are the same. It keeps the axes of the first."""
        if not self._keeps(one.axes):
            return False
        found: dict[Term, Term] = {}
        ahead = [(one, other)]
        while ahead:
            first, second = ahead.pop()
            if found.setdefault(first, second) is not second:
                return False
            if first is second:
                if not self._keeps(first.axes):
                    return False
                continue
            if len(first.args) != len(second.args) or not self._binds(first, second):
                return False
            pairs = zip(first.args, second.args, strict=True)
            ahead += [pair for pair in pairs if found.get(pair[0]) is not pair[1]]
        return all(first is second or self._same(first, second) for first, second in found.items())

    def _binds(self, first: Term, second: Term) -> bool:
        """Note which axes of a call are which; false if that is not one to one."""
        if not isinstance(first.op, Opaque) or not isinstance(second.op, Opaque):
            return True
        layouts = zip(_layouts(first.op.call), _layouts(second.op.call), strict=False)
        return all(
            self._bind(axis, name)
            for before, after in layouts
            for axis, name in zip(layout_axes(before), layout_axes(after), strict=False)
        )

    def _keeps(self, axes: Iterable[Axis]) -> bool:
        return all(self._bind(axis, axis) for axis in axes)

    def _bind(self, axis: Axis, name: Axis) -> bool:
        there = self.names.setdefault(axis, name) == name
        return there and self.back.setdefault(name, axis) == axis

    def _same(self, first: Term, second: Term) -> bool:
        """Whether a term becomes another, given what its operands become."""
        if isinstance(first.op, Opaque) and isinstance(second.op, Opaque):
            same = first.op.result == second.op.result and self._same_call(first.op.call, second.op.call)
        else:
            same = first.op == second.op and all(self.names.get(axis) == axis for axis in _named(first))
        return same and {self.names.get(axis) for axis in first.axes} == second.axes

    def _same_call(self, first: Call, second: Call) -> bool:
        if first.bodies or second.bodies or first.primitive is not second.primitive:
            return False
        same = replace(first.renamed(self.names), id=0) == replace(second, id=0)
        return same and _same_parameters(first.params, second.params)


def _named(term: Term) -> frozenset[Axis]:
    """Returns the axes that an op names. Along all others, it works slice by slice."""
    match term.op:
        case Map():
            return NO_AXES
        case Rename(old=old, new=new):
            return frozenset((old, new))
        case Reduce(axes=axes) | Dot(axes=axes):
            return axes
    return term.axes.union(*(arg.axes for arg in term.args))


def _layouts(call: Call) -> tuple[Layout, ...]:
    return (*call.arg_layouts, *call.out_layouts)


def _same_parameters(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether calls have the same parameters, by their texts, if these say all."""
    return first.keys() == second.keys() and all(
        value is second[name] or (repr(value) == repr(second[name]) and not _abridged(value))
        for name, value in first.items()
    )


def _abridged(value: Any) -> bool:
    """Whether the text of a parameter may lack some of it: a jaxpr's constants, the entries of an array."""
    return bool(getattr(value, "consts", ())) or hasattr(value, "__array__")
