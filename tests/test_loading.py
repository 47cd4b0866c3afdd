"""Plans travel as files: they are certified again where they are loaded, and planned again if need be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.errors import BudgetError, EqsatError
from tests.stages import normal

BUDGET = 1_000_000


def kernel(params: dict[str, Any], x: Any, *, scale: float = 2.0) -> dict[str, Any]:
    k = jnp.exp(-((x[:, None] - x[None]) ** 2) / scale)
    return {"product": k @ params["w"], "sum": k.sum()}


PARAMS, X = {"w": jnp.abs(normal(1_500))}, normal(1_500)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.plan"
    eqsat.optimize(kernel, budget=BUDGET).plan(PARAMS, X).save(path)
    return path


def changed(file: Path, **fields: Any) -> Path:
    """The file with other fields of the plan."""
    content = json.loads(file.read_text())
    content["plan"].update(fields)
    file.write_text(json.dumps(content))
    return file


def check(result: dict[str, Any]) -> None:
    for name, value in kernel(PARAMS, X).items():
        np.testing.assert_allclose(result[name], value, rtol=1e-4)


def test_a_loaded_plan_computes_the_same_within_its_budget(file: Path) -> None:
    loaded = eqsat.load(file)
    assert loaded.peak_bytes <= loaded.plan.budget_bytes == BUDGET
    assert loaded.plan.changed
    assert not loaded.replanned
    check(loaded(PARAMS, X))


def test_arguments_that_it_is_not_compiled_for_are_refused(file: Path) -> None:
    loaded = eqsat.load(file)
    with pytest.raises(TypeError, match=r"argument 1 of float32\[1500\], not float32\[3\]"):
        loaded(PARAMS, X[:3])
    with pytest.raises(TypeError, match="arguments of the structure"):
        loaded(X, PARAMS["w"])


def test_a_plan_that_needs_more_here_is_planned_again(file: Path) -> None:
    """As if the compiler of the machine where it was made had found a smaller form."""
    changed(file, budget_bytes=200_000, peak_bytes=190_000)
    with pytest.warns(UserWarning, match="more than its budget of 200 kB .190 kB where it was planned."):
        loaded = eqsat.load(file, kernel)
    assert loaded.replanned
    assert loaded.peak_bytes <= 200_000
    check(loaded(PARAMS, X))


def test_without_the_function_such_a_plan_is_an_error_that_says_so(file: Path) -> None:
    changed(file, budget_bytes=200_000)
    with pytest.raises(BudgetError, match="pass the function, too"):
        eqsat.load(file)


def test_a_plan_for_another_platform_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "kernel.plan"
    eqsat.optimize(kernel, budget="2MB", target="h100").plan(PARAMS, X).save(path)
    with pytest.raises(EqsatError, match="is planned for h100, but JAX's default device here is cpu"):
        eqsat.load(path)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": "eqsat plan 0"}', "\udcff"])
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.plan"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(EqsatError, match=r"wrong\.plan"):
        eqsat.load(path)
    with pytest.raises(EqsatError, match="can't be read"):
        eqsat.load(tmp_path / "nowhere.plan")


def test_a_damaged_program_is_refused(file: Path) -> None:
    content = json.loads(file.read_text())
    content["program"] = content["program"][: len(content["program"]) // 2]
    file.write_text(json.dumps(content))
    with pytest.raises(EqsatError, match=r"is no file that plan\.save of this version wrote"):
        eqsat.load(file)


def test_a_program_that_calls_python_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "%0 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%arg0)"
    monkeypatch.setattr(jax.export.Exported, "mlir_module", lambda _: text)
    with pytest.raises(EqsatError, match="calls back to Python"):
        eqsat.load(file)


def test_exported_bytes_need_jax_alone() -> None:
    data = eqsat.optimize(kernel, budget=BUDGET).plan(PARAMS, X).export()
    check(jax.export.deserialize(bytearray(data)).call(PARAMS, X))


def test_exported_bytes_are_for_the_target() -> None:
    plan = eqsat.optimize(kernel, budget="2MB", target="tpu-v5e").plan(PARAMS, X)
    assert jax.export.deserialize(bytearray(plan.export())).platforms == ("tpu",)


def test_64_bit_numbers_stay_such(tmp_path: Path) -> None:
    path = tmp_path / "kernel.plan"
    with jax.enable_x64(True):
        wide = jnp.linspace(0.0, 1.0, 1_000)
        eqsat.optimize(lambda x: jnp.cos(x[:, None] - x) @ x, budget=BUDGET).plan(wide).save(path)
    loaded = eqsat.load(path)
    assert loaded(wide).dtype == "float64"


def test_static_arguments_are_part_of_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "kernel.plan"
    optimized = eqsat.optimize(kernel, budget=BUDGET, static_argnames="scale")
    optimized.plan(PARAMS, X, scale=2.0).save(path)
    check(eqsat.load(path)(PARAMS, X))


def test_static_arguments_by_place_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "power.plan"
    optimized = eqsat.optimize(lambda n, x: x**n, budget=BUDGET, static_argnums=0)
    optimized.plan(3, X).save(path)
    np.testing.assert_allclose(eqsat.load(path)(X), X**3, rtol=1e-5)


def test_a_plan_that_was_read_has_no_program_to_export(file: Path) -> None:
    with pytest.raises(EqsatError, match="this plan was read from a file"):
        eqsat.load(file).plan.export()
