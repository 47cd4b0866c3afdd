"""Calls of primitives that only change layouts, and of those that reduce along axes."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from tests.primitives.case import arr, case

x45, x654, deep = arr(4, 5), arr(6, 5, 4), arr(2, 3, 1, 2, 3, 2, 1, 5)

# Layouts
case("broadcast_in_dim", lambda x: jnp.broadcast_to(x, (3, 4)), arr(4), passing={})
case("broadcast_in_dim:deep", lambda x: jnp.broadcast_to(x, (7, *deep.shape)), deep, passing={})
case("squeeze", lambda x: lax.squeeze(x, (2,)), deep, passing={})
case("transpose", lambda x: jnp.transpose(x, (2, 0, 1)) * 1, x654, passing={})
case("transpose:deep", lambda x: jnp.transpose(x) * 1, deep, passing={})
case("transpose:int4", lambda x: x.T + x.T, arr(4, 5, dtype=jnp.int4), passing={})
case("iota", lambda x: lax.broadcasted_iota(np.int32, (4, 5), 1) + x, arr(4, 5, dtype=np.int32), passing={})
case("iota:wraps", lambda x: lax.iota(np.uint8, 300) + x, np.uint8(1), passing={})
case("name", lambda x: checkpoint_name(x, "kept") + 1, x45, passing={})
case("empty", lambda x: (lax.empty((4, 5), np.float32), x + 1)[1], x45, passing={})

# Reductions
NUMBERS: dict[str, tuple[Any, ...]] = {
    "sum": (np.float32, jnp.bfloat16, np.complex64, np.int32, np.uint8, jnp.float8_e4m3fn),
    "prod": (np.float32, np.complex64, np.int32),
    "max": (np.float32, jnp.bfloat16, np.int8, np.bool_, np.complex64),
    "min": (np.float32, jnp.float8_e5m2, np.uint32),
    "and": (np.bool_, np.int32),
    "or": (np.bool_, np.uint8),
    "xor": (np.bool_, np.int16),
}
for kind, dtypes in NUMBERS.items():

    def reduced(*operands: Any, kind: str = kind) -> Any:
        bind = getattr(lax, f"reduce_{kind}_p").bind
        extra = {"out_sharding": None} if kind not in ("and", "or", "xor") else {}
        return [bind(x, axes=axes, **extra) for x in operands for axes in ((1,), (0, 2))]

    operands = [arr(5, 7, 3, dtype=dtype) for dtype in dtypes]
    if kind in ("max", "min"):  # on complex numbers, these are lowered to calls
        extreme = getattr(lax, f"reduce_{kind}")
        rows: dict[Any, Any] = {(0,): (0,), (2,): (1,)}
        case(f"reduce_{kind}", lambda *xs, f=extreme: [f(x, (1,)) for x in xs], *operands, passing=rows)
        case(f"reduce_{kind}:both", lambda x, f=extreme: f(x, (0, 2)), operands[0], passing={(1,): (0,)})
        case(f"reduce_{kind}:one", lambda x, f=extreme: f(x, (1,)), operands[0][:, :1], passing=rows)
    else:
        case(f"reduce_{kind}", reduced, *operands, passing={})
        case(f"reduce_{kind}:one", reduced, *(x[:, :1] for x in operands), passing={})
        case(f"reduce_{kind}:none", reduced, *(x[:, :0] for x in operands), passing={})
case("reduce_sum:deep", lambda x: lax.reduce_sum(x, (0, 3, 4, 7)), deep, passing={})
case("reduce_sum:wide", lambda x: lax.reduce_sum(x, (0,)), arr(5, 3, dtype=np.float64), passing={}, x64=True)
case("argmax", lambda x: lax.argmax(x, 1, np.int32), x654, passing={(0,): (0,), (2,): (1,)})
case("argmin", lambda x: lax.argmin(x, 0, np.int32), x654, passing={(1,): (0,), (2,): (1,)})
case("argmin:ties", lambda x: lax.argmin(x, 0, np.uint8), np.round(x45), passing={(1,): (0,)})
case("top_k", lambda x: lax.top_k(x, 2), x654, passing={(0,): (0, 0), (1,): (1, 1)})
case("top_k:axis", lambda x: lax.top_k(x, 2, axis=0), x654, passing={(1,): (1, 1), (2,): (2, 2)})
case("top_k:all", lambda x: lax.top_k(x, 5), arr(7, 5, dtype=np.int32), passing={(0,): (0, 0)})
