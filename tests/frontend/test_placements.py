"""What programs say about where values lie, on a mesh of one device."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from eqsat.errors import EqsatError
from eqsat.frontend.lower import lower_placed
from eqsat.frontend.placements import named_shardings, result_shardings, types_mesh, unplaced
from eqsat.frontend.retracing import NotRetraceable
from eqsat.ir.axis import layout_shape

MESH = Mesh(np.array(jax.devices()[:1]), ("data",), axis_types=(AxisType.Auto,))
ROWS = NamedSharding(MESH, PartitionSpec("data"))
X = jnp.zeros((4, 3))


def nested(x: Any) -> Any:
    def step(total: Any, _: Any) -> Any:
        return lax.with_sharding_constraint(total * 2, ROWS), None

    total, _ = lax.scan(step, x, None, length=3)
    inner = jax.jit(jnp.sin, in_shardings=ROWS, out_shardings=ROWS)
    return inner(x), total, jax.jit(lambda x: lax.with_sharding_constraint(x, ROWS))(x)


def test_all_that_is_said_becomes_constraints() -> None:
    closed = jax.make_jaxpr(nested)(X)
    assert len(list(named_shardings(closed.jaxpr))) == 4
    found = unplaced(closed, MESH)
    assert str(found).count("sharding_constraint") == 4
    assert [sharding is not None for sharding in result_shardings(found)] == [True, False, True]
    program, _, constraints = lower_placed(found)
    assert [layout_shape(one.layout) for one in constraints] == [(4, 3)] * 4
    assert all(one.origin and one.origin.function.startswith("nested") for one in constraints)
    assert not any("constraint" in str(term.op) for one in program.inside() for term in one.reachable())


def test_types_say_nothing_afterwards() -> None:
    mesh = Mesh(MESH.devices, ("data",), axis_types=(AxisType.Explicit,))
    x = jax.device_put(X, NamedSharding(mesh, PartitionSpec("data")))
    closed = jax.make_jaxpr(lambda x: jax.sharding.reshard(x + 1, NamedSharding(mesh, PartitionSpec())))(x)
    assert types_mesh(closed) is not None
    found = unplaced(closed, MESH)
    assert types_mesh(found) is None
    assert result_shardings(found) == [NamedSharding(MESH, PartitionSpec(None, None))]
    assert types_mesh(jax.make_jaxpr(jnp.sin)(X)) is None


def test_what_is_said_of_another_mesh_or_memory_is_not_dropped() -> None:
    other = NamedSharding(
        jax.sharding.AbstractMesh((2,), ("data",), axis_types=(AxisType.Auto,)), PartitionSpec("data")
    )
    with pytest.raises(EqsatError, match="data = 2, and is to be shared out over one of data = 1"):
        unplaced(jax.make_jaxpr(lambda x: lax.with_sharding_constraint(x, other))(X), MESH)
    memories = {memory.kind for memory in jax.devices()[0].addressable_memories()}
    for kind in memories - {jax.devices()[0].default_memory().kind}:
        host = NamedSharding(MESH, PartitionSpec(), memory_kind=kind)
        with pytest.raises(NotRetraceable):
            unplaced(jax.make_jaxpr(lambda x, h=host: lax.with_sharding_constraint(x, h))(X), MESH)
