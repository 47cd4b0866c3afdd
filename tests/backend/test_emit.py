"""Emitted source runs with jax alone, and gives what the function gives, for every length of chunk."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.backend.emit import emit
from eqsat.ir.axis import Axis
from eqsat.ir.ops import Chunk, Concat, Fold, Leaf, Map, Reduce
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Terms
from eqsat.planning.blocks import Schedule
from eqsat.planning.candidates import as_written
from eqsat.planning.capped_extraction import attempts
from eqsat.planning.search_space import prepare
from eqsat.rulesets.selection import rules_for
from eqsat.targets.cpu import CPU
from tests.backend.running import check_emitted
from tests.stages import lowered, normal

N, M = 101, 67
X, Y, V = normal(N, 3), normal(M, 3), normal(M)


def source_of(schedule: Schedule, names: Sequence[str]) -> str:
    module = emit(schedule, names)
    assert module.objects == {}, "the text says everything"
    imported = [
        node for node in ast.walk(ast.parse(module.source)) if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    modules = {alias.name for node in imported for alias in node.names} | {
        node.module for node in imported if isinstance(node, ast.ImportFrom)
    }
    assert {str(name).split(".")[0] for name in modules} <= {"jax", "lax", "primitives"}
    return module.source


def check(
    schedule: Schedule, fn: Callable[..., Any], args: Sequence[Any], rtol: float, names: Sequence[str] = ()
) -> str:
    """Run the source in a namespace of its own and compare; the source."""
    program = schedule.program
    hoisted = lowered(fn, *args)[1]
    inputs = list(map(jnp.asarray, [*args, *hoisted]))
    names = names or [f"argument_{index}" for index in range(len(program.inputs))]
    source = source_of(schedule, names)
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    results = jax.jit(namespace["optimized"])(*inputs)
    wanted = jax.tree.leaves(jax.jit(fn)(*args))
    assert len(results) == len(wanted), source
    for result, value in zip(results, wanted, strict=True):
        assert (result.shape, result.dtype) == (value.shape, value.dtype), source
        if jnp.issubdtype(value.dtype, jnp.inexact):
            wide = np.complex128 if value.dtype.kind == "c" else np.float64
            got, expected = (np.asarray(x).astype(wide) for x in (result, value))
            np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol, err_msg=source)
        else:
            np.testing.assert_array_equal(result, value, err_msg=source)
    return source


def plain(fn: Callable[..., Any], *args: Any, rtol: float = 1e-6, names: Sequence[str] = ()) -> str:
    """The function as it is written, emitted and compared; the source."""
    program, _ = lowered(fn, *args)
    return check(as_written(program, CPU).schedule, fn, args, rtol, names)


def looped(
    fn: Callable[..., Any],
    *args: Any,
    budget: int = 20_000,
    lengths: Sequence[int] = (1, 33),
    rtol: float = 2e-5,
    accuracy: str = "reassociates",
    names: Sequence[str] = (),
) -> list[str]:
    """The programs found for a budget, with loops, at several lengths of chunks, compared; the sources."""
    program, _ = lowered(fn, *args)
    search = prepare(program, rules_for((), accuracy), budget, CPU)
    found = [c for group in attempts(search, budget) for c in group if c.loops][:2]
    sources = []
    for candidate in found:
        loops = candidate.schedule.block.loops
        for length in lengths if loops else ():
            chunks = {loop.id: max(min(length, loop.axis.size), loop.shortest) for loop in loops}
            sources.append(check(replace(candidate.schedule, chunks=chunks), fn, args, rtol, names))
    assert sources, "no program with loops was found"
    return sources


def test_a_loop_that_collects_something_whole_inside_a_loop_over_that_axis() -> None:
    """Its axis is chunked around it, but not in it."""
    n, m, k = Axis(0, 7), Axis(1, 5), Axis(2, 6)
    terms = Terms()
    x = terms.make(Leaf(0, (n, m, k), "float32"))
    rows = terms.make(Chunk(m), (x,))
    part = terms.make(Reduce("sum", frozenset({k}), "float32"), (terms.make(Chunk(k), (rows,)),))
    whole = terms.make(Fold(k, "sum"), (part,))  # with all of n, in a loop over m
    sines = terms.make(Concat(k), (terms.make(Map("sin", "float32"), (terms.make(Chunk(k), (rows,)),)),))
    both = terms.make(Map("mul", "float32"), (terms.make(Chunk(n), (whole,)), terms.make(Chunk(n), (sines,))))
    total = terms.make(Reduce("sum", frozenset({m}), "float32"), (both,))
    result = terms.make(Concat(n), (terms.make(Fold(m, "sum"), (total,)),))
    program = Program((x,), (Output(result, (n, k)),), terms)
    check_emitted(program, [normal(7, 5, 6)], {n: 3, m: 2, k: 4}, rtol=1e-5)


# Programs with loops. Both lengths are prime: every length of chunk leaves a remainder.


def kernel(x: Any, y: Any, v: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1) / 2) @ v


def test_kernel_matvec() -> None:
    looped(kernel, X, Y, V)


def test_kernel_matvec_by_products() -> None:
    looped(kernel, X, Y, V, accuracy="cancels", rtol=1e-4)


def test_nearest_neighbours() -> None:
    looped(lambda x, y: lax.top_k(-jnp.sum((x[:, None] - y) ** 2, -1), 5), X, Y)


def test_attention() -> None:
    looped(lambda q, k, v: jax.nn.softmax(q @ k.T) @ v, X, Y, normal(M, 4))


def test_a_cumulative_sum_inside() -> None:
    looped(lambda x, y: jnp.cumsum(x[:, :1] * y[:, 0], 1) @ y, X, Y, rtol=1e-4)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"])
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions(kind: str, axis: int) -> None:
    def fn(x: Any, y: Any) -> Any:
        pairs = jnp.sin(x[:, None, 0] - y[:, 0]) + 1
        return getattr(jnp, kind)(pairs > 0.3 if kind in ("any", "all") else pairs, axis=axis)

    looped(fn, X, Y, budget=6_000, rtol=1e-4)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "bool"])
@pytest.mark.parametrize("kind", ["max", "min", "sum"])
def test_reductions_of_integers(dtype: str, kind: str) -> None:
    def fn(x: Any, y: Any) -> Any:
        return getattr(jnp, kind)(x[:, None] & y, axis=1)

    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 2 if dtype == "bool" else 120, size).astype(dtype) for size in (N, M))
    looped(fn, x, y, budget=2_000, lengths=(10,))


def test_the_first_of_equals_and_nan_win() -> None:
    x, y = np.round(normal(N) * 2).astype(np.float32), np.ones(M, np.float32)
    x[3], y[[5, 40]] = np.nan, np.nan

    def fn(x: Any, y: Any) -> Any:
        pairs = x[:, None] * y
        return [best(pairs, axis) for best in (jnp.argmin, jnp.argmax) for axis in (0, 1)]

    sources = looped(fn, x, y, budget=6_000)
    assert any("lax.scan" in source and "better" in source for source in sources)


def test_ties_with_infinity_in_a_top_k() -> None:
    def fn(x: Any, y: Any) -> Any:
        return lax.top_k(jnp.where(x[:, None, 0] > y[:, 0] + 1, jnp.round(y[:, 0]), -jnp.inf), 7)

    looped(fn, X, Y)
    looped(lambda x, y: lax.top_k(jnp.full((N, M), -jnp.inf) * jnp.abs(x[:, :1] * y[:, 0]), 7), X, Y)


def test_top_k_is_split_along_its_axis() -> None:
    def fn(x: Any, y: Any) -> Any:
        return lax.top_k(jnp.round(jnp.sin(x[:, None] * y) * 4), 6)

    sources = looped(fn, normal(3), normal(4001), budget=25_000, lengths=(6, 100, 4000))
    assert any("kept" in source for source in sources)


def test_results_may_hold_the_loops_axis_anywhere() -> None:
    def fn(x: Any, y: Any) -> Any:
        values = jnp.sum(jnp.exp(x[None, :, None, :] * y[:, None, None, :]) * jnp.arange(4.0)[:, None], -1)
        return values.transpose(2, 1, 0), values.sum(0).T

    looped(fn, X, Y, budget=130_000)


def test_both_axes_at_once() -> None:
    looped(lambda x: jnp.exp(-jnp.sum((x[:, None] - x) ** 2, -1)) @ x, X)


def test_a_gradient() -> None:
    looped(jax.grad(lambda x: jnp.sum(jnp.exp(-jnp.sum((x[:, None] - x) ** 2, -1)))), X, rtol=1e-4)


def test_triangular_solves_by_columns() -> None:
    lower = np.tril(normal(8, 8)) + 8 * np.eye(8, dtype=np.float32)

    def fn(lower: Any, x: Any) -> Any:
        basis = jnp.sin(jnp.arange(8.0)[:, None] * x)
        return jnp.sum(jax.scipy.linalg.solve_triangular(lower, basis, lower=True) ** 2, 0)

    looped(fn, lower, normal(1009), budget=20_000)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_sums_accumulate_in_single(dtype: Any) -> None:
    """One thousand ones: carried in half precision, the sum would stop growing at 256."""

    def fn(x: Any, y: Any) -> Any:
        return jnp.sum(jnp.exp(x[:, None] * y), 1)

    zeros = jnp.zeros(3, dtype), jnp.zeros(1000, dtype)
    program, _ = lowered(fn, *zeros)
    search = prepare(program, rules_for((), "reassociates"), 4_000, CPU)
    candidates = [c for group in attempts(search, 4_000) for c in group]
    folds = [
        c
        for c in candidates
        if any(isinstance(r.op, Fold) for loop in c.schedule.block.loops for r in loop.results)
    ]
    assert folds
    for candidate in folds:
        chunks = {loop.id: 1 for loop in candidate.schedule.block.loops}
        source = check(replace(candidate.schedule, chunks=chunks), fn, zeros, 0.0)
        assert "jnp.float32" in source


def weighted(x: Any, y: Any, v: Any) -> Any:
    return jnp.cos(x[:, None] * y) @ v


def convolved(x: Any, y: Any, v: Any) -> Any:
    kernel = jnp.broadcast_to(jnp.cos(y)[None, :, None], (3, N, 1))
    maps = jnp.cos(x[:, None] * y)[..., None] * v[:, None]
    return lax.conv_general_dilated(maps, kernel, (1,), "SAME", dimension_numbers=("NCH", "OIH", "NCH"))


@pytest.mark.parametrize("fn", [weighted, convolved])
def test_half_precision_products_of_chunks_are_not_rounded(fn: Callable[..., Any]) -> None:
    """Of large numbers that cancel, parts would overflow; in the end, there is a 3."""
    values = np.repeat(np.float16([60_000, -60_000, 3]), [N // 2, N // 2, 1])
    args = np.zeros(M, np.float16), np.zeros(N, np.float16), values
    machine = replace(CPU, widens=False)  # Copies of products in single precision exceed the budget.
    search = prepare(lowered(fn, *args)[0], rules_for((), "reassociates"), 8_000, machine)
    schedules = [c.schedule for group in attempts(search, 8_000) for c in group]
    summing = [
        schedule
        for schedule in schedules
        if any(r.op == Fold(loop.axis, "sum") for loop in schedule.block.loops for r in loop.results)
    ]
    assert summing
    for schedule in summing[:2]:
        chunks = {loop.id: min(33, loop.axis.size) for loop in schedule.block.loops}
        check(replace(schedule, chunks=chunks), fn, args, 0.0)


# Programs without loops.


def test_outputs_that_are_inputs() -> None:
    plain(lambda x, y: (x, y, x, x.T, x[None], jnp.broadcast_to(y, (2, M, 3))), X, Y)


def test_outputs_that_are_constants() -> None:
    plain(
        lambda: (
            jnp.float32(1.5),
            jnp.zeros((2, 3)),
            jnp.arange(4),
            jnp.asarray(True),
            jnp.full((1,), np.nan),
        )
    )


def test_no_outputs() -> None:
    plain(lambda x: (), X)


def test_arrays_of_size_zero() -> None:
    empty = np.zeros((0, 3), np.float32)
    plain(lambda x, y: (x @ y.T, x.sum(0), x.sum(1), jnp.exp(x), jnp.concatenate([x, y])), empty, Y)
    plain(lambda x: (x.max(1), jnp.any(x > 0), jnp.prod(x, 0)), empty)


NAMES = (
    "values", "start", "jnp", "lax", "jax", "optimized", "lambda", "class", "match", "indices", "better",
    "kept", "print", "None", "e", "x_1", "exp_6", "chunk_of_a", "start_a", "size_a", "carry", "body",
    "operand", "größe", "a b", "", "1x", "_", "self", "sum_20",
)  # fmt: skip


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", NAMES)
def test_names_of_arguments_never_collide(name: str) -> None:
    plain(lambda x, y: (jnp.sin(x) * 2 + x @ (y.T @ y), jnp.sort(x, 0)), X, Y, names=[name, name], rtol=1e-5)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "names", [NAMES[:3], NAMES[3:6], NAMES[9:12], NAMES[16:19], ("start_c", "size_c", "chunk_of_c")]
)
def test_names_of_arguments_never_collide_in_loops(names: Sequence[str]) -> None:
    looped(kernel, X, Y, V, lengths=(10,), names=names)


def test_constants_keep_their_types() -> None:
    n = np.arange(-5, 5, dtype=np.int32)
    plain(
        lambda n: (
            n + (2**31 - 1),
            n - (-(2**31)),
            n.astype(np.uint32) + np.uint32(2**32 - 1),
            n * -3,
            -n - -2,
        ),
        n,
    )
    x = normal(5)
    plain(
        lambda x: (
            x + 0.1,
            x * -0.0,
            x / -2.0,
            jnp.where(x > 0, jnp.inf, -jnp.inf),
            x * 1e-45,
            jnp.maximum(x, jnp.nan),
        ),
        x,
    )
    plain(lambda x: (x + 0.1, 3 - x, jnp.maximum(x, 0), x**2, x**-3), x.astype(jnp.bfloat16), rtol=1e-2)
    plain(lambda z: (z * (1 + 2j), z - complex(np.inf, np.nan)), x.astype(np.complex64))


HALF = normal(5).astype(np.float16)
NARROW: dict[str, tuple[Callable[..., Any], Any]] = {
    "atan2": (lambda x: jnp.arctan2(x, jnp.float16(2)), HALF),
    "pow": (lambda x: lax.pow(jnp.abs(x), jnp.float16(2.5)), HALF),
    "rem": (lambda x: lax.rem(x, jnp.float16(2)), HALF),
    "nextafter": (lambda x: lax.nextafter(x, jnp.float16(3)), HALF),
    "clamp": (lambda x: lax.clamp(jnp.float16(-1), x, jnp.float16(1)), HALF),
    "clip bytes": (lambda n: lax.clamp(jnp.int8(-1), n, jnp.int8(1)), HALF.astype(np.int8)),
    "shift": (lambda n: lax.shift_right_logical(n, jnp.uint32(9)), np.arange(9, dtype=np.uint32) << 8),
    "random bits": (
        lambda k: jax.random.uniform(jax.random.wrap_key_data(k), (3,)),
        np.arange(2, dtype=np.uint32),
    ),
}


@pytest.mark.parametrize("name", NARROW)
def test_constants_of_narrow_types_beside_arrays(name: str) -> None:
    fn, x = NARROW[name]
    plain(fn, x, rtol=1e-3)


def test_division_of_narrow_integers() -> None:
    plain(lambda n: lax.div(n, jnp.int16(3)), np.arange(9, dtype=np.int16))


def test_choices_of_narrow_integers() -> None:
    def fn(n: Any) -> Any:
        return lax.select_n(lax.clamp(0, n.astype(np.int32), 2), n, jnp.full_like(n, 7), -n)

    plain(fn, np.arange(9, dtype=np.int16))


def test_clamp_in_double_precision() -> None:
    with jax.enable_x64(True):
        plain(lambda x: (x * 2, x + 0.1, jnp.sin(x) @ x), normal(5, dtype=np.float64), rtol=1e-12)


def test_constants_of_single_precision_in_double_precision() -> None:
    with jax.enable_x64(True):
        plain(
            lambda x: (lax.clamp(np.float32(-1), x, np.float32(1)), lax.pow(jnp.abs(x), np.float32(2.5))), X
        )


def test_precision_and_wider_products() -> None:
    a, b = normal(5, 7).astype(jnp.bfloat16), normal(7, 3).astype(jnp.bfloat16)
    source = plain(lambda a, b: lax.dot(a, b, preferred_element_type=np.float32), a, b, rtol=1e-2)
    assert "preferred_element_type=jnp.float32" in source
    source = plain(lambda a, b: jnp.matmul(a, b, precision="highest"), normal(5, 7), normal(7, 3))
    assert 'precision="highest"' in source


def test_more_axes_than_letters_collide() -> None:
    a, b = normal(2, 3, 4, 5, 2), normal(5, 2, 3, 6, 4)
    plain(lambda a, b: jnp.einsum("abcde,dfbgc->aefg", a, b), a, b, rtol=1e-5)


def test_selections_and_control_flow() -> None:
    plain(lambda x: (*lax.top_k(x, 2), jnp.argmax(x, 0), lax.top_k(x, 1)[0]), X)
    plain(lambda x: lax.scan(lambda c, row: (c + row, c * 2), jnp.zeros(3), x), X)
    plain(lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x)), X)


def test_comments_name_the_rules() -> None:
    program, _ = lowered(kernel, X, Y, V)
    search = prepare(program, rules_for((), "reassociates"), 20_000, CPU)
    candidate = next(c for group in attempts(search, 20_000) for c in group if c.loops)
    source = emit(candidate.schedule, ["x", "y", "v"], candidate.makers).source
    assert "# chunk-map" in source
    assert "def optimized(x, y, v):" in source
