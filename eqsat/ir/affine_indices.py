"""Indices that are affine in positions along axes, clipped.

Windows of an array are where such indices say, with an axis of windows `t` and one inside of them, `f`:

    index[t, f]  =  clip(start + stride t + step f, low, high)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.ir.axis import Axis
from eqsat.ir.constants import constant_value
from eqsat.ir.dtypes import is_extended, limits_of, numpy_dtype
from eqsat.ir.ops import Const, Iota, Map, Rename
from eqsat.ir.term import Term, reachable

MOST_TERMS = 64
"""Indices of more terms are not looked at."""


@dataclass(frozen=True)
class Affine:
    """An affine function of positions, clipped to `low` and `high`.

    **Attributes:**

    - `steps`: by axis, what one position is worth.
    """

    start: int
    steps: Mapping[Axis, int]
    low: int
    high: int

    @staticmethod
    def of(start: int, steps: Mapping[Axis, int]) -> Affine:
        """One that is not clipped."""
        ends = [step * (axis.size - 1) for axis, step in steps.items()]
        low, high = sum(min(0, end) for end in ends), sum(max(0, end) for end in ends)
        return Affine(start, {axis: step for axis, step in steps.items() if step}, start + low, start + high)

    @property
    def is_clipped(self) -> bool:
        return self != Affine.of(self.start, self.steps)

    def clipped(self, low: int, high: int) -> Affine:
        """Clipped further, to bounds in this order."""
        return replace(self, low=min(max(self.low, low), high), high=min(max(self.high, low), high))


def affine_index(index: Term) -> Affine | None:
    """What an index is, if it is affine in positions, and no step of computing it overflows."""
    known: dict[int, Affine | None] = {}
    terms = list(reachable([index]))
    if len(terms) > MOST_TERMS:
        return None
    for term in terms:
        found = _affine(term, [known[arg.number] for arg in term.args])
        if found is not None and not _is_exact(term, found):
            found = None
        known[term.number] = found
    return known[index.number]


def _is_exact(term: Term, found: Affine) -> bool:
    if term.dtype == "bool":
        return True
    limits = limits_of(term.dtype)
    whole = Affine.of(found.start, found.steps)
    return int(limits.min) <= min(whole.low, found.low) and max(whole.high, found.high) <= int(limits.max)


def _affine(term: Term, args: Sequence[Affine | None]) -> Affine | None:
    if is_extended(term.dtype) or numpy_dtype(term.dtype).kind not in "iub":
        return None
    match term.op:
        case Iota(axis=axis):
            return Affine.of(0, {axis: 1})
        case Const():
            return Affine.of(int(constant_value(term.op)), {})
        case Rename(old=old, new=new):
            (of,) = args
            names = {old: new}
            steps = {} if of is None else {names.get(axis, axis): step for axis, step in of.steps.items()}
            return None if of is None else replace(of, steps=steps)
        case Map(name="select_n"):
            return _selected(args)
        case Map(name=name) if name in RULES:
            operands = [one for one in args if one is not None]
            return RULES[name](*operands) if len(operands) == len(args) else None
        case _:
            return None


def _selected(args: Sequence[Affine | None]) -> Affine | None:
    """A choice that is the same at all positions."""
    chooser, *cases = args
    if chooser is None or chooser.low != chooser.high or not 0 <= chooser.low < len(cases):
        return None
    return cases[chooser.low]


def _sum(one: Affine, other: Affine) -> Affine | None:
    if other.is_clipped:
        one, other = other, one
    if one.is_clipped:
        if other.steps or other.is_clipped:
            return None
        start = other.start
        return replace(one, start=one.start + start, low=one.low + start, high=one.high + start)
    axes = {**one.steps, **other.steps}
    steps = {axis: one.steps.get(axis, 0) + other.steps.get(axis, 0) for axis in axes}
    return Affine.of(one.start + other.start, steps)


def _product(one: Affine, other: Affine) -> Affine | None:
    if one.steps:
        one, other = other, one
    if one.steps or one.is_clipped or other.is_clipped:
        return None
    return Affine.of(one.start * other.start, {axis: step * one.start for axis, step in other.steps.items()})


def _difference(one: Affine, other: Affine) -> Affine | None:
    minus = _product(Affine.of(-1, {}), other)
    return None if minus is None else _sum(one, minus)


def _largest(one: Affine, other: Affine) -> Affine | None:
    """Clipped from below, by a constant."""
    if one.low == one.high:
        one, other = other, one
    return one.clipped(other.low, max(one.high, other.low)) if other.low == other.high else None


def _smallest(one: Affine, other: Affine) -> Affine | None:
    if one.low == one.high:
        one, other = other, one
    return one.clipped(min(one.low, other.low), other.low) if other.low == other.high else None


def _certain(truth: Callable[[Affine, Affine], bool | None]) -> Callable[[Affine, Affine], Affine | None]:
    """A comparison, if it is the same at all positions."""

    def compared(one: Affine, other: Affine) -> Affine | None:
        found = truth(one, other)
        return None if found is None else Affine.of(int(found), {})

    return compared


def _less(one: Affine, other: Affine) -> bool | None:
    if one.high < other.low:
        return True
    return False if one.low >= other.high else None


def _at_most(one: Affine, other: Affine) -> bool | None:
    if one.high <= other.low:
        return True
    return False if one.low > other.high else None


RULES: Mapping[str, Callable[..., Affine | None]] = {
    "add": _sum,
    "sub": _difference,
    "mul": _product,
    "max": _largest,
    "min": _smallest,
    "convert": lambda one: one,
    "lt": _certain(_less),
    "le": _certain(_at_most),
    "gt": _certain(lambda one, other: _less(other, one)),
    "ge": _certain(lambda one, other: _at_most(other, one)),
}
"""By the name of an elementwise function, what it makes of such indices."""
