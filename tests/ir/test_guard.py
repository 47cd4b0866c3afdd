"""What guards mean: which data passes their tests."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.ir.axis import Axis
from eqsat.ir.guard import Guard, NoTest, conditions, joined
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Chunk, Leaf
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Terms
from eqsat.language.parse import parse_rules

N, K = Axis(0, 4), Axis(1, 3)


def guard_of(text: str) -> Guard:
    rule = f"rule r [cancels]  sum[K] (c{{!K}} * a{{K}})^2 => c^2 * sum[K] a^2  guard {text}"
    [parsed] = parse_rules(rule, "my.rules").rules
    assert parsed.data_guard is not None
    return parsed.data_guard.guard


def passes(text: str, a: Any, c: Any = 1.0, dtype: str = "float32") -> bool:
    """Whether data of axes i and k, and a number, pass."""
    terms, guard = Terms(), guard_of(text)
    leaves = [terms.make(Leaf(0, (N, K), dtype)), terms.make(Leaf(1, (), dtype))]
    values = dict(zip(("a", "c"), leaves, strict=True))
    tests = conditions(guard, values, {"K": frozenset({K})}, terms)
    program = Program(tuple(leaves), (Output(joined(tests, terms), ()),), terms)
    precision = "double" if dtype == "float64" else "single"
    (found,) = interpret(program, [np.broadcast_to(a, (4, 3)), np.asarray(c)], precision=precision)
    return bool(found)


def test_a_test_is_of_all_entries() -> None:
    data = np.arange(12.0).reshape(4, 3)
    assert passes("max(a) <= 11, min(a) >= 0, sum(a) <= 66", data)
    assert not passes("max(a) < 11", data)
    assert not passes("min(a) > 0", data)
    assert not passes("sum(a) < 66", data)
    assert passes("max(abs(a)) <= 11", -data)
    assert not passes("max(abs(a)) < 11", -data)


def test_all_tests_must_hold() -> None:
    assert not passes("max(a) <= 1, max(c) <= 1", 1.0, 2.0)
    assert not passes("max(a) <= 1, max(c) <= 1", 2.0, 1.0)


def test_a_reduction_may_be_along_axes_inside_of_one_over_all() -> None:
    data = np.zeros((4, 3))
    data[2] = 2.0
    assert passes("max(sum[K] a^2) <= 12", data)
    assert not passes("max(sum[K] a^2) < 12", data)
    assert passes("sum(a) / size(K) <= 2", data)


@pytest.mark.parametrize("text", ["max(abs(a)) <= inf", "min(a) >= -inf", "max(a^2) < inf", "sum(a) <= inf"])
@pytest.mark.parametrize("place", [(0, 0), (1, 2), (3, 2)])
def test_data_with_a_nan_passes_no_test_that_looks_at_it(text: str, place: tuple[int, int]) -> None:
    data = np.ones((4, 3))
    assert passes(text, data)
    data[place] = np.nan
    assert not passes(text, data)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_bounds_are_those_of_the_dtype(dtype: str) -> None:
    limits: Any = jnp.finfo
    limits = limits(dtype)
    largest, smallest, epsilon = (float(limits.max), float(limits.smallest_normal), float(limits.eps))
    for bound, value in {"largest": largest, "smallest": smallest, "epsilon": epsilon}.items():
        assert passes(f"max(a) >= {bound}(a)", value, dtype=dtype)
        assert passes(f"max(a) <= {bound}(a)", value, dtype=dtype)
        assert not passes(f"max(a) <= {bound}(a) / 2", value, dtype=dtype)


def test_a_bound_of_half_floats_is_computed_in_single_precision() -> None:
    # In half precision, the square would be infinite, and the bound as well.
    assert passes("max(abs(a))^2 <= largest(a) * largest(a)", 6e4, dtype="float16")
    assert not passes("max(abs(a))^2 <= largest(a)", 6e4, dtype="float16")


def test_integers_and_chunks_are_not_tested() -> None:
    terms, guard = Terms(), guard_of("max(a) <= 1")
    whole = terms.make(Leaf(0, (N, K), "float32"))
    for value in (terms.make(Leaf(1, (N, K), "int32")), terms.make(Chunk(N), [whole])):
        with pytest.raises(NoTest):
            conditions(guard, {"a": value}, {}, terms)
