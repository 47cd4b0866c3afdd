"""Sums over sets of classes that are the bits of integers."""

from __future__ import annotations

import random

import pytest

from eqsat.engine.weights import Weights


def test_a_sum_is_that_of_the_bits_that_are_set() -> None:
    rng = random.Random(0)
    weights = [float(rng.randrange(100)) for _ in range(203)]
    table = Weights(weights)
    for _ in range(300):
        few = rng.sample(range(len(weights)), rng.choice([0, 1, 2, 5, 60]))
        assert table.sum(sum(1 << index for index in few)) == sum(weights[index] for index in few)


@pytest.mark.parametrize("index", [0, 7, 8, 202])
def test_the_first_and_the_last_of_eight_count(index: int) -> None:
    table = Weights([0.0] * 203)
    table.set(index, 2.0)
    table.set(index, 3.0)
    assert table.sum(1 << index) == 3.0
