"""What a compiled program needs beside its buffers, as read off its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy.linalg import lapack

from eqsat.backend.certificate import certify
from eqsat.backend.hlo import Array, parse
from eqsat.backend.scratch import scratch_bytes
from eqsat.backend.workspaces import summed_bytes
from eqsat.targets.compiler_profile import OWN
from eqsat.targets.cpu import LIBRARIES

N = 1000
VECTOR = jax.ShapeDtypeStruct((10**6,), np.float32)
SQUARE = jax.ShapeDtypeStruct((N, N), np.float32)


def scratch(function: Callable[..., Any], *avals: Any) -> int:
    return certify(lambda *args: jax.tree.leaves(function(*args)), avals).scratch


def of(*lines: str, threads: int = 2) -> int:
    """The scratch of a program of one computation, in the syntax of HLO."""
    sides = "%less (a: s32[], b: s32[]) -> pred[] {\n  %a = s32[] parameter(0)\n  %b = s32[] parameter(1)\n"
    compare = sides + "  ROOT %lt = pred[] compare(%a, %b), direction=LT\n}\n"
    return scratch_bytes(
        parse("\n".join([compare + "ENTRY %main () -> s32[] {", *lines, "}"])), LIBRARIES, threads
    )


def sort(name: str, operand: str, length: int = 10**6) -> str:
    shape = f"s32[{length}]{{0}}"
    return f"  %{name} = {shape} sort(%{operand}), dimensions={{0}}, is_stable=true, to_apply=%less"


# Measured: growth of the resident memory of a fresh process, but for XLA's figure.


@pytest.mark.parametrize(
    ("function", "avals", "measured"),
    [
        (jnp.sort, [VECTOR], 16.0e6),
        (jnp.argsort, [VECTOR], 32.0e6),
        (lambda x: jnp.sort(x.reshape(10, -1)), [VECTOR], 1.6e6),
        (lambda x: lax.top_k(x, 10), [VECTOR], 4.0e6),
        (jnp.fft.rfft, [VECTOR], 8.0e6),
        (lambda x: jnp.linalg.svd(x), [SQUARE], 12.1e6),
        (jnp.linalg.eigvalsh, [SQUARE], 8.1e6),
        (lambda x: x.T @ (x + 1), [SQUARE], 4.3e6),
        (lambda x: x @ x, [SQUARE], 0.3e6),
    ],
)
def test_what_libraries_take_is_counted(
    function: Callable[..., Any], avals: list[Any], measured: float
) -> None:
    assert 0.95 * measured <= scratch(function, *avals) <= 1.3 * measured + 1e6


def test_the_workspace_of_a_factorisation_is_what_lapack_asks_for() -> None:
    asked = lapack.sgesdd_lwork(N, N, compute_uv=1, full_matrices=1)[0]
    assert 0 <= scratch(jnp.linalg.svd, SQUARE) - 4 * asked <= 64 * N


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.exp(x) * 2,
        lambda x: x @ x[0],
        lambda x: lax.cumsum(x),
        lambda x: x.at[::2].add(1),
        lambda x: jnp.max(x, axis=0),
    ],
)
def test_loops_and_products_with_vectors_take_nothing(function: Callable[..., Any]) -> None:
    assert scratch(function, SQUARE) == 0


def test_small_programs_are_certified_to_the_byte() -> None:
    """Their workspaces fit into what any allocator keeps ready."""

    def several(x: Any) -> Any:
        return jnp.linalg.cholesky(x @ x.T + jnp.eye(40)) @ jnp.sort(x), jnp.linalg.svd(x), jnp.fft.fft(x)

    assert scratch(several, jax.ShapeDtypeStruct((40, 40), np.float32)) == 0


# Instructions together.


def test_scratch_one_after_the_other_is_the_largest() -> None:
    lines = ["  %x = s32[1000000]{0} parameter(0)", sort("y", "x"), sort("z", "y")]
    assert of(*lines) == 2 * 10**6


def test_few_instructions_are_run_one_by_one() -> None:
    lines = ["  %x = s32[1000000]{0} parameter(0)", sort("y", "x"), sort("z", "x")]
    assert of(*lines) == 2 * 10**6


def test_independent_instructions_may_be_run_at_once() -> None:
    """As many as there are threads: measured with 16 sorts on two cores."""
    many = ["  %x = s32[1000000]{0} parameter(0)", *(sort(f"y{number}", "x") for number in range(9))]
    assert of(*many, threads=2) == 4 * 10**6
    assert of(*many, threads=3) == 6 * 10**6
    assert of(*many, threads=16) == 18 * 10**6
    chain = ["  %y0 = s32[1000000]{0} parameter(0)"]
    chain += [sort(f"y{number + 1}", f"y{number}") for number in range(9)]
    assert of(*chain, threads=16) == 2 * 10**6


def test_the_smaller_of_independent_instructions_count_beside_the_largest() -> None:
    lines = ["  %x = s32[1000000]{0} parameter(0)", "  %w = s32[200000]{0} parameter(1)"]
    lines += [sort(f"y{number}", f"y{number - 1}" if number else "x") for number in range(8)]
    lines += [sort("v", "w", 200000)]
    assert of(*lines) == 2 * 10**6 + 4 * 10**5


def test_a_loop_takes_what_its_body_takes() -> None:
    def loop(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, y: jnp.sort(y[::-1] * 2), x)

    assert scratch(loop, VECTOR) == scratch(jnp.sort, VECTOR) > 0


def test_a_branch_takes_what_its_largest_case_takes() -> None:
    def branch(i: Any, x: Any) -> Any:
        return lax.switch(i, [jnp.sin, jnp.sort, jnp.cos], x)

    assert scratch(branch, jax.ShapeDtypeStruct((), np.int32), VECTOR) == scratch(jnp.sort, VECTOR)


# Fusions.


def test_a_fusion_is_bounded_by_what_its_values_need_at_once() -> None:
    """Measured for this one: all of its exponent and its exponential, 511 MB at 8,000 rows."""

    def total(x: Any, y: Any) -> list[Any]:
        return [jnp.sum(jnp.exp(0.1 * x @ y.T + 0.1))]

    thin = jax.ShapeDtypeStruct((N, 8), np.float32)
    own = certify(total, [thin, thin], OWN)
    assert own.temporaries < LIBRARIES.grain
    assert 2 * 4 * N * N <= own.scratch < 2.2 * 4 * N * N


@pytest.mark.parametrize(
    ("function", "shapes", "measured"),
    [
        (lambda x, y: jnp.sum(x * y, 1), [(1, 4_000_000)] * 2, 63.9e6),
        (lambda x, y: jnp.sum(jnp.exp(x) * y, 0), [(4_000_000, 1)] * 2, 111.9e6),
        (lambda x, y: jnp.sum(jnp.exp(x) * y, 1), [(2, 2_000_000), (1, 2_000_000)], 47.9e6),
        (lambda x: jnp.max(x, 0), [(3, 4_000_000)], 47.8e6),
        (lambda x, y: x @ y, [(8, 1_000_000), (1_000_000, 2)], 16.0e6),
    ],
)
def test_what_fusions_take_for_sums_and_products_of_few_rows_is_counted(
    function: Callable[..., Any], shapes: list[tuple[int, ...]], measured: float
) -> None:
    """Measured: the highest resident memory of a process, with glibc's threshold for maps fixed."""
    avals = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    own = certify(lambda *args: [function(*args)], avals, OWN)
    assert measured <= own.scratch <= 1.4 * measured


def test_sums_of_products_that_are_no_matrix_products_take_no_more_than_their_values() -> None:
    wide = jax.ShapeDtypeStruct((N, N), np.float32)
    own = certify(lambda x, y: [jnp.sum(jnp.exp(x) * y, 1)], [wide, wide], OWN)
    assert own.scratch <= 2 * 4 * N * N


def test_a_sum_over_no_dimension_is_no_matrix_product() -> None:
    row = Array("f32", (1, 10**6), (1, 0))
    assert summed_bytes(row, frozenset({1}), frozenset({1}), frozenset({1}), 2, LIBRARIES) == 4 * row.bytes
    assert summed_bytes(row, frozenset(), frozenset({1}), frozenset({1}), 2, LIBRARIES) == 0


def test_reading_a_large_program_takes_milliseconds() -> None:
    lines = ["  %y0 = s32[1000000]{0} parameter(0)"]
    lines += [sort(f"y{number + 1}", f"y{number}") for number in range(1000)]
    assert of(*lines) == 2 * 10**6
