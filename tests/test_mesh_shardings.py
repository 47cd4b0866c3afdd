"""Where arguments and results of shared functions are, as constraints, callers and types say.

`tests/test_meshes.py` runs this file with eight devices.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import eqsat
from tests.nightly import nightly_but
from tests.stages import normal

pytestmark = pytest.mark.skipif(len(jax.devices()) < 8, reason="it needs eight devices")

P = PartitionSpec
X, Y, V = normal(160, 3), normal(80, 3), normal(80)
AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit


def kernel(x: Any, y: Any, v: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, -1)) @ v


def square(kind: AxisType = AUTO) -> Mesh:
    return jax.make_mesh((4, 2), ("data", "model"), axis_types=(kind,) * 2)


def put(array: Any, *spec: Any, kind: AxisType = AUTO) -> Any:
    return jax.device_put(array, NamedSharding(square(kind), P(*spec)))


def close(got: Any, wanted: Any) -> None:
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-4, atol=2e-4)


def lies(result: Any, *spec: Any) -> bool:
    return bool(result.sharding.is_equivalent_to(NamedSharding(square(), P(*spec)), result.ndim))


SPECS = {"model": P("model"), "both": P(("data", "model")), "whole": P(), "named": P("data")}


@pytest.mark.parametrize("name", nightly_but(["whole", "named"], SPECS))
def test_results_come_as_out_shardings_says(name: str) -> None:
    wanted = NamedSharding(square(), SPECS[name])
    spec = wanted if name == "named" else wanted.spec
    small = eqsat.optimize(kernel, budget="1MB", mesh=square(), out_shardings=spec)
    for got in (small(X, Y, V), jax.jit(small)(X, Y, V)):
        assert got.sharding.is_equivalent_to(wanted, 1)
        close(got, kernel(X, Y, V))
    assert "constraint" not in small.plan(X, Y, V).devices


def test_out_shardings_is_a_prefix_of_the_results() -> None:
    def both(x: Any) -> Any:
        return {"sum": x.sum(0), "rows": (x * 2, x + 1)}

    x = normal(16, 8)
    for prefix in ({"sum": None, "rows": P("data")}, {"sum": P("model"), "rows": (P("data"), P("data"))}):
        got = eqsat.optimize(both, budget="1MB", mesh=square(), out_shardings=prefix)(x)
        close(got, both(x))
        assert all(lies(rows, "data") for rows in got["rows"])
    with pytest.raises(ValueError, match="prefix"):
        eqsat.optimize(both, mesh=square(), out_shardings=[P()])(x)


def test_out_shardings_that_cannot_be_are_errors() -> None:
    with pytest.raises(ValueError, match="name it by mesh="):
        eqsat.optimize(kernel, out_shardings=P("data"))
    with pytest.raises(ValueError, match="not found in mesh"):
        eqsat.optimize(kernel, mesh=square(), out_shardings=P("rows"))(X, Y, V)
    with pytest.raises(ValueError, match="evenly divide"):
        eqsat.optimize(lambda x: x[:7] * 2, mesh=square(), out_shardings=P("data"))(X)
    line = jax.make_mesh((8,), ("data",), axis_types=(AUTO,))
    with pytest.raises(ValueError, match="out_shardings are of the mesh"):
        eqsat.optimize(kernel, mesh=square(), out_shardings=NamedSharding(line, P("data")))(X, Y, V)


def constrained(*spec: Any) -> Any:
    def fn(x: Any, y: Any, v: Any) -> Any:
        k = jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, -1))
        return lax.with_sharding_constraint(k, NamedSharding(square(), P(*spec))) @ v

    return fn


@pytest.mark.parametrize("named", [True, False])
def test_constraints_say_what_is_split(named: bool) -> None:
    where = {"mesh": square()} if named else {}
    for spec, said in (
        (("model", "data"), "data = 4: y.0 (80); model = 2: x.0 (160)"),
        (("data", "model"), "data = 4: x.0 (160); model = 2: y.0 (80)"),
    ):
        fn = constrained(*spec)
        small = eqsat.optimize(fn, budget="1MB", **where)
        assert small.plan(X, Y, V).devices == said
        close(small(X, Y, V), kernel(X, Y, V))
        close(jax.jit(small)(X, Y, V), kernel(X, Y, V))


def test_constraints_of_results_hold_and_so_do_those_in_calls_and_loops() -> None:
    there = NamedSharding(square(), P(None, "model"))
    inner = jax.jit(lambda x: jnp.sin(x) @ x.T, in_shardings=there)

    def fn(x: Any) -> Any:
        def step(total: Any, _: Any) -> Any:
            return lax.with_sharding_constraint(total + 1, there), None

        total, _ = lax.scan(step, x, None, length=3)
        return inner(x), lax.with_sharding_constraint(total, there)

    x = normal(16, 24)
    small = eqsat.optimize(fn, budget="1MB")
    got = small(x)
    close(got, fn(x))
    assert lies(got[1], None, "model")
    assert "model = 2: x.1 (24)" in small.plan(x).devices


def test_what_constraints_cannot_have_is_said() -> None:
    def fn(x: Any) -> Any:
        y = lax.with_sharding_constraint(x * 2, NamedSharding(square(), P("data", "model")))
        z = lax.with_sharding_constraint(jnp.exp(y), NamedSharding(square(), P("model", "data")))
        return z.sum(1)

    small, x = eqsat.optimize(fn, budget="1MB"), normal(16, 24)
    with pytest.warns(
        UserWarning, match=r"not split values as these constraints ask: P.*test_mesh_shardings"
    ):
        close(small(x), fn(x))
    assert "as a constraint asks" in small.plan(x).devices


def test_constraints_on_another_mesh_are_an_error() -> None:
    line = jax.make_mesh((8,), ("data",), axis_types=(AUTO,))
    with pytest.raises(
        eqsat.EqsatError, match="data = 4, model = 2, and is to be shared out over one of data = 8"
    ):
        eqsat.optimize(constrained("data"), budget="1MB", mesh=line)(X, Y, V)


def test_arguments_name_the_mesh_and_stay_where_they_are() -> None:
    args = put(X, "model"), put(Y, "data"), V
    small = eqsat.optimize(kernel, budget="100kB")
    got = small(*args)
    close(got, kernel(X, Y, V))
    plan = small.plan(*args)
    assert plan.devices == "data = 4: y.0 (80); model = 2: x.0 (160)"
    types = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=getattr(a, "sharding", None)) for a in args[:2]]
    assert small.plan(*types, V).devices == plan.devices
    assert small.plan(X, Y, V).devices == ""
    assert not small(X, Y, V).sharding.is_equivalent_to(got.sharding, 1)


def test_a_plan_does_for_arguments_that_are_where_it_takes_them() -> None:
    small = eqsat.optimize(lambda w, x: (w + (x.T @ x)[0], x), budget="1MB", mesh=square())
    w, x = normal(3), normal(160, 3)
    w1, x1 = small(w, x)
    call = small.program(w, x)
    assert call is not None
    small(w1, x)
    small(w1, x1)
    assert len(call.compilation._plans) == 1
    close(small(w, put(x, "model")), small(w, x))
    assert len(call.compilation._plans) == 2


def test_results_take_the_place_of_donated_arguments() -> None:
    array = normal(80, 1000)
    small = eqsat.optimize(
        lambda x: jnp.sin(x) * 2, budget=int(1.3 * array.nbytes / 8), mesh=square(), donate_argnums=0
    )
    assert small.plan(array).peak_bytes == array.nbytes / 8
    x = put(array, ("data", "model")) * 1  # XLA does not own what is still NumPy's.
    places = [shard.data.unsafe_buffer_pointer() for shard in x.addressable_shards]
    got = small(x)
    close(got, jnp.sin(array) * 2)
    assert x.is_deleted()
    assert [shard.data.unsafe_buffer_pointer() for shard in got.addressable_shards] == places


def test_arguments_that_are_too_large_where_they_are_are_moved_first() -> None:
    array = normal(80, 1000)
    small = eqsat.optimize(lambda x: jnp.sin(x) * 2, budget=array.nbytes // 3, mesh=square())
    got = small(put(array))
    close(got, jnp.sin(array) * 2)
    assert not got.sharding.is_fully_replicated


def test_side_effects_leave_a_function_with_sharded_arguments_as_it_is() -> None:
    def printing(x: Any) -> Any:
        jax.debug.print("{}", x[0, 0])
        return x + 1

    close(eqsat.optimize(printing, budget="1MB")(put(X, "data")), X + 1)


def test_the_mesh_in_context_is_used() -> None:
    small = eqsat.optimize(kernel, budget="1MB")
    named = eqsat.optimize(lambda *xs: lax.with_sharding_constraint(kernel(*xs), P("model")), budget="1MB")
    with jax.set_mesh(square()):
        close(small(X, Y, V), kernel(X, Y, V))
        assert "x.0" in small.plan(X, Y, V).devices
        close(jax.jit(small)(put(X, "data"), Y, V), kernel(X, Y, V))
        for got in (named(X, Y, V), jax.jit(named)(X, Y, V)):
            assert lies(got, "model")
            close(got, kernel(X, Y, V))
    assert small.plan(X, Y, V).devices == ""


def test_explicit_types_are_those_of_jax() -> None:
    args = put(X, "model", kind=EXPLICIT), *(put(a, kind=EXPLICIT) for a in (Y, V))
    small = eqsat.optimize(kernel, budget="1MB")
    moved = eqsat.optimize(lambda *xs: jax.sharding.reshard(kernel(*xs), P("data")), budget="1MB")
    got = small(*args)
    assert jax.typeof(got) == jax.typeof(jax.jit(kernel)(*args))
    assert small.plan(*args).devices.endswith("model = 2: x.0 (160)")
    with jax.set_mesh(square(EXPLICIT)):
        wanted = jax.typeof(jax.jit(kernel)(*args))
        for got in (small(*args), jax.jit(small)(*args)):
            assert jax.typeof(got) == wanted
            close(got, kernel(X, Y, V))
        assert jax.typeof(moved(*args)).sharding.spec == P("data")

        def total(f: Any) -> Any:
            return jax.grad(lambda v: jnp.sum(f(*args[:2], v) ** 2))(args[2])

        assert jax.typeof(total(small)) == jax.typeof(total(kernel))
        close(total(small), total(kernel))
        batch = jnp.stack([args[2]] * 2)
        mapped = [jax.vmap(f, (None, None, 0))(*args[:2], batch) for f in (small, kernel)]
        assert jax.typeof(mapped[0]) == jax.typeof(mapped[1])
    # Types of plain arguments say nothing, and so do those of the results.
    shared = eqsat.optimize(kernel, budget="1MB", mesh=square(EXPLICIT))
    assert EXPLICIT not in jax.typeof(shared(X, Y, V)).sharding.mesh.axis_types


def test_nothing_is_said_where_nothing_is_lost() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        eqsat.optimize(constrained("data"), budget="1MB")(X, Y, V)
