"""The public function: what goes in, what comes out, what it refuses, and how it lives with JAX."""

from __future__ import annotations

import functools
import inspect
import re
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.budget import format_bytes, parse_budget
from tests.stages import normal

X, Y, V = normal(211, 3), normal(307, 3), normal(307)
BUDGET = 60_000
"""The kernel matrix alone takes 259 kB."""


def kernel(x: Any, y: Any, v: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1) / 2) @ v


SMALL = eqsat.optimize(kernel, budget=BUDGET)
"""Planned once for all tests."""


def close(got: Any, wanted: Any, rtol: float = 2e-5) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


# Budgets.


@pytest.mark.parametrize(
    ("budget", "amount"),
    [
        (1, 1),
        (np.int64(5), 5),
        ("17", 17),
        ("17B", 17),
        ("2GB", 2 * 10**9),
        ("2 gb", 2 * 10**9),
        (" 1.5 GiB ", 3 * 2**29),
        ("0.5kB", 500),
        ("3TiB", 3 * 2**40),
    ],
)
def test_budgets(budget: object, amount: int) -> None:
    assert parse_budget(budget) == amount


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("2 XB", r"unknown unit 'XB': use B, KB"),
        ("2 Gb/s", "not an amount of memory"),
        ("-1GB", "not an amount of memory"),
        ("1e9", "not an amount of memory"),
        ("", "not an amount of memory"),
        ("much", "not an amount of memory"),
        (1.5, "not an amount of memory"),
        (None, "not an amount of memory"),
        (True, "not an amount of memory"),
        (b"2GB", "not an amount of memory"),
        (0, "not positive"),
        (-5, "not positive"),
        ("0.1B", "not positive"),
    ],
)
def test_what_is_no_budget(budget: Any, message: str) -> None:
    with pytest.raises(eqsat.BudgetError, match=message):
        eqsat.optimize(kernel, budget=budget)


@pytest.mark.parametrize("amount", [1, 999, 1234, 10**6, 2_500_000_000, 10**13])
def test_printed_amounts_can_be_read_back(amount: int) -> None:
    assert parse_budget(format_bytes(amount)) == pytest.approx(amount, rel=5e-3)


# Results and signatures.


def test_it_computes_the_same_within_the_budget() -> None:
    plan = SMALL.plan(X, Y, V)
    assert plan.changed
    assert plan.peak_bytes <= plan.budget_bytes == BUDGET < plan.original_peak_bytes
    close(SMALL(X, Y, V), kernel(X, Y, V))


def test_it_looks_like_the_function() -> None:
    assert SMALL.__name__ == "kernel"
    assert list(inspect.signature(SMALL).parameters) == ["x", "y", "v"]
    assert SMALL.__wrapped__ is kernel  # type: ignore[attr-defined]


def test_keywords_in_any_order() -> None:
    close(SMALL(X, v=V, y=Y), kernel(X, Y, V))
    close(SMALL(y=Y, v=V, x=X), kernel(X, Y, V))


def test_wrong_arguments_are_refused_as_the_function_does() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'v'"):
        SMALL(X, Y)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword"):
        SMALL(X, Y, V, w=1)  # type: ignore[call-arg]


Pair = namedtuple("Pair", "points weights")


def test_trees_of_arguments_and_results() -> None:
    def fn(data: dict[str, Pair], extra: list[Any]) -> Any:
        pair = data["y"]
        return {"result": kernel(extra[0], *pair), "none": None}, Pair(pair.weights * 2, (extra[1],))

    data, extra = {"y": Pair(Y, V)}, [X, 3.0]
    optimized = eqsat.optimize(fn, budget=BUDGET)
    assert optimized.plan(data, extra).changed
    close(optimized(data, extra), jax.jit(fn)(data, extra))


def test_none_is_no_array() -> None:
    optimized = eqsat.optimize(lambda x, y, v: kernel(x, y if y is not None else Y, v), budget=BUDGET)
    close(optimized(X, None, V), kernel(X, Y, V))
    close(optimized(X, Y, V), kernel(X, Y, V))


def test_functions_of_nothing_and_results_of_nothing() -> None:
    close(eqsat.optimize(lambda: jnp.arange(3), budget="1MB")(), jnp.arange(3))
    assert eqsat.optimize(lambda x: (), budget="1MB")(X) == ()
    assert eqsat.optimize(lambda x: None, budget="1MB")(X) is None


def test_variadic_functions_methods_and_partials() -> None:
    class Model:
        def predict(self, x: Any, y: Any, v: Any) -> Any:
            return kernel(x, y, v)

    wanted = kernel(X, Y, V)
    close(eqsat.optimize(lambda *args: kernel(*args), budget=BUDGET)(X, Y, V), wanted)
    close(eqsat.optimize(lambda **kw: kernel(**kw), budget=BUDGET)(x=X, y=Y, v=V), wanted)
    close(eqsat.optimize(Model().predict, budget=BUDGET)(X, Y, V), wanted)
    close(eqsat.optimize(functools.partial(kernel, v=V), budget=BUDGET)(X, Y), wanted)
    close(eqsat.optimize(jax.jit(kernel), budget=BUDGET)(X, Y, V), wanted)


def test_it_decorates_methods() -> None:
    @jax.tree_util.register_static
    class Model:
        @functools.partial(eqsat.optimize, budget=BUDGET)
        def predict(self, x: Any, y: Any, v: Any) -> Any:
            return kernel(x, y, v)

    close(Model.predict.__get__(Model())(X, Y, V), kernel(X, Y, V))


@pytest.mark.parametrize(
    "value",
    [2, 2.5, True, 1j, np.float64(3), np.int64(3), np.float16(2), np.bool_(True), [1.0, 2.0], b"x"[0]],
)
def test_numbers_and_numpy_become_what_jit_makes_of_them(value: Any) -> None:
    def fn(value: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf + 1, value)

    close(eqsat.optimize(fn, budget="1MB")(value), jax.jit(fn)(value))


@pytest.mark.parametrize("value", [2, 2.5])
def test_weak_types_are_kept(value: Any) -> None:
    fn = eqsat.optimize(lambda value: value + 1, budget="1MB")
    assert fn(value).weak_type == jax.jit(lambda value: value + 1)(value).weak_type


def test_wide_numpy_arrays_are_narrowed_as_jit_does() -> None:
    wide = [array.astype(np.float64) for array in (X, Y, V)]
    close(SMALL(*wide), kernel(X, Y, V))
    close(eqsat.optimize(lambda n: n * 2, budget="1MB")(np.arange(3)), jnp.arange(3) * 2)


def test_keys() -> None:
    def fn(key: Any, x: Any) -> Any:
        first, second = jax.random.split(key)
        return kernel(x, Y, jnp.ones(307)), jax.random.key_data(second), jax.random.bits(first, (2,))

    optimized = eqsat.optimize(fn, budget="1MB")
    close(optimized(jax.random.key(3), X), jax.jit(fn)(jax.random.key(3), X))


def test_double_precision() -> None:
    with jax.enable_x64(True):
        x, y, v = (array.astype(np.float64) for array in (X, Y, V))
        fn = eqsat.optimize(kernel, budget=2 * BUDGET)
        assert fn.plan(x, y, v).changed
        result = fn(x, y, v)
        assert result.dtype == np.float64
        np.testing.assert_allclose(result, kernel(x, y, v), rtol=1e-12)


def test_plans_know_whether_double_precision_is_on() -> None:
    fn = eqsat.optimize(lambda x: jnp.ones(3) + jnp.sum(x), budget="1MB")
    assert fn(X).dtype == np.float32
    with jax.enable_x64(True):
        assert fn(X).dtype == np.float64


def test_plans_know_the_default_precision() -> None:
    fn = eqsat.optimize(lambda a, b: a @ b, budget="1MB")
    assert "HIGHEST" not in str(jax.make_jaxpr(fn)(X, X.T))
    with jax.default_matmul_precision("highest"):
        assert "HIGHEST" in str(jax.make_jaxpr(fn)(X, X.T))


# Plans.


def test_plans_are_kept_by_shapes_dtypes_and_trees() -> None:
    traces = []

    def fn(x: Any, scale: Any = 1.0) -> Any:
        traces.append(x.shape)
        return x * scale

    optimized = eqsat.optimize(fn, budget="1MB")
    plan = optimized.plan(X)
    assert optimized.plan(X + 1) is plan
    assert optimized.plan(jnp.asarray(X)) is plan
    assert optimized.plan(jax.ShapeDtypeStruct(X.shape, X.dtype)) is plan
    optimized(X)
    assert len(traces) == 1
    for args in ([X[:5]], [X.astype(np.int32)], [X, 2.0], [X, np.float32(2)]):
        optimized(*args)
    assert len(traces) == 5


def test_shapes_are_enough_to_plan() -> None:
    million = jax.ShapeDtypeStruct((1_000_000, 3), np.float32)
    plan = eqsat.optimize(kernel, budget="100MB").plan(
        million, million, jax.ShapeDtypeStruct((1_000_000,), np.float32)
    )
    assert plan.peak_bytes <= 10**8
    assert plan.original_peak_bytes > 3 * 10**12


def test_the_plan_prints() -> None:
    plan = SMALL.plan(X, Y, V)
    page = str(plan)
    for part in ("rewritten", "60 kB", "certified", "loops", "chunks of", "rules", "planning"):
        assert part in page
    assert sum(plan.rules_fired.values()) > 0
    assert plan.stop_reason == "saturated"


def test_the_plan_names_the_rules_that_exploded(tmp_path: Path) -> None:
    """The others go on: the program is found none the less."""
    file = tmp_path / "mine.rules"
    file.write_text("rule explode  a + (b + c) == (a + b) + c")

    def fn(x: Any, y: Any, v: Any) -> Any:
        return functools.reduce(jnp.add, [jnp.sin(n * v) for n in range(12)]) + kernel(y, y, v)

    small = eqsat.optimize(fn, budget="60kB", rules=file)
    plan = small.plan(X, Y, V)
    assert plan.banned == ("explode",)
    assert "stopped         explode (made too many terms)" in str(plan)
    assert plan.peak_bytes <= 60_000
    close(small(X, Y, V), fn(X, Y, V))
    assert "stopped" not in str(SMALL.plan(X, Y, V))


def test_the_plans_source_runs_alone() -> None:
    namespace: dict[str, Any] = {}
    exec(SMALL.plan(X, Y, V).source, namespace)
    close(namespace["optimized"](X, Y, V), (kernel(X, Y, V),))


def test_arguments_keep_their_names_in_the_source() -> None:
    def fn(data: dict[str, Any], *rest: Any, scale: Any) -> Any:
        return data["points"] * rest[0] * scale

    source = eqsat.optimize(fn, budget="1MB").plan({"points": X}, 2.0, scale=3.0).source
    header = re.search(r"def optimized\((.*)\):", source)
    assert header is not None
    assert header.group(1).startswith("data_points, ")
    assert header.group(1).endswith(", scale")


# Nothing to gain.


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.sin(x) + 1,
        lambda x: x @ x.T,
        lambda x: lax.scan(lambda c, row: (c + row, c), jnp.zeros(3), x),
        lambda x: jnp.linalg.svd(x)[1],
        jax.jit(lambda x: jax.nn.softmax(x)),
    ],
)
def test_a_function_with_nothing_to_gain_keeps_its_jaxpr(fn: Callable[..., Any]) -> None:
    optimized = eqsat.optimize(fn, budget="10MB")
    plan = optimized.plan(X)
    assert not plan.changed
    assert plan.loops == ()
    assert plan.rules_fired == {}
    assert plan.peak_bytes == plan.original_peak_bytes
    assert str(jax.make_jaxpr(optimized)(X)) == str(jax.make_jaxpr(fn)(X))
    for got, wanted in zip(jax.tree.leaves(optimized(X)), jax.tree.leaves(jax.jit(fn)(X)), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_fitting_function_is_rewritten_where_that_is_much_faster() -> None:
    a, b, v = normal(300, 310), normal(310, 320), normal(320)
    optimized = eqsat.optimize(lambda a, b, v: a @ b @ v, budget="10MB")
    plan = optimized.plan(a, b, v)
    assert plan.changed
    assert plan.rules_fired.keys() == {"contraction-order"}
    close(optimized(a, b, v), a @ (b @ v), rtol=1e-3)
    assert (
        not eqsat.optimize(lambda a, b, v: a @ b @ v, budget="10MB", accuracy="exact").plan(a, b, v).changed
    )


# Refusals.


def test_arguments_and_results_too_big() -> None:
    with pytest.raises(eqsat.BudgetError, match="no rewriting can help") as caught:
        eqsat.optimize(lambda x: x + 1, budget=1000).plan(X)
    assert caught.value.smallest_peak == 2 * X.nbytes
    assert "(2.53 kB)" in str(caught.value)


def refusal(fn: Callable[..., Any], budget: int, *args: Any) -> eqsat.BudgetError:
    with pytest.raises(eqsat.BudgetError) as caught:
        eqsat.optimize(fn, budget=budget).plan(*args)
    return caught.value


def sorted_products(x: Any) -> Any:
    """Nothing in here can be split."""
    return jnp.sort(jnp.ravel(x[:, None, 0] * x[:, 1]))[:3]


def test_a_refusal_names_the_peak_reached_and_what_makes_it() -> None:
    error = refusal(sorted_products, 50_000, X)
    message = str(error)
    assert "no program within the budget of 50 kB was found" in message
    assert "as written: " in message
    assert "float32[" in message
    assert "test_api.py" in message, "where the value is made"
    assert error.smallest_peak is not None
    assert error.smallest_peak > 50_000


def test_what_a_refusal_says_is_enough_is_enough() -> None:
    error = refusal(sorted_products, 50_000, X)
    assert error.smallest_peak is not None
    assert (
        eqsat.optimize(sorted_products, budget=error.smallest_peak).plan(X).peak_bytes <= error.smallest_peak
    )


def test_the_budget_advised_is_enough() -> None:
    def fn(x: Any) -> Any:
        return x + 1

    error = refusal(fn, 100, normal(6100, 3))
    advised = re.search(r"raise the budget above ([\d.]+ \w+)", str(error))
    assert advised is not None
    eqsat.optimize(fn, budget=parse_budget(advised.group(1)) + 1).plan(normal(6100, 3))


def test_a_budget_error_is_raised_by_the_call_too() -> None:
    with pytest.raises(eqsat.BudgetError):
        eqsat.optimize(sorted_products, budget=50_000)(X)


@pytest.mark.parametrize("fn", [3, None, "f"])
def test_what_is_no_function(fn: Any) -> None:
    with pytest.raises(TypeError, match="takes a function"):
        eqsat.optimize(fn, budget="1GB")


def test_what_is_no_accuracy() -> None:
    with pytest.raises(eqsat.RuleError, match="'fast' is not known: choose one of 'exact', 'reassociates'"):
        eqsat.optimize(kernel, budget="1GB", accuracy="fast")


# Rules and accuracy.


def test_a_users_rules_are_used_and_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.rules"
    file.write_text("rule double-angle\n  2 * sin(a) * cos(a)  =>  sin(2 * a)\n")

    def fn(x: Any) -> Any:
        return 2 * jnp.sin(x) * jnp.cos(x)

    optimized = eqsat.optimize(fn, budget="1MB", rules=[file])
    plan = optimized.plan(X)
    assert set(plan.rules_fired) == {"double-angle"}
    assert "# double-angle" in plan.source
    close(optimized(X), fn(X))
    assert not eqsat.optimize(fn, budget="1MB").plan(X).changed
    assert not eqsat.optimize(fn, budget="1MB", rules=[str(file)], accuracy="exact").plan(X).changed


def test_bad_rules_are_refused_with_their_place(tmp_path: Path) -> None:
    file = tmp_path / "bad.rules"
    file.write_text("rule wrong\n  exp(a)  =>  b\n")
    with pytest.raises(eqsat.RuleError, match=r"bad.rules:2"):
        eqsat.optimize(kernel, budget=BUDGET, rules=[file]).plan(X, Y, V)
    file.write_text("rule wrong\n  exp(a  =>  b\n")
    with pytest.raises(eqsat.RuleSyntaxError, match=r"bad.rules:2"):
        eqsat.optimize(kernel, budget=BUDGET, rules=[file]).plan(X, Y, V)
    with pytest.raises(eqsat.RuleError, match="there is no rules file"):
        eqsat.optimize(kernel, budget=BUDGET, rules=[tmp_path / "none.rules"]).plan(X, Y, V)


def test_one_path_of_rules_is_not_taken_for_many(tmp_path: Path) -> None:
    file = tmp_path / "mine.rules"
    file.write_text("rule double-angle\n  2 * sin(a) * cos(a)  =>  sin(2 * a)\n")
    try:
        eqsat.optimize(kernel, budget="10MB", rules=str(file)).plan(X, Y, V)
    except TypeError as error:
        assert "rules" in str(error)  # noqa: PT017


def test_accuracy_decides_whether_distances_are_expanded() -> None:
    plans = {
        accuracy: eqsat.optimize(kernel, budget=BUDGET, accuracy=accuracy).plan(X, Y, V)
        for accuracy in ("exact", "reassociates", "cancels")
    }
    assert all(plan.peak_bytes <= BUDGET for plan in plans.values())
    assert "squared-distance" not in plans["reassociates"].rules_fired
    assert set(plans["exact"].rules_fired) <= {
        "chunk-map", "chunk-reduction", "chunk-contraction", "split-result", "chunk-call", "chunk-selection"
    }  # fmt: skip


# Side effects.


def test_side_effects_are_left_alone() -> None:
    heard: list[float] = []

    def fn(x: Any) -> Any:
        jax.debug.callback(lambda total: heard.append(float(total)), x.sum())
        return x + 1

    optimized = eqsat.optimize(fn, budget="1MB")
    plan = optimized.plan(X)
    assert not plan.changed
    assert "side effects" in plan.stop_reason
    close(optimized(X), X + 1)
    optimized(X)
    jax.effects_barrier()
    assert len(heard) == 2


def test_side_effects_cannot_be_made_to_fit() -> None:
    def fn(x: Any, y: Any, v: Any) -> Any:
        jax.debug.callback(lambda _: None, x.sum())
        return kernel(x, y, v)

    with pytest.raises(eqsat.BudgetError, match="has side effects"):
        eqsat.optimize(fn, budget=BUDGET).plan(X, Y, V)


def test_pure_callbacks_are_calls_like_any_other() -> None:
    def fn(x: Any, y: Any, v: Any) -> Any:
        doubled = jax.pure_callback(lambda a: 2 * np.asarray(a), jax.ShapeDtypeStruct(v.shape, v.dtype), v)
        return kernel(x, y, doubled)

    optimized = eqsat.optimize(fn, budget=BUDGET)
    assert optimized.plan(X, Y, V).changed
    close(optimized(X, Y, V), fn(X, Y, V))


# Under JAX's transformations.


def total(x: Any, y: Any, v: Any) -> Any:
    return jnp.sum(kernel(x, y, v) ** 2)


SMALL_TOTAL = eqsat.optimize(total, budget=3_000)
"""Of few points: second derivatives are quadratic in them."""
POINTS = X[:23], Y[:41], V[:41]

TRANSFORMED: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "jit": jax.jit,
    "grad": lambda f: jax.grad(f, argnums=(0, 1, 2)),
    "value and grad": jax.value_and_grad,
    "jit of grad": lambda f: jax.jit(jax.grad(f)),
    "grad of jit": lambda f: jax.grad(jax.jit(f)),
    "hessian": lambda f: jax.hessian(f, 2),
    "jacfwd": lambda f: jax.jacfwd(f, 1),
    "jvp": lambda f: lambda *xs: jax.jvp(f, xs, xs),
    "vjp": lambda f: lambda *xs: jax.vjp(f, *xs)[1](jnp.float32(2)),
    "linearize": lambda f: lambda *xs: jax.linearize(f, *xs)[1](*xs),
    "vmap": lambda f: lambda x, y, v: jax.vmap(f, (None, None, 0))(x, y, jnp.stack([v, v + 1])),
    "vmap of grad": lambda f: (
        lambda x, y, v: jax.vmap(jax.grad(f), (0, None, None))(jnp.stack([x, -x]), y, v)
    ),
    "grad of vmap": lambda f: jax.grad(
        lambda x, y, v: jax.vmap(f, (None, 0, None))(x, jnp.stack([y, -y]), v).sum()
    ),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f)),
    "map": lambda f: lambda x, y, v: lax.map(lambda w: f(x, y, w), jnp.stack([v, v + 1])),
    "scan": lambda f: (
        lambda x, y, v: lax.scan(lambda c, w: (c + f(x, y, w), None), 0.0, jnp.stack([v, -v]))[0]
    ),
    "itself": lambda f: eqsat.optimize(f, budget=3_000),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformations_give_what_they_give_of_the_function(name: str) -> None:
    assert SMALL_TOTAL.plan(*POINTS).changed
    transform = TRANSFORMED[name]
    close(transform(SMALL_TOTAL)(*POINTS), transform(total)(*POINTS), rtol=1e-3)


def test_the_gradient_can_be_optimized() -> None:
    gradient = eqsat.optimize(jax.value_and_grad(total), budget=BUDGET)
    assert gradient.plan(X, Y, V).changed
    close(gradient(X, Y, V), jax.value_and_grad(total)(X, Y, V), rtol=1e-3)


def test_custom_derivatives_are_kept() -> None:
    @jax.custom_vjp
    def reversed_gradient(x: Any) -> Any:
        return x

    reversed_gradient.defvjp(lambda x: (x, None), lambda _, g: (-g,))

    def fn(x: Any, y: Any, v: Any) -> Any:
        return total(x, y, reversed_gradient(v))

    optimized = eqsat.optimize(fn, budget=3_000)
    assert optimized.plan(*POINTS).changed
    close(jax.grad(optimized, 2)(*POINTS), -jax.grad(total, 2)(*POINTS), rtol=1e-3)


@pytest.mark.parametrize("transform", [jax.jit, jax.grad])
def test_functions_may_close_over_tracers(transform: Callable[..., Any]) -> None:
    x, y, v = POINTS

    def outer(v: Any, optimize: Callable[..., Any]) -> Any:
        return optimize(lambda x: total(x, y, v))(x)

    got = transform(lambda v: outer(v, functools.partial(eqsat.optimize, budget=3_000)))(v)
    close(got, transform(lambda v: outer(v, lambda f: f))(v), rtol=1e-3)


def test_calls_on_what_is_only_broadcast_are_not_split() -> None:
    """Once a chunk of the call was taken for the call itself, and counted once per chunk."""

    def fn(x: Any, w: Any, u: Any) -> Any:
        return jnp.exp(jnp.sin(w[:, None] * x)).T @ jnp.sort(jnp.broadcast_to(u, (1009, 4)), axis=1)

    args = normal(301), normal(1009), normal(4)
    for budget in (31_000, 100_000):
        try:
            close(eqsat.optimize(fn, budget=budget)(*args), fn(*args), rtol=1e-3)
        except eqsat.BudgetError:
            continue


# Constants.


def test_functions_may_close_over_arrays() -> None:
    optimized = eqsat.optimize(lambda x: kernel(x, jnp.asarray(Y), jnp.asarray(V)), budget=BUDGET)
    assert optimized.plan(X).changed
    close(optimized(X), kernel(X, Y, V))


def test_arrays_that_a_function_closes_over_count() -> None:
    matrix = jnp.asarray(normal(400, 400))
    assert eqsat.optimize(lambda v: matrix @ v, budget="10MB").plan(normal(400)).peak_bytes >= matrix.nbytes
