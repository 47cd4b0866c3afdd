"""The public function: what goes in, what comes out, and what it refuses."""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.compiler.planner import Planner
from eqsat.support.units import parse_budget
from tests.kernels import BUDGET, SMALL, V, X, Y, close, kernel
from tests.stages import normal

# Results and signatures.


def test_it_computes_the_same_within_the_budget() -> None:
    plan = SMALL.plan(X, Y, V)
    assert plan.changed
    assert plan.peak_bytes <= plan.budget_bytes == BUDGET < plan.original_peak_bytes
    close(SMALL(X, Y, V), kernel(X, Y, V))


def test_it_looks_like_the_function() -> None:
    assert SMALL.__name__ == "kernel"
    assert list(inspect.signature(SMALL).parameters) == ["x", "y", "v"]
    assert repr(SMALL) == "<kernel within 60 kB>"
    assert repr(eqsat.optimize(kernel)) == "<kernel within what the device has free>"
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
    assert "HIGHEST" not in jax.jit(fn).lower(X, X.T).as_text()
    with jax.default_matmul_precision("highest"):
        assert "HIGHEST" in jax.jit(fn).lower(X, X.T).as_text()


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
    return jnp.sort(jnp.ravel(x[:, None, 0] * x[:, 1]))[::1000]


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


def test_a_defect_while_looking_for_advice_is_part_of_the_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Planner) -> int:
        raise SyntaxError("no such program")

    monkeypatch.setattr(Planner, "searched_minimum", fails)
    error = refusal(lambda x: x + 1, 100, X)
    assert "alone exceed the budget of 100 B" in str(error)
    assert "defect of eqsat" in str(error)
    assert isinstance(error.__cause__, SyntaxError)


@pytest.mark.parametrize("broken", ["eqsat.compiler.baseline.lower", "eqsat.compiler.minimum_memory.leanest"])
def test_a_defect_while_looking_for_the_smallest_budget_is_told_of(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise AssertionError("no such program")

    monkeypatch.setattr(broken, fails)
    with pytest.warns(UserWarning, match="lease report it: AssertionError"):
        least = eqsat.minimum_budget(sorted_products)(X)
    with pytest.warns(UserWarning, match="lease report it: AssertionError"):
        assert eqsat.explain(sorted_products, budgets=2)(X).minimum_bytes == least
    with warnings.catch_warnings(action="ignore"):
        assert eqsat.optimize(sorted_products, budget=least).plan(X).peak_bytes <= least


def test_the_budget_advised_is_enough() -> None:
    def fn(x: Any) -> Any:
        return x + 1

    error = refusal(fn, 100, normal(6100, 3))
    advised = re.search(r"Raise the budget to ([\d.]+ \w+) or more", str(error))
    assert advised is not None
    eqsat.optimize(fn, budget=parse_budget(advised.group(1))).plan(normal(6100, 3))


def test_a_budget_error_is_raised_by_the_call_too() -> None:
    with pytest.raises(eqsat.BudgetError):
        eqsat.optimize(sorted_products, budget=50_000)(X)


@pytest.mark.parametrize("fn", [3, None, "f"])
def test_what_is_no_function(fn: Any) -> None:
    with pytest.raises(TypeError, match="takes a function"):
        eqsat.optimize(fn, budget="1GB")


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"rules": 3}, "rules are the paths of .rules files, not 3"),
        ({"rules": ["a.rules", None]}, "rules are the paths of .rules files, not"),
        ({"planning_seconds": "3"}, "planning_seconds is a number of seconds above 0, or None; not '3'"),
        ({"planning_seconds": 0}, "planning_seconds is a number of seconds above 0, or None; not 0"),
        ({"machine": "gpu"}, "machine is what eqsat.calibrate() returns, or None, not 'gpu'"),
        ({"progress": "yes"}, "progress is None, True or False, not 'yes'"),
    ],
)
def test_settings_that_make_no_sense(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        eqsat.optimize(kernel, budget="1GB", **keywords)


def test_errors_in_the_function_are_said_to_be_in_it() -> None:
    def fn(data: Any, v: Any) -> Any:
        return data["x"] if data["x"].sum() > 0 else v

    with pytest.raises(
        jax.errors.TracerBoolConversionError, match=r"function fn at .*test_api.*argument data_x"
    ):
        eqsat.optimize(fn, budget="1MB")({"x": X}, V)
    with pytest.raises(jax.errors.TracerBoolConversionError, match=r"function <lambda> at .*test_api"):
        eqsat.optimize(lambda data: fn({"x": data["no name"]}, V), budget="1MB")({"no name": X})
    with pytest.raises(TypeError, match=r"function <lambda> at .*test_api.* not a valid JAX type"):
        eqsat.optimize(lambda x: "text", budget="1MB")(X)


def test_what_is_no_accuracy() -> None:
    with pytest.raises(eqsat.RuleError, match="'fast' is not known: choose one of 'exact', 'reassociates'"):
        eqsat.optimize(kernel, budget="1GB", accuracy="fast")


def test_the_budget_that_plain_jit_needs_is_enough_with_a_table_closed_over() -> None:
    table = np.linspace(0.0, 1.0, 16, dtype=np.float32)

    def function(x: Any) -> Any:
        return jnp.cumsum(x * table[:, None], axis=0)

    x = np.ones((16, 1000), np.float32)
    needs = jax.jit(function).lower(x).compile(compiler_options=eqsat.compiler_options()).memory_analysis()
    peak = needs.argument_size_in_bytes + needs.output_size_in_bytes + needs.temp_size_in_bytes
    plan = eqsat.optimize(function, budget=peak).plan(x)
    assert plan.peak_bytes <= peak


def test_extremes_of_complex_products_are_computed_by_chunks() -> None:
    def extremes(z: Any) -> Any:
        products = z[:, None] * z
        return jnp.max(products, 1), jnp.min(products, 1)

    z = jnp.asarray(normal(200) + 1j * normal(200, seed=1), jnp.complex64)
    found = eqsat.optimize(extremes, budget="60kB")(z)
    for one, other in zip(found, jax.jit(extremes)(z), strict=True):
        np.testing.assert_allclose(one, other, 1e-6)
