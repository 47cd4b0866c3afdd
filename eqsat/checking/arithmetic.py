"""Runs programs in the dtypes of their terms, op by op, with a choice of the order of summation.

The reference interpreter defines what a program means. A `DtypeArithmetic` defines what it computes when
numbers have limited digits and a limited range. The accuracy classes of rules promise something about
those results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

from eqsat.checking.dtypes import NARROW
from eqsat.checking.kinds import words
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import is_inexact, is_real_float, limits_of, numpy_dtype
from eqsat.ir.interpret import Interpreter, Values
from eqsat.ir.jax_calls import NO_LENGTHS, Ranges
from eqsat.ir.numpy_arrays import aligned, in_order, position, reduced
from eqsat.ir.numpy_functions import OWN
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
"""The order of the terms of a sum or a product. The sorted orders have the most extreme partial results."""

COPIES = frozenset(
    words("neg abs max min clamp select_n copy stop_gradient real imag conj sign floor ceil round")
)
"""The elementwise functions that do not round."""


@dataclass(frozen=True)
class DtypeArithmetic:
    """A way to run programs.

    **Attributes:**

    - `rounds`: whether results are rounded to the digits of their dtypes. Otherwise they are computed in
      double precision, or in NumPy's widest floats if the program has doubles.
    - `bounded`: whether results overflow to infinity and underflow to 0 as in their dtypes.
    - `order`: the order of the terms of sums and products.
    - `noise`: the seed of random relative errors of up to one unit in the last place, which each number that
      an op rounds gets (Parker, "Monte Carlo arithmetic", 1997); None for no errors.
    """

    rounds: bool = True
    bounded: bool = True
    order: Order = "natural"
    noise: int | None = None

    def run(
        self, program: Program, arrays: Sequence[Any], chunk_lengths: Mapping[Axis, int] | None = None
    ) -> list[Array]:
        """Runs a program and returns its outputs.

        **Arguments:**

        - `chunk_lengths`: the length of the chunks of each axis; chunks of all others are the whole axis.
        """
        precision = OWN
        if not self.rounds:
            doubles = any(term.dtype in ("float64", "complex128") for term in program.reachable())
            precision = "extended" if doubles else "double"
        return _Computer(arrays, chunk_lengths or {}, self, precision).run(program)


class _Computer(Interpreter):
    """The reference interpreter, with an arithmetic of choice."""

    def __init__(
        self,
        arrays: Sequence[Any],
        chunk_lengths: Mapping[Axis, int],
        arithmetic: DtypeArithmetic,
        precision: str,
        short: Mapping[Axis, int] = NO_LENGTHS,
    ) -> None:
        super().__init__(arrays, chunk_lengths, precision, short)
        self.arithmetic = arithmetic
        self.rng = np.random.default_rng(arithmetic.noise)

    def another(self, arrays: Sequence[Any], short: Mapping[Axis, int]) -> Interpreter:
        return _Computer(arrays, self.chunk_lengths, self.arithmetic, self.precision, short)

    def value(self, term: Term, ranges: Ranges, values: Values) -> Any:
        op = term.op
        with np.errstate(all="ignore"):
            match op:
                case Concat() | Fold():
                    found = self.loop(term, op, ranges, values)
                    return self.in_range(found, term.dtype) if self.arithmetic.rounds else found
                case Leaf():
                    return self.given(super().value(term, ranges, values), term.dtype)
                case Reduce(kind="sum" | "mean" | "prod" as kind):
                    found = self.total(kind, values[term.args[0].number], term)
                case Dot():
                    found = self.contraction(term, values)
                case Map(name="mul" | "square" | "integer_pow") if numpy_dtype(term.dtype).kind == "c":
                    found = self.complex_power(op, term, values)
                case Operation() | Opaque() if self.arithmetic.noise is not None:
                    found = super().value(term, ranges, values.new_child(self.nudged_operands(term, values)))
                case Opaque(call=call) if self.arithmetic.order != "natural" and _contracts(call):
                    found = self.contraction(term, values)
                case _:
                    found = super().value(term, ranges, values)
            return self.rounded(op, term.dtype, found)

    # ------------------------------------------------------------------------------- rounding

    def given(self, value: Any, dtype: str) -> Any:
        """Returns an input rounded to its own dtype, and then cast to the dtype that it is computed in."""
        if not is_inexact(dtype):
            return value
        return value.astype(numpy_dtype(dtype)).astype(self.dtype(dtype))

    def rounded(self, op: Any, dtype: str, value: Any) -> Any:
        """Returns a result with noise, and with the range of its dtype if the arithmetic is bounded."""
        if not is_inexact(dtype):
            return value
        if self.arithmetic.noise is not None and not _copies(op):
            value = self.nudged(value, dtype)
        return self.in_range(value, dtype) if self.arithmetic.bounded else value

    def nudged_operands(self, term: Term, values: Values) -> dict[Any, Any]:
        """Returns the floating-point operands of a term with noise, by the numbers of their terms."""
        inexact = [arg for arg in term.args if is_inexact(arg.dtype)]
        return {arg.number: self.nudged(values[arg.number], arg.dtype) for arg in inexact}

    def nudged(self, value: Array, dtype: str) -> Array:
        """Returns a value with a random rounding error in each number. Zeros stay zeros."""
        limits = limits_of(dtype)
        if value.dtype.kind == "c":
            # Each part of a complex product may have an error as large as one unit of the modulus.
            parts, modulus = _parts(value), np.abs(value)[..., None]
            sizes = np.where(np.isfinite(modulus), modulus, np.abs(parts))
            errors = float(limits.eps) * sizes * self.rng.uniform(-1, 1, parts.shape)
            return _whole(np.where((parts != 0) & np.isfinite(parts), parts + errors, parts))
        noisy = value * (1 + float(limits.eps) * self.rng.uniform(-1, 1, value.shape))
        tiny = (np.abs(value) < float(limits.tiny)) & (value != 0)
        step = float(limits.smallest_subnormal)
        return np.where(tiny, value + step * self.rng.uniform(-1, 1, value.shape), noisy)

    def in_range(self, value: Array, dtype: str) -> Array:
        """Returns a value rounded to the range of its dtype.

        If the arithmetic rounds, only bfloat16 needs that, since it is computed in float32.
        """
        if not is_inexact(dtype):
            return value
        if self.arithmetic.rounds:
            return value.astype(numpy_dtype(dtype)).astype(np.float32) if dtype == "bfloat16" else value
        if value.dtype.kind == "c":
            return _whole(self.in_range(_parts(value), dtype))
        limits = limits_of(dtype)
        step = float(limits.smallest_subnormal)
        size = np.abs(value)
        value = np.where(size < float(limits.tiny), np.rint(value / step) * step, value)
        return np.where(size > float(limits.max), np.copysign(np.inf, value), value)

    def wide(self, value: Array) -> Array:
        """Returns a value in the dtype that sums accumulate in: float32 for float16."""
        return value.astype(np.float32) if value.dtype == np.float16 else value

    # ------------------------------------------------------------------------------- sums

    def total(self, kind: str, value: Array, term: Term) -> Array:
        """Returns a sum, mean or product. Halves accumulate in single precision, as in XLA."""
        assert isinstance(term.op, Reduce)
        dtype = self.dtype(term.op.dtype)
        if dtype.kind == "c" and kind != "prod":
            totals = [self.total_of(kind, part, term) for part in np.moveaxis(_parts(value), -1, 0)]
            return _whole(np.stack(totals, axis=-1))
        return self.total_of(kind, value, term)

    def total_of(self, kind: str, value: Array, term: Term) -> Array:
        """Returns a sum, mean or product of real numbers, or a product of complex ones."""
        assert isinstance(term.op, Reduce)
        positions = tuple(position(term.args[0], axis) for axis in term.op.axes)
        dtype = value.dtype
        if dtype.kind not in "fc":
            return reduced(kind, value, positions, self.dtype(term.op.dtype))
        ordered = self.in_order(self.wide(self.noisy_terms(value, term.op.dtype)), positions, kind == "prod")
        found = in_order(np.multiply if kind == "prod" else np.add, ordered, (0,))
        if kind == "mean":
            found = found / found.dtype.type(ordered.shape[0])
        if kind != "prod":
            found = found + found.dtype.type(0)  # a sum starts at 0, so a sum of -0 is 0
        return np.asarray(found).astype(dtype)

    def noisy_terms(self, value: Array, dtype: str) -> Array:
        """Returns the terms of a sum, each with noise that stands for the rounding of a partial sum."""
        return self.nudged(value, dtype) if self.arithmetic.noise is not None else value

    def in_order(self, value: Array, positions: Sequence[int], by_size: bool) -> Array:
        """Returns the terms of a sum along the first dimension, in this arithmetic's order.

        **Arguments:**

        - `positions`: the dimensions that are summed.
        - `by_size`: whether terms are sorted by their magnitudes, rather than by their values.
        """
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
        if dtype.kind not in "fc":
            return np.asarray(super().value(term, {}, values))
        axes = sorted(term.args[0].axes | term.args[1].axes)
        one, other = (
            aligned(self.wide(values[arg.number].astype(dtype)), sorted(arg.axes), axes) for arg in term.args
        )
        summed = [place for place, axis in enumerate(axes) if axis not in term.axes]
        if dtype.kind == "f":
            return self.sum_of_products(np.asarray(one * other), summed, term).astype(dtype)
        products = np.moveaxis(_parts(self.noisy_terms(_product(one, other), term.dtype)), -1, 0)
        return _whole(np.stack([self.sum_of_products(part, summed, term) for part in products], axis=-1))

    def sum_of_products(self, products: Array, summed: Sequence[int], term: Term) -> Array:
        if self.arithmetic.bounded and not self.arithmetic.rounds:
            # Products of halves are not rounded to halves, but they overflow like singles.
            limits = limits_of("float32" if term.dtype in NARROW else term.dtype)
            products = np.where(np.abs(products) > float(limits.max), np.copysign(np.inf, products), products)
        if is_real_float(term.dtype):
            products = self.noisy_terms(products, term.dtype)
        ordered = self.in_order(products, summed, by_size=False)
        if self.arithmetic.order == "natural":
            ordered = ordered[::-1]  # a contraction and a sum are different loops, with different orders
        found = in_order(np.add, ordered, (0,))
        # A contraction may start at 0 or at its first product.
        return np.asarray(found if self.arithmetic.order == "natural" else found + products.dtype.type(0))

    def complex_power(self, op: Map, term: Term, values: Values) -> Array:
        """Returns a complex product or power, by repeated products as in XLA.

        Infinities and NaN are not treated specially, as Annex G of the C standard would.
        """
        axes = sorted(term.axes)
        one, *others = (aligned(values[arg.number], sorted(arg.axes), axes) for arg in term.args)
        if others:
            return _product(one, others[0])
        exponent = int(dict(op.params).get("y", 2))
        found, power, rest = None, one, abs(exponent)
        while rest:
            if rest % 2:
                found = power if found is None else _product(found, power)
            rest //= 2
            power = _product(power, power) if rest else power
        result = np.ones_like(one) if found is None else found
        return result if exponent >= 0 else np.asarray(1 / result)


def _parts(value: Array) -> Array:
    """Returns the real and imaginary parts of complex numbers along a new last dimension."""
    return np.stack([value.real, value.imag], axis=-1)


def _whole(parts: Array) -> Array:
    """Returns the complex numbers whose parts are along the last dimension. It inverts `_parts`."""
    found = np.empty(parts.shape[:-1], np.result_type(parts.dtype, np.complex64))
    found.real, found.imag = parts[..., 0], parts[..., 1]
    return found


def _product(one: Array, other: Array) -> Array:
    """Returns the product of complex numbers, by four real products.

    NumPy's own product may use fused multiply-adds for some arrays and not for others.
    """
    real = one.real * other.real - one.imag * other.imag
    imag = one.real * other.imag + one.imag * other.real
    return _whole(np.stack([real, imag], axis=-1))


def _contracts(call: Call) -> bool:
    """Returns whether a call is a contraction, the only summing call that the checker draws."""
    return bool(call.sums) and call.primitive is jax.lax.dot_general_p


def _copies(op: Any) -> bool:
    """Returns whether an op needs no noise: it only copies numbers, or its results are exact."""
    if isinstance(op, Map):
        return op.name in COPIES
    # A contraction and a sum are noisy already.
    return isinstance(op, Leaf | Const | Iota | Delta | Rename | Chunk)
