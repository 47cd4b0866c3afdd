"""What is loaded into the engine together is short, whatever the program."""

from __future__ import annotations

import re

import pytest

from eqsat.engine.encode import Loading, Symbols


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([], []),
        ([10] * 9, [8, 1]),
        ([1500] * 3, [2, 1]),
        ([9000, 10, 3990, 1, 9000, 9000], [1, 2, 1, 1, 1]),
    ],
)
def test_a_block_is_short_or_a_single_action(lengths: list[int], expected: list[int]) -> None:
    loading = Loading(Symbols())
    loading.actions = [f"<{place}{'.' * (length - 3)}>" for place, length in enumerate(lengths)]
    blocks = list(loading.blocks())
    assert [block.count("<") for block in blocks] == expected
    # Names of rulesets are taken once.
    assert len({block.split()[1] for block in blocks}) == len(blocks)
    assert [action for block in blocks for action in re.findall("<.*?>", block)] == loading.actions
