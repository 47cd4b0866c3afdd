"""What splits keep of what is asked for, and what is moved."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from eqsat.compiler.shardings import Dims, Ends, Wish, dims_of, spec_of
from eqsat.frontend.placements import Constraint
from eqsat.ir.axis import Axis

P = PartitionSpec
MESH: Any = jax.sharding.AbstractMesh((4, 2, 1), ("data", "model", "one"), axis_types=(AxisType.Auto,) * 3)
N, M, PART = Axis(0, 16), Axis(1, 6), Axis(2, 4)


@pytest.mark.parametrize("spec", [P(), P("data"), P(None, "model"), P(("data", "model"), None, "one")])
def test_specs_and_dimensions(spec: Any) -> None:
    trimmed = P(*spec[:-1]) if spec and spec[-1] is None else spec
    assert spec_of(dims_of(spec, 4)) == trimmed
    assert len(dims_of(spec, 4)) == 4


def test_a_wish_is_kept_by_splits_of_whole_dimensions() -> None:
    def wish(spec: Any, *layout: Any) -> Wish:
        return Wish.of(Constraint(layout, NamedSharding(MESH, spec), None), MESH, [])

    both = wish(P("data", "model"), N, M)
    assert both.axes == {N, M}
    assert both.broken == 2
    assert both.split(N, PART, "data").broken == 1
    assert both.split(N, PART, "model").broken == 2
    assert both.split(M, Axis(3, 3), "data").broken == 2
    merged = wish(P("data"), (N, M))
    assert merged.split(N, PART, "data").broken == 0
    assert merged.split(M, Axis(3, 2), "data").broken == 1  # Its parts are not contiguous.
    twice = wish(P(("data", "model")), N)
    assert twice.split(N, PART, "data").split(PART, Axis(4, 2), "model").broken == 0
    assert wish(P("one"), N).broken == wish(P(P.UNCONSTRAINED), N).broken == 0
    assert not Wish((N,), (("data",),), None, result=True).ignored


def test_bytes_that_are_moved() -> None:
    aval = jax.make_jaxpr(jnp.sin)(jnp.zeros((8, 6))).in_avals[0]

    def moved(here: Any, there: Dims) -> int:
        return Ends((here,), ()).moved(MESH, [aval], [there])

    rows = NamedSharding(MESH, P("data"))
    assert moved(None, ((), ())) == 0
    assert moved(NamedSharding(MESH, P()), (("data",), ())) == 0
    assert moved(rows, (("data",), ("model",))) == moved(rows, (("data", "model"), ())) == 0
    assert moved(rows, ((), ())) == 8 * 6 * 4
    assert moved(rows, (("model",), ())) == 4 * 6 * 4
    other = NamedSharding(jax.sharding.AbstractMesh((8,), ("rows",), axis_types=(AxisType.Auto,)), P("rows"))
    assert moved(other, (("data",), ())) == 2 * 6 * 4

    def returned(there: Any, dims: Dims) -> int:
        return Ends((), (there,)).returned(MESH, [aval], [dims])

    assert returned(None, (("data",), ())) == returned(rows, ((), ())) == 0
    assert returned(rows, (("model",), ())) == 2 * 6 * 4
    assert returned(NamedSharding(MESH, P(P.UNCONSTRAINED)), (("model",), ())) == 0
