"""The examples of the README and the manual work when pasted, and print what the pages say.

The ```python blocks of a page are run in order, each by itself unless it begins with `# continued`. What
they print has to be in a ```text block right behind, in which `…` stands for whatever depends on the
machine: within a line for any text, and alone on a line for any lines.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from eqsat.testing import check_rules
from tests.stages import without_log

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", ROOT / "rules" / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n*^```text\n(?P<output>.*?)^```\n)?", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """An example: its code, with as many empty lines before as the page has, and what it should print."""

    page: Path
    line: int
    code: str
    output: str

    @property
    def continued(self) -> bool:
        return self.code.lstrip().startswith("# continued\n")


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        above = text.count("\n", 0, found.start("code"))
        yield Block(page, above + 1, "\n" * above + found["code"], found["output"] or "")


def examples() -> list[list[Block]]:
    """The blocks that begin an example, each with those that go on with it."""
    chains: list[list[Block]] = []
    for block in (block for page in PAGES for block in blocks(page)):
        if block.continued:
            chains[-1].append(block)
        else:
            chains.append([block])
    return chains


def pattern(output: str) -> str:
    """What a text block of a page shows, as a regular expression."""
    lines = [
        r"(?:.*\n)*?" if line.strip() == "…" else ".*".join(map(re.escape, line.split("…"))) + "\n"
        for line in output.rstrip().splitlines()
    ]
    return "".join(lines)


def sums_of_the_kernel(namespace: dict[str, Any], complaints: str) -> None:
    x, y = namespace["x"], namespace["y"]
    distances = ((x[0].astype(np.float64) - y) ** 2).sum(1)
    first = namespace["optimized"](x, y, np.ones(len(y), np.float32))[0]
    assert first == pytest.approx(np.exp(-0.5 * distances).sum(), rel=1e-5)


def points_drift_in_place(namespace: dict[str, Any], complaints: str) -> None:
    plan = namespace["drift"].plan(namespace["x"], jnp.ones((2_000, 5)))
    assert plan.peak_bytes <= 1_300_000 < namespace["x"].nbytes * 2
    assert plan.original_peak_bytes > 400e6


def planning_says_what_it_is_at(namespace: dict[str, Any], complaints: str) -> None:
    assert "eqsat: planning nearest_of: compiling candidate 1 (" in complaints
    source = namespace["patient"].plan(namespace["x"], namespace["y"]).source
    assert " = bar('eqsat: loop 1 of 1 over " in source


def the_solver_s_matrix_is_never_there(namespace: dict[str, Any], complaints: str) -> None:
    x = namespace["x"]
    wide = x.astype(np.float64)
    matrix = np.exp(-0.5 * ((wide[:, None] - wide) ** 2).sum(-1)) + np.eye(len(x))
    # Twenty steps do not solve such a system in single precision: what is left over has to be as small. It is
    # 0.8 to 1.6 times as much, as sums are rounded, and about the same over many right-hand sides.
    sides = [x[:, 0], *np.random.default_rng(0).normal(size=(13, len(x))).astype(np.float32)]
    ours, plain = (
        [np.linalg.norm(matrix @ np.asarray(namespace[name](x, side), np.float64) - side) for side in sides]
        for name in ("matrix_free", "ridge")
    )
    assert np.exp(np.mean(np.log(ours) - np.log(plain))) < 1.2
    assert plain[0] < 0.2 * np.linalg.norm(x[:, 0])


CHECKS: dict[tuple[str, str], Callable[[dict[str, Any], str], None]] = {
    ("README.md", "kernel_matvec"): sums_of_the_kernel,
    ("docs/budgets.md", "drift"): points_drift_in_place,
    ("docs/plans.md", "nearest_of"): planning_says_what_it_is_at,
    ("docs/conjugate-gradients.md", "ridge"): the_solver_s_matrix_is_never_there,
}
"""What else has to be so once an example has run: by its page, and a function that it defines."""


LONG = frozenset({"attention.md", "conjugate-gradients.md", "several-devices.md"})
"""Pages whose examples take long: `make test-all` runs them."""


def name_of(chain: list[Block]) -> str:
    return f"{chain[0].page.relative_to(ROOT)}:{chain[0].line}"


def marked(chain: list[Block]) -> Any:
    marks = [pytest.mark.nightly] if chain[0].page.name in LONG else []
    return pytest.param(chain, marks=marks, id=name_of(chain))


def defines(chain: list[Block], page: str, function: str) -> bool:
    return chain[0].page == ROOT / page and any(f"def {function}(" in block.code for block in chain)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("chain", [marked(chain) for chain in examples()])
def test_the_example_prints_what_the_page_says(
    chain: list[Block], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "example"}
    complaints = ""
    for block in chain:
        exec(compile(block.code, block.page, "exec", dont_inherit=True), namespace)
        printed, complained = capsys.readouterr()
        complaints += complained
        assert re.fullmatch(pattern(block.output), printed), f"line {block.line} prints\n{printed}"
    for (page, function), check in CHECKS.items():
        if defines(chain, page, function):
            check(namespace, complaints)


@pytest.mark.parametrize(("page", "function"), CHECKS)
def test_what_is_checked_is_there(page: str, function: str) -> None:
    assert sum(defines(chain, page, function) for chain in examples()) == 1


@pytest.mark.parametrize(
    ("output", "printed", "same"),
    [
        ("a … b\n", "a 1 2 b\n", True),
        ("a … b\n", "a 1\n2 b\n", False),
        ("a\n…\nb\n", "a\nb\n", True),
        ("a\n…\nb\n", "a\n1\n2\nb\n", True),
        ("a\n…\n", "b\n1\n", False),
        ("", "a\n", False),
        ("a\n", "", False),
    ],
)
def test_dots_stand_for_what_depends_on_the_machine(output: str, printed: str, same: bool) -> None:
    assert bool(re.fullmatch(pattern(output), printed)) == same


def test_the_script_runs_as_shown(tmp_path: Path) -> None:
    page = ROOT / "docs" / "scripts.md"
    (script,) = blocks(page)
    (tmp_path / "forces.py").write_text(script.code.lstrip())
    command = [sys.executable, "-m", "eqsat.run", "--budget", "5MB", "forces.py"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    (shown,) = re.findall(r"\$ eqsat run --budget 5MB forces.py\n((?:    .*\n)+)", page.read_text())
    # Chunk lengths are for the machine that this runs on.
    expected, got = (
        re.sub(r"(->|, ).*", "", textwrap.dedent(text)) for text in (shown, without_log(found.stderr))
    )
    assert got == expected


def test_the_rule_is_right(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "rules.md").read_text()
    (rule,) = re.findall(r"(    # \(A B\)\^-1 c.*?)\n\n", text, re.DOTALL)
    file = tmp_path / "mine.rules"
    file.write_text(rule)
    check_rules(file, examples=5)
