"""The README's example works when pasted."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

README = Path(__file__).parent.parent / "README.md"


def test_the_ten_lines_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (example,) = (block for block in blocks if "import eqsat" in block)
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
