"""Passing dimensions are true: a slice of the operands gives, through the call, that slice of the results.

Each case names what passes, exactly, so that it also says what must not. The calls on slices are
made from source text, as the emitted module makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core

from eqsat.backend.calls import Namespace, call_source
from eqsat.frontend.passing import passing_dimensions

Expected = dict[tuple[int | None, ...], tuple[int, ...]]
CASES: dict[str, tuple[str, Callable[..., Any], tuple[Any, ...], Expected, bool]] = {}


def case(
    name: str, fn: Callable[..., Any], *args: Any, passing: Expected, primitive: str = "", exact: bool = True
) -> None:
    """Enters a case: `passing` maps dimensions of the operands to those of the results."""
    assert name not in CASES
    CASES[name] = (primitive or name.split(":")[0], fn, args, passing, exact)


def arr(*shape: int, dtype: Any = np.float32) -> Any:
    rng = np.random.default_rng(sum(shape))
    if np.issubdtype(dtype, np.complexfloating):
        return jnp.asarray(rng.normal(size=shape) + 1j * rng.normal(size=shape), dtype)
    if np.issubdtype(dtype, np.floating):
        return jnp.asarray(rng.normal(size=shape), dtype)
    return jnp.asarray(rng.integers(-3, 9, size=shape), dtype)


def ints(*values: Any) -> Any:
    return jnp.asarray(values, np.int32)


def spd(*shape: int, dtype: Any = np.float32) -> Any:
    x = arr(*shape, dtype=dtype)
    return x @ jnp.conj(jnp.swapaxes(x, -1, -2)) + 4 * jnp.eye(shape[-1], dtype=dtype)


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
case("argmax", lambda x: lax.argmax(x, 1, np.int32), x654, passing={(0,): (0,), (2,): (1,)})
case("argmin", lambda x: lax.argmin(x, 0, np.int32), x654, passing={(1,): (0,), (2,): (1,)})
case("top_k", lambda x: lax.top_k(x, 2), x654, passing={(0,): (0, 0), (1,): (1, 1)})
case("top_k:axis", lambda x: lax.top_k(x, 2, axis=0), x654, passing={(1,): (1, 1), (2,): (2, 2)})
case("approx_top_k", lambda x: lax.approx_max_k(x, 2), x654, passing={(0,): (0, 0), (1,): (1, 1)})

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
    # The second window is whole, and still has a start, which may be out of bounds.
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
    "select_n:three", lambda w, *x: lax.select_n(w, *x), jnp.abs(arr(4, 5, dtype=np.int32)) % 3,
    x45, -x45, 2 * x45, passing={(0,) * 4: (0,), (1,) * 4: (1,)},
)  # fmt: skip
case(
    "select_n:scalar", lambda w, *x: lax.select_n(w, *x), ints(1)[0], x45, -x45,
    passing={(None, 0, 0): (0,), (None, 1, 1): (1,)},
)  # fmt: skip
case("clamp", lambda x: lax.clamp(-0.5, x, 0.5), x45, passing={(None, 0, None): (0,), (None, 1, None): (1,)})
case("copy", lambda x: lax.copy_p.bind(x), x45, passing=same2)

# Contractions and reductions
case(
    "dot_general", lambda x, y: jnp.einsum("bij,bjk->bik", x, y), arr(3, 4, 5), arr(3, 5, 6),
    passing={(0, 0): (0,), (1, None): (1,), (None, 2): (2,)}, exact=False,
)  # fmt: skip
case("dot_general:inner", jnp.dot, arr(5), arr(5), passing={}, exact=False)


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
    arr(4, 1, 3, 3), passing={(0, None): (0,)}, exact=False,
)  # fmt: skip
case(
    "conv_general_dilated:batch groups", lambda x, w: conv(x, w, batch_group_count=2), arr(4, 2, 5, 6),
    kernels, passing={}, exact=False,
)  # fmt: skip
case(
    "conv_general_dilated:stride", lambda x, w: conv(x, w, window_strides=(2, 1), padding="VALID"), images,
    arr(4, 2, 1, 1), passing={(0, None): (0,), (None, 0): (1,), (3, None): (3,)}, exact=False,
)  # fmt: skip

# Linear algebra
stack = arr(3, 2, 4, 4)
batch: Expected = {(0,): (0,), (1,): (1,)}


def results(passing: Expected, count: int) -> Expected:
    return {args: outs * count for args, outs in passing.items()}


case("cholesky", lambda x: lax.linalg.cholesky(x), spd(3, 2, 4, 4), passing=batch)
case("cholesky:one", lambda x: lax.linalg.cholesky(x), spd(4, 4), passing={})
case("eigh", lambda x: lax.linalg.eigh(x), spd(3, 2, 4, 4), passing=results(batch, 2))
case("eig", lambda x: lax.linalg.eig(x), stack, passing=results(batch, 3))
case("lu", lambda x: lax.linalg.lu(x), stack, passing=results(batch, 3))
case("qr", lambda x: lax.linalg.qr(x), arr(3, 2, 5, 4), passing=results(batch, 2))
case("svd", lambda x: lax.linalg.svd(x), arr(3, 2, 5, 4), passing=results(batch, 3))
case("schur", lambda x: lax.linalg.schur(x), stack, passing=results(batch, 2))
case("hessenberg", lambda x: lax.linalg.hessenberg(x), stack, passing=results(batch, 2))
case("tridiagonal", lambda x: lax.linalg.tridiagonal(x), spd(3, 2, 4, 4), passing=results(batch, 4))
case(
    "householder_product", lax.linalg.householder_product, stack, arr(3, 2, 4),
    passing={(0, 0): (0,), (1, 1): (1,)},
)  # fmt: skip
case("geqrf", lambda x: jnp.linalg.qr(x, mode="raw"), arr(3, 2, 5, 4), passing=results(batch, 2))
case(
    "lu_pivots_to_permutation", lambda p: lax.linalg.lu_pivots_to_permutation(p, 5),
    ints([1, 2, 2], [0, 1, 4]), passing={(0,): (0,)},
)  # fmt: skip
case(
    "triangular_solve", lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True),
    spd(3, 4, 4), arr(3, 4, 5), passing={(0, 0): (0,), (None, 2): (2,)}, exact=False,
)  # fmt: skip
case(
    "triangular_solve:right", lambda a, b: lax.linalg.triangular_solve(a, b, transpose_a=True),
    spd(4, 4), arr(5, 4), passing={(None, 0): (0,)}, exact=False,
)  # fmt: skip
case(
    "triangular_solve:conjugate",
    lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, conjugate_a=True, unit_diagonal=True),
    arr(4, 4, dtype=np.complex64), arr(4, 3, dtype=np.complex64), passing={(None, 1): (1,)}, exact=False,
)  # fmt: skip
case(
    "tridiagonal_solve", lax.linalg.tridiagonal_solve, arr(3, 4), 9 + arr(3, 4), arr(3, 4), arr(3, 4, 5),
    passing={(0, 0, 0, 0): (0,), (None, None, None, 2): (2,)}, exact=False,
)  # fmt: skip
for kind in ("fft", "ifft"):
    case(f"fft:{kind}", getattr(jnp.fft, kind), arr(3, 2, 8, dtype=np.complex64), passing=batch, exact=False)
case("fft:rfft2", jnp.fft.rfft2, arr(3, 4, 8), passing={(0,): (0,)}, exact=False)

# Nothing passes
case("random_bits", lambda k: jax.random.bits(k, (4, 5)), jax.random.key(0), passing={})
case("scan", lambda x: lax.scan(lambda c, x: (c + x, c * x), x[0], x), x45, passing={})
case("broadcast_in_dim", lambda x: jnp.broadcast_to(x, (3, 4)), arr(4), passing={})


def equations(jaxpr: Any, primitive: str) -> Any:
    """Every equation of that primitive, also inside jitted functions."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == primitive:
            yield eqn
        for inner in core.jaxprs_in_params(eqn.params):
            yield from equations(getattr(inner, "jaxpr", inner), primitive)


def run(eqn: Any, args: list[Any], outs: list[Any]) -> list[Any]:
    """The results of the equation's call, printed for arrays of these shapes."""
    names = Namespace()
    variables = [f"arg{number}" for number in range(len(args))]
    shapes = [[[str(length) for length in a.shape] for a in group] for group in (args, outs)]
    text = call_source(eqn.primitive, eqn.params, variables, *shapes, names)
    scope = {"jax": jax, "jnp": jnp, "lax": lax, **names.objects, **dict(zip(variables, args, strict=True))}
    for source in (*names.imports, *names.helpers.values()):
        exec(source, scope)
    result = eval(text, scope)
    assert isinstance(result, tuple) == eqn.primitive.multiple_results
    return list(result) if eqn.primitive.multiple_results else [result]


def sliced(array: Any, dim: int | None, start: int, stop: int) -> Any:
    return array if dim is None else lax.slice_in_dim(array, start, stop, axis=dim)


@pytest.mark.parametrize("name", CASES)
def test_passing(name: str) -> None:
    primitive, fn, args, expected, exact = CASES[name]
    closed = jax.make_jaxpr(fn)(*args)
    eqns = list(equations(closed.jaxpr, primitive))
    assert eqns, closed
    for eqn in eqns:
        found = {passing.args: passing.outs for passing in passing_dimensions(eqn)}
        assert found == expected
    if not expected:
        return
    (eqn,) = eqns
    operands = operands_of(closed, eqn, args)
    whole = run(eqn, operands, [v.aval for v in eqn.outvars])
    for in_dims, out_dims in expected.items():
        length = whole[0].shape[out_dims[0]]
        for start, stop in {(0, 1), (1, length)}:
            parts = [sliced(a, d, start, stop) for a, d in zip(operands, in_dims, strict=True)]
            wanted = [sliced(a, d, start, stop) for a, d in zip(whole, out_dims, strict=True)]
            for got, want in zip(run(eqn, parts, wanted), wanted, strict=True):
                assert got.dtype == want.dtype
                if exact:
                    np.testing.assert_array_equal(got, want)
                else:  # a library may add up in another order for another shape
                    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def operands_of(closed: Any, eqn: Any, args: tuple[Any, ...]) -> list[Any]:
    """What the equation gets when the function is called with `args`."""
    seen: list[list[Any]] = []

    def evaluate(jaxpr: Any, consts: Any, values: Any) -> list[Any]:
        env = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *values), strict=True))

        def read(atom: Any) -> Any:
            return jnp.asarray(atom.val, atom.aval.dtype) if isinstance(atom, core.Literal) else env[atom]

        for step in jaxpr.eqns:
            inputs = [read(atom) for atom in step.invars]
            if step is eqn:
                seen.append(inputs)
            inner = step.params.get("jaxpr") if step.primitive.name == "jit" else None
            if inner is not None:
                out = evaluate(inner.jaxpr, inner.consts, inputs)
            else:
                out = step.primitive.bind(*inputs, **step.primitive.get_bind_params(step.params))
                out = out if step.primitive.multiple_results else [out]
            env.update(zip(step.outvars, out, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(args))
    return seen[0]


def test_an_unknown_primitive_passes_nothing() -> None:
    closed = jax.make_jaxpr(lambda x: jax.pure_callback(np.sin, x, x))(x45)
    assert all(passing_dimensions(eqn) == () for eqn in equations(closed.jaxpr, "pure_callback"))
