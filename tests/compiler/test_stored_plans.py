"""A second start finds the plans of the first: the same source, the same results, and nothing is planned."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.compiler.planner import Planner
from eqsat.storage.files import KeptFiles

ARRAY = np.random.default_rng(0).normal(size=(1000,)).astype(np.float32)


def matvec(x: Any, v: Any) -> Any:
    return jnp.exp(-((x[:, None] - x[None]) ** 2)) @ v


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    return tmp_path / "plans"


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that are really planned."""
    calls: list[str] = []
    original = Planner.planned

    def counted(self: Planner) -> Any:
        calls.append(str(self.names))
        return original(self)

    monkeypatch.setattr(Planner, "planned", counted)
    return calls


def test_plans_are_read(folder: Path, planned: list[str]) -> None:
    first = eqsat.optimize(matvec, budget="300KB")
    again = eqsat.optimize(matvec, budget="300KB")
    expected = first(ARRAY, ARRAY)
    np.testing.assert_array_equal(again(ARRAY, ARRAY), expected)
    one, two = first.plan(ARRAY, ARRAY), again.plan(ARRAY, ARRAY)
    assert (two.source, two.peak_bytes, two.loops) == (one.source, one.peak_bytes, one.loops)
    assert set(two.planning_seconds) == {"reading", "compile"}
    assert len(planned) == 1
    # What is read can be made part of other programs.
    np.testing.assert_allclose(jax.jit(again)(ARRAY, ARRAY), expected, rtol=1e-5)
    np.testing.assert_allclose(
        jax.grad(lambda v: again(ARRAY, v).sum())(ARRAY),
        jax.grad(lambda v: matvec(ARRAY, v).sum())(ARRAY),
        rtol=1e-4,
    )


def labels(points: Any) -> Any:
    """The labels after the last of several iterations, and the sum of one of two carries."""

    def step(state: Any, _: Any) -> Any:
        centres, shift = state
        nearest = jnp.argmin(jnp.abs(points[:, None] - centres), 1)
        total = jax.ops.segment_sum(points, nearest, 20)
        return (total / 50, shift + jnp.cumsum(total)), (nearest, jnp.sort(total))

    (centres, _), (found, _) = lax.scan(step, (points[:20], points[:20]), None, length=30)
    return jnp.sin(centres), found[-1]


def test_plans_with_less_control_flow_than_was_written_are_read(folder: Path, planned: list[str]) -> None:
    points = np.tile(ARRAY, 10)
    one, two = (eqsat.optimize(labels, budget="600kB") for _ in range(2))
    for first, again in zip(one(points), two(points), strict=True):
        np.testing.assert_array_equal(first, again)
    assert one.plan(points).changed
    assert two.plan(points).source == one.plan(points).source
    assert len(planned) == 1


OTHERS: dict[str, Callable[[], Any]] = {
    "budget": lambda: eqsat.optimize(matvec, budget="200KB")(ARRAY, ARRAY),
    "accuracy": lambda: eqsat.optimize(matvec, budget="300KB", accuracy="cancels")(ARRAY, ARRAY),
    "donation": lambda: eqsat.optimize(matvec, budget="300KB", donate_argnums=1)(ARRAY, jnp.array(ARRAY)),
    "shape": lambda: eqsat.optimize(matvec, budget="300KB")(ARRAY[:999], ARRAY[:999]),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("what", OTHERS)
def test_what_a_plan_depends_on_makes_another(what: str, folder: Path, planned: list[str]) -> None:
    eqsat.optimize(matvec, budget="300KB")(ARRAY, ARRAY)
    OTHERS[what]()
    assert len(planned) == 2


def scaled(scale: Any, x: Any, v: Any) -> Any:
    """A value, and the gradient with respect to the scale, weakly typed if that is."""
    return jax.value_and_grad(lambda scale: jnp.sum(jnp.exp(-scale * (x[:, None] - x[None]) ** 2) @ v))(scale)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("budget", ["300KB", "100MB"])
def test_weakly_typed_arguments_have_the_plan_of_others(
    budget: str, folder: Path, planned: list[str]
) -> None:
    weak, strong = jnp.asarray(0.5), jnp.float32(0.5)
    for _ in range(2):
        optimized = eqsat.optimize(scaled, budget=budget)
        results = [optimized(scale, ARRAY, ARRAY) for scale in (weak, strong)]
        for scale, result in zip((weak, strong), results, strict=True):
            expected = jax.jit(scaled)(scale, ARRAY, ARRAY)
            assert [leaf.weak_type for leaf in result] == [leaf.weak_type for leaf in expected]
            np.testing.assert_allclose(result, expected, rtol=1e-4)
        assert results[0] == results[1]
    assert len(planned) == 1
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("budget", ["30KB", "100MB"])
def test_what_is_donated_is_deleted_again(budget: str, folder: Path, planned: list[str]) -> None:
    for _ in range(2):
        given = jnp.array(ARRAY)
        optimized = eqsat.optimize(matvec, budget=budget, donate_argnums=1)
        np.testing.assert_allclose(optimized(ARRAY, given), matvec(ARRAY, ARRAY), rtol=1e-4)
        assert given.is_deleted()
    assert len(planned) == 1


def test_rules_count_by_what_they_say(folder: Path, planned: list[str], tmp_path: Path) -> None:
    included, rules = tmp_path / "included.rules", tmp_path / "mine.rules"
    rules.write_text('include "included.rules"\n')
    for text in ["# nothing\n", "# nothing\n", "rule twice [exact]  a + a => 2 * a\n  example  a: i\n"]:
        included.write_text(text)
        eqsat.optimize(jnp.sin, budget="1MB", rules=rules).plan(ARRAY)
    assert len(planned) == 2


@pytest.mark.nightly
def test_a_program_that_calls_libraries_runs_in_another_process(tmp_path: Path) -> None:
    code = """
import sys, jax, jax.numpy as jnp, numpy as np, eqsat
def f(x, v):
    gram = jnp.exp(-((x[:, None] - x[None]) ** 2)) + jnp.eye(len(x))
    nearest = jax.lax.top_k(gram @ v, 3)[0]
    return jnp.linalg.solve(gram[:50, :50], v[:50]), jnp.sort(gram @ v), jnp.fft.fft(v), nearest
x = np.linspace(0, 1, 1000, dtype=np.float32)
small = eqsat.optimize(f, budget="400KB")
print([float(abs(r).sum()) for r in small(x, x)], "eqsat.engine.egraph" in sys.modules)
"""
    environment = {"EQSAT_CACHE_DIR": str(tmp_path), "PATH": "", "JAX_PLATFORMS": "cpu"}
    out = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        for _ in range(2)
    ]
    assert [process.returncode for process in out] == [0, 0], out[-1].stderr
    first, second = (process.stdout.strip() for process in out)
    assert first.endswith("True")
    assert second == first.replace("True", "False")  # nothing is planned, and what plans is not imported


def test_arrays_that_are_closed_over_are_those_of_this_process(folder: Path, planned: list[str]) -> None:
    for scale in (1, 2):
        # Too large to be code: the plan does not depend on the values.
        data, other = (np.full((20_000,), scale * number, np.float32) for number in (2, 3))

        def f(v: Any, data: Any = data, other: Any = other) -> Any:
            near = jnp.asarray(data) @ jnp.exp(-jnp.abs(jnp.asarray(data)[:, None] - v[None]))
            return near, near + jnp.asarray(other).sum()

        small = eqsat.optimize(f, budget="4MB")
        np.testing.assert_allclose(small(ARRAY)[1], f(ARRAY)[1], rtol=1e-3)  # sums of 20,000
        assert small.plan(ARRAY).changed
    assert len(planned) == 1


def test_values_that_are_part_of_the_program_count(folder: Path, planned: list[str]) -> None:
    for scale in (1, 2):
        table = np.arange(10, dtype=np.float32) * scale
        result = eqsat.optimize(lambda v, table=table: v[:10] * jnp.asarray(table), budget="1MB")(ARRAY)
        np.testing.assert_allclose(result, ARRAY[:10] * table)
    assert len(planned) == 2


def test_callbacks_are_not_kept(folder: Path) -> None:
    def sine(x: Any) -> Any:
        return np.sin(x)

    def f(x: Any) -> Any:
        return jax.pure_callback(sine, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

    np.testing.assert_allclose(eqsat.optimize(f, budget="1MB")(ARRAY), np.sin(ARRAY) + 1, rtol=1e-6)
    assert not folder.exists()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("content", [b"", b"no json", b"[]", b'{"entry": {}, "emission": {}}'])
def test_entries_that_make_no_sense_are_replaced(content: bytes, folder: Path, planned: list[str]) -> None:
    eqsat.optimize(matvec, budget="300KB").plan(ARRAY, ARRAY)
    (entry,) = folder.iterdir()
    KeptFiles("plans").write(entry.name, content)
    eqsat.optimize(matvec, budget="300KB").plan(ARRAY, ARRAY)
    assert len(planned) == 2
    eqsat.optimize(matvec, budget="300KB").plan(ARRAY, ARRAY)
    assert len(planned) == 2


def test_nothing_that_is_read_is_run(folder: Path, planned: list[str]) -> None:
    """Not even by who can write to the folder: an entry is data, and its source is emitted anew."""
    expected = eqsat.optimize(matvec, budget="300KB")(ARRAY, ARRAY)
    (entry,) = folder.iterdir()
    files = KeptFiles("plans")
    content = json.loads(files.read(entry.name) or b"")
    assert content["entry"]["plan"]["source"] == ""
    content["entry"]["plan"]["source"] = "raise SystemExit"
    files.write(entry.name, json.dumps(content).encode())
    np.testing.assert_array_equal(eqsat.optimize(matvec, budget="300KB")(ARRAY, ARRAY), expected)
    assert len(planned) == 1


def test_an_entry_that_needs_more_than_it_says_is_planned_anew(folder: Path, planned: list[str]) -> None:
    eqsat.optimize(matvec, budget="300KB").plan(ARRAY, ARRAY)
    (entry,) = folder.iterdir()
    files = KeptFiles("plans")
    content = json.loads(files.read(entry.name) or b"")
    chunks = content["emission"]["emission"]["schedule"]["chunks"]
    chunks[0][1] *= 2
    files.write(entry.name, json.dumps(content).encode())
    assert eqsat.optimize(matvec, budget="300KB").plan(ARRAY, ARRAY).peak_bytes <= 300_000
    assert len(planned) == 2


def test_an_entry_over_the_budget_is_not_run(folder: Path, planned: list[str]) -> None:
    eqsat.optimize(matvec, budget="300KB").plan(ARRAY, ARRAY)
    (large,) = folder.iterdir()
    eqsat.optimize(matvec, budget="100KB").plan(ARRAY, ARRAY)
    (small,) = set(folder.iterdir()) - {large}
    files = KeptFiles("plans")
    files.write(small.name, files.read(large.name) or b"")
    assert eqsat.optimize(matvec, budget="100KB").plan(ARRAY, ARRAY).peak_bytes <= 100_000
    assert len(planned) == 3


def test_a_plan_that_cannot_be_written_is_a_plan(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    optimized = eqsat.optimize(matvec, budget="300KB")
    original = Planner.planned

    def odd(self: Planner) -> Any:
        found = original(self)
        return replace(found, plan=replace(found.plan, rules_fired={"rule": np.int64(1)}))

    monkeypatch.setattr(Planner, "planned", odd)
    assert optimized.plan(ARRAY, ARRAY).peak_bytes <= 300_000
    assert not folder.exists() or not list(folder.iterdir())


def test_lines_that_have_moved_are_where_they_are_now(
    folder: Path, planned: list[str], tmp_path: Path
) -> None:
    text = "import jax.numpy as jnp\ndef f(x, v):\n    return jnp.exp(-((x[:, None] - x[None]) ** 2)) @ v\n"
    pages = []
    for lines in (0, 7):
        file = tmp_path / f"moved_by_{lines}.py"
        file.write_text("\n" * lines + text)
        scope: dict[str, Any] = {}
        exec(compile(file.read_text(), str(file), "exec"), scope)
        pages.append(str(eqsat.optimize(scope["f"], budget="300KB").plan(ARRAY, ARRAY)))
    assert len(planned) == 1
    assert "moved_by_0.py:3" in pages[0]
    assert "moved_by_7.py:10" in pages[1]
    assert "moved_by_0" not in pages[1]


def test_failures_are_not_kept(folder: Path, planned: list[str]) -> None:
    for _ in range(2):
        with pytest.raises(eqsat.BudgetError, match="alone exceed"):
            eqsat.optimize(matvec, budget="3KB").plan(ARRAY, ARRAY)
    assert len(planned) == 2
