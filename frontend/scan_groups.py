"""Which operands of a scan come from around it, which are carried, and which are sequences."""

from __future__ import annotations

from typing import Any


def scan_groups(equation: Any) -> tuple[int, int]:
    """How many operands of a scan come from around it, and how many are carried; sequences are the others."""
    params = equation.params
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    # From JAX 0.11, trees say which operand is what; they are in this order.
    groups = params["ft_in"].update(list(range(len(equation.invars)))).unpack()
    numbers = [list(group) for group in groups]
    assert [number for group in numbers for number in group] == list(range(len(equation.invars)))
    return len(numbers[0]), len(numbers[1])
