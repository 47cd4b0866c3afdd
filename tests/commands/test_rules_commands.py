"""The command `eqsat`."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat.cli import main

RIGHT = """# A rule, and nothing else.
rule pull-factor [rescales]
  sum[K] (c{!K} * a)  =>  c * sum[K] a
  example  c: i  a: i k
  source "distributivity"
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "mine.rules"
    path.write_text(RIGHT)
    return path


def test_a_right_file(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(rules)]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert lines[0].split() == ["rule", "declared", "measured", "tried", "verdict"]
    assert lines[1].split()[:3] == ["mine.pull-factor", "rescales", "rescales"]
    assert lines[1].endswith("ok")
    assert lines[3].startswith("1 checked, none failed, in ")


def test_a_wrong_file(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules.write_text(RIGHT.replace("c * sum", "2 * c * sum"))
    assert main(["check", str(rules), "--examples", "8"]) == 1
    out = capsys.readouterr().out
    assert "FAILED" in out
    assert f"{rules}:2:6: the two sides are not equal\n  2 | rule pull-factor [rescales]\n" in out
    assert "right side: np.array(" in out
    assert "1 checked, 1 failed" in out


def test_unusable_files(rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules.write_text("rule broken  a => ")
    assert main(["check", str(rules)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"{rules}:1:")
    assert "^" in err
    assert main(["check", str(tmp_path / "missing.rules")]) == 2
    assert "there is no rules file" in capsys.readouterr().err


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([])
    assert exit_.value.code == 2
    with pytest.raises(SystemExit) as exit_:
        main(["check", "--examples", "many"])
    assert exit_.value.code == 2
    assert "usage: eqsat" in capsys.readouterr().err


def test_one_rule_of_the_shipped_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--rule", "contraction.pull-factor", "--examples", "8"]) == 0
    assert "1 checked, none failed" in capsys.readouterr().out
    assert main(["check", "--rule", "unheard-of"]) == 2


def test_strict_and_notes(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules.write_text("rule moved [cancels]  max[K] exp(a{K})  =>  exp(max[K] a)  where size(K) > 0")
    assert main(["check", str(rules), "--notes"]) == 0
    out = capsys.readouterr().out
    assert "warning: the rule has no example" in out
    assert "declared [cancels], measured [exact]" in out
    assert main(["check", str(rules), "--strict"]) == 1


@pytest.mark.parametrize("name", ["contraction.pull-factor", "split-reduction", "woodbury", "chunk-map"])
def test_rules_are_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-rule", name]) == 0
    out = capsys.readouterr().out
    assert f"rule {name.rpartition('.')[2]}" in out
    assert "Source: " in out
    assert "def before(" in out
    assert "def after(" in out
    assert "largest intermediate" in out
    assert "import" not in out


@pytest.mark.parametrize(
    "name", ["cyclic-trace", "trace-with-diagonal", "reduction-of-merge", "rename-reduced"]
)
def test_rules_whose_sets_an_example_does_not_name_are_explained(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain-rule", name]) == 0
    assert "def after(" in capsys.readouterr().out


def test_what_is_explained_can_be_run(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import jax.numpy as jnp
    import numpy as np
    from jax import lax

    assert main(["explain-rule", "mine.pull-factor", "--rules", str(rules)]) == 0
    out = capsys.readouterr().out
    functions = [part.split("\n\n")[0] for part in out.split("\n\n") if part.lstrip().startswith("def ")]
    scope: dict[str, object] = {"jnp": jnp, "lax": lax}
    for text in functions:
        exec("\n".join(line[2:] for line in text.split("\n")), scope)
    lengths = dict(part.split(" = ") for part in out.split("with ")[1].split(", this")[0].split(", "))
    c, a = np.ones(int(lengths["i"])), np.ones((int(lengths["i"]), int(lengths["k"])))
    before, after = (scope[name](c, a)[0] for name in ("before", "after"))  # type: ignore[operator]
    np.testing.assert_allclose(before, after, rtol=1e-5)


def test_rules_that_are_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-rule", "pull-facto"]) == 2
    assert "did you mean `pull-factor`?" in capsys.readouterr().err
