"""What is recognised as a look-up by index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.frontend.named import names
from tests.stages import normal

X = normal(4, 6)
Y = normal(3, 4, 6)
ROWS = np.array([2, 0, 3, 3, 1], np.int32)
PLACES = np.array([5, 0, 2, 2], np.int32)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("fn", "args", "wanted"),
    [
        (lambda x, i: x.at[i].get(mode="promise_in_bounds"), (X, ROWS), "take[4](0, "),
        (lambda x, i: x.at[:, i].get(mode="promise_in_bounds"), (X, ROWS), "take[6](0, "),
        (lambda x, i: x.at[:, i].get(mode="promise_in_bounds"), (Y, ROWS), "take[4](0, "),
        (lambda x, i: x.at[i[:, None]].get(mode="promise_in_bounds"), (X, ROWS), "take[4](0, "),
        (
            lambda x, i: jnp.take_along_axis(x, i[:, None], 1, mode="promise_in_bounds"),
            (X, PLACES),
            "take[6](0, ",
        ),
        (jax.vmap(lambda x, i: x.at[i].get(mode="promise_in_bounds")), (X, PLACES), "take[6](0, "),
        (
            jax.vmap(lambda x, i: x.at[i].get(mode="promise_in_bounds"), (1, 0)),
            (X, np.arange(6) % 4),
            "take[4](0, ",
        ),
        # one index for all
        (lambda x, i: x[i[0]], (X, ROWS), "take[4](0, "),
        (lambda x, i: x[i[0], i[1]], (X, ROWS), "take[6](take[4](0, "),
        (lambda x, i: x[:, i[0]], (X, ROWS), "take[6](0, "),
        (lambda x, i: jax.lax.dynamic_index_in_dim(x, i[0] + 9, 0), (X, ROWS), "take[4](0, "),
        # by several indices
        (lambda x, i: x.at[i, i].get(mode="promise_in_bounds"), (X, ROWS), "take[6](take[4](0, "),
        (lambda x, i: x.at[i[:, None], i].get(mode="promise_in_bounds"), (X, ROWS), "take[6](take[4](0, "),
        (lambda x, i: x.at[:, i[:, None], i + 2].get(mode="fill"), (Y, ROWS + 1), "select_n("),
        (lambda x, i: x.at[i, :, i + 1].get(mode="clip"), (Y, ROWS - 1), "take[6](take[3](0, "),
        (
            lambda x, i: jax.vmap(lambda a, j: a.at[j, i].get(mode="clip"), (0, 1))(
                x, i[:, None] + jnp.arange(3)
            ),
            (Y, ROWS),
            "take[6](take[4](0, ",
        ),
        # indices that are out of bounds
        (lambda x, i: jnp.take(x, i, 0, mode="clip"), (X, ROWS + 2), "take[4](0, "),
        (lambda x, i: jnp.take(x, i - 3, 0, mode="clip"), (X, ROWS), "take[4](0, "),
        (lambda x, i: jnp.take(x, i, 0, mode="fill"), (X, ROWS + 2), "select_n("),
        (lambda x, i: jnp.take(x, i, 1, mode="fill", fill_value=-1.0), (X, 2 * ROWS), "select_n("),
        (lambda x, i: jnp.take_along_axis(x, i[:, None], 1), (X, PLACES + 2), "select_n("),
        (lambda x, i: jnp.take(x, i, 0, mode="fill"), (np.arange(24).reshape(4, 6), ROWS + 2), "select_n("),
        (lambda x, i: jnp.take(x, i, 0, mode="fill"), (X > 0, ROWS + 2), "select_n("),
    ],
)
def test_look_ups(fn: Callable[..., Any], args: Any, wanted: str) -> None:
    *_, found = names(fn, *args)
    assert found.startswith(wanted)


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        # of slices that are not whole; by indices that can't reach the last entry
        (lambda x, i: jax.vmap(lambda j: jax.lax.dynamic_slice(x, (j, 0), (2, 6)))(i), (X, PLACES[1:] % 2)),
        (lambda x, i: jnp.take(x, i, 0, mode="clip"), (normal(200, 2), np.arange(9, dtype=np.int8))),
    ],
)
def test_what_is_no_look_up(fn: Callable[..., Any], args: Any) -> None:
    assert not [name for name in names(fn, *args) if "take" in name]
