"""Values that are known to be computed by tiles, too."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from eqsat.ir.program import Program
from eqsat.ir.tiled_values import is_windowed, tile_axes, tiled_values, with_tiles
from tests.stages import lowered, normal


def program_of(rows: int) -> Program:
    def network(x: Any) -> Any:
        for features in (4, 2):
            kernel = normal(3, 3, x.shape[-1], features)
            x = lax.conv_general_dilated(
                x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
        return jnp.tanh(x)

    return lowered(network, normal(1, rows, 8, 3))[0]


def test_programs_with_everything_by_tiles() -> None:
    program = program_of(96)
    ((whole, _),) = tiled_values(program)
    tiled = with_tiles(program)
    windowed = [term for term in tiled.reachable() if is_windowed(term)]
    assert whole not in windowed
    (axis,) = tile_axes(program)
    assert axis.size == 32
    assert all(axis in term.axes for term in windowed)
    assert not tiled.equalities


def test_rows_in_excess_are_seen_through() -> None:
    (axis,) = tile_axes(program_of(97))
    assert axis.size == 33
