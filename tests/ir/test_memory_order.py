"""Operands that products copy, since the terms of the sum lie between other axes: predicted, and avoided."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.backend.certificate import certify
from eqsat.engine.cost import CostModel
from eqsat.ir.axis import Axis
from eqsat.ir.memory_order import array_of, memory_order, multiplies_as_it_lies
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.ops import Chunk, Dot, Leaf, Map, Operation, Rename
from eqsat.ir.term import Terms
from eqsat.targets.catalogue import find_target
from eqsat.targets.cpu import CPU
from tests.stages import normal

A, B, C, N = Axis(0, 128), Axis(1, 256), Axis(2, 256), Axis(3, 256)


def test_an_input_and_its_slices_have_an_order_and_what_is_computed_has_none() -> None:
    terms = Terms()
    x = terms.make(Leaf(0, (A, B, C), "float32"))
    renamed = terms.make(Rename(B, N), (x,))
    assert memory_order(x) == (A, B, C)
    assert memory_order(renamed) == (A, N, C)
    assert memory_order(terms.make(Chunk(N), (renamed,))) == (A, N, C)
    assert memory_order(terms.make(Map("exp", "float32"), (x,))) is None


def test_a_dimension_that_is_counted_as_two_lies_where_it_lay() -> None:
    terms = Terms()
    rows, columns = Axis(4, 16), Axis(5, 8)
    x = terms.make(Leaf(0, (C, A), "float32"))
    split = terms.make(Operation(OPERATIONS["split"], (A, rows, columns), "float32"), [x])
    assert memory_order(split) == (C, rows, columns)
    assert array_of(split) is x
    back = terms.make(Operation(OPERATIONS["merge"], (rows, columns, A), "float32"), [split])
    assert array_of(back) is x
    turned = terms.make(Operation(OPERATIONS["merge"], (columns, rows, A), "float32"), [split])
    assert array_of(turned) is turned


def test_the_operand_of_a_product_may_be_computed_in_any_number_of_steps() -> None:
    terms = Terms()
    x = terms.make(Leaf(0, (A, B), "float32"))
    for _ in range(5_000):
        x = terms.make(Map("sin", "float32"), (x,))
    assert memory_order(x) is None
    assert memory_order(terms.make(Rename(A, N), (x,))) is None


@pytest.mark.parametrize("order", list(itertools.permutations((A, B, C, N))))
def test_the_terms_of_a_sum_come_before_or_after_all_other_axes_of_a_matrix(order: tuple[Axis, ...]) -> None:
    """With two axes A and B, sums over N, and a batch along C."""
    lies = multiplies_as_it_lies(order, {N}, {N, C})
    assert lies == (order[0] == C and (order[1] == N or order[3] == N))


@pytest.mark.parametrize(
    ("left", "right"), [("nb", "acn"), ("nb", "anc"), ("bn", "acn"), ("bn", "anc"), ("bn", "nac")]
)
def test_what_a_product_copies_is_what_xla_allots(left: str, right: str) -> None:
    """If it comes out in the better one of two orders. "nb" times "nac" is left out: it is packed whole."""
    axes = {"a": A, "b": B, "c": C, "n": N}
    terms = Terms()
    operands = [
        terms.make(Leaf(place, tuple(axes[letter] for letter in letters), "float32"))
        for place, letters in enumerate((left, right))
    ]
    orders = [memory_order(operand) for operand in operands]
    expected = CostModel(CPU, {}).workspace(Dot(frozenset({N}), "float32"), operands, orders)
    shapes = [
        jax.ShapeDtypeStruct([axes[letter].size for letter in letters], np.float32)
        for letters in (left, right)
    ]

    def taken(result: str) -> int:
        found = certify(
            lambda x, y: jnp.einsum(f"{left},{right}->{result}", x, y), shapes, target=find_target("cpu")
        )
        return found.peak - found.fixed

    assert min(taken("bac"), taken("acb")) == pytest.approx(expected, rel=0.01, abs=300_000)


def test_a_product_that_would_copy_an_operand_is_taken_in_a_loop() -> None:
    """What AlphaFold's triangle multiplication does: one product of a matrix and a batch in the middle."""

    def function(w: Any, z: Any) -> Any:
        return jnp.einsum("vu,yva->uya", w, z)

    w, z = normal(64, 64), normal(100, 64, 90)
    fixed = 4 * (w.size + 2 * z.size)
    run = eqsat.optimize(function, budget=fixed + 2**20)
    assert run.plan(w, z).loops
    np.testing.assert_allclose(run(w, z), function(w, z), rtol=1e-4, atol=1e-4)
