"""Entries by rank are the entries of the sorted array, bit for bit."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from eqsat.frontend.rank_counting import DTYPES, entries_by_rank
from eqsat.ir.dtypes import is_real_float, numpy_dtype
from tests.nightly import nightly_but

SPECIAL = [np.inf, -np.inf, np.nan, -np.nan, 0.0, -0.0, 1e-40, -1e-40, 1e-310, 6e-8, -0.0, 0.0]


def hostile(dtype: str, rows: int, columns: int) -> Any:
    """Returns numbers of the whole range, of which a half are special ones."""
    rng = np.random.default_rng(0)
    if not is_real_float(dtype):
        limits = np.iinfo(dtype)
        found = rng.integers(limits.min, limits.max, (rows, columns), dtype=dtype, endpoint=True)
        found[:, :4] = limits.min, limits.max, limits.max, 0
        return found
    with np.errstate(over="ignore"):
        exponents = rng.integers(-30, 30, (rows, columns))
        found = (rng.standard_normal((rows, columns)) * 10.0**exponents).astype(numpy_dtype(dtype))
        special = np.array(SPECIAL).astype(found.dtype)
    found[:, ::2] = rng.choice(special, found[:, ::2].shape)
    return found


def bits(array: Any) -> Any:
    """Returns the bits of numbers; all NaNs have the same."""
    array = np.array(array)
    nan = array != array
    found = array.view(f"uint{8 * array.dtype.itemsize}")
    found[nan] = np.iinfo(found.dtype).max
    return found


@pytest.mark.parametrize("digit", nightly_but({4}, [2, 4]))
@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_all_ranks_and_beyond(dtype: str, digit: int) -> None:
    with jax.enable_x64("64" in dtype):
        x = jnp.asarray(hostile(dtype, 3, 61))
        ranks = jnp.arange(-2, 64, dtype=jnp.int32)[None]
        few = jnp.array([[7], [0], [60]], jnp.int8)
        closed = entries_by_rank((3, 61), dtype, [(ranks.shape, "int32"), (few.shape, "int8")], digit)
        found, chosen = jax.jit(jaxpr_as_fun(closed))(x, ranks, few)
        wanted = np.pad(np.asarray(jnp.sort(x)), ((0, 0), (2, 3)))
    np.testing.assert_array_equal(bits(found), bits(wanted))
    np.testing.assert_array_equal(bits(chosen), bits(np.take_along_axis(wanted, np.array(few) + 2, 1)))


def test_numbers_of_64_bits_are_made_for_no_others() -> None:
    for dtype in sorted(DTYPES):
        closed = entries_by_rank((100,), dtype, [((), "int32")])
        assert bool(re.search(r"\b[fiu]64\[", str(closed))) == ("64" in dtype)


def test_zeros_of_one_sign_take_no_further_passes() -> None:
    x = jnp.array([0.0, 0.0, -1.0, 0.0, 2.0] * 10)
    closed = entries_by_rank((50,), "float32", [((), "int32")])
    (loop,) = [equation for equation in closed.jaxpr.eqns if equation.primitive.name == "while"]
    names = closed.jaxpr.debug_info.with_unknown_names()
    stop = closed.jaxpr.replace(outvars=[loop.invars[0]], debug_info=names)
    passes = jax.jit(jaxpr_as_fun(ClosedJaxpr(stop, closed.consts)))
    assert passes(x, jnp.int32(20)) == [0]
    assert passes(x.at[0].set(-0.0), jnp.int32(20))[0] > 0
    assert passes(x.at[0].set(-0.0), jnp.int32(45)) == [0], "no zero is asked for"
