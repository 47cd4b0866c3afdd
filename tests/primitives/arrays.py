"""Calls of primitives that slice, index, concatenate, move, sort, contract and reduce arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core.primitives import select_and_scatter_p

from tests.primitives.case import Expected, arr, case, ints

x45, x654 = arr(4, 5), arr(6, 5, 4)
same2: Expected = {(0,): (0,), (1,): (1,)}

# Taking parts
case("slice", lambda x: lax.slice(x, (0, 1, 0), (6, 3, 4)), x654, passing={(0,): (0,), (2,): (2,)})
case("slice:stride", lambda x: lax.slice(x, (0, 0, 1), (6, 5, 4), (2, 1, 1)), x654, passing={(1,): (1,)})
case("slice:unit", lambda x: lax.slice(x, (0, 0), (1, 3)), arr(1, 4), passing={})
case(
    "dynamic_slice",
    lambda x, i: lax.dynamic_slice(x, (i, i, i), (6, 2, 4)), x654, ints(2)[0],
    passing={(0, None, None, None): (0,), (2, None, None, None): (2,)},
)  # fmt: skip
case(
    "dynamic_slice:negative",
    lambda x: lax.dynamic_slice_p.bind(x, np.int32(-3), np.int32(-1), slice_sizes=(2, 5)), x45,
    passing={(1, None, None): (1,)},
)  # fmt: skip
case(
    "dynamic_update_slice",
    lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i)), x45, arr(2, 5), ints(7)[0],
    passing={(1, 1, None, None): (1,)},
)  # fmt: skip
case("split", lambda x: lax.split(x, (2, 3), axis=1), x45, passing={(0,): (0, 0)})
case("unstack", lambda x: lax.unstack(x, axis=1), x654, passing={(0,): (0,) * 5, (2,): (1,) * 5})
case("approx_top_k", lambda x: lax.approx_max_k(x, 2), x654, passing={(0,): (0, 0), (1,): (1, 1)})

if hasattr(lax, "polynomial"):  # since 0.12
    case("polynomial", lambda x: lax.polynomial(x, [1.0, 2.0, 3.0]), x45,
        passing={(0, None, None, None): (0,), (1, None, None, None): (1,)}, exact=False)  # fmt: skip
    case("polynomial:coefficients", lambda x, c: lax.polynomial(x, [1.0, c, c]), x45, arr(4, 1),
        passing={(0, None, 0, 0): (0,), (1, None, None, None): (1,)}, exact=False)  # fmt: skip

# Gather and scatter
case("gather:rows", lambda x, i: x[i], x45, ints(3, 0, 7, -2), passing={(1, None): (1,), (None, 0): (0,)})
case(
    "gather:columns",
    lambda x, i: x.at[:, i].get(mode="fill"), x654, ints([3, 0, 17], [1, 9, 2]),
    passing={(0, None): (0,), (2, None): (3,), (None, 0): (1,), (None, 1): (2,)},
)  # fmt: skip
case("gather:pairs", lambda x, i: x[i, i], x654, ints(0, 2, 3), passing={(2, None): (1,), (None, 0): (0,)})
case("gather:batched", jax.vmap(lambda x, i: x[i]), x45, ints(1, 0, 9, 3), passing={(0, 0): (0,)})
case(
    "gather:batched rows", jax.vmap(lambda x, i: x.at[i].get(mode="clip")), x654, ints(*[[1, 0, 9]] * 6),
    passing={(0, 0): (0,), (2, None): (2,), (None, 1): (1,)},
)  # fmt: skip


def window(x: Any, i: Any, mode: Any) -> Any:
    numbers = lax.GatherDimensionNumbers((1, 2), (), (0, 1))
    return lax.gather(x, i, numbers, (2, 5), mode=mode)


for mode in ("clip", "fill"):
    # The window spans the whole second dimension, and still has a start there, which may be out of bounds.
    case(
        f"gather:window {mode}", lambda x, i, mode=mode: window(x, i, mode), x45,
        ints([0, 0], [3, 0], [1, 2]), passing={(1, None): (2,), (None, 0): (0,)},
    )  # fmt: skip

for op in ("add", "mul", "min", "max", "set", "subtract"):
    prim = {"set": "scatter", "subtract": "scatter-sub"}.get(op, f"scatter-{op}")
    case(
        f"{prim}:rows", lambda x, i, u, op=op: getattr(x.at[i], op)(u), x45, ints(3, 9, 1), arr(3, 5),
        passing={(1, None, 1): (1,)},
    )  # fmt: skip
case(
    "scatter-add:columns", lambda x, i, u: x.at[:, i].add(u), x654, ints(3, 3, 1), arr(6, 3, 4),
    passing={(0, None, 0): (0,), (2, None, 2): (2,)},
)  # fmt: skip
case(
    "scatter-add:batched", jax.vmap(lambda x, i, u: x.at[i].add(u)), x654, ints(*[[1, 1]] * 6), arr(6, 2, 4),
    passing={(0, 0, 0): (0,), (2, None, 2): (2,)},
)  # fmt: skip


def scatter_window(x: Any, i: Any, u: Any) -> Any:
    return lax.scatter_add(x, i, u, lax.ScatterDimensionNumbers((1, 2), (), (0, 1)), mode="drop")


case(
    "scatter-add:window", scatter_window, x45, ints([0, 0], [3, 0], [1, 2]), arr(3, 2, 5),
    passing={(1, None, 2): (1,)},
)  # fmt: skip

# Putting together
case("concatenate", lambda x, y: lax.concatenate([x, y], 0), x45, arr(2, 5), passing={(1, 1): (1,)})
case("stack", lambda x, y: lax.stack([x, y], axis=1), x45, x45, passing={(0, 0): (0,), (1, 1): (2,)})
case("pad", lambda x: lax.pad(x, 1.5, [(0, 0, 0), (1, 2, 1)]), x45, passing={(0, None): (0,)})
case("pad:interior", lambda x: lax.pad(x, 0.0, [(0, 0, 1), (-1, 1, 0)]), x45, passing={})
case("tile", lambda x: lax.tile(x, (2, 1)), x45, passing={(1,): (1,)})
case("rev", lambda x: lax.rev(x, (1,)), x654, passing={(0,): (0,), (2,): (2,)})
case("reshape", lambda x: x.reshape(6, 20), x654, passing={(0,): (0,)})
case("reshape:middle", lambda x: x.reshape(2, 3, 5, 2, 2), x654, passing={(1,): (2,)})
case("reshape:none", lambda x: x.reshape(5, 4), x45, passing={})
case("reshape:same lengths", lambda x: x.reshape(4, 2, 2), arr(2, 2, 4), passing={})
case("reshape:split", lambda x: x.reshape(2, 2, 5), x45, passing={(1,): (2,)})
case("reshape:unit", lambda x: x.reshape(1, 4, 1, 5), arr(4, 1, 1, 5), passing={(0,): (1,), (3,): (3,)})
case("reshape:factors", lambda x: x.reshape(3, 4, 2), arr(6, 2, 2), passing={(2,): (2,)})
case("reshape:permuted", lambda x: lax.reshape(x, (20,), (1, 0)), x45, passing={})
case("reshape:empty", lambda x: x.reshape(4, 0), arr(4, 5, 0), passing={})
case("bitcast_convert_type:same", lambda x: lax.bitcast_convert_type(x, np.int32), x45, passing=same2)
case("bitcast_convert_type:narrower", lambda x: lax.bitcast_convert_type(x, np.int8), x45, passing=same2)
case(
    "bitcast_convert_type:wider", lambda x: lax.bitcast_convert_type(x, np.int32), arr(3, 2, dtype=np.int16),
    passing={(0,): (0,)},
)  # fmt: skip

# Along an axis, elementwise
case("sort", lambda x: lax.sort(x, dimension=0), x45, passing={(1,): (1,)})
case("sort:two", lambda x, y: lax.sort((x, y), dimension=1), x45, x45, passing={(0, 0): (0, 0)})
case(
    "sort:keys", lambda x, y: lax.sort((x, y), num_keys=2, is_stable=False), arr(4, 5, dtype=np.int32), x45,
    passing={(0, 0): (0, 0)},
)  # fmt: skip
for op in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
    exact = op in ("cummax", "cummin")
    case(
        op, lambda x, op=op: getattr(lax, op)(x, axis=1), x654, passing={(0,): (0,), (2,): (2,)}, exact=exact
    )
    case(
        f"{op}:reverse", lambda x, op=op: getattr(lax, op)(x, axis=0, reverse=True), x45,
        passing={(1,): (1,)}, exact=exact,
    )  # fmt: skip
case(
    "select_n:three", lambda w, *x: lax.select_n(w, *x), np.abs(arr(4, 5, dtype=np.int32)) % 3,
    x45, -x45, 2 * x45, passing={(0,) * 4: (0,), (1,) * 4: (1,)},
)  # fmt: skip
case(
    "select_n:scalar", lambda w, *x: lax.select_n(w, *x), ints(1)[0], x45, -x45,
    passing={(None, 0, 0): (0,), (None, 1, 1): (1,)},
)  # fmt: skip
case(
    "clamp:scalars",
    lambda x: lax.clamp(-0.5, x, 0.5),
    x45,
    passing={(None, 0, None): (0,), (None, 1, None): (1,)},
)
case("copy:rows", lambda x: lax.copy_p.bind(x), x45, passing=same2)

# Contractions and reductions
case(
    "dot_general", lambda x, y: jnp.einsum("bij,bjk->bik", x, y), arr(3, 4, 5), arr(3, 5, 6),
    passing={(0, 0): (0,), (1, None): (1,), (None, 2): (2,)}, exact=False,
)  # fmt: skip
case("dot_general:inner", jnp.dot, arr(5), arr(5), passing={}, exact=False)


case(
    "ragged_dot_general", lax.ragged_dot, arr(7, 4), arr(3, 4, 5), ints(2, 2, 3),
    passing={(None, 2, None): (1,)}, exact=False,
)  # fmt: skip
case(
    "ragged_dot_general:contracted",
    lambda x, y, sizes: lax.ragged_dot_general(
        x, y, sizes, lax.RaggedDotDimensionNumbers((((1,), (0,)), ((), ())), (1,), ()),
    ),
    arr(4, 7), arr(7, 5), ints(2, 2, 3), passing={(0, None, None): (1,), (None, 1, None): (2,)}, exact=False,
)  # fmt: skip


def twice(x: Any, y: Any) -> Any:
    def largest(a: Any, b: Any) -> Any:
        return tuple(lax.select(a[0] > b[0], p, q) for p, q in zip(a, b, strict=True))

    return lax.reduce((x, y), (np.float32(-9), np.float32(0)), largest, (1,))


case("reduce", twice, x654, x654, passing={(0, 0, None, None): (0, 0), (2, 2, None, None): (1, 1)})

# Windows
for op, init in (("add", 0.0), ("max", -np.inf), ("min", np.inf)):
    prim = {"add": "reduce_window_sum"}.get(op, f"reduce_window_{op}")
    case(
        prim,
        lambda x, op=op, i=init: lax.reduce_window(x, i, getattr(lax, op), (1, 2, 1), (1, 1, 1), "SAME"),
        x654, passing={(0,): (0,), (2,): (2,)},
    )  # fmt: skip
case(
    "reduce_window_sum:strides",
    lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 1, 1), (2, 1, 1), ((0, 0), (1, 0), (0, 0))),
    x654, passing={(2,): (2,)},
)  # fmt: skip
case(
    "reduce_window", lambda x: lax.reduce_window(x, 1.0, lax.mul, (1, 2), (1, 1), "VALID"), x45,
    passing={(0, None): (0,)},
)  # fmt: skip


GREATER, SUM = (jax.make_jaxpr(f)(np.float32(0), np.float32(0)) for f in (lax.ge, lax.add))


def pairwise_max(x: Any) -> Any:
    return lax.reduce_window(x, -np.inf, lax.max, (1, 2), (1, 2), "VALID")


case(
    "select_and_scatter_add",
    jax.grad(lambda x: jnp.sum(pairwise_max(x))), arr(4, 6), passing={(0, 0): (0,)},
)  # fmt: skip
case(
    "select_and_gather_add",
    lambda x, t: jax.jvp(pairwise_max, (x,), (t,))[1],
    arr(4, 6), arr(4, 6), passing={(0, 0): (0,)},
)  # fmt: skip


case(
    "select_and_scatter",
    lambda x, s: select_and_scatter_p.bind(
        x, s, np.float32(0), select_jaxpr=GREATER.jaxpr, select_consts=(), scatter_jaxpr=SUM.jaxpr,
        scatter_consts=(), window_dimensions=(1, 2), window_strides=(1, 2), padding=((0, 0), (0, 0)),
    ),
    arr(4, 6), arr(4, 3), passing={(0, 0, None): (0,)},
)  # fmt: skip


def conv(x: Any, w: Any, **options: Any) -> Any:
    options = {"window_strides": (1, 1), "padding": "SAME", **options}
    return lax.conv_general_dilated(x, w, **options)


images, kernels = arr(3, 2, 5, 6), arr(4, 2, 3, 3)
case("conv_general_dilated", conv, images, kernels, passing={(0, None): (0,), (None, 0): (1,)}, exact=False)
case(
    "conv_general_dilated:layout",
    lambda x, w: conv(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC"), padding="VALID"),
    arr(3, 5, 6, 2), arr(1, 3, 2, 4),
    passing={(0, None): (0,), (None, 3): (3,), (1, None): (1,)}, exact=False,
)  # fmt: skip
case(
    "conv_general_dilated:feature groups", lambda x, w: conv(x, w, feature_group_count=2), images,
    arr(4, 1, 3, 3), passing={(0, None): (0,), (1, 0): (1,)}, exact=False,
)  # fmt: skip
case(
    "conv_general_dilated:groups of features", lambda x, w: conv(x, w, feature_group_count=3),
    arr(2, 6, 5, 6), arr(12, 2, 3, 3), passing={(0, None): (0,), (1, 0): (1,)}, exact=False,
)  # fmt: skip
case(
    "conv_general_dilated:batch groups", lambda x, w: conv(x, w, batch_group_count=2), arr(4, 2, 5, 6),
    kernels, passing={(0, 0): (1,)}, exact=False,
)  # fmt: skip
case(
    "conv_general_dilated:stride", lambda x, w: conv(x, w, window_strides=(2, 1), padding="VALID"), images,
    arr(4, 2, 1, 1), passing={(0, None): (0,), (None, 0): (1,), (3, None): (3,)}, exact=False,
)  # fmt: skip
