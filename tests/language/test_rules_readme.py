"""What `rules/README.md` shows is true."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.checking.filecheck import FileCheck
from eqsat.errors import RuleError
from eqsat.language.accuracies import ACCURACIES
from eqsat.language.check import check_file
from eqsat.language.functions import CLASSES, GUARDS, REDUCTIONS
from eqsat.language.parse import parse_rules
from eqsat.rulesets import files
from eqsat.rulesets.files import bound_operations, load_file, shipped_files
from tests.stages import normal

FOLDER = Path(__file__).parents[2] / "rules"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```rules\n(.*?)```", README, re.DOTALL)
(KERNELS,) = re.findall(r"```python\n(.*?def rbf.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_are_well_formed(text: str) -> None:
    rules = parse_rules(text, "README.md")
    check_file(rules)
    assert rules.rules or rules.facts


@pytest.mark.one_in(3)
@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_pass_the_check(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mykernels.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "example.rules"
    file.write_text(text)
    loaded = load_file(file)
    operations = bound_operations([loaded])
    report = FileCheck(loaded, shipped_files(), examples=5, brief=True, operations=operations).report()
    assert report.ok, report.failed


def test_the_argmax_of_the_manual_is_that_of_jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunk by chunk: of equal entries the first one, and the first NaN if there is any."""
    (text,) = (text for text in EXAMPLES if "rule split-argmax" in text)
    file = tmp_path / "argmax.rules"
    file.write_text(text)
    others = [
        replace(shipped, rules=tuple(rule for rule in shipped.rules if rule.name != "split-selection"))
        for shipped in shipped_files()
    ]
    monkeypatch.setattr(files, "shipped_files", lambda: others)

    def nearest(x: Any, y: Any) -> Any:
        return jnp.argmax(x @ y.T, 1)

    x, y = normal(6, 2).round(), normal(20_011, 2).round()
    x[4] = 0
    some = y.copy()
    some[[7_000, 19_000]] = np.nan
    largest = y.copy()
    largest[[9_000, 20_010], 1] = np.inf, -np.inf
    optimized = eqsat.optimize(nearest, budget="200kB", rules=[file])
    assert optimized.plan(x, y).rules_fired["split-argmax"]
    for points in (y, some, largest, -np.abs(largest)):
        np.testing.assert_array_equal(optimized(x, points), jax.jit(nearest)(x, points))


def test_the_error_is_the_one_you_get() -> None:
    with pytest.raises(RuleError) as caught:
        check_file(parse_rules("rule r\n  sum[K] (c * a{K})  =>  c * sum[K] a", "my.rules"))
    shown = "\n".join("    " + line for line in str(caught.value).splitlines())
    assert shown in README


@pytest.mark.parametrize("name", [*CLASSES, *GUARDS, *REDUCTIONS, *ACCURACIES])
def test_everything_is_mentioned(name: str) -> None:
    assert re.search(rf"\b{name}\b", README)


def test_all_files_are_listed() -> None:
    listed = re.findall(r"^\| \[`(\w+\.rules)`\]", README, re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in FOLDER.glob("*.rules"))
