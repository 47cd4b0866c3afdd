"""What wider accuracy classes would gain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import eqsat
from eqsat.cli import main
from tests.stages import normal

POINTS = normal(400, 100)


def density(x: Any) -> Any:
    return jnp.exp(-jnp.sum(((x[:, None] - x) / 3) ** 2, axis=-1)).sum(1)


@pytest.mark.nightly
def test_every_class_that_gains_has_the_price_of_its_plan() -> None:
    compared = eqsat.compare_accuracies(density, budget="400kB")(POINTS)
    assert [price.accuracy for price in compared.prices] == ["reassociates", "rescales", "cancels"]
    for price in compared.prices:
        plan = eqsat.optimize(density, budget="400kB", accuracy=price.accuracy).plan(POINTS)
        assert (price.seconds, price.peak_bytes) == (plan.predicted_seconds, plan.peak_bytes)
    assert not compared.prices[0].rules
    assert compared.prices[1].rules == ("divisor-out-of-squares",)
    assert "squared-distance" in compared.prices[2].rules
    page = str(compared)
    assert "for density within 400 kB" in page
    assert "A rule that is 'cancels': it loses digits" in page
    assert all(len(line) <= 120 for line in page.splitlines())


def test_where_no_class_gains_that_is_said() -> None:
    compared = eqsat.compare_accuracies(jnp.sort, budget="1MB")(POINTS[:, 0])
    assert [price.accuracy for price in compared.prices] == ["reassociates"]
    assert "nothing, compared with 'reassociates'" in str(compared)
    widest = eqsat.compare_accuracies(density, budget="400kB", accuracy="amplifies")(POINTS)
    assert [price.accuracy for price in widest.prices] == ["amplifies"]


def test_a_class_that_fits_where_the_one_asked_for_does_not_is_named() -> None:
    """A sum by chunks is another order of it."""
    x = normal(100_000)

    def total(x: Any) -> Any:
        return jnp.sum(jnp.sin(x) * jnp.cos(x))

    compared = eqsat.compare_accuracies(total, budget="450kB", accuracy="exact")(x)
    assert [price.accuracy for price in compared.prices] == ["exact", "reassociates"]
    assert compared.prices[0].seconds is None
    assert "no plan" in str(compared)


@pytest.mark.nightly
def test_the_command_line_says_what_a_class_would_gain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import jax.numpy as jnp\n"
        "def density(x):\n"
        "    return jnp.exp(-jnp.sum(((x[:, None] - x) / 3) ** 2, axis=-1)).sum(1)\n"
    )
    assert main(["explain", f"{script}:density", "--shapes", "f32[400,100]", "--budget", "400kB"]) == 0
    out = capsys.readouterr().out
    assert "eqsat plan for density" in out
    assert "What wider accuracy classes would gain for density" in out


@pytest.mark.parametrize("question", [eqsat.minimum_budget, eqsat.explain, eqsat.compare_accuracies])
def test_a_wrong_call_says_how_it_is_done(question: Any) -> None:
    name = question.__name__
    with pytest.raises(TypeError, match=rf"eqsat\.{name}\(fn, …\)\(x, …\)"):
        question(density, POINTS)
    with pytest.raises(TypeError, match=rf"has no option 'x'.*eqsat\.{name}\(fn, …\)\(x=…\)"):
        question(density, x=POINTS)
    with pytest.raises(TypeError, match=r"accuracy, .*rules"):
        question(density, acuracy="exact")


def test_arguments_are_those_of_a_call() -> None:
    def scaled(x: Any, *, factor: Any, power: int) -> Any:
        return factor * density(x) ** power

    static = {"static_argnames": "power"}
    values = {"factor": 2.0, "power": 3}
    assert eqsat.minimum_budget(scaled, **static)(POINTS, **values) > 0
    assert eqsat.explain(scaled, budgets=1, **static)(POINTS, **values).prices
    assert eqsat.compare_accuracies(scaled, budget="400kB", **static)(POINTS, **values).prices
