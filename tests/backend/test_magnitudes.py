"""Sums and extremes of magnitudes: one pass over the bits tells what the reductions that define them do."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.backend.certificate import compiler_options
from eqsat.backend.layout import Emitted
from eqsat.backend.magnitudes import FUNCTION, PLACES, magnitude_text
from eqsat.ir.axis import Axis
from eqsat.ir.magnitudes import LONGEST_SUM, MAGNITUDES, SUM, extreme, summed
from eqsat.ir.ops import Leaf
from eqsat.ir.term import Term, Terms

A, B, C = Axis(0, 3), Axis(1, 1030), Axis(2, 5)


def emitted(text: str) -> Any:
    """What an expression of x in an emitted module is, as a function of x."""
    namespace: dict[str, Any] = {"jax": jax, "jnp": jnp, "lax": jax.lax}
    exec(f"{FUNCTION}\ndef found(x): return {text}", namespace)
    return jax.jit(namespace["found"], compiler_options=compiler_options())


def leaf(*axes: Axis, dtype: str = "float32") -> Term:
    return Terms().make(Leaf(0, axes, dtype))


HOSTILE = {
    "ordinary": [0.25, -3.0, 0.5],
    "zeros": [0.0, -0.0],
    "some zeros": [0.0, 2.0, -0.125, 7.0],
    "above one": [-5.0, 4.0],
    "infinite": [np.inf, -1e-3, 0.0],
    "negatively infinite": [-np.inf],
    "NaN": [1.0, np.nan, 0.0],
    "negative NaN": [-np.nan, 0.5],
    "ends": [np.finfo(np.float32).max, -np.finfo(np.float32).tiny],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.one_in(4)
@pytest.mark.parametrize("data", HOSTILE)
def test_the_bits_tell_what_the_definitions_do(data: str, dtype: Any) -> None:
    with jax.enable_x64(True):
        for shape in ((-1,), (-1, 1), (1, -1, 1)):
            x = jnp.asarray(np.asarray(HOSTILE[data], dtype).reshape(shape))
            found = emitted(f"magnitudes(x, {x.ndim})")(x)
            for name, text in MAGNITUDES.items():
                wanted = eval(text.format(x="x"), {"jnp": jnp, "x": x})
                one = found[PLACES[name]]
                assert (one.shape, one.dtype) == ((), x.dtype)
                np.testing.assert_array_equal(one, wanted, err_msg=name)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("order", [(A, B), (B, A), (C, A, B), (B, C, A)])
def test_extremes_are_those_of_all_entries(order: tuple[Axis, ...]) -> None:
    x = np.random.default_rng(0).normal(size=[axis.size for axis in order]).astype(np.float32)
    x.flat[7] = 0
    for name in PLACES:
        if name != SUM:
            text = magnitude_text(extreme(name, leaf(*order)), Emitted("x", order))
            assert text.order == ()
            wanted = eval(MAGNITUDES[name].format(x="x"), {"jnp": jnp, "x": x})
            np.testing.assert_array_equal(emitted(text.text)(x), wanted, err_msg=text.text)


@pytest.mark.parametrize("order", [(A, B), (B, A), (C, A, B), (B, C, A)])
def test_sums_are_those_along_their_axes_however_they_lie(order: tuple[Axis, ...]) -> None:
    x = np.random.default_rng(0).normal(size=[axis.size for axis in order]).astype(np.float32)
    for count in range(1, len(order) + 1):
        op = summed(leaf(*order), order[len(order) - count :])
        assert op is not None
        for lying in (order, order[::-1]):
            text = magnitude_text(op, Emitted("x", lying))
            assert text.order == tuple(axis for axis in lying if axis not in op.axes)
            data = x if lying == order else x.T
            along = tuple(place for place, axis in enumerate(lying) if axis in op.axes)
            np.testing.assert_allclose(emitted(text.text)(data), np.abs(data).sum(along), rtol=1e-5)


def test_sums_that_would_not_be_read_as_they_lie_or_are_too_long_are_no_operations() -> None:
    assert summed(leaf(A, B), [A]) is None
    assert summed(leaf(A, B, C), [A, C]) is None
    assert summed(leaf(A, Axis(3, LONGEST_SUM + 1)), [Axis(3, LONGEST_SUM + 1)]) is None


def test_no_magnitude_is_stored_and_all_are_found_in_one_pass() -> None:
    x = jax.ShapeDtypeStruct((1000, 1000), np.float32)
    texts = [f"magnitudes(x, 1)[{place}].max()" for place in PLACES.values()]
    compiled = emitted(" + ".join(texts)).lower(x).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 30_000
    assert compiled.as_text().count("f32[1000]{0}, u32[1000]{0}, u32[1000]{0}, u32[1000]{0}) reduce(") == 1
