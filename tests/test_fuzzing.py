"""Random programs on hostile data keep what their accuracy class promises: a few of those of `make fuzz`."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fuzzing.oracle import CHUNKS, Finding, Plain, difference, fuzz
from tests.nightly import THOROUGH

CLASSES = {"exact": 40, "reassociates": 60, CHUNKS: 80}
"""The first seed for each."""

COUNT = 6 if THOROUGH else 2
"""Programs for each class: a second each."""

REWRITTEN = 0.5
"""The share of the programs that have temporaries to save, and are to be rewritten."""


def test_random_programs_on_hostile_data() -> None:
    findings = [
        fuzz(number, accuracy) for accuracy, seed in CLASSES.items() for number in range(seed, seed + COUNT)
    ]
    assert not [str(finding) for finding in findings if finding.wrong]
    outcomes = Counter(finding.outcome for finding in findings)
    tried = len(findings) - outcomes["small"] - outcomes["raises"]
    assert tried >= len(findings) / 3
    assert outcomes["rewritten"] >= REWRITTEN * tried


def products(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jnp.abs(x) - y, jnp.sum(jnp.exp(x) * y)


def said(accuracy: str, number: int, change: float, y: float = 2.0) -> str:
    """What is said of a result with another first number."""
    args = (jnp.linspace(0.1, 1.3, 40), jnp.linspace(y, -1.0, 40))
    result = np.array(products(*args)[number])
    result.flat[0] = change if change != 1 else np.nextafter(result.flat[0], np.float32(np.inf))
    finding = Finding(accuracy, "")
    return difference(finding, Plain(products, args), number, jnp.asarray(result))


def test_the_last_bit_counts_at_exact_where_xla_has_no_freedom() -> None:
    assert said("exact", 0, 1)
    assert not said("reassociates", 0, 1)


def test_sums_of_products_may_round_otherwise_at_any_class() -> None:
    assert not said("exact", 1, 1)
    assert said("exact", 1, 50.0)
    assert said("reassociates", 1, 50.0)


@pytest.mark.parametrize("accuracy", ["exact", "reassociates"])
@pytest.mark.parametrize("change", [np.nan, np.inf, 0.0])
def test_what_is_no_number_or_zero_is_no_rounding(accuracy: str, change: float) -> None:
    assert said(accuracy, 0, change)
