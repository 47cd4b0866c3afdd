"""Evaluates a jaxpr equation by equation, with or without random roundings.

The evaluation is independent of eqsat, and it interprets the bodies of control flow, too. With *noise*, every
result that is not exact is moved by a unit in the last place, up or down at random (Parker, "Monte Carlo
arithmetic", 1997). The freedom says where:

- "class": in every operation that rounds.
- "xla": only where XLA itself rounds one program in several ways (docs/xla.md): products that are added,
  contractions, and divisions by one number for all entries.
- "own": as "xla", and in sums as well, which XLA's own options leave open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.extend.core import Literal as Constant

from eqsat.checking.kinds import words
from eqsat.frontend.control import scan_groups

Freedom = Literal["class", "xla", "own"]

COPIES = frozenset(
    words("""
    abs broadcast_in_dim clamp concatenate copy copy_p dynamic_slice dynamic_update_slice expand_dims
    gather max min neg pad real imag reduce_max reduce_min reshape rev select_n select_and_gather_add
    slice sort squeeze stop_gradient transpose cummax cummin top_k split tile sign floor ceil round
    scatter scatter_max scatter_min scatter-max scatter-min complex conj random_bits random_wrap
    random_unwrap random_fold_in random_split bitcast_convert_type iota argmax argmin
    optimization_barrier device_put nextafter
    """)
)
"""Primitives that never round."""

MOVES = frozenset(
    words("""
    broadcast_in_dim concatenate copy dynamic_slice expand_dims gather neg reshape rev select_n slice
    squeeze transpose pad convert_element_type split tile real imag complex copy_p dynamic_update_slice
    """)
)
"""Primitives through which a product may pass and still be fused with the sum that reads it."""

SUMS = frozenset(
    words("""
    reduce_sum dot_general cumsum cumprod cumlogsumexp reduce_prod conv_general_dilated scatter-add
    scatter_add reduce_window_sum reduce_window scatter_mul scatter-mul reduce ragged_dot fft
    """)
)
"""Primitives whose results depend on the order of summation or multiplication."""

WHOLE = frozenset(["reduce_sum", "dot_general", "cumsum", "conv_general_dilated"])
"""The primitives of `SUMS` that are exact for small whole numbers."""

ORDERED = frozenset(["reduce_sum", "cumsum", "cumprod", "reduce_prod", "cumlogsumexp", "reduce_window_sum"])
"""The primitives of `SUMS` whose order XLA does not change with the length of other axes."""

ADDS = frozenset(["add", "sub", "add_any"])
PRODUCTS = frozenset(
    words("""
    mul div square integer_pow exp exp2 tanh logistic sin cos tan log log1p expm1 sqrt rsqrt cbrt pow
    erf erf_inv atan2 asin acos atan sinh cosh lgamma digamma
    """)
)
"""Primitives whose last operation may be a product."""

INLINE = ("jaxpr", "call_jaxpr", "fun_jaxpr")


@dataclass
class Held:
    """A value with an alternative for sums.

    **Attributes:**

    - `value`: the value.
    - `summed`: the value that a sum reads instead, if it is a product that may be rounded otherwise.
    """

    value: Any
    summed: Any = None


class OpByOp:
    """Evaluates jaxprs op by op.

    **Arguments:**

    - `freedom`: where results may be rounded otherwise.
    - `seed`: the seed of the noise; None for no noise.
    """

    def __init__(self, freedom: Freedom = "class", seed: int | None = None) -> None:
        self.freedom = freedom
        self.rng = None if seed is None else np.random.default_rng(seed)

    def run(self, closed: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
        """Returns the results of a jaxpr for these arguments."""
        found = self.evaluate(
            closed.jaxpr,
            closed.consts,
            [Held(jnp.asarray(arg) if not isinstance(arg, jax.Array) else arg) for arg in args],
        )
        return [held.value for held in found]

    def evaluate(self, jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Held]) -> list[Held]:
        known: dict[Any, Held] = {}

        def read(atom: Any) -> Held:
            return Held(jnp.asarray(atom.val, atom.aval.dtype)) if isinstance(atom, Constant) else known[atom]

        known.update(zip(jaxpr.constvars, map(Held, consts), strict=True))
        known.update(zip(jaxpr.invars, args, strict=True))
        for equation in jaxpr.eqns:
            results = self.equation(equation, [read(atom) for atom in equation.invars])
            known.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def equation(self, equation: Any, args: list[Held]) -> list[Held]:
        params = equation.params
        match equation.primitive.name:
            case "scan":
                return self.scan(equation, args)
            case "while":
                return self.loop(params, args)
            case "cond":
                index = int(np.clip(int(args[0].value), 0, len(params["branches"]) - 1))
                return self.closed(params["branches"][index], args[1:])
            case (
                "custom_vjp_call"
                | "custom_jvp_call"
                | "jit"
                | "pjit"
                | "closed_call"
                | "eval_jaxpr"
                | "remat2"
                | "checkpoint"
                | "custom_lin"
            ):
                inner = next(params[name] for name in INLINE if name in params)
                return self.closed(inner, args)
        return self.operation(equation, args)

    def closed(self, inner: Any, args: list[Held]) -> list[Held]:
        if isinstance(inner, ClosedJaxpr):
            return self.evaluate(inner.jaxpr, inner.consts, args)
        return self.evaluate(inner, [], args)

    def scan(self, equation: Any, args: list[Held]) -> list[Held]:
        params = equation.params
        fixed, carried = scan_groups(equation)
        consts, carry, sequences = args[:fixed], args[fixed : fixed + carried], args[fixed + carried :]
        stacked: list[list[Held]] = []
        iterations = range(params["length"])
        for iteration in reversed(iterations) if params["reverse"] else iterations:
            results = self.closed(
                params["jaxpr"], [*consts, *carry, *(_at(held, iteration) for held in sequences)]
            )
            carry = results[:carried]
            stacked.append(results[carried:])
        if params["reverse"]:
            stacked.reverse()
        avals = [var.aval for var in params["jaxpr"].jaxpr.outvars[carried:]]
        if not stacked:
            return [*carry, *(Held(jnp.zeros((0, *aval.shape), aval.dtype)) for aval in avals)]
        return [*carry, *(_stacked(parts) for parts in zip(*stacked, strict=True))]

    def loop(self, params: Any, args: list[Held]) -> list[Held]:
        first, second = params["cond_nconsts"], params["body_nconsts"]
        of_condition, of_body, carry = args[:first], args[first : first + second], args[first + second :]
        while True:
            # In a batch, each element has its own condition and stops by itself.
            going = self.closed(params["cond_jaxpr"], [*of_condition, *carry])[0].value
            if not bool(jnp.any(going)):
                return carry
            after = self.closed(params["body_jaxpr"], [*of_body, *carry])
            carry = [
                Held(_chosen(going, new.value, old.value)) for new, old in zip(after, carry, strict=True)
            ]

    def operation(self, equation: Any, args: list[Held]) -> list[Held]:
        name = equation.primitive.name

        def bound(values: Sequence[Any]) -> list[Any]:
            results = equation.primitive.bind(*values, **equation.params)
            return list(results) if equation.primitive.multiple_results else [results]

        values = [held.value for held in args]
        if self.rng is None:
            return [Held(result) for result in bound(values)]
        if name in ADDS or name in SUMS:
            values = [held.value if held.summed is None else held.summed for held in args]
        if name in ("bitcast_convert_type", "top_k", "nextafter"):
            values = [self.other_nans(value) for value in values]
        if self.freedom == "class" and name not in COPIES | MOVES | ADDS | PRODUCTS | SUMS:
            # The error of a library function is modelled as an error of its operands.
            values = [self.nudged(value) if _inexact(value) else value for value in values]
        results = bound(values)
        if name in SUMS:
            return [Held(result) for result in self.summed(name, bound, values, results)]
        if name == "div" and isinstance(equation.invars[1], Constant) and self.freedom != "class":
            return [Held(result, self.nudged(result) if _inexact(result) else None) for result in results]
        if name in MOVES and any(held.summed is not None for held in args):
            others = bound([held.value if held.summed is None else held.summed for held in args])
            return [Held(*both) for both in zip(results, others, strict=True)]
        if (name == "convert_element_type" and not _narrows(values[0], results[0])) or name in COPIES:
            return [Held(result) for result in results]
        return [self.rounded(name, values, result) for result in results]

    def rounded(self, name: str, values: list[Any], result: Any) -> Held:
        if not _inexact(result):
            return Held(result)
        exact = _exact(name, values, result)
        if exact is True:
            return Held(result)
        noisy = self.nudged(result, exact)
        everywhere = self.freedom == "class" or (name == "div" and _constant(values[1]))
        if everywhere or name not in PRODUCTS:
            return Held(noisy if everywhere else result)
        return Held(result, noisy)

    def summed(
        self, name: str, bound: Callable[..., list[Any]], values: list[Any], results: list[Any]
    ) -> list[Any]:
        """Returns the results of a sum with other roundings of each term and of the result.

        A result of 0 may change its sign, and a result whose partial sums may overflow becomes NaN.
        """
        found = []
        if not any(_inexact(result) for result in results):
            return results
        whole = _whole(name, values, results)
        whole |= self.freedom == "xla" and name in ORDERED
        others = results if whole else bound([self.nudged(v) if _inexact(v) else v for v in values])
        sizes = None
        if name in ("reduce_sum", "dot_general", "cumsum"):
            sizes = bound([jnp.abs(value) if _inexact(value) else value for value in values])
        for number, other in enumerate(others):
            if not _inexact(other):
                found.append(other)
                continue
            terms = max(1, max(value.size for value in values) // max(1, other.size))
            array = np.array(other if whole else self.nudged(other, most=1 + math.isqrt(terms)))
            if array.dtype.kind != "c":
                assert self.rng is not None
                flip = (array == 0) & (self.rng.random(array.shape) < 0.5)
                array = np.where(flip, -array, array)
                if sizes is not None:  # a partial sum may overflow
                    risky = np.isinf(np.asarray(sizes[number])) & np.isfinite(np.asarray(results[number]))
                    array = np.where(risky, array.dtype.type(np.nan), array)
            found.append(jnp.asarray(array))
        return found

    def nudged(self, value: Any, exact: Any = None, most: int = 1) -> Any:
        """Returns a value that is off by 1 to `most` units in the last place, where it is not exact."""
        assert self.rng is not None
        array = np.array(value)
        if array.dtype.kind == "c":
            parts = np.stack([array.real, array.imag])
            moved = np.asarray(self.nudged(parts, None, most))
            return jnp.asarray((moved[0] + 1j * moved[1]).astype(array.dtype))
        bits = array.view(f"i{array.dtype.itemsize}")
        signs = self.rng.choice(np.array([-1, 1], bits.dtype), array.shape)
        if most > 1 and self.rng.random() < 0.5:  # the errors of one order of summation may all have one sign
            signs = signs.flat[0]
        step = signs * self.rng.integers(1, most + 1, array.shape).astype(bits.dtype)
        free = (array != 0) & np.isfinite(array)
        if exact is not None:
            free &= ~exact
        return jnp.asarray(np.where(free, bits + step, bits).astype(bits.dtype).view(array.dtype))

    def other_nans(self, value: Any) -> Any:
        """Returns a value whose NaNs have random signs, since the sign of a NaN has no meaning."""
        if not _inexact(value) or jnp.iscomplexobj(value):
            return value
        assert self.rng is not None
        array = np.array(value)
        flip = np.isnan(array) & (self.rng.random(array.shape) < 0.5)
        return jnp.asarray(np.where(flip, -array, array))


def _at(held: Held, index: int) -> Held:
    return Held(held.value[index], None if held.summed is None else held.summed[index])


def _stacked(parts: Sequence[Held]) -> Held:
    value = jnp.stack([part.value for part in parts])
    if all(part.summed is None for part in parts):
        return Held(value)
    return Held(value, jnp.stack([part.value if part.summed is None else part.summed for part in parts]))


def _chosen(going: Any, new: Any, old: Any) -> Any:
    return jnp.where(going.reshape(going.shape + (1,) * (new.ndim - going.ndim)), new, old)


def _inexact(value: Any) -> bool:
    return bool(jnp.issubdtype(value.dtype, jnp.inexact))


def _narrows(value: Any, result: Any) -> bool:
    return _inexact(result) and (
        not _inexact(value) or value.dtype.itemsize > result.dtype.itemsize or value.dtype != result.dtype
    )


def _constant(value: Any) -> bool:
    array = np.asarray(value)
    return (
        bool(array.size)
        and bool(
            np.all(array.view(f"u{array.dtype.itemsize}") == array.view(f"u{array.dtype.itemsize}").flat[0])
        )
        if array.dtype.kind != "c"
        else False
    )


def _wide(value: Any) -> Any:
    array = np.asarray(value)
    return array.astype(np.longdouble if array.dtype in (np.float64, np.int64, np.uint64) else np.float64)


def _exact(name: str, values: list[Any], result: Any) -> Any:
    """Returns which entries are what exact arithmetic gives: a mask, True for all, or None if unknown."""
    if jnp.iscomplexobj(result):
        return None
    with np.errstate(all="ignore"):
        wide = [
            _wide(value)
            for value in values
            if jnp.issubdtype(value.dtype, jnp.floating) or name == "convert_element_type"
        ]
        match name:
            case "add" | "add_any":
                true = wide[0] + wide[1]
                same = (true - wide[0] == wide[1]) & (true - wide[1] == wide[0])
            case "sub":
                true = wide[0] - wide[1]
                same = (wide[0] - true == wide[1]) & (true + wide[1] == wide[0])
            case "mul":
                true, same = wide[0] * wide[1], np.asarray(True)
            case "square":
                true, same = wide[0] * wide[0], np.asarray(True)
            case "div":
                true = wide[0] / wide[1]
                same = true * wide[1] == wide[0]
            case "convert_element_type":
                true, same = wide[0], np.asarray(True)
            case _:
                return None
        exact = (true == _wide(result)) & same
        exact = np.broadcast_to(exact | ~np.isfinite(true), np.shape(result))
        return True if exact.all() else exact


def _whole(name: str, values: list[Any], results: list[Any]) -> bool:
    """Returns whether a sum is of whole numbers so small that no partial sum rounds."""
    if name not in WHOLE:
        return False
    bound, count = 1.0, math.inf
    for value in values:
        if not _inexact(value):
            continue
        if jnp.iscomplexobj(value):
            return False
        array = _wide(value)
        finite = array[np.isfinite(array)]
        if not np.array_equal(finite, np.rint(finite)):
            return False
        bound *= max(1.0, float(np.abs(finite).max(initial=0)))
        count = min(count, array.size)
    digits = min(jnp.finfo(result.dtype).nmant for result in results if _inexact(result))
    return bool(bound * count < 2.0**digits)
