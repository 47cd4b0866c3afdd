"""Lengths of axes as numbers: `size(k)` on the right side of a rule."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.errors import RuleSyntaxError
from eqsat.language.parse import parse_rules
from eqsat.testing import check_rules
from tests.stages import normal

ENERGY = """rule pairwise-energy [cancels]
  sum[i, j] (x{i, !j} - y{j, !i})^2
    =>  max(size(j) * (sum[i] x^2) + size(i) * (sum[j] y^2) - 2 * (sum[i] x) * sum[j] y, 0)
  where float(x)
  example  x: i  y: j
"""


def test_a_length_is_a_number() -> None:
    (rule,) = parse_rules(ENERGY.replace("size(j)", "(1 + max[j] iota[j])"), "my.rules").rules
    assert parse_rules(ENERGY, "my.rules").rules == (rule,)
    assert check_rules(ENERGY).ok
    wrong = check_rules(ENERGY.replace("size(j)", "size(i)"), fail=False)
    assert "the two sides are not equal" in wrong.rules[0].failures[0]


def test_lengths_are_used_in_programs(tmp_path: Path) -> None:
    file = tmp_path / "mine.rules"
    file.write_text(ENERGY)
    x, y = normal(700), normal(800, seed=1)

    def energy(x: np.ndarray, y: np.ndarray) -> jnp.ndarray:
        return jnp.sum((x[:, None] - y) ** 2)

    optimized = eqsat.optimize(energy, budget="10MB", rules=[file], accuracy="cancels")
    assert optimized.plan(x, y).rules_fired["pairwise-energy"]
    np.testing.assert_allclose(optimized(x, y), energy(x, y), rtol=1e-5)


@pytest.mark.parametrize(
    ("rule", "place", "message"),
    [
        ("(sum[k] a) / size(k) => mean[k] a", "2:14", "a length cannot be matched"),
        ("mean[k] a == (sum[k] a) / size(k)", "2:27", "a length cannot be matched"),
        ("mean[K] a => (sum[K] a) / size(K)", "2:27", "a length must be that of one axis"),
        ("mean[k] a => (sum[k] a) / size(2)", "2:27", "a length must be that of one axis"),
    ],
)
def test_what_has_no_length(rule: str, place: str, message: str) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        parse_rules(f"rule r\n{rule}", "my.rules")
    assert str(caught.value).startswith(f"my.rules:{place}: {message}\n")
