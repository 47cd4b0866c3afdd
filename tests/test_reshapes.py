"""Reshapes that merge and split axes are no barriers: random chains of them, and programs that need it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.backend.emit import emit
from eqsat.ir.interpret import interpret
from eqsat.planning.candidates import as_written
from eqsat.targets.cpu import CPU
from examples.measure import plain_peak
from tests.nightly import THOROUGH
from tests.stages import lowered, normal

Shape = tuple[int, ...]


@st.composite
def factorings(draw: st.DrawFn, total: int) -> Shape:
    """A shape of so many elements."""
    shape: list[int] = []
    while total > 1:
        size = draw(st.sampled_from([size for size in range(2, total + 1) if total % size == 0]))
        shape += [size] + [1] * draw(st.integers(0, 4).map(lambda n: n == 4))
        total //= size
    return tuple(shape)


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[Shape], list[str]]:
    """The shapes of the inputs, and assignments to new variables; the last one is the result."""
    total = draw(st.sampled_from([12, 24, 36, 60, 64]))
    shapes = {f"x{number}": draw(factorings(total)) for number in range(draw(st.integers(1, 3)))}
    inputs = list(shapes.values())
    lines: list[str] = []
    for number in range(draw(st.integers(2, 8))):
        name = draw(st.sampled_from(list(shapes)[-3:]))
        shape = shapes[name]
        made, expression = draw(_steps(name, shape, shapes))
        if math.prod(made) <= 2000:
            shapes[f"v{number}"] = made
            lines.append(f"v{number} = {expression}")
    return inputs, lines


@st.composite
def _steps(draw: st.DrawFn, name: str, shape: Shape, shapes: dict[str, Shape]) -> tuple[Shape, str]:
    """The shape and the expression of a next value: small whole numbers, the same in any arithmetic."""
    rank = len(shape)
    kinds = ["reshape", "reshape", "reshape", "map", "repeat", "add", "subtract"]
    kind = draw(
        st.sampled_from(kinds + ["transpose", "reduce", "product", "index", "argmax", "sort"] * (rank > 0))
    )
    place = draw(st.integers(0, max(rank - 1, 0)))
    match kind:
        case "reshape":
            made = draw(factorings(math.prod(shape)))
            return made, f"jnp.reshape({name}, {made})"
        case "transpose":
            order = tuple(draw(st.permutations(range(rank))))
            return tuple(shape[d] for d in order), f"jnp.transpose({name}, {order})"
        case "repeat":
            made = (*shape[:place], draw(st.integers(2, 3)), *shape[place:])
            return made, f"jnp.broadcast_to(jnp.expand_dims({name}, {place}), {made})"
        case "add":
            like = [n for n in shapes if math.prod(shapes[n]) == math.prod(shape)]
            return shape, f"{name} + 2 * jnp.reshape({draw(st.sampled_from(like))}, {shape})"
        case "subtract":
            return shape + shape, f"jnp.reshape({name}, {shape + (1,) * rank}) - {name}"
        case "reduce":
            gone = tuple(draw(st.sets(st.integers(0, rank - 1), min_size=1)))
            kept = tuple(size for d, size in enumerate(shape) if d not in gone)
            return kept, f"jnp.{draw(st.sampled_from(['sum', 'max']))}({name}, axis={gone})"
        case "product":
            other = draw(st.sampled_from(list(shapes)))
            pairs = [(a, b) for a in range(rank) for b, n in enumerate(shapes[other]) if n == shape[a]]
            if pairs:
                a, b = draw(st.sampled_from(pairs))
                rest = shape[:a] + shape[a + 1 :] + shapes[other][:b] + shapes[other][b + 1 :]
                return rest, f"jnp.clip(jnp.tensordot({name}, {other}, axes=(({a},), ({b},))), -9, 9)"
        case "index":
            ones = tuple(size if d == place else 1 for d, size in enumerate(shape))
            return shape, f"jnp.clip({name} * jnp.reshape(jnp.arange({shape[place]}) - 1.0, {ones}), -9, 9)"
        case "argmax":
            return shape[:place] + shape[place + 1 :], f"1.0 * jnp.argmax({name}, axis={place})"
        case "sort":
            return shape, f"jnp.sort({name}, axis={place})"
    return shape, f"jnp.abs({name} - 1)"


def _run(lines: list[str], inputs: tuple[Any, ...], numpy: Any) -> Any:
    scope: dict[str, Any] = {"jnp": numpy, **{f"x{number}": value for number, value in enumerate(inputs)}}
    value: Any = inputs[-1]
    for line in lines:
        name, expression = line.split(" = ")
        value = scope[name] = eval(expression, scope)
    return value


def _check(chain: tuple[list[Shape], list[str]], compute: Callable[[Any, list[Any]], Any]) -> None:
    shapes, lines = chain
    arrays = [np.round(4 * normal(*shape, seed=number)) for number, shape in enumerate(shapes)]
    wanted = _run(lines, tuple(array.astype(np.float64) for array in arrays), np)
    result = np.asarray(compute(lambda *xs: _run(lines, xs, jnp), arrays))
    np.testing.assert_array_equal(result, wanted)


UNHURRIED = settings(derandomize=True, suppress_health_check=list(HealthCheck))


@settings(UNHURRIED, max_examples=150 if THOROUGH else 60)
@given(chains())
def test_a_chain_of_reshapes_is_lowered_to_what_it_means(chain: tuple[list[Shape], list[str]]) -> None:
    def interpreted(fn: Callable[..., Any], arrays: list[Any]) -> Any:
        program, constants = lowered(fn, *arrays)
        return interpret(program, [*arrays, *constants])[0]

    _check(chain, interpreted)


@settings(UNHURRIED, max_examples=30 if THOROUGH else 12)
@given(chains())
def test_a_chain_of_reshapes_is_emitted_as_what_it_means(chain: tuple[list[Shape], list[str]]) -> None:
    def run(fn: Callable[..., Any], arrays: list[Any]) -> Any:
        program, constants = lowered(fn, *arrays)
        names = [f"argument_{index}" for index in range(len(program.inputs))]
        return jax.jit(emit(as_written(program, CPU).schedule, names).function())(*arrays, *constants)[0]

    _check(chain, run)


@settings(UNHURRIED, max_examples=20 if THOROUGH else 8)
@given(chains(), st.floats(0.1, 0.9))
def test_a_chain_of_reshapes_is_optimized_to_what_it_means(
    chain: tuple[list[Shape], list[str]], fraction: float
) -> None:
    def optimized(fn: Callable[..., Any], arrays: list[Any]) -> Any:
        plain = jax.jit(fn)
        before = plain_peak(fn, arrays)
        floor = sum(array.nbytes for array in (*arrays, plain(*arrays)))
        try:
            return eqsat.optimize(fn, budget=max(1, int(floor + fraction * (before - floor))))(*arrays)
        except eqsat.BudgetError:
            event("refused")
            return plain(*arrays)

    _check(chain, optimized)


# Programs that only chunks of a part of a merged axis, or of a split one, make fit: along the others, there
# is a sort.

B, T, D, H = 48, 64, 32, 512


def tokens_through_a_wide_layer(x: Any, w: Any, v: Any) -> Any:
    """A batch of sequences, flattened to rows, through a layer that is much wider than its input."""
    hidden = jnp.sort(x.reshape(-1, D) @ w, axis=-1).reshape(B, T, H)
    return jnp.sort(hidden, axis=1) @ v


def features_split_into_heads(x: Any, w: Any, v: Any) -> Any:
    """Features of all tokens at once, then the heads that they are made of."""
    features = jnp.sort((x @ w).reshape(B * T, H), axis=0).reshape(B * T, 16, H // 16)
    return (jnp.sort(features, axis=2).sum(0).reshape(H) * v).sum()


def pixels_in_a_row(x: Any, w: Any, v: Any) -> Any:
    """Differences of all pixels of images, in a row, to some centres; then the most of them in an image."""
    differences = jnp.sort(x.reshape(-1)[:, None] - v[:128], axis=1)
    return jnp.sort(differences.reshape(B, -1, 128), axis=1)[:, -1]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("fn", [tokens_through_a_wide_layer, features_split_into_heads, pixels_in_a_row])
def test_what_is_merged_or_split_is_chunked(fn: Callable[..., Any]) -> None:
    args = [normal(B, T, D), normal(D, H, seed=1) / 8, normal(H, seed=2)]
    before = plain_peak(fn, args)
    result = jax.jit(fn)(*args)
    floor = sum(array.nbytes for array in (*args, result))
    optimized = eqsat.optimize(fn, budget=int(floor + 0.1 * (before - floor)))
    plan = optimized.plan(*args)
    assert plan.peak_bytes <= floor + 0.1 * (before - floor)
    np.testing.assert_allclose(optimized(*args), result, rtol=1e-4, atol=1e-4)


def test_an_input_and_a_result_are_reshaped_in_place() -> None:
    """A chunk of a part of an argument's axis is a slice of the argument: no copy of it is made."""

    def fn(x: Any) -> Any:
        rows = x.reshape(256, 64, 32)
        return jnp.exp(rows[:, :, None] - rows[:, None]).sum(2).reshape(256 * 64 * 32)

    x = normal(256 * 64 * 32)
    plan = eqsat.optimize(fn, budget=2 * x.nbytes + x.nbytes // 2).plan(x)
    assert plan.loops
    assert plan.peak_bytes < 2.5 * x.nbytes
