"""Tests that a contraction of many factors neither over- nor underflows in either of two orders.

A tree of contractions is a sum of products, each with one entry of every factor. In any order, an
intermediate value is at most the sum of the magnitudes of its products, and its rounding error is a small
part of that sum (N. J. Higham, Accuracy and Stability of Numerical Algorithms, chapter 3). So is its error
from underflow, if the sum is far above the smallest number. Hence two orders differ by rounding alone if
these sums are in range for every intermediate value of both.

The sums are bounded by properties of single factors. Let `|T|` be this sum for a value T, and `N_K(T)` the
sum of `|T|` over axes K. Summed over K, a contraction of U and V over P is a sum over P and K, where the axes
of K may be in U, in V or in both. Fix the other axes and sum V over its own part first:

    max N_K(U V) <= max N_(P+K)(U) * max N_K(V),    min N_K(U V) >= min N_(P+K)(U) * min N_K(V)

The same holds with U and V exchanged. If the second bound is 0, because V has zeros, a product of the
smallest nonzero entries bounds all nonzero sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp

from eqsat.engine.contraction_orders import Order
from eqsat.ir.axis import NO_AXES, Axis
from eqsat.ir.dtypes import accumulator, is_real_float, numpy_dtype
from eqsat.ir.guard import NoTest
from eqsat.ir.magnitudes import extreme, summed
from eqsat.ir.ops import Const, Dot, Map, Reduce, Rename
from eqsat.ir.term import Term, Terms

HEADROOM = 4
"""The factor by which sums of magnitudes must stay inside the dtype's range: they are rounded themselves."""


def in_range(order: Order, terms: Terms) -> tuple[Term, ...]:
    """Truth values without axes: if all hold, both orders of a tree are in range throughout.

    **Raises:** `NoTest` if a factor is not a real float, or is computed inside a loop.
    """
    leaves = list(order.factors())
    if not leaves or any(not is_real_float(leaf.dtype) or leaf.open for leaf in leaves):
        raise NoTest
    bounds = Bounds(order, terms)
    tests = [bounds.below(), *bounds.above()]
    return tuple(dict.fromkeys(tests))


class Bounds:
    """Bounds on the sums of magnitudes in the two trees of one order."""

    def __init__(self, order: Order, terms: Terms) -> None:
        self.order = order
        self.terms = terms
        dtype = order.root.dtype
        finfo: Any = jnp.finfo
        self.limits = finfo(numpy_dtype(dtype))
        self.wide = accumulator(dtype)
        self.values = list(order.values())
        self._norms: dict[tuple[int, frozenset[Axis]], tuple[Term, Term]] = {}
        self._least: dict[int, Term] = {}

    def below(self) -> Term:
        """The test that nothing overflows."""
        largest = [self.norms(value, NO_AXES)[1] for value in self.values]
        highest = self.best("max", largest)
        return self.compared("le", highest, self.number(float(self.limits.max) / HEADROOM))

    def above(self) -> Iterator[Term]:
        """The tests that no sum of magnitudes is small enough for underflow to matter."""
        for count, values in self._by_length().items():
            lowest = [
                self.applied("max", self.norms(value, NO_AXES)[0], self.least(value)) for value in values
            ]
            # A sum that is accumulated in a wider dtype underflows only once.
            times = count if self.wide == self.order.root.dtype else 1
            enough = HEADROOM * times * float(self.limits.smallest_normal) / float(self.limits.eps)
            yield self.compared("ge", self.best("min", lowest), self.number(enough))

    def _by_length(self) -> dict[int, list[Term]]:
        """The values, by the number of terms that are summed at once to make them."""
        found: dict[int, list[Term]] = {}
        for value in self.values:
            axes = value.op.axes if isinstance(value.op, Dot | Reduce) else NO_AXES
            found.setdefault(math.prod(axis.size for axis in axes), []).append(value)
        return found

    def norms(self, term: Term, along: frozenset[Axis]) -> tuple[Term, Term]:
        """A lower and an upper bound on the sums of a term's magnitudes over those axes that it has."""
        along &= term.axes
        key = (term.number, along)
        if key not in self._norms:
            self._norms[key] = self._bounded(term, along)
        return self._norms[key]

    def _bounded(self, term: Term, along: frozenset[Axis]) -> tuple[Term, Term]:
        if self.order.is_factor(term):
            return self._of_factor(term, along)
        match term.op:
            case Rename(old=old, new=new):
                return self.norms(term.args[0], frozenset(old if axis == new else axis for axis in along))
            case Map(name="neg"):
                return self.norms(term.args[0], along)
            case Reduce(axes=axes):
                return self.norms(term.args[0], along | axes)
            case Map(name="div"):
                low, high = self.norms(term.args[0], along)
                least, most = self.norms(term.args[1], NO_AXES)
                return self.applied("div", low, most), self.applied("div", high, least)
            case Dot(axes=axes):
                return self._of_product(term, along | axes)
            case Map(name="mul"):
                return self._of_product(term, along)
        raise NoTest

    def _of_factor(self, factor: Term, along: frozenset[Axis]) -> tuple[Term, Term]:
        value = self.widened(factor)
        if not along and value.axes:
            extremes = (extreme(name, value) for name in ("smallest_magnitude", "largest_magnitude"))
            least, most = (self.terms.make(op, [value]) for op in extremes)
            return least, most
        fast = summed(value, along)
        if fast is not None:
            magnitudes = self.terms.make(fast, [value])
        else:
            magnitudes = self.applied("abs", value)
            if along:
                magnitudes = self.terms.make(Reduce("sum", along, self.wide), [magnitudes])
        return self.overall("min", magnitudes), self.overall("max", magnitudes)

    def _of_product(self, term: Term, along: frozenset[Axis]) -> tuple[Term, Term]:
        """Bounds for a product. The operand summed last is chosen to leave fewer and longer sums of both."""
        one, other = term.args
        ways = [(one, other), (other, one)]
        outer, inner = min(
            ways, key=lambda way: self._spread(way[0], along) + self._spread(way[1], along - way[0].axes)
        )
        low, high = self.norms(outer, along)
        lower, higher = self.norms(inner, along - outer.axes)
        return self.applied("mul", low, lower), self.applied("mul", high, higher)

    def _spread(self, term: Term, along: frozenset[Axis]) -> float:
        """An estimate of how far the least sum is from a typical one: many sums of few entries are worst."""
        length = math.prod(axis.size for axis in term.axes & along)
        return math.log(max(term.elements / max(length, 1), 1)) / max(length, 1)

    def least(self, term: Term) -> Term:
        """A lower bound on the nonzero sums of magnitudes."""
        if term.number not in self._least:
            self._least[term.number] = self._bounded_from_zero(term)
        return self._least[term.number]

    def _bounded_from_zero(self, term: Term) -> Term:
        if self.order.is_factor(term):
            value = self.widened(term)
            if value.axes:
                return self.terms.make(extreme("smallest_nonzero_magnitude", value), [value])
            zero = self.compared("eq", value, self.number(0.0))
            select = Map("select_n", self.wide)
            return self.terms.make(select, [zero, self.applied("abs", value), self.number(1.0)])
        one, *others = term.args
        if isinstance(term.op, Map) and term.op.name == "div":
            return self.applied("div", self.least(one), self.norms(others[0], NO_AXES)[1])
        return self.applied("mul", self.least(one), self.least(others[0])) if others else self.least(one)

    def overall(self, kind: str, term: Term) -> Term:
        return self.terms.make(Reduce(kind, term.axes, term.dtype), [term]) if term.axes else term

    def best(self, kind: str, found: list[Term]) -> Term:
        first, *others = dict.fromkeys(found)
        for other in others:
            first = self.applied(kind, first, other)
        return first

    def widened(self, term: Term) -> Term:
        return term if term.dtype == self.wide else self.terms.make(Map("convert", self.wide), [term])

    def number(self, value: float) -> Term:
        return self.terms.make(Const(repr(value), self.wide))

    def applied(self, function: str, *operands: Term) -> Term:
        return self.terms.make(Map(function, self.wide), list(operands))

    def compared(self, relation: str, left: Term, right: Term) -> Term:
        return self.terms.make(Map(relation, "bool"), [left, right])
