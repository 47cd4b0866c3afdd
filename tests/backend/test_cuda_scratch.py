"""The workspaces of NVIDIA's libraries, by the text of a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from eqsat.backend.certificate import certify
from eqsat.backend.cuda_scratch import cuda_scratch_bytes
from eqsat.backend.hlo import parse
from eqsat.targets.catalogue import find_target
from eqsat.targets.gpu import LIBRARIES

N = 500
MATRIX = jax.ShapeDtypeStruct((N, N), jnp.float32)
STACK = jax.ShapeDtypeStruct((4, N, N), jnp.float32)
BYTES = 4 * N * N


def scratch(function: Callable[..., Any], aval: jax.ShapeDtypeStruct) -> int:
    """Returns the scratch of a function on an H100."""
    return certify(lambda x: jax.tree.leaves(function(x)), [aval], target=find_target("h100")).scratch


def test_elementwise_programs_have_none() -> None:
    assert scratch(jnp.exp, MATRIX) == 0


@pytest.mark.parametrize(("name", "workspace"), [("a100", 4 << 20), ("h100", 32 << 20)])
def test_a_product_has_the_workspace_that_it_may_take_on_the_device(name: str, workspace: int) -> None:
    """It is a buffer. On an H200, a product had 32 MB, with kernels tried out and without."""
    found = certify(lambda x: [x @ x], [MATRIX], target=find_target(name))
    assert found.temporaries == pytest.approx(workspace, rel=0.01)
    assert found.scratch == 0


def test_one_product_runs_at_a_time() -> None:
    found = certify(lambda x: [x @ x @ x], [MATRIX], target=find_target("h100"))
    assert found.temporaries == pytest.approx((32 << 20) + BYTES, rel=0.01)


def test_what_comes_before_a_product_takes_the_place_of_its_workspace() -> None:
    long = jax.ShapeDtypeStruct((20_000_000,), jnp.float32)
    found = certify(
        lambda x: [jnp.sort(x)[:4].reshape(2, 2) @ jnp.ones((2, 2))], [long], target=find_target("h100")
    )
    assert found.temporaries < 2.1 * 4 * 20_000_000


def test_a_factorisation_may_take_a_copy_of_one_matrix() -> None:
    assert scratch(jnp.linalg.cholesky, MATRIX) == BYTES
    assert scratch(jnp.linalg.cholesky, STACK) == BYTES


def test_eigenvectors_take_what_divide_and_conquer_takes() -> None:
    assert scratch(jnp.linalg.eigh, MATRIX) == 3 * BYTES


def test_transforms_of_lengths_with_large_prime_factors_take_more() -> None:
    smooth = jax.ShapeDtypeStruct((N, 512), jnp.complex64)
    rough = jax.ShapeDtypeStruct((N, 521), jnp.complex64)
    assert scratch(jnp.fft.fft, smooth) == 8 * N * 512
    assert scratch(jnp.fft.fft, rough) == 8 * 8 * N * 521


def test_a_sort_by_a_library_takes_a_copy() -> None:
    assert scratch(jnp.sort, jax.ShapeDtypeStruct((1_000_000,), jnp.float32)) >= 4_000_000


@pytest.mark.parametrize("text", ["", "ENTRY %main () -> f32[] {\n  ROOT %c = f32[] constant(0)\n}"])
def test_a_program_without_calls_has_none(text: str) -> None:
    assert cuda_scratch_bytes(parse(text), LIBRARIES) == 0
