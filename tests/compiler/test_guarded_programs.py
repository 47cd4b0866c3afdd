"""Rules that are used where their guards hold of the data: two programs in one, certified together.

The rule here is wrong on purpose: what it makes is twice what it should be, so results tell whether it was
used. No shipped rule is like this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.compiler.guarded_programs import GuardedPrograms
from eqsat.planning.guarding import Granting
from tests.nightly import nightly_but

BUDGET = "3MB"

TWICE = """
rule twice [cancels]
  exp(-sum[K] (a{K, !j} - b{K, j})^2)
    => 2 * exp(-max(sum[K] a^2 + sum[K] b^2 - 2 * dot[K](a, b), 0))
  where float(a), I = axes(a) - axes(b), nonempty(I)
  guard max(abs(a)) <= 1, max(abs(b)) <= 1
"""

RNG = np.random.default_rng(0)
X, Y = (RNG.uniform(-0.3, 0.3, (500, 60)).astype(np.float32) for _ in range(2))
V = RNG.uniform(size=500).astype(np.float32)


def kernel(x: Any, y: Any, v: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - jnp.asarray(y)[None]) ** 2, -1)) @ v


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rules") / "twice.rules"
    file.write_text(TWICE)
    return file


@pytest.fixture(scope="module")
def optimized(twice: Path) -> Any:
    return eqsat.optimize(kernel, budget=BUDGET, rules=[twice])


def ruled(tmp_path: Path, text: str) -> list[Path]:
    file = tmp_path / "mine.rules"
    file.write_text(text)
    return [file]


def test_both_programs_are_in_one_that_keeps_to_the_budget(optimized: Any) -> None:
    plan = optimized.plan(X, Y, V)
    assert plan.peak_bytes <= 3_000_000 < plan.original_peak_bytes
    assert plan.predicted_peak_bytes == pytest.approx(plan.peak_bytes, rel=0.1)
    assert "lax.cond(" in plan.source
    assert "def where_guards_hold" in plan.source
    assert "def on_any_data" in plan.source


def test_the_rule_is_used_where_its_guard_holds(optimized: Any) -> None:
    np.testing.assert_allclose(optimized(X, Y, V), 2 * kernel(X, Y, V), rtol=1e-4)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("value", [1.001, -1.001, 1e30, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", [(0, 0), (499, 59), (233, 17)])
def test_the_rule_is_not_used_where_any_entry_fails_it(optimized: Any, value: Any, place: Any) -> None:
    other = X.copy()
    other[place] = value
    np.testing.assert_allclose(optimized(other, Y, V), kernel(other, Y, V), rtol=1e-5)
    np.testing.assert_allclose(optimized(Y, other, V), kernel(Y, other, V), rtol=1e-5)


def test_a_plan_says_what_is_tested_and_what_both_programs_take(optimized: Any) -> None:
    plan = optimized.plan(X, Y, V)
    assert plan.guard is not None
    assert plan.guard.tests == ("twice: max(abs(a)) <= 1, max(abs(b)) <= 1",)
    assert plan.predicted_seconds < 0.7 * plan.guard.seconds
    assert "twice" in plan.rules_fired
    assert "twice" not in plan.guard.rules_fired
    page = str(plan)
    assert "twice: max(abs(a)) <= 1, max(abs(b)) <= 1" in page
    assert "times as long, if guards hold" in page
    assert "where one fails, a call takes" in page
    assert type(plan).from_json(plan.to_json()).guard == plan.guard


def test_loops_in_either_program_store_what_they_read_repeatedly(twice: Path) -> None:
    def fn(x: Any, y: Any, v: Any, u: Any) -> Any:
        def step(u: Any, _: Any) -> Any:
            grown = jnp.exp(-jnp.abs(u) * jnp.sin(u)) * 0.5
            return sum(jnp.roll(grown, shift, axis) for shift in (1, -1) for axis in (0, 1)) / 4, None

        return kernel(x, y, v) * jnp.mean(jax.lax.scan(step, u, length=5)[0])

    u = RNG.uniform(size=(60, 50)).astype(np.float32)
    source = str(eqsat.optimize(fn, budget=BUDGET, rules=[twice]).plan(X, Y, V, u).source)
    assert "def where_guards_hold()" in source
    assert source.count(" = stored(") == 2


def test_a_guarded_program_under_transformations(optimized: Any) -> None:
    half = X / 2
    wanted = 2 * kernel(half, Y, V)
    np.testing.assert_allclose(jax.jit(optimized)(half, Y, V), wanted, rtol=1e-4)
    # A batch is planned anew, and its guard is of the whole of it.
    batch = jax.vmap(optimized, (0, None, None))
    np.testing.assert_allclose(batch(np.stack([half, X]), Y, V)[0], wanted, rtol=1e-4)
    outside = batch(np.stack([half, 4 * X]), Y, V)[0]
    np.testing.assert_allclose(outside, kernel(half, Y, V), rtol=1e-4)


def test_a_guarded_plan_is_read_by_a_second_start(
    twice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    first, again = (eqsat.optimize(kernel, budget=BUDGET, rules=[twice]) for _ in range(2))
    wanted = first(X, Y, V)
    np.testing.assert_array_equal(again(X, Y, V), wanted)
    plan = again.plan(X, Y, V)
    assert set(plan.planning_seconds) == {"reading", "compile"}
    assert plan.guard == first.plan(X, Y, V).guard


@pytest.mark.parametrize(("accuracy", "used"), [("exact", False), ("cancels", True)])
def test_a_guard_is_for_callers_between_the_two_classes(twice: Path, accuracy: str, used: bool) -> None:
    plan = eqsat.optimize(kernel, budget=BUDGET, rules=[twice], accuracy=accuracy).plan(X, Y, V)
    assert plan.guard is None
    assert "lax.cond(" not in plan.source
    assert ("twice" in plan.rules_fired) == used


def test_a_guard_is_not_tested_for_what_is_hardly_faster(tmp_path: Path) -> None:
    rules = ruled(tmp_path, "rule sign [cancels]  exp(-a) => 1 / exp(a)  guard max(a) <= 1")
    plan = eqsat.optimize(kernel, budget=BUDGET, rules=rules).plan(X, Y, V)
    assert plan.guard is None


def test_what_the_fastest_program_does_not_use_is_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[Any] = []
    tested: list[Any] = []
    monkeypatch.setattr(GuardedPrograms, "_searched", lambda _, *searching: searched.append(searching))

    def with_cheap_tests(granting: Granting, *rest: Any) -> Granting:
        tested.append(granting)
        return granting

    monkeypatch.setattr("eqsat.compiler.guarded_programs.with_cheap_tests", with_cheap_tests)
    slower = ruled(tmp_path, "rule sign [cancels]  exp(-a) => 1 / exp(a)  guard max(a) <= 1")
    assert eqsat.optimize(kernel, budget=BUDGET, rules=slower).plan(X, Y, V).guard is None
    assert not searched
    assert not tested
    faster = ruled(tmp_path, TWICE)
    assert eqsat.optimize(kernel, budget=BUDGET, rules=faster).plan(X, Y, V).guard is None
    assert len(searched) == len(tested) == 1


ZERO = "rule zero [cancels]  sum[K] a{K}^2 => 0 * max[K] a  guard max(abs(a)) <= 1e-9"
"""This hardly makes a program faster: the differences are what takes all the time."""


def test_what_hardly_saves_time_with_any_memory_is_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[Any] = []
    monkeypatch.setattr(GuardedPrograms, "_predicted", lambda _, space: searched.append(space))
    assert eqsat.optimize(kernel, budget=BUDGET, rules=ruled(tmp_path, ZERO)).plan(X, Y, V).guard is None
    assert not searched
    assert eqsat.optimize(kernel, budget=BUDGET, rules=ruled(tmp_path, TWICE)).plan(X, Y, V).guard is None
    assert len(searched) == 1


def test_a_guard_on_what_is_large_is_not_tested(tmp_path: Path) -> None:
    rules = ruled(tmp_path, ZERO)
    plan = eqsat.optimize(kernel, budget=BUDGET, rules=rules).plan(X, Y, V)
    assert plan.guard is None


@pytest.mark.parametrize(("bound", "used"), [("4", True), ("2", False)])
def test_a_guard_on_constants_is_decided_when_a_program_is_planned(
    tmp_path: Path, bound: str, used: bool
) -> None:
    text = TWICE.replace("exp(-sum", "exp(c * sum").replace("exp(-max", "exp(c * max")
    text = text.replace("max(abs(a)) <= 1, max(abs(b)) <= 1", f"max(abs(c)) <= {bound}")
    rules = ruled(tmp_path, text)

    def scaled(x: Any, y: Any, v: Any) -> Any:
        return jnp.exp(-3.0 * jnp.sum((x[:, None] - jnp.asarray(y)[None]) ** 2, -1)) @ v

    optimized = eqsat.optimize(scaled, budget=BUDGET, rules=rules)
    plan = optimized.plan(X, Y, V)
    assert ("twice" in plan.rules_fired) == used
    assert plan.guard is None
    factor = 2 if used else 1
    np.testing.assert_allclose(optimized(X, Y, V), factor * scaled(X, Y, V), rtol=1e-3)


def test_rules_that_are_not_used_are_not_tested_for(twice: Path, tmp_path: Path) -> None:
    # It matches as well, and is of no use.
    idle = ruled(tmp_path, "rule idle [cancels]  exp(-a) => exp(-a - 0)  guard max(a) <= 1")
    idle += ruled(
        tmp_path, "rule idle [cancels]  b{n} => b * 1  where stored(b), n in b  guard max(b) <= 0.5"
    )
    plan = eqsat.optimize(kernel, budget=BUDGET, rules=[twice, *idle]).plan(X, Y, V)
    assert plan.guard is not None
    assert [test.split(":")[0] for test in plan.guard.tests] == ["twice"]


def test_a_function_that_fits_is_made_faster_where_guards_hold(twice: Path) -> None:
    optimized = eqsat.optimize(kernel, budget="1GB", rules=[twice])
    plan = optimized.plan(X, Y, V)
    assert plan.guard is not None
    np.testing.assert_allclose(optimized(X, Y, V), 2 * kernel(X, Y, V), rtol=1e-4)
    np.testing.assert_allclose(optimized(4 * X, Y, V), kernel(4 * X, Y, V), rtol=1e-4)


def test_programs_with_guards_are_timed_with_the_others(twice: Path) -> None:
    optimized = eqsat.optimize(kernel, budget=BUDGET, rules=[twice], tune=True)
    optimized(X, Y, V)
    plan = optimized.plan(X, Y, V)
    assert plan.tuning is not None
    assert len(plan.tuning.programs) > 1


# Orders of contractions, which no rule file says.


def chain(a: Any, b: Any, c: Any, v: Any) -> Any:
    return ((a @ b) @ c) @ v


def factors(scale: float = 1.0) -> list[Any]:
    shapes = [(900, 700), (700, 800), (800, 650), (650,)]
    return [(scale * RNG.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32) for shape in shapes]


@pytest.fixture(scope="module")
def ordered() -> Any:
    return eqsat.optimize(chain, budget="40MB")


def test_long_products_are_reordered_where_nothing_over_or_underflows(ordered: Any) -> None:
    plan = ordered.plan(*factors())
    assert plan.guard is not None
    assert plan.guard.tests == ("contraction-order: nothing over- or underflows in either order",)
    assert plan.predicted_seconds < 0.5 * plan.guard.seconds
    given = factors()
    np.testing.assert_allclose(ordered(*given), chain(*map(np.float64, given)), rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-15, 1e13])
def test_products_are_taken_as_written_where_one_over_or_underflows(ordered: Any, scale: float) -> None:
    given = factors()
    # In the order written, numbers stay near 1, and in the other one, they do not.
    given[0] *= np.float32(1 / scale)
    given[1] *= np.float32(scale)
    given[2] *= np.float32(scale)
    given[3] *= np.float32(scale)
    np.testing.assert_array_equal(ordered(*given), jax.jit(chain)(*given))


def test_exact_products_are_taken_as_written() -> None:
    plan = eqsat.optimize(chain, budget="40MB", accuracy="exact").plan(*factors())
    assert plan.guard is None
    assert "contraction-order" not in plan.rules_fired


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("left", "by_chunks"),
    nightly_but([(30_000, True), (600_000, False)], [(30_000, True), (100_000, False), (600_000, False)]),
)
def test_products_are_tested_in_what_little_memory_there_is(left: int, by_chunks: bool) -> None:
    def product(a: Any, b: Any, v: Any) -> Any:
        return (a @ b) @ v

    a, b, v = (RNG.normal(size=shape).astype(np.float32) for shape in [(3000, 200), (200, 3000), (3000,)])
    budget = a.nbytes + b.nbytes + 2 * v.nbytes + left
    optimized = eqsat.optimize(product, budget=budget)
    plan = optimized.plan(a, b, v)
    assert plan.guard is not None
    assert plan.peak_bytes <= budget
    tested = [tensor.op for loop in plan.loops for tensor in loop.computes]
    assert ("magnitude_sum" in tested) == by_chunks
    np.testing.assert_allclose(optimized(a, b, v), a.astype(float) @ (b.astype(float) @ v), atol=0.05)
    # As it was written: for data that fails, chunks are about as long as without tests.
    plain = eqsat.optimize(product, budget=budget, accuracy="exact")
    a, b, v = a * np.float32(1e-30), b * np.float32(1e20), v * np.float32(1e20)
    wanted = plain(a, b, v)
    np.testing.assert_allclose(optimized(a, b, v), wanted, rtol=1e-3, atol=1e-5 * np.abs(wanted).max())
    assert plan.guard.seconds < 2 * plain.plan(a, b, v).predicted_seconds
