"""Every script of the examples at a small size: within budget, as right as plain JAX, its output as shown."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path

import pytest

import examples
from tests.nightly import nightly_but

FOLDER = Path(examples.__file__).parent
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if "\ndef main(args" in path.read_text())

NEED_GPJAX = {name for name in SCRIPTS if "import gpjax" in (FOLDER / f"{name}.py").read_text()}

SLOW = {"encoder", "gp_prediction", "jacobians", "kernel_ridge", "lm_head", "sinkhorn", "sparse_gp"}
"""Those that take long."""

LABELS = re.compile(r"^\s+(peak|time|error|loops|rules)  ", re.MULTILINE)


@pytest.mark.one_in(2)
# Other people's libraries may be late to follow what they use.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:. is not of type float64")  # GPJax's advice
@pytest.mark.parametrize("name", nightly_but([name for name in SCRIPTS if name not in SLOW], SCRIPTS))
def test_an_example_keeps_to_its_budget_and_is_as_right_as_plain_jax(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if name in NEED_GPJAX and sys.version_info >= (3, 12):
        pytest.importorskip("gpjax", reason="GPJax takes no jax 0.11")
    script = importlib.import_module(f"examples.{name}")
    comparisons = script.main(["--small"])
    assert comparisons
    for comparison in comparisons:
        assert comparison.peak <= comparison.budget < comparison.plain_peak
        assert comparison.error is not None
        assert comparison.error <= max(2 * comparison.plain_error, 1e-5)
    printed = LABELS.findall(capsys.readouterr().out)
    shown = LABELS.findall(ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text())) or "")
    assert shown == printed, "the docstring shows another output"
