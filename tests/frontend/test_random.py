"""Random numbers are drawn as JAX draws them, bit for bit, and a slice of them without the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.random import define_prng_impl

import eqsat
from eqsat.frontend.passing import passing_dimensions
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Opaque
from tests.stages import lowered, normal, ops

KEY = jax.random.key(7)
KEYS = jax.random.split(KEY, 3)


def primitives_of(fn: Callable[..., Any], *args: Any) -> set[str]:
    """The primitives that a function's program calls, and its results found to be the function's own."""
    program, constants = lowered(fn, *args)
    results = interpret(program, [*jax.tree.leaves(args), *constants])
    for result, wanted in zip(results, jax.tree.leaves(fn(*args)), strict=True):
        np.testing.assert_array_equal(result, np.asarray(wanted, result.dtype))
    return {op.call.primitive.name for op in ops(program, Opaque)}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (7, 1, 3), (2, 3, 5), (4, 4)], ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_bits_are_a_hash_of_their_index(shape: tuple[int, ...], dtype: str) -> None:
    found = primitives_of(lambda key: jax.random.bits(key, shape, dtype), KEY)
    assert "threefry2x32" in found
    assert "random_bits" not in found


def test_bits_of_64() -> None:
    with jax.enable_x64(True):
        assert "threefry2x32" in primitives_of(lambda key: jax.random.bits(key, (3, 5), "uint64"), KEY)


def test_bits_for_each_key() -> None:
    draw = jax.vmap(lambda key: jax.random.bits(key, (5, 2)))
    assert "threefry2x32" in primitives_of(draw, KEYS)
    assert "threefry2x32" in primitives_of(jax.vmap(draw), jax.random.split(KEY, (2, 3)))
    assert "threefry2x32" in primitives_of(jax.vmap(lambda key: jax.random.bits(key)), KEYS)


@contextmanager
def drawn_in_sequence() -> Iterator[None]:
    """JAX's former way of drawing, by which a number depends on how many there are."""
    before = jax.config.jax_threefry_partitionable
    jax.config.update("jax_threefry_partitionable", False)
    try:
        yield
    finally:
        jax.config.update("jax_threefry_partitionable", before)


def test_what_is_not_drawn_by_index_is_drawn_as_a_whole() -> None:
    with drawn_in_sequence():
        assert "random_bits" in primitives_of(lambda key: jax.random.bits(key, (5,)), KEY)
    for name in ("rbg", "unsafe_rbg"):
        key = jax.random.key(1, impl=name)
        assert "random_bits" in primitives_of(lambda key: jax.random.bits(key, (5,)), key)


def passed(fn: Callable[..., Any], *args: Any) -> dict[str, int]:
    """By primitive, how many axes pass; slices of the operands are found to give slices of the results."""
    found = {}
    for equation in jax.make_jaxpr(fn)(*args).jaxpr.eqns:
        groups = passing_dimensions(equation)
        found[equation.primitive.name] = len(groups)
        for group in groups:
            for start in (0, 1):
                parts = [
                    arg if dim is None else jax.lax.slice_in_dim(arg, start, None, axis=dim)
                    for arg, dim in zip(args, group.args, strict=True)
                ]
                wanted = jax.lax.slice_in_dim(fn(*args), start, None, axis=group.outs[0])
                for result, reference in zip(map(words, (fn(*parts),)), map(words, (wanted,)), strict=True):
                    np.testing.assert_array_equal(result, reference)
    return found


def words(value: Any) -> Any:
    return jax.random.key_data(value) if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) else value


def test_keys_pass() -> None:
    data = jax.random.key_data(KEYS)
    folded = jax.vmap(jax.random.fold_in)
    assert passed(folded, KEYS, np.arange(3, dtype=np.uint32)) == {"random_fold_in": 1}
    of_one_key = jax.vmap(jax.random.fold_in, (None, 0))
    assert passed(of_one_key, KEY, np.arange(3, dtype=np.uint32)) == {"random_fold_in": 1}
    assert passed(jax.vmap(lambda key: jax.random.split(key, 2)), KEYS) == {"random_split": 1}
    assert passed(jax.random.key_data, KEYS) == {"random_unwrap": 1}
    assert passed(lambda data: jax.random.wrap_key_data(data), data) == {"random_wrap": 1}
    with drawn_in_sequence():
        draw = jax.vmap(lambda key: jax.random.bits(key, (5,)))
        (equation,) = jax.make_jaxpr(draw)(KEYS).jaxpr.eqns
        assert [group.outs for group in passing_dimensions(equation)] == [(0,)]


def test_keys_that_may_draw_otherwise_in_a_batch_do_not_pass() -> None:
    keys = jax.random.split(jax.random.key(1, impl="unsafe_rbg"), 3)
    for fn in (lambda key: jax.random.bits(key, (5,)), lambda key: jax.random.split(key, 2)):
        for equation in jax.make_jaxpr(jax.vmap(fn))(keys).jaxpr.eqns:
            assert passing_dimensions(equation) == ()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["rbg", "unsafe_rbg"])
def test_what_a_batch_of_keys_draws_as_a_whole_is_used_by_chunks(name: str) -> None:
    """The draws are split along the keys after they have been drawn; so are those of one key."""

    def largest(key: Any, x: Any) -> Any:
        draws = jax.vmap(lambda key: jax.random.uniform(key, (4,)))(jax.random.split(key, 61))
        one = jax.random.normal(key, (61, 1))
        return jnp.max(draws.max(1)[:, None] * x, 1), jnp.max(one - x, 1)

    key, x = jax.random.key(1, impl=name), normal(5003)
    optimized = eqsat.optimize(largest, budget="300kB", accuracy="exact")
    assert optimized.plan(key, x).loops
    for result, wanted in zip(optimized(key, x), jax.jit(largest)(key, x), strict=True):
        np.testing.assert_array_equal(result, wanted)


def own_generator(tag: str) -> Any:
    """A generator that draws other numbers for a batch of keys than for each of them: by XLA's."""

    def seed(number: Any) -> Any:
        return jnp.full(4, number).astype(jnp.uint32) * jnp.arange(1, 5, dtype=jnp.uint32)

    def split(key: Any, shape: Any) -> Any:
        return lax.rng_bit_generator(key, (*shape, 4), jnp.uint32)[1]

    def bits(key: Any, width: int, shape: Any) -> Any:
        return lax.rng_bit_generator(key, shape, f"uint{width}")[1]

    return define_prng_impl(
        key_shape=(4,), seed=seed, split=split, random_bits=bits, fold_in=lax.add, name=tag, tag=tag
    )


@pytest.mark.parametrize("tag", ["own", "fry"])
def test_what_somebody_elses_generator_draws_is_left_alone(tag: str) -> None:
    """Also where it calls itself by the name of JAX's."""

    def largest(key: Any) -> Any:
        return jax.vmap(lambda key: jax.random.normal(key, (400,)).max())(jax.random.split(key, 200))

    key = jax.random.key(3, impl=own_generator(tag))
    np.testing.assert_array_equal(eqsat.optimize(largest, budget="9MB")(key), jax.jit(largest)(key))
    with pytest.raises(eqsat.BudgetError, match="a generator that is none of JAX's own"):
        eqsat.optimize(largest, budget="200kB").plan(key)


@pytest.mark.nightly
def test_a_batch_of_keys_is_folded_from_one_by_chunks() -> None:
    def largest(key: Any) -> Any:
        each = jax.vmap(lambda number: jax.random.normal(jax.random.fold_in(key, number), (500,)).max())
        return each(jnp.arange(300))

    optimized = eqsat.optimize(largest, budget="100kB")
    np.testing.assert_array_equal(optimized(KEY), jax.jit(largest)(KEY))


def test_keys_that_are_results_are_put_together_from_chunks() -> None:
    def followed(key: Any) -> Any:
        return jax.vmap(lambda key: jax.random.split(key, 100)[7])(jax.random.split(key, 200))

    optimized = eqsat.optimize(followed, budget="40kB")
    assert optimized.plan(KEY).loops
    np.testing.assert_array_equal(words(optimized(KEY)), words(jax.jit(followed)(KEY)))


SAMPLERS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "new": (lambda key: jax.random.normal(key, (500,)), lambda key: jax.random.randint(key, (500,), -5, 99)),
    "old": (lambda key: jax.random.permutation(key, 500)[::7],),
}


@pytest.mark.nightly
@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", SAMPLERS)
def test_samplers_by_chunks_of_a_batch_of_keys(kind: str) -> None:
    keys = jax.random.split(KEY, 150)
    args = keys if kind == "new" else jax.random.key_data(keys)

    def drawn(keys: Any) -> Any:
        values = jax.vmap(lambda key: [draw(key) for draw in SAMPLERS[kind]])(keys)
        return [(v.max(1), v.argmin(1), v[:, 3:5]) for v in values]

    optimized = eqsat.optimize(drawn, budget=150_000, accuracy="exact")
    assert optimized.plan(args).changed
    for result, wanted in zip(*(jax.tree.leaves(f(args)) for f in (optimized, jax.jit(drawn))), strict=True):
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.nightly
def test_a_dropout_mask_is_drawn_by_chunks() -> None:
    def dropped(key: Any, x: Any, w: Any) -> Any:
        hidden = jnp.abs(x[:, None] * w)
        kept = jax.random.bernoulli(key, 0.7, hidden.shape)
        return jnp.where(kept, hidden, 0).max(1)

    args = (KEY, normal(2003), normal(401))
    small = eqsat.optimize(dropped, budget=300_000)
    plan = small.plan(*args)
    assert plan.original_peak_bytes > 10_000_000
    assert any(loop.size % loop.chunk for loop in plan.loops)
    np.testing.assert_array_equal(small(*args), jax.jit(dropped)(*args))


def test_random_features_are_drawn_by_chunks() -> None:
    def features(keys: Any, x: Any) -> Any:
        draws = jax.vmap(lambda key: jax.random.uniform(key, (3,)))(keys)
        return jnp.cos(x @ draws.T).max(1)

    args = (jax.random.split(KEY, 5003), normal(50, 3))
    small = eqsat.optimize(features, budget=160_000)
    assert small.plan(*args).original_peak_bytes > 1_000_000
    np.testing.assert_allclose(small(*args), jax.jit(features)(*args), rtol=1e-6)


GAMMAS: dict[str, Callable[[Any], Any]] = {
    "gamma": lambda key: jax.random.gamma(key, 2.5, (60_000,)),
    "small shapes": lambda key: jax.random.gamma(key, jnp.linspace(1e-3, 2, 60_000)),
    "beta": lambda key: jax.random.beta(key, 2.0, 0.5, (60_000,)),
    "of a batch": lambda key: jax.vmap(lambda key: jax.random.loggamma(key, 0.7, (30,)))(
        jax.random.split(key, 2000)
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", GAMMAS)
def test_gamma_distributed_numbers_are_drawn_by_chunks(name: str) -> None:
    optimized = eqsat.optimize(lambda key: GAMMAS[name](key).max(), budget="1.5MB")
    assert optimized.plan(KEY).original_peak_bytes > 4_000_000
    np.testing.assert_array_equal(optimized(KEY), jax.jit(GAMMAS[name])(KEY).max())


def test_few_gamma_distributed_numbers_are_drawn_by_jax() -> None:
    program, _ = lowered(lambda key: jax.random.gamma(key, 2.5, (7,)), KEY)
    assert [op.call.primitive.name for op in ops(program, Opaque)] == ["random_gamma"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("shape", [(4, 9), (17,), (1000,)], ids=str)
def test_a_key_is_split_into_many_by_their_index(shape: tuple[int, ...]) -> None:
    def words(key: Any) -> Any:
        return jax.random.key_data(jax.random.split(key, shape))

    found = primitives_of(words, KEY)
    assert "threefry2x32" in found
    assert "random_split" not in found
    assert "random_split" not in primitives_of(jax.vmap(words), KEYS)
    assert "random_split" in primitives_of(lambda key: jax.random.key_data(jax.random.split(key)), KEY)
