"""Which results take the place of which arguments: as JAX has it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from eqsat.backend.certificate import certify
from eqsat.backend.donation import matched_donation


def typed(*types: str) -> list[jax.ShapeDtypeStruct]:
    """Types by text: "f4 2 3" is float32[2,3]."""
    return [
        jax.ShapeDtypeStruct(tuple(map(int, shape)), jnp.dtype(dtype))
        for dtype, *shape in map(str.split, types)
    ]


CASES: dict[str, tuple[Callable[..., Any], list[str], tuple[int, ...]]] = {
    "one": (lambda x, y: (x * 2,), ["f4 9", "f4 9"], (0,)),
    "none donated": (lambda x, y: (x * 2,), ["f4 9", "f4 9"], ()),
    "the first of two": (lambda x, y: (x * 2 + y,), ["f4 9", "f4 9"], (0, 1)),
    "in order": (lambda x, y: (y * 2, x + 1), ["f4 9", "f4 9"], (0, 1)),
    "another dtype": (lambda x, y: (y * 2,), ["f4 8 2", "i4 3"], (0, 1)),
    "no dtype that fits": (lambda x, y: (x.astype("f2"),), ["f4 5", "i4 3"], (0, 1)),
    "another shape": (lambda x, y: (x.reshape(-1) * 2,), ["f4 3 4", "f4 5"], (0, 1)),
    "a scalar": (lambda x, y: (x + 1, y.sum()), ["f4", "f4 5"], (0, 1)),
    "results alike": (lambda x, y: (x + 1, x + 2, y.sum()), ["f4 7", "f4 2"], (0, 1)),
    "nothing there": (lambda x, y: (), ["f4 7", "f4 2"], (0, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_as_jax_has_it(name: str) -> None:
    fn, types, given = CASES[name]
    arguments = typed(*types)
    donated = [number in given for number in range(len(arguments))]
    found = matched_donation(arguments, jax.eval_shape(fn, *arguments), donated)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        jax.jit(fn, keep_unused=True, donate_argnums=given).lower(*arguments)
    text = " ".join(str(warning.message) for warning in told)
    assert list(found.unusable) == re.findall(r"\w+\[[\d,]*\]", text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        certified = certify(fn, arguments, donated=found.arguments)
    assert certified.aliased >= found.aliased
    assert certified.aliased == found.aliased or name == "another shape"
