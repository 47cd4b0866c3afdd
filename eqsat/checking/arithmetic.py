"""How a program computes: in a narrow dtype, op by op, in one order of summation or another.

The reference interpreter says what a program means. An `Arithmetic` says what comes out of it
where numbers have few digits and a range: the rules' promises are about that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

from eqsat.checking.kinds import words
from eqsat.ir.axis import Axis
from eqsat.ir.interpret import Interpreter, Values
from eqsat.ir.jax_calls import Ranges
from eqsat.ir.numpy_arrays import aligned, position, reduced
from eqsat.ir.ops import (
    Call,
    Chunk,
    Concat,
    Const,
    Delta,
    Dot,
    Fold,
    Iota,
    Leaf,
    Map,
    Opaque,
    Operation,
    Reduce,
    Rename,
)
from eqsat.ir.program import Program
from eqsat.ir.term import Term

Array = np.ndarray[Any, np.dtype[Any]]

Order = Literal["natural", "ascending", "descending"]
"""In which order a sum or a product is taken. The extreme ones have the extreme partial results."""

WIDTHS: dict[str, type[np.floating[Any]]] = {"half": np.float16, "single": np.float32}
"""The dtypes whose digits and range programs are run with, by what the interpreter calls the precision."""

COPIES = frozenset(
    words("neg abs max min clamp select_n copy stop_gradient real imag conj sign floor ceil round")
)
"""Elementwise functions that do not round."""


@dataclass(frozen=True)
class Arithmetic:
    """A way to compute.

    **Attributes:**

    - `width`: the dtype whose range the numbers have: "half" or "single".
    - `rounds`: whether numbers have its digits as well. Otherwise they have those of double precision.
    - `bounded`: whether numbers over its range are infinite, and those under it 0.
    - `order`: of sums and products.
    - `noise`: the seed of relative errors of one unit in the last place of `width`, drawn for each number
      that an op rounds (Parker, "Monte Carlo arithmetic", 1997); None for none.
    """

    width: str
    rounds: bool = True
    bounded: bool = True
    order: Order = "natural"
    noise: int | None = None

    @property
    def limits(self) -> Any:
        return np.finfo(WIDTHS[self.width])

    def run(
        self, program: Program, arrays: Sequence[Any], chunk_lengths: Mapping[Axis, int] | None = None
    ) -> list[Array]:
        """The outputs of a program."""
        return _Computer(arrays, chunk_lengths or {}, self).run(program)


class _Computer(Interpreter):
    """The interpreter, in some arithmetic."""

    def __init__(
        self, arrays: Sequence[Any], chunk_lengths: Mapping[Axis, int], arithmetic: Arithmetic
    ) -> None:
        super().__init__(arrays, chunk_lengths, arithmetic.width if arithmetic.rounds else "double")
        self.arithmetic = arithmetic
        self.rng = np.random.default_rng(arithmetic.noise)

    def another(self, arrays: Sequence[Any]) -> Interpreter:
        return _Computer(arrays, self.chunk_lengths, self.arithmetic)

    def value(self, term: Term, ranges: Ranges, values: Values) -> Any:
        op = term.op
        if isinstance(op, Concat | Fold):
            return self.loop(term, op, ranges, values)
        with np.errstate(all="ignore"):
            match op:
                case Reduce(kind="sum" | "mean" | "prod" as kind):
                    found = self.total(kind, values[term.args[0].number], term)
                case Dot():
                    found = self.contraction(term, values)
                case Operation() | Opaque() if self.arithmetic.noise is not None:
                    found = super().value(term, ranges, values.new_child(self.nudged_operands(term, values)))
                case Opaque(call=call) if self.arithmetic.order != "natural" and _contracts(call):
                    found = self.contraction(term, values)
                case _:
                    found = super().value(term, ranges, values)
            return self.rounded(op, found)

    # ------------------------------------------------------------------------------- rounding

    def rounded(self, op: Any, value: Any) -> Any:
        """A result with the range of its dtype, and its noise."""
        if not _is_real(value):
            return value
        if self.arithmetic.noise is not None and not _copies(op):
            value = self.nudged(value)
        return self.in_range(value) if self.arithmetic.bounded else value

    def nudged_operands(self, term: Term, values: Values) -> dict[Any, Any]:
        """Operands with rounding errors."""
        reals = [arg.number for arg in term.args if _is_real(values[arg.number])]
        return {number: self.nudged(values[number]) for number in reals}

    def nudged(self, value: Array) -> Array:
        """A value with another rounding error for each number."""
        limits = self.arithmetic.limits
        noisy = value * (1 + float(limits.eps) * self.rng.uniform(-1, 1, value.shape))
        tiny = (np.abs(value) < float(limits.tiny)) & (value != 0)
        step = float(limits.smallest_subnormal)
        return np.where(tiny, value + step * self.rng.uniform(-1, 1, value.shape), noisy)

    def in_range(self, value: Array) -> Array:
        """A value in double precision with the range of a narrow dtype."""
        if self.arithmetic.rounds:
            return value
        limits = self.arithmetic.limits
        step = float(limits.smallest_subnormal)
        size = np.abs(value)
        value = np.where(size < float(limits.tiny), np.rint(value / step) * step, value)
        return np.where(size > float(limits.max), np.copysign(np.inf, value), value)

    def wide(self, value: Array) -> Array:
        """A value in the dtype that sums are accumulated in."""
        return value.astype(np.float32) if value.dtype == np.float16 else value

    # ------------------------------------------------------------------------------- sums

    def total(self, kind: str, value: Array, term: Term) -> Array:
        """A sum, mean or product. Halves are accumulated in single precision, as XLA does."""
        assert isinstance(term.op, Reduce)
        dtype = self.dtype(term.op.dtype)
        positions = tuple(position(term.args[0], axis) for axis in term.op.axes)
        if dtype.kind != "f":
            return reduced(kind, value, positions, dtype)
        ordered = self.in_order(self.wide(self.noisy_terms(value)), positions, kind == "prod")
        wide = self.wide(np.zeros((), dtype)).dtype
        found = reduced(kind, ordered, (0,), wide)
        if kind == "mean" and ordered.shape[0] == 0:
            found = np.full_like(found, np.nan)
        if kind != "prod":
            found = found + wide.type(0)  # a sum starts at 0: that of -0 is 0
        return np.asarray(found).astype(dtype)

    def noisy_terms(self, value: Array) -> Array:
        """What is summed, each with a rounding error of its own: partial sums are rounded."""
        return self.nudged(value) if self.arithmetic.noise is not None else value

    def in_order(self, value: Array, positions: Sequence[int], by_size: bool) -> Array:
        """What is summed along one dimension, the first, in the wanted order."""
        moved = np.moveaxis(value, sorted(positions), range(len(positions)))
        count = int(np.prod(moved.shape[: len(positions)]))
        terms = moved.reshape(count, *moved.shape[len(positions) :])
        if self.arithmetic.order == "natural":
            return terms
        keys = np.argsort(np.abs(terms) if by_size else terms, axis=0, kind="stable")
        ascending = np.take_along_axis(terms, keys, 0)
        return ascending if self.arithmetic.order == "ascending" else ascending[::-1]

    def contraction(self, term: Term, values: Values) -> Array:
        dtype = self.dtype(term.dtype)
        if dtype.kind != "f":
            return np.asarray(super().value(term, {}, values))
        axes = sorted(term.args[0].axes | term.args[1].axes)
        one, other = (
            aligned(self.wide(values[arg.number].astype(dtype)), sorted(arg.axes), axes) for arg in term.args
        )
        products = np.asarray(one * other)
        if self.arithmetic.bounded and not self.arithmetic.rounds:
            # The products are not rounded to halves, but they have a range.
            largest = np.finfo(np.float32).max
            products = np.where(np.abs(products) > largest, np.copysign(np.inf, products), products)
        summed = [place for place, axis in enumerate(axes) if axis not in term.axes]
        ordered = self.in_order(self.noisy_terms(products), summed, by_size=False)
        if self.arithmetic.order == "natural":
            ordered = ordered[::-1]  # not in the order of a sum: the two are different loops
        found = reduced("sum", ordered, (0,), products.dtype)
        # A contraction may start at 0 or at its first product.
        return np.asarray(
            found if self.arithmetic.order == "natural" else found + products.dtype.type(0)
        ).astype(dtype)


def _is_real(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) and value.dtype.kind == "f"


def _contracts(call: Call) -> bool:
    """Whether a call that sums is a contraction: of calls, the checker draws no other that sums."""
    return bool(call.sums) and call.primitive is jax.lax.dot_general_p


def _copies(op: Any) -> bool:
    """Whether an op's results are numbers that it was given, or exact ones."""
    if isinstance(op, Map):
        return op.name in COPIES
    # A contraction and a sum are noisy already.
    return isinstance(op, Leaf | Const | Iota | Delta | Rename | Chunk)
