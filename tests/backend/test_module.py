"""Modules that differ only in the numbers of their terms are one computation."""

from __future__ import annotations

import pytest

from eqsat.backend.module import Module


def computation(body: str, **objects: object) -> str:
    return Module(f"def optimized(x_1, y):\n{body}", objects).computation


def test_numbers_of_terms_do_not_matter() -> None:
    one = computation("    add_12 = x_1 + y\n    return (add_12 * lax.exp(add_12),)")
    assert one == computation("    add_345 = x_1 + y\n    return (add_345 * lax.exp(add_345),)")


@pytest.mark.parametrize(
    "other",
    [
        "    add_12 = x_1 + y\n    mul_13 = y * y\n    return (mul_13,)",
        "    add_12 = x_1 + y\n    mul_13 = add_12 * y\n    return (add_12,)",
        "    add_12 = x_1 + 7\n    mul_13 = add_12 * y\n    return (mul_13,)",
        "    add_12 = x_1 + y\n    mul_13 = x_1 * y\n    return (mul_13,)",
        "    add_12 = lax.expand_2(x_1)\n    mul_13 = add_12 * y\n    return (mul_13,)",
        "    add_12 = lax.expand_3(x_1)\n    mul_13 = add_12 * y\n    return (mul_13,)",
        "    add_12 = x_1 + 1_2\n    mul_13 = add_12 * y\n    return (mul_13,)",
        "    add_12 = x_1 + 1_3\n    mul_13 = add_12 * y\n    return (mul_13,)",
    ],
)
def test_what_is_computed_of_what_does(other: str) -> None:
    one = "    add_12 = x_1 + y\n    mul_13 = add_12 * y\n    return (mul_13,)"
    assert computation(one) != computation(other)
    assert computation(other) == Module(computation(other), {}).computation


def test_names_of_a_library_are_kept() -> None:
    assert computation("    return lax.expand_2(x_1)") != computation("    return lax.expand_3(x_1)")


def test_objects_keep_their_names() -> None:
    one, other = (computation(f"    return {name}(x_1)", **{name: len}) for name in ("call_2", "call_3"))
    assert one != other
