"""The arrays that loops start from: XLA would keep one that several share until the last loop has begun."""

from __future__ import annotations

import pytest

from eqsat.backend.scope import Scope


def scope(ended: str = "end_a") -> Scope:
    return Scope({}, {}, {}, 1, ended=ended)


def test_arrays_of_one_shape_and_dtype_are_of_different_numbers() -> None:
    here = scope()
    found = [here.initial_array("(3, 4)", None, "jnp.float32") for _ in range(3)]
    assert found == [
        "jnp.zeros((3, 4), jnp.float32)",
        "jnp.full((3, 4), 1, jnp.float32)",
        "jnp.full((3, 4), 2, jnp.float32)",
    ]
    assert here.initial_array("(4, 3)", None, "jnp.float32") == "jnp.zeros((4, 3), jnp.float32)"
    assert here.initial_array("(3, 4)", None, "jnp.int32") == "jnp.zeros((3, 4), jnp.int32)"


@pytest.mark.parametrize(("number", "other"), [("0", "1"), ("1", "0"), ("True", "0"), ("-jnp.inf", "1")])
def test_an_identity_is_the_same_number_though_xla_cannot_tell(number: str, other: str) -> None:
    here = scope()
    assert here.initial_array("(3,)", number, "jnp.float32") == f"jnp.full((3,), {number}, jnp.float32)"
    second = here.initial_array("(3,)", number, "jnp.float32")
    where = f"jnp.where(end_a < 0, jnp.float32({other}), jnp.float32({number}))"
    assert second == f"jnp.full((3,), {where})"


def test_where_no_loop_has_ended_an_identity_is_written_as_it_is() -> None:
    here = scope(ended="")
    texts = {here.initial_array("(3,)", "0", "jnp.float32") for _ in range(2)}
    assert texts == {"jnp.full((3,), 0, jnp.float32)"}


def test_narrow_numbers_stay_in_range() -> None:
    here = scope()
    for dtype, most in (("jnp.bool_", 1), ("jnp.int8", 127), ("jnp.int4", 7), ("jnp.uint2", 3)):
        texts = [here.initial_array("(3,)", None, dtype) for _ in range(300)]
        numbers = [int(text.split(", ")[1]) for text in texts if "jnp.full" in text]
        assert max(numbers) <= most


def test_keys_have_no_numbers() -> None:
    here = scope()
    dtype = 'jax.random.key(0, impl="fry").dtype'
    assert {here.initial_array("(3,)", None, dtype) for _ in range(3)} == {f"jnp.zeros((3,), {dtype})"}
