"""Calls of the other primitives: random numbers, sparse arrays, control flow, functions, and effects."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import linear_call
from jax.experimental import checkify, io_callback, pallas
from jax.experimental import sparse as jsparse
from jax.extend.core import primitives
from jax.sharding import Mesh, PartitionSpec, SingleDeviceSharding

from tests.primitives.case import arr, case, spd

x45 = arr(4, 5)
key = jax.random.key(3)
keys = jax.random.split(key, 3)

# Random numbers
case("random_bits", lambda k: jax.random.bits(k, (4, 5)), key, passing={})
case("random_bits:keys", jax.vmap(lambda k: jax.random.bits(k, (5,), np.uint8)), keys, passing={(0,): (0,)})
case("random_fold_in", jax.random.fold_in, key, np.uint32(3), passing={})
case("random_gamma", jax.random.gamma, key, np.abs(x45) + 1, passing={})
case("random_seed", lambda s: jax.random.key(s), np.int32(3), passing={})
case("random_split", lambda k: jax.random.split(k, 3), key, passing={})
case("random_unwrap", jax.random.key_data, keys, passing={(0,): (0,)})
case("random_wrap", jax.random.wrap_key_data, arr(2, dtype=np.uint32), passing={})
case("random_clone", jax.random.clone, key, passing={})
case(
    "threefry2x32",
    primitives.threefry2x32_p.bind,
    *[arr(7, dtype=np.uint32)] * 4,
    passing={(0, 0, 0, 0): (0, 0)},
)
case("rng_bit_generator", lambda k: lax.rng_bit_generator(k, (5,)), arr(4, dtype=np.uint32), passing={})
case("rng_uniform", lambda x: lax.rng_uniform(x, x + 1, (5,)), np.float32(0), passing={}, runs=False)

# Sparse arrays
MATRIX = np.where(arr(6, 5) > 0.3, arr(6, 5), 0).astype(np.float32)
sparse = jsparse.BCOO.fromdense(MATRIX)
rows = jsparse.CSR.fromdense(MATRIX)
case("bcoo_dot_general", lambda a, b: a @ b, sparse, arr(5, 7), passing={(None, None, 1): (1,)})
case("bcoo_dot_general:vector", lambda a, b: a @ b, sparse, arr(5), passing={})
case("bcoo_todense", lambda a: a.todense(), sparse, passing={})
case("bcoo_fromdense", lambda x: jsparse.BCOO.fromdense(x, nse=30).data, MATRIX, passing={})
case("bcoo_transpose", lambda a: a.T.todense(), sparse, passing={})
case("bcoo_sum_duplicates", lambda a: a.sum_duplicates(nse=30).data, sparse, passing={})
case("bcoo_sort_indices", lambda a: a.sort_indices().data, sparse, passing={})
case("bcoo_extract", lambda a, x: jsparse.bcoo_extract(a, x).data, sparse, MATRIX, passing={})
case(
    "bcoo_dot_general_sampled",
    lambda a, b, i: jsparse.bcoo_dot_general_sampled(a, b, i, dimension_numbers=(((1,), (0,)), ((), ()))),
    arr(6, 3), arr(3, 5), sparse.indices, passing={},
)  # fmt: skip
case("csr_matmat", lambda a, b: a @ b, rows, arr(5, 7), passing={(None, None, None, 1): (1,)})
case("csr_matvec", lambda a, b: a @ b, rows, arr(5), passing={})
case("csr_todense", lambda a: a.todense(), rows, passing={})
case("coo_todense", lambda a: a.todense(), jsparse.COO.fromdense(MATRIX), passing={})
case("coo_matvec", lambda a, b: a @ b, jsparse.COO.fromdense(MATRIX), arr(5), passing={})
case(
    "coo_matmat", lambda a, b: a @ b, jsparse.COO.fromdense(MATRIX), arr(5, 7),
    passing={(None, None, None, 1): (1,)},
)  # fmt: skip
case("bcsr_todense", lambda a: a.todense(), jsparse.BCSR.fromdense(MATRIX), passing={})
case(
    "bcsr_dot_general", lambda a, b: a @ b, jsparse.BCSR.fromdense(MATRIX), arr(5, 7),
    passing={(None, None, None, 1): (1,)},
)  # fmt: skip

# Placement and ordering
HERE = SingleDeviceSharding(jax.devices()[0])
case("device_put", lambda x: jax.device_put(x, jax.devices()[0]) + 1, x45, passing={})
case("sharding_constraint", lambda x: lax.with_sharding_constraint(x, HERE) + 1, x45, passing={})
case(
    "optimization_barrier", lambda x: lax.optimization_barrier(x * 2) + 1, x45,
    passing={(0,): (0,), (1,): (1,)},
)  # fmt: skip
case(
    "optimization_barrier:two", lambda x, y: lax.optimization_barrier((x * 2, y)), x45, arr(4, 3),
    passing={(0, 0): (0, 0)},
)  # fmt: skip
case(
    "optimization_barrier:number", lambda x, y: lax.optimization_barrier((x * 2, y)), x45, np.float32(2),
    passing={},
)  # fmt: skip

# Control flow
case("scan", lambda x: lax.scan(lambda c, x: (c + x, c * x), x[0], x), x45, passing={})
case("while", lambda x: lax.while_loop(lambda c: c.sum() < 50, lambda c: c + 1.0, x), x45, passing={})
case("cond", lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), x45, passing={})
case("platform_index", lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos), x45, passing={})


# Calls
@jax.custom_jvp
def own_jvp(x: Any) -> Any:
    return jnp.sin(x) + 1.0


own_jvp.defjvps(lambda t, _, x: t * jnp.cos(x))


@jax.custom_vjp
def own_vjp(x: Any) -> Any:
    return jnp.exp(x)


own_vjp.defvjp(lambda x: (jnp.exp(x), x), lambda x, t: (t * x,))


@jax.custom_batching.custom_vmap
def own_vmap(x: Any) -> Any:
    return x * 2.0


own_vmap.def_vmap(lambda size, batched, x: (own_vmap(x), batched[0]))

case("jit", jax.jit(jnp.sin), x45, passing={})
case("jit:named", jax.jit(jax.named_call(lambda x: x + 1.0, name="step")), x45, passing={})
case("custom_jvp_call", own_jvp, x45, passing={})
case("custom_vjp_call", own_vjp, x45, passing={})
case("custom_vmap_call", own_vmap, x45, passing={})
case("remat2", jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))), x45, passing={})
case("composite", lax.composite(lambda x: x * 2.0, "eqsat.twice"), x45, passing={})
case("linear_call", lambda x, y: linear_call(jnp.multiply, jnp.multiply, x, y), x45, x45, passing={})
case(
    "custom_linear_solve",
    lambda a, b: lax.custom_linear_solve(lambda v: a @ v, b, lambda _, v: jnp.linalg.solve(a, v)),
    spd(4, 4), arr(4), passing={},
)  # fmt: skip

# Opaque calls and effects


def double(block: Any, out: Any) -> None:
    out[...] = block[...] * 2


def squares(x: Any) -> Any:
    total = jax.new_ref(jnp.zeros_like(x))
    total[...] = x * x
    jax.ref.addupdate(total, 0, x[1])
    return jax.freeze(total)


case("pure_callback", lambda x: jax.pure_callback(lambda v: np.asarray(v) * 2, x, x), x45, passing={})
case("pallas_call", lambda x: pallas.pallas_call(double, out_shape=x, interpret=True)(x), x45, passing={})
case("io_callback", lambda x: io_callback(lambda v: np.asarray(v) * 2, x, x, ordered=True), x45, passing={})
case("debug_callback", lambda x: (jax.debug.callback(lambda v: None, x), x + 1)[1], x45, passing={})
case("debug_print", lambda x: (jax.debug.print("{}", x[0, 0]), x + 1)[1], x45, passing={})
for name in ("new_ref", "swap", "addupdate", "freeze"):
    case(name, squares, x45, passing={})


def checked(x: Any) -> Any:
    checkify.check(x[0, 0] < 9, "too large")
    return x + 1


case("check", checked, x45, passing={}, runs=False)
case("check:as an error", lambda x: checkify.checkify(checked)(x)[1], x45, passing={}, primitive="lt")


# A mesh of one device
MESH = Mesh(np.array(jax.devices()[:1]), ("d",))
ALONG = PartitionSpec("d")


def shared(fn: Any) -> Any:
    return jax.shard_map(fn, mesh=MESH, in_specs=(ALONG,), out_specs=ALONG, check_vma=False)


case("shard_map", shared(lambda x: x + 1), x45, passing={})
for name, body in {
    "psum": lambda x: lax.psum(x, "d"),
    "pmax": lambda x: lax.pmax(x, "d"),
    "all_gather": lambda x: lax.all_gather(x, "d", tiled=True),
    "ppermute": lambda x: lax.ppermute(x, "d", [(0, 0)]),
    "axis_index": lambda x: x + lax.axis_index("d"),
    "reduce_scatter": lambda x: lax.psum_scatter(x, "d", tiled=True),
}.items():
    case(name, shared(body), x45, passing={})
