"""What stops axes from being split, and what a refusal says of it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import eqsat
from eqsat.planning.barriers import NOTHING, Barriers
from eqsat.planning.describing import Describer
from eqsat.support.records import PeakTensor
from tests.stages import lowered, normal

X = normal(40, 30)
RESULT = "it is a result, and there as a whole in the end"
ARGUMENT = "it is an argument, and there as a whole"


def barriers(fn: Callable[..., Any], *args: Any, of: str) -> dict[int, str]:
    """Why the axes of the array that an op makes can't be split, by length."""
    program, _ = lowered(fn, *args)
    names = [f"x{number}" for number in range(len(program.inputs))]
    words = Describer(program, names)
    terms = [term for inner in program.inside() for term in inner.reachable()]
    term = next(term for term in terms if words.op(term) == of)
    found = Barriers(program, words)
    return {axis.size: found.of(term, axis).reason for axis in sorted(term.axes)}


@pytest.mark.parametrize(
    ("fn", "of", "reasons"),
    [
        (lambda x: jnp.sin(x).sum(), "sin", {40: NOTHING, 30: NOTHING}),
        (
            lambda x: jnp.exp(jnp.sort(jnp.sin(x) + 1, axis=1)).sum(),
            "sin",
            {40: NOTHING, 30: "sort needs it whole"},
        ),
        (
            lambda x: jnp.fft.fft(x).real.sum(),
            "fft",
            {40: NOTHING, 30: "fft makes it as a whole"},
        ),
        (lambda x: jnp.sin(x), "sin", dict.fromkeys([40, 30], RESULT)),
        (lambda x: jnp.sin(x).sum(), "argument x0", dict.fromkeys([40, 30], ARGUMENT)),
        (
            lambda x: jax.lax.top_k(x * 2, 7)[0].sum(),
            "top_k along x0.1",
            {40: NOTHING, 7: "top_k along x0.1 gives all of its entries at once"},
        ),
        (
            lambda x: jax.lax.scan(lambda c, _: (jnp.sort(c, axis=0), c), x, None, length=9)[1].sum(),
            "scan: stacked",
            {
                40: "scan carries it whole from iteration to iteration",
                30: NOTHING,
                9: "scan stacks it iteration by iteration",
            },
        ),
    ],
    ids=["nothing", "through elementwise ops", "made whole", "result", "argument", "top_k", "scan"],
)  # fmt: skip
def test_what_needs_an_axis_whole_is_found(fn: Callable[..., Any], of: str, reasons: dict[int, str]) -> None:
    assert barriers(fn, X, of=of) == reasons


def posterior(x: Any, y: Any) -> Any:
    gram = jnp.exp(-jnp.sum((x[:, None] - x[None]) ** 2, axis=-1)) + jnp.eye(len(x))
    factor = jnp.linalg.cholesky(gram)
    return jax.scipy.linalg.cho_solve((factor, True), y)


def test_a_refusal_names_the_arrays_their_lines_and_what_is_in_the_way() -> None:
    with pytest.raises(eqsat.BudgetError) as caught:
        eqsat.optimize(posterior, budget="500kB").plan(normal(500, 3), normal(500))
    error = caught.value
    assert error.smallest_peak is not None
    assert error.smallest_peak > 500_000
    assert 1 <= len(error.tensors) <= 3
    largest = error.tensors[0]
    assert isinstance(largest, PeakTensor)
    assert largest.tensor.bytes == 1_000_000
    assert math.prod(axis.size for axis in largest.tensor.axes) == 250_000
    lines = Path(__file__).read_text().splitlines()
    for barrier in largest.barriers:
        assert barrier.op == "cholesky"
        assert barrier.place is not None
        assert barrier.place.file == __file__
        assert "jnp.linalg.cholesky(gram)" in lines[barrier.place.line - 1]
    message = str(error)
    assert "posterior: no program within the budget of 500 kB was found" in message
    assert "x.0 (500), x.0' (500): cholesky needs it whole" in message
    assert "Raise the budget to" in message


def test_a_plan_tells_what_it_left_whole() -> None:
    def fn(x: Any, y: Any) -> Any:
        return posterior(x, jnp.sum(jnp.exp(-jnp.abs(x[:, :1] - y)), axis=1))

    plan = eqsat.optimize(fn, budget="2MB").plan(normal(300, 3), normal(20_000))
    assert {left.barriers[0].op for left in plan.left_whole} == {"cholesky", "triangular_solve"}
    (left,) = (left for left in plan.left_whole if left.barriers[0].op == "cholesky")
    assert [barrier.axis.label for barrier in left.barriers] == ["x.0", "x.0'"]
    assert re.search(r"cholesky \(.*:\d+\) needs all of x.0 \(300\), x.0' \(300\)", str(plan))
