"""Better orders of contractions: equal to what was written, as cheap as a path solver says, few, quick."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import opt_einsum
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.engine import contraction_orders
from eqsat.engine.contraction_orders import with_contraction_orders
from eqsat.engine.contraction_trees import MAX_FACTORS, flatten
from eqsat.ir.ops import Dot
from eqsat.ir.program import Program
from eqsat.ir.term import Term, reachable
from tests.engine.contractions import flops, matrices, ordered, orders, product
from tests.stages import lowered, normal, text


def seconds(program: Program) -> float:
    """How long it takes on a processor of its own, if no garbage is collected meanwhile."""
    times = [time.process_time()]
    for _ in range(3):
        with_contraction_orders(program)
        times.append(time.process_time())
    return min(after - before for before, after in pairwise(times))


def shapes(lengths: Sequence[int]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(pair, np.float32) for pair in pairwise(lengths)]


# Chains: eXLA's.


def test_a_chain_that_is_best_as_written() -> None:
    assert orders(product, *matrices(10, 20, 30, 40, 31)) == []


def test_a_chain_that_is_best_from_the_middle() -> None:
    (best,) = orders(product, *matrices(40, 20, 30, 10, 31))
    assert best == "dot[10](3{31 10}, dot[20](0{40 20}, dot[30](1{30 20}, 2{30 10})))"


def test_factors_keep_their_sides() -> None:
    program, _ = lowered(product, *matrices(40, 20, 30, 10, 31))
    ((_, best),) = ordered(program).equalities
    assert [text(arg) for arg in best.args] == ["dot[20](0{40 20}, dot[30](1{30 20}, 2{30 10}))", "3{31 10}"]
    assert best.args[0].args[0] is program.inputs[0]


def test_a_vector_at_the_end_goes_from_right_to_left() -> None:
    (best,) = orders(product, *matrices(10, 20, 30, 40, 31), normal(31))
    assert best == "dot[20](0{20 10}, dot[30](1{30 20}, dot[40](2{40 30}, dot[31](3{40 31}, 4{31}))))"


def test_a_chain_under_transposes() -> None:
    wanted = orders(product, *matrices(40, 20, 30, 10, 31))
    assert orders(lambda a, b, c, d: ((d.T @ c.T) @ (a @ b).T).T, *matrices(40, 20, 30, 10, 31)) == wanted
    transposed = [m.T for m in matrices(40, 20, 30, 10, 31)]
    assert orders(lambda a, b, c, d: product(a.T, b.T, c.T, d.T), *transposed) == wanted


def test_a_product_of_products_and_a_vector() -> None:
    (best,) = orders(
        lambda d, c, a, b: (d @ c.T) @ (a @ b), normal(9, 5), normal(7, 5), normal(7, 8), normal(8)
    )
    assert best == "dot[5](0{9 5}, dot[7](1{7 5}, dot[8](2{8 7}, 3{8})))"


def test_a_thin_product() -> None:
    # Two factors of the outer product, and one more.
    (best,) = orders(lambda a, b, c: (a @ b.T) @ c, normal(30, 2), normal(40, 2), normal(40, 3))
    assert best == "dot[2](0{30 2}, dot[40](1{40 2}, 2{40 3}))"


def test_repeated_operands_stay() -> None:
    (best,) = orders(lambda a, v: a @ a @ v, normal(9, 9), normal(9))
    assert best.count("0{9 9}") == 2
    assert best == "dot[9](0{9 9}, dot[9](1{9}, rename[9](rename[9](0{9 9}))))"
    (best,) = orders(lambda a, v: a @ a @ a @ a @ v, normal(9, 9), normal(9))
    assert best.count("0{9 9}") == 4


def test_a_summed_axis_is_not_captured() -> None:
    # a @ a.T sums over the same axis on both sides of the outer product.
    (best,) = orders(lambda a, v: (a @ a.T) @ (a @ a.T) @ v, normal(9, 5), normal(9))
    assert best.count("0{9 5}") == 4
    # The inner sum is over the axis that the outer one keeps.
    (best,) = orders(lambda a, b, v: (a @ b).T @ ((a @ b) @ v), normal(9, 3), normal(3, 8), normal(8))
    assert (best.count("0{9 3}"), best.count("1{8 3}")) == (2, 2)


def test_transposed_powers() -> None:
    orders(lambda a, v: (a @ a.T @ a).T @ (a @ a.T) @ (a @ a.T).T @ v, normal(7, 7), normal(7))
    orders(lambda a, v: a.T @ (a @ (a.T @ a.T)).T @ v, normal(7, 7), normal(7))


def test_a_product_needed_twice_is_kept_and_taken_apart() -> None:
    def fn(a: Any, b: Any, v: Any, w: Any) -> Any:
        shared = a @ b
        return shared @ v @ w, jnp.exp(shared)

    found = orders(fn, normal(9, 3), normal(3, 8), normal(8, 7), normal(7))
    assert "dot[8](dot[3](0{9 3}, 1{8 3}), dot[7](2{8 7}, 3{7}))" in found
    assert "dot[3](0{9 3}, dot[8](1{8 3}, dot[7](2{8 7}, 3{7})))" in found


def test_a_transpose_is_no_tree_of_its_own() -> None:
    def fn(a: Any, b: Any, c: Any) -> Any:
        total = a @ b @ c
        return total + total.T

    assert len(orders(fn, normal(9, 8), normal(8, 7), normal(7, 9))) == 0
    assert len(orders(fn, normal(9, 8), normal(8, 19), normal(19, 9))) == 1


def test_products_of_shared_products_do_not_explode() -> None:
    def power(a: Any) -> Any:
        for _ in range(40):
            a = a @ a
        return a

    program, _ = lowered(power, normal(5, 5))
    assert ordered(program).equalities == ()
    assert seconds(program) < 1  # measured: 0.3


# Other contractions.


def test_batches_stay() -> None:
    a, b, c = normal(4, 9, 8), normal(4, 8, 7), normal(4, 7, 2)
    wanted = "dot[8](0{9 8 4}, dot[7](1{8 7 4}, 2{7 4 2}))"
    assert orders(lambda a, b, c: a @ b @ c, a, b, c) == [wanted]
    assert orders(jax.vmap(lambda a, b, c: a @ b @ c), a, b, c) == [wanted]


def test_an_axis_of_three_factors() -> None:
    # Summed over i only when nothing else has it.
    found = orders(lambda a, b, c: jnp.sum((a @ b.T) * c[:, None], 0), normal(9, 5), normal(7, 5), normal(9))
    assert found == ["dot[5](1{7 5}, dot[9](0{9 5}, 2{9}))"]
    # A free axis that three have: products, no sums.
    found = orders(
        lambda d, a, b, v: (d[:, None] * a) @ (b @ v), normal(9), normal(9, 8), normal(8, 7), normal(7)
    )
    assert found == ["mul(0{9}, dot[8](1{9 8}, dot[7](2{8 7}, 3{7})))"]


def test_sums_of_one_factor_come_first() -> None:
    found = orders(lambda a, b: jnp.sum(a @ b, 1), normal(9, 5), normal(5, 7))
    assert found == ["dot[5](0{9 5}, sum[7](1{7 5}))"]
    found = orders(lambda a, b, v: jnp.sum(a[:, None] * b[None, :] * v), normal(9), normal(7), normal(7))
    assert len(found) == 1


def test_scalars_go_to_the_smallest_value() -> None:
    found = orders(lambda a, b, v: (-(2 * a) @ b / 3) @ -v, normal(9, 8), normal(8, 7), normal(7))
    assert found == ["dot[8](0{9 8}, dot[7](1{8 7}, div(mul(2.0, 2{7}), 3.0)))"]


def test_divisors_come_last() -> None:
    def attention(e: Any, v: Any, w: Any) -> Any:
        return (e / e.sum(1, keepdims=True)) @ v @ w

    found = orders(attention, np.exp(normal(9, 8)), normal(8, 7), normal(7))
    assert found == ["div(dot[8](0{9 8}, dot[7](1{8 7}, 2{7})), sum[8](0{9 8}))"]
    # A divisor that is summed over stays where it is.
    found = orders(
        lambda a, s, b, v: (a / s) @ b @ v, normal(9, 8), 2 + np.abs(normal(8)), normal(8, 7), normal(7)
    )
    assert found == ["dot[8](div(0{9 8}, 1{8}), dot[7](2{8 7}, 3{7}))"]


def test_elementwise_chains_are_factors() -> None:
    found = orders(lambda a, b, v: jnp.exp(a) * jnp.tanh(a) @ b @ v, normal(9, 8), normal(8, 7), normal(7))
    assert found == ["dot[8](dot[7](1{8 7}, 2{7}), mul(exp(0{9 8}), tanh(0{9 8})))"]


def test_trees_inside_of_factors() -> None:
    found = orders(
        lambda a, b, v: jnp.sin(a @ b @ v) @ (a @ b @ v) * v, normal(7, 8), normal(8, 7), normal(7)
    )
    assert "dot[8](0{8 7}, dot[7](1{8 7}, 2{7}))" in found


def test_programs_without_contractions_are_left() -> None:
    for fn in (
        lambda x: jnp.exp(x) * x * 2,
        lambda x: jnp.sum(jnp.exp(x) * x),
        lambda x: x.T,
        lambda x: x @ x.T,
    ):
        program, _ = lowered(fn, normal(9, 8))
        assert with_contraction_orders(program).equalities == ()


def test_gradients_share_vectors() -> None:
    # Written from left to right, a gradient multiplies matrices. The best orders of all its results
    # together multiply with every matrix twice, and only vectors.
    lengths = [40, 41, 42, 43, 44, 45]
    args = [*matrices(*lengths), normal(45), normal(40)]

    def loss(*args: Any) -> Any:
        return args[-1] @ product(*args[:-1])

    program, constants = lowered(jax.grad(loss, argnums=tuple(range(6))), *args)
    roots = [output.term for output in program.outputs]
    best = {root: root for root in roots}
    for root, better in ordered(program, [*args, *constants]).equalities:
        if root in best and flops(better) < flops(best[root]):
            best[root] = better
    assert flops(*roots) > 2 * 3 * 40**3
    assert flops(*best.values()) <= 2 * 2 * sum(i * j for i, j in pairwise(lengths))


# Which orders, and how many.


def test_a_lean_order_and_one_within_the_cap() -> None:
    program, _ = lowered(product, *shapes([5, 20, 5, 100, 5, 2]))
    found = [(flops(best), intermediate(best)) for _, best in ordered(program).equalities]
    assert found == [(4800, 200), (6200, 25)]
    found = [(flops(best), intermediate(best)) for _, best in ordered(program, cap=60).equalities]
    assert found == [(4800, 200), (6200, 25), (5900, 40)]
    # Written in the order of fewest flops, which has the large intermediate.
    program, _ = lowered(lambda a, b, c, d, e: a @ (b @ (c @ (d @ e))), *shapes([5, 20, 5, 100, 5, 2]))
    found = [(flops(best), intermediate(best)) for _, best in ordered(program).equalities]
    assert found == [(6200, 25)]


def intermediate(root: Term) -> int:
    """The elements of the largest contraction."""
    return max(term.elements for term in reachable([root]) if isinstance(term.op, Dot))


@given(st.lists(st.integers(2, 60), min_size=4, max_size=12), st.booleans())
@settings(max_examples=60)
def test_chains_cost_what_opt_einsum_says(lengths: list[int], vector: bool) -> None:
    args = shapes(lengths) + ([jax.ShapeDtypeStruct((lengths[-1],), np.float32)] if vector else [])
    program, _ = lowered(product, *args)
    (output,) = program.outputs
    letters = [opt_einsum.get_symbol(i) for i in range(len(lengths))]
    terms = ["".join(pair) for pair in pairwise(letters)] + [letters[-1]] * vector
    equation = f"{','.join(terms)}->{letters[0]}{'' if vector else letters[-1]}"
    _, info = opt_einsum.contract_path(equation, *(a.shape for a in args), shapes=True, optimize="dp")
    found = [flops(output.term), *(flops(best) for _, best in ordered(program).equalities)]
    assert min(found) == info.opt_cost


@pytest.mark.parametrize("count", [4, 12, 36, 70, 72])
@pytest.mark.parametrize("vector", [False, True])
def test_long_chains_are_quick(count: int, vector: bool) -> None:
    lengths = [int(n) for n in np.random.default_rng(count).integers(2, 5000, count + 1)]
    args = shapes(lengths) + ([jax.ShapeDtypeStruct((lengths[-1],), np.float32)] if vector else [])
    program, _ = lowered(product, *args)
    (output,) = program.outputs
    ((root, best), *_) = with_contraction_orders(program).equalities
    assert root is output.term
    assert flops(best) < flops(root)
    assert seconds(program) < 0.5  # measured: 0.1


def test_many_terms_without_contractions_are_quick() -> None:
    def fn(x: Any) -> Any:
        for _ in range(2500):
            x = x * 1.5 + 0.1
        return x

    program, _ = lowered(fn, normal(9))
    assert with_contraction_orders(program) is program
    assert seconds(program) < 0.1  # measured: 0.005


def test_products_of_very_many_factors_are_cut() -> None:
    count = 2 * MAX_FACTORS
    program, _ = lowered(product, *[normal(3 + i % 3, 3 + (i + 1) % 3, seed=i) for i in range(count)])
    (output,) = program.outputs
    tree = flatten(output.term, (), ())
    assert tree.cut
    assert len(tree.factors) == MAX_FACTORS
    result = ordered(program)
    # What is cut off is a tree of its own.
    assert len({root for root, _ in result.equalities}) == 2
    assert len(list(result.known())) < 3 * count
    assert seconds(program) < 2  # measured: 0.3


def test_no_more_than_so_many_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    args = [*matrices(*range(3, 15)), normal(14)]
    program, _ = lowered(jax.grad(lambda *m: jnp.sum(product(*m)), argnums=tuple(range(12))), *args)
    before = len(list(program.known()))
    everything = ordered(program)
    monkeypatch.setattr(contraction_orders, "GROWTH", 0)
    monkeypatch.setattr(contraction_orders, "ALWAYS", 10)
    few = ordered(program)
    assert len(list(few.known())) <= before + 10 < len(list(everything.known()))
