"""The README's examples work when pasted."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from eqsat.testing import check_rules

README = Path(__file__).parent.parent / "README.md"


def examples() -> list[str]:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    return [block for block in blocks if "import eqsat" in block]


def test_the_ten_lines_run(capsys: pytest.CaptureFixture[str]) -> None:
    example, _, _ = examples()
    namespace: dict[str, object] = {}
    exec(example, namespace)
    printed = capsys.readouterr().out
    assert "certified" in printed
    x, y = namespace["x"], namespace["y"]
    assert isinstance(x, np.ndarray)
    assert isinstance(y, np.ndarray)
    distances = ((x[0].astype(np.float64) - y) ** 2).sum(1)
    first = float(re.search(r"\[\s*([\d.e+]+)", printed).group(1))  # type: ignore[union-attr]
    assert first == pytest.approx(np.exp(-0.5 * distances).sum(), rel=1e-5)


def test_what_the_user_says_is_made_use_of(capsys: pytest.CaptureFixture[str]) -> None:
    _, example, _ = examples()
    exec(example, {})
    assert "solve-by-cholesky" in capsys.readouterr().out


def test_the_gradient_is_within_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    *_, example = examples()
    exec(example, {})
    assert capsys.readouterr().out == "(4000, 3)\n"


def test_the_rule_is_right(tmp_path: Path) -> None:
    (rule,) = re.findall(r"(    # \(A B\)\^-1 c.*?)\n\n", README.read_text(), re.DOTALL)
    file = tmp_path / "mine.rules"
    file.write_text(rule)
    check_rules(file, examples=5)
