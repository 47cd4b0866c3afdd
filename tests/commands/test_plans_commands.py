"""`eqsat explain` and `eqsat source`: plans of functions in files, and no traceback for users' mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.cli import main

SCRIPT = """
import jax.numpy as jnp

def matvec(x, v, power=2):
    return jnp.exp(-jnp.abs(x[:, None] - x[None]) ** power) @ v

def rows(x, y, power=2):
    return jnp.exp(-jnp.abs(x[:, None] - y[None]) ** power).sum(axis=1)

def tree(parameters, pair):
    return parameters["w"] @ pair[0] + pair[1]

class Model:
    @staticmethod
    def loss(x):
        return x.sum()

number = 3

if __name__ == "__main__":
    raise SystemExit("this is not to be run")
"""

SHAPES = ["--shapes", "f32[2000], f32[2000], power=1", "--budget", "2MB"]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "a_script.py"
    path.write_text(SCRIPT)
    return path


def test_a_plan_is_explained(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{script}:matvec", *SHAPES]) == 0
    out = capsys.readouterr().out
    assert "eqsat plan for matvec: rewritten" in out
    assert "2000 in " in out


def test_without_a_budget_budgets_are_priced(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "it.html"
    shapes = ["--shapes", "f32[500], f32[500]"]
    assert main(["explain", f"{script}:matvec", *shapes, "--save", str(file)]) == 0
    assert "eqsat explanation of matvec" in capsys.readouterr().out
    assert "<svg" in file.read_text()


def test_the_source_runs_by_itself(script: Path, tmp_path: Path) -> None:
    written = tmp_path / "written.py"
    assert main(["source", f"{script}:matvec", *SHAPES, "-o", str(written)]) == 0
    scope: dict[str, Any] = {}
    exec(written.read_text(), scope)
    x = np.linspace(0, 1, 2000, dtype=np.float32)
    (result,) = scope["optimized"](x, x)
    np.testing.assert_allclose(result, jnp.exp(-jnp.abs(x[:, None] - x[None])) @ x, rtol=1e-4)


def test_a_plan_is_saved(script: Path, tmp_path: Path) -> None:
    file = tmp_path / "there" / "plan.txt"
    assert main(["explain", f"{script}:matvec", *SHAPES, "--save", str(file)]) == 0
    assert "eqsat plan for matvec" in file.read_text()


def test_arguments_may_be_trees(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shapes = ["--shapes", "{w: f32[3,3]}, (f32[3], f32[3])", "--budget", "1MB"]
    assert main(["source", f"{script}:tree", *shapes]) == 0
    assert "def optimized(parameters_w, pair_0, pair_1):" in capsys.readouterr().out
    assert main(["source", f"{script}:Model.loss", "--shapes", "f32[3]", "--budget", "1MB"]) == 0


@pytest.mark.parametrize(
    ("function", "shapes", "status", "message"),
    [
        ("matvec", "f32[2000], f32[2000]", 1, "alone exceed the budget of 100 B"),
        ("matvec", "f32[2000", 2, "there should be ','"),
        ("matvec", "f32[2000]", 2, "missing 1 required positional argument: 'v'"),
        ("matvec", "f32[20], f32[30]", 2, "dot_general requires contracting dimensions"),
        ("matve", "", 2, "there is no 'matve' in"),
        ("number", "", 2, "is no function, but of type int"),
    ],
)
def test_what_is_wrong_is_said(
    function: str, shapes: str, status: int, message: str, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", f"{script}:{function}", "--shapes", shapes, "--budget", "100B"]) == status
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import not_there", "can't be imported: ModuleNotFoundError: No module named 'not_there'"),
        ("1 +", "can't be imported: SyntaxError: invalid syntax"),
        ("1 / 0", "can't be imported: ZeroDivisionError: division by zero ("),
    ],
)
def test_what_can_t_be_imported(
    text: str, message: str, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.write_text(text)
    assert main(["source", f"{script}:f"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere.py:f", "there is no file 'nowhere.py'"),
        ("nowhere:f", "there is no module 'nowhere'"),
        ("json.nowhere:f", "there is no module 'json.nowhere'"),
        ("matvec", "write module:function"),
    ],
)
def test_what_is_not_there(target: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["source", target, "--budget", "1MB"]) == 2
    assert message in capsys.readouterr().err


def test_an_argument_that_is_not_in_memory(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shapes = ["--shapes", "f32[1000000], f32[200], power=1"]
    assert main(["explain", f"{script}:rows", *shapes, "--budget", "1MB", "--stream", "x"]) == 0
    out = capsys.readouterr().out
    assert "eqsat plan for rows: passes over what is not in memory" in out
    assert "over x.0: 1,000,000 in chunks of" in out
    assert "What wider accuracy classes would gain for rows within 1 MB" in out
    small = ["--stream", "x", "--host-budget", "1MB"]
    assert main(["explain", f"{script}:rows", *shapes, "--budget", "1MB", *small]) == 2
    assert "results in arrays of NumPy take 4 MB" in capsys.readouterr().err


@pytest.mark.nightly
def test_what_budgets_cost_of_an_argument_that_is_not_in_memory(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes = ["--shapes", "f32[1000000], f32[200], power=1"]
    assert main(["explain", f"{script}:rows", *shapes, "--stream", "x"]) == 0
    out = capsys.readouterr().out
    assert "eqsat explanation of rows: passes over what is not in memory" in out
    assert "x once" in out
