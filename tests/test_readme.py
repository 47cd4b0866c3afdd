"""The README's examples work when pasted."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.testing import check_rules

README = Path(__file__).parent.parent / "README.md"


def example(function: str) -> str:
    """The example that defines a function of that name."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (found,) = [block for block in blocks if f"def {function}(" in block]
    return found


def test_the_ten_lines_run(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {}
    exec(example("kernel_matvec"), namespace)
    printed = capsys.readouterr().out
    assert "certified" in printed
    x, y = namespace["x"], namespace["y"]
    assert isinstance(x, np.ndarray)
    assert isinstance(y, np.ndarray)
    distances = ((x[0].astype(np.float64) - y) ** 2).sum(1)
    first = float(re.search(r"\[\s*([\d.e+]+)", printed).group(1))  # type: ignore[union-attr]
    assert first == pytest.approx(np.exp(-0.5 * distances).sum(), rel=1e-5)


def test_blocks_have_budgets(capsys: pytest.CaptureFixture[str]) -> None:
    exec(example("similarity"), {})
    peak, changed = capsys.readouterr().out.split()
    assert int(peak) <= 4_000_000
    assert changed == "False"


def test_points_drift_in_place() -> None:
    namespace: dict[str, Any] = {}
    exec(example("drift"), namespace)
    plan = namespace["drift"].plan(namespace["x"], jnp.ones((2_000, 5)))
    assert plan.peak_bytes <= 1_300_000 < namespace["x"].nbytes * 2
    assert plan.original_peak_bytes > 400e6


def test_attention_is_explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(example("attention"), {})
    assert "eqsat explanation of attention" in capsys.readouterr().out
    assert (tmp_path / "attention.html").read_text().count("<svg") == 1


def test_planning_tells_what_it_is_at(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    exec(example("nearest"), namespace)
    assert "eqsat: planning nearest: compiling candidate 1 (" in capsys.readouterr().err
    assert (
        " = bar('eqsat: loop 1 of 1 over " in namespace["patient"].plan(namespace["x"], namespace["y"]).source
    )


def test_what_the_user_says_is_made_use_of(capsys: pytest.CaptureFixture[str]) -> None:
    exec(example("posterior"), {})
    assert "solve-by-cholesky" in capsys.readouterr().out


def test_the_gradient_is_within_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    exec(example("energy"), {})
    assert capsys.readouterr().out == "(4000, 3)\n"


def test_the_solver_s_matrix_is_never_there(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    exec(example("ridge"), namespace)
    assert "sunk-into-loop" in capsys.readouterr().out
    x = namespace["x"]
    wide = x.astype(np.float64)
    matrix = np.exp(-0.5 * ((wide[:, None] - wide) ** 2).sum(-1)) + np.eye(len(x))
    # Twenty steps do not solve such a system in single precision: what is left over has to be as small.
    ours, plain = (
        np.linalg.norm(matrix @ np.asarray(namespace[name](x, x[:, 0]), np.float64) - x[:, 0])
        for name in ("matrix_free", "ridge")
    )
    assert ours < 1.2 * plain
    assert plain < 0.2 * np.linalg.norm(x[:, 0])


def test_the_script_runs_as_shown(tmp_path: Path) -> None:
    (tmp_path / "forces.py").write_text(example("potential"))
    command = [sys.executable, "-m", "eqsat.run", "--budget", "5MB", "forces.py"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    (shown,) = re.findall(r"\$ eqsat run --budget 5MB forces.py\n((?:    .*\n)+)", README.read_text())
    # Chunk lengths are for the machine that this runs on.
    expected, got = (re.sub(r"(->|, ).*", "", textwrap.dedent(text)) for text in (shown, found.stderr))
    assert got == expected


def test_the_rule_is_right(tmp_path: Path) -> None:
    (rule,) = re.findall(r"(    # \(A B\)\^-1 c.*?)\n\n", README.read_text(), re.DOTALL)
    file = tmp_path / "mine.rules"
    file.write_text(rule)
    check_rules(file, examples=5)
