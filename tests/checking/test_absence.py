"""Why a rule does not fire: which parts of its left side, and which conditions, are not there."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from eqsat.checking.firing import why_not
from eqsat.checking.presence import presence
from eqsat.cli import main
from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from eqsat.language.parse import parse_rules
from eqsat.rulesets.selection import rules_for


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "sum[K] (c{!K} * a{K})  =>  c * sum[K] a  example  c: i k  a: i k",
            "`c{!K}` (`c` has the axes i k) does not hold",
        ),
        (
            "dot[k](a{i, k}, b{k, !i})  =>  sum[k] (a * b)  example  a: i k  b: i k",
            "`b{!i}` (`b` has the axes i k) does not hold",
        ),
        (
            "sum[N] a  =>  fold[n, sum] sum[N] chunk[n] a  where n in N, large(n), size(n) > 100000"
            "  example  a: i",
            "`size(n) > 100000` does not hold",
        ),
        ("sqrt(a^2)  =>  a  where nonnegative(a)  example  a: k", ""),
    ],
)
def test_conditions_that_an_example_lacks_are_named(text: str, reason: str) -> None:
    (rule,) = parse_rules(f"rule tried  {text}", "tried").rules
    assert why_not(rule, rule.examples[0]) == reason


def outer(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sqrt((x[:, None] - y[None, :]) ** 2)


def said(text: str) -> str:
    file = parse_rules(f"rule tried  {text}", "tried")
    shapes = (jax.ShapeDtypeStruct((5,), "float32"), jax.ShapeDtypeStruct((7,), "float32"))
    program, _ = lower(trace(outer, shapes, {}).closed)
    return presence("tried", [file], program, lambda accuracy: rules_for((), accuracy))


def test_a_rule_that_fires_in_a_function() -> None:
    assert said("(a - b)^2  =>  (b - a)^2") == "tried.tried fires in it."


def test_all_parts_that_a_function_lacks_are_shown() -> None:
    text = said("tanh(a) * bessel_i0e(sqrt(b))  =>  bessel_i0e(sqrt(b)) * tanh(2 * (a / 2))")
    assert text.count("nothing in the function equals this part") == 2
    assert "tried:1:13: nothing" in text
    assert "tried:1:23: nothing" in text


def test_a_condition_that_a_function_lacks_is_shown_with_the_term() -> None:
    text = said("sqrt(c^2)  =>  c  where positive(c), float(c)")
    assert "`positive(c)` does not hold" in text
    assert "float(c)` does" not in text
    assert "float32[argument 0.0:5, argument 1.0:7]" in text


def test_the_command_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text("import jax.numpy as jnp\ndef f(x):\n    return jnp.exp(x)\n")
    assert main(["explain-rule", "woodbury", "--in", f"{script}:f", "--shapes", "f32[3]"]) == 0
    assert "does not fire" in capsys.readouterr().out
    assert main(["explain-rule", "woodbury", "--in", f"{script}:f", "--shapes", "f32[3], f32[3]"]) == 2
    assert "can't be traced" in capsys.readouterr().err
