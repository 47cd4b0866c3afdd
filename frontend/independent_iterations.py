"""Loops whose iterations need nothing of each other, as a batch: carries only add up what each computes.

    scan(lambda c, x: (c + f(x), g(x)), 0, xs)  =  sum(vmap(f)(xs)), vmap(g)(xs)

Such loops are `lax.map`, its derivative by what every iteration reads, and sums over chunks that somebody
took by hand, by a counter or not. Extremes and truth values are gathered in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal

from eqsat.frontend.counted_reads import counts
from eqsat.frontend.retracing import NotRetraceable, evaluated
from eqsat.frontend.value_numbering import called

KINDS = {"add": "add", "add_any": "add", "sub": "add", "max": "max", "min": "min", "and": "and", "or": "or"}
"""For each primitive that may add an entry to a carry, which kind of carry that makes."""

PASSING = frozenset({"convert_element_type", "copy"})
"""Primitives that pass a carry on, if its dtype stays the same: it may be known to be weak, or no longer."""

GATHER: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (lax.add, lax.reduce_sum),
    "max": (lax.max, lax.reduce_max),
    "min": (lax.min, lax.reduce_min),
    "and": (lax.bitwise_and, lax.reduce_and),
    "or": (lax.bitwise_or, lax.reduce_or),
}
"""For each kind, what adds an entry, and what adds all of a batch."""


@partial(jax.tree_util.register_dataclass, data_fields=("entry",), meta_fields=("carry", "kind"))
@dataclass(frozen=True)
class _Carry:
    """The carry of that number within an iteration.

    **Attributes:**

    - `kind`, `entry`: what the iteration has added so far, and how; None if that is nothing.
    """

    carry: int
    kind: str | None = None
    entry: Any = None


@dataclass(frozen=True)
class Loop:
    """A scan.

    **Attributes:**

    - `constants`, `carries`: how many of its operands come from around it, and how many are carried.
    - `starts`: the number that each carry starts from, where it is known.
    """

    body: ClosedJaxpr
    constants: int
    carries: int
    length: int
    reverse: bool
    starts: Sequence[Any | None]

    def batch(self, *operands: Any) -> list[Any]:
        """The results of the loop.

        **Raises:** `NotRetraceable` if an iteration needs more of the ones before than their number.
        """
        first, last = self.constants, self.constants + self.carries
        numbers = jnp.arange(self.length)[:: -1 if self.reverse else 1]
        starts = operands[first:last]
        given = [
            start + numbers.astype(start.dtype) if counter else None
            for start, counter in zip(starts, self.counters, strict=True)
        ]
        along = (None,) * first + tuple(0 if counter else None for counter in self.counters)
        one = jax.vmap(self._one, (*along, *(0,) * (len(operands) - last)), axis_size=self.length)
        carries, stacked = one(*operands[:first], *given, *operands[last:])
        return [*map(self._result, starts, carries), *stacked]

    def may_be_batch(self) -> bool:
        """Whether carries are only counted, added to or passed on, as far as their equations tell."""
        before, after = self._carried
        pairs = zip(before, after, self.counters, strict=True)
        others = {one: other for one, other, counter in pairs if not counter and one is not other}
        if any(isinstance(other, Literal) for other in others.values()):
            return False
        made: set[Any] = set()
        for equation in self.body.jaxpr.eqns:
            if equation.primitive.name in PASSING | KINDS.keys() or called(equation) is not None:
                made.update(equation.outvars)
            elif any(not isinstance(atom, Literal) and atom in others for atom in equation.invars):
                return False
        return made.issuperset(others.values())

    @cached_property
    def counters(self) -> list[bool]:
        """For each carry, whether it counts the iterations."""
        return [counts(self.body.jaxpr, *pair) for pair in zip(*self._carried, strict=True)]

    @property
    def _carried(self) -> tuple[list[Any], list[Any]]:
        """The carries as an iteration gets them, and as it leaves them."""
        jaxpr = self.body.jaxpr
        first, last = self.constants, self.constants + self.carries
        return list(jaxpr.invars[first:last]), list(jaxpr.outvars[: self.carries])

    def _one(self, *operands: Any) -> tuple[list[_Carry], list[Any]]:
        """What one iteration adds to each carry, and what it stacks. Of carries, counters are given."""
        first, last = self.constants, self.constants + self.carries
        carries = [
            (_Carry(number) if operand is None else operand)
            for number, operand in enumerate(operands[first:last])
        ]
        values = [*operands[:first], *carries, *operands[last:]]
        results = evaluated(self.body.jaxpr, self.body.consts, values, _adding, placed=True)
        gathered, stacked = results[: self.carries], results[self.carries :]
        for number, counter in enumerate(self.counters):
            if counter:
                gathered[number] = _Carry(number, "counter")
            elif not isinstance(gathered[number], _Carry) or gathered[number].carry != number:
                raise NotRetraceable("an iteration replaces a carry")
        if any(isinstance(result, _Carry) for result in stacked):
            raise NotRetraceable("an iteration stacks a carry")
        return gathered, stacked

    def _result(self, start: Any, carry: _Carry) -> Any:
        """A carry after all iterations."""
        match carry.kind:
            case None:
                return start
            case "counter":
                return start + jnp.asarray(self.length, start.dtype)
        add, add_all = GATHER[carry.kind]
        entries = add_all(carry.entry, axes=(0,))
        if carry.kind == "add":
            known = self.starts[carry.carry]
            if known == 0 and not np.signbit([np.real(known), np.imag(known)]).any():
                return entries
            if not known and jnp.issubdtype(start.dtype, jnp.inexact):
                raise NotRetraceable("-0, and -0 added to it, would become 0")
        return add(start, entries)


def _adding(equation: Any, operands: list[Any]) -> Sequence[Any] | None:
    """The results of an equation that adds to a carry; None of one that has nothing to do with carries."""
    carries = [operand for operand in operands if isinstance(operand, _Carry)]
    if not carries:
        return None
    inner = called(equation)
    if inner is not None:
        return evaluated(inner.jaxpr, inner.consts, operands, _adding, placed=True)
    name = equation.primitive.name
    if name in PASSING and equation.outvars[0].aval.dtype == equation.invars[0].aval.dtype:
        return carries
    kind = KINDS.get(name)
    if kind is None or len(carries) > 1 or carries[0].kind not in (None, kind):
        raise NotRetraceable(name)
    (carry,) = carries
    (entry,) = (operand for operand in operands if operand is not carry)
    if name == "sub":
        if operands[0] is not carry:
            raise NotRetraceable(name)
        entry = lax.neg(entry)
    entry = jnp.broadcast_to(entry, equation.outvars[0].aval.shape)
    if carry.entry is not None:
        entry = GATHER[kind][0](carry.entry, entry)
    return [_Carry(carry.carry, kind, entry)]
