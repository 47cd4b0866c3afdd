"""Terms: interned applications of ops.

Equal terms of one table are the same object, so a program is a DAG.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.dtypes import itemsize
from eqsat.ir.ops import Op, Opaque
from eqsat.ir.schema import Axes, result_axes, result_dtype, result_open
from eqsat.support.records import Place


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """The op `op` applied to the operands `args`.

    Terms are compared by identity, so build all terms of a program through one `Terms` table.

    **Attributes:**

    - `axes`: the axes of the result.
    - `dtype`: the name of the result's dtype.
    - `open`: the axes of the loops that the value varies with. It depends on the current chunk of each.
    - `number`: the term's number in its table. Operands have smaller numbers than the terms that use them.
    """

    op: Op
    args: tuple[Term, ...] = field(repr=False)
    axes: frozenset[Axis]
    dtype: str
    open: frozenset[Axis]
    number: int

    @property
    def elements(self) -> int:
        """The number of elements, with every axis at full length."""
        count = 1
        for axis in self.axes:
            count *= axis.size
        return count

    @property
    def bytes(self) -> int:
        """The size in bytes, with every axis at full length."""
        return self.elements * itemsize(self.dtype)


def _mentioned(term: Term) -> Iterator[Axis]:
    """Yields the axes of a term, and those of the arrays of its call."""
    yield from term.axes
    if isinstance(term.op, Opaque):
        for layout in (*term.op.call.arg_layouts, *term.op.call.out_layouts):
            yield from layout_axes(layout)


def infer(op: Op, args: Sequence[Term]) -> tuple[Axes, str, Axes]:
    """Returns the axes, dtype and open loops of `op(*args)`."""
    axes = [arg.axes for arg in args]
    return (
        result_axes(op, axes),
        result_dtype(op, [arg.dtype for arg in args]),
        result_open(op, [arg.open for arg in args]),
    )


class Terms:
    """A table that builds and interns terms.

    Iterating over it yields all its terms, in the order in which they were made.

    **Attributes:**

    - `origins`: the places in the user's source that terms come from, by term number. Not every term has one.
    - `last_call`: the largest number of a call of any term. Calls are compared by their numbers, not by their
      parameters: a new call with the number of another one could be taken for it, though no program has that
      any more.
    """

    def __init__(self) -> None:
        self._interned: dict[tuple[Op, tuple[int, ...]], Term] = {}
        self._next = 0
        self.last_call = 0
        self.origins: dict[int, Place] = {}
        self._calls: dict[Hashable, int] = {}
        self._axes: dict[Hashable, Axis] = {}

    def __iter__(self) -> Iterator[Term]:
        return iter(self._interned.values())

    def make(self, op: Op, args: Iterable[Term] = ()) -> Term:
        """Returns the term `op(*args)`: the same object for every call with equal arguments."""
        operands = tuple(args)
        key = (op, tuple(arg.number for arg in operands))
        term = self._interned.get(key)
        if term is None:
            term = self._interned[key] = Term(op, operands, *infer(op, operands), self._next)
            self._next += 1
            if isinstance(op, Opaque):
                self.last_call = max(self.last_call, op.call.id)
        return term

    def call_number(self, call: Hashable, first: int) -> int:
        """Returns the number of a call that is made anew: the same for the same call, and no other's.

        **Arguments:**

        - `call`: what the call is, but for its number.
        - `first`: the least number that calls made otherwise don't have.
        """
        if call not in self._calls:
            self._calls[call] = max(first, 1 + self.last_call, 1 + max(self._calls.values(), default=0))
        return self._calls[call]

    def axis(self, purpose: Hashable, size: int) -> Axis:
        """Returns an axis that is made anew: the same for the same purpose, and in no term made before."""
        if purpose not in self._axes:
            taken = [axis.id for term in self for axis in _mentioned(term)]
            taken += [axis.id for axis in self._axes.values()]
            self._axes[purpose] = Axis(1 + max(taken, default=-1), size)
        return self._axes[purpose]

    def restore(self, number: int, op: Op, args: Iterable[Term] = ()) -> Term:
        """Makes a term with the number that it had in another table, and returns it.

        No term of this table may have that number yet.
        """
        operands = tuple(args)
        term = Term(op, operands, *infer(op, operands), number)
        self._interned[op, tuple(arg.number for arg in operands)] = term
        self._next = max(self._next, number + 1)
        if isinstance(op, Opaque):
            self.last_call = max(self.last_call, op.call.id)
        return term


def reachable(roots: Iterable[Term]) -> Iterator[Term]:
    """Yields every term that `roots` depend on, the roots included, operands first.

    The traversal is iterative, so deep programs do not exhaust the stack.
    """
    done: set[int] = set()
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        term, expanded = stack.pop()
        if expanded:
            if term.number not in done:
                done.add(term.number)
                yield term
        elif term.number not in done:
            stack.append((term, True))
            stack.extend((arg, False) for arg in reversed(term.args) if arg.number not in done)
