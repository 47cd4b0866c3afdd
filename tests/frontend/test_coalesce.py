"""Axes become one when asked to, unless they occur together."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.frontend.coalesce import AxisClasses
from eqsat.frontend.draft import Draft
from eqsat.ir.ops import Leaf, Rename
from tests.stages import check_meaning, normal, ops, result_text


def test_axes_of_one_length_become_one() -> None:
    axes = AxisClasses()
    a, b, c = axes.fresh(5), axes.fresh(5), axes.fresh(5)
    assert axes.unify(a, b)
    assert axes.unify(b, c)
    assert axes.same(a, c)
    assert axes.unify(a, c), "asking again changes nothing"


def test_axes_of_different_lengths_stay_two() -> None:
    axes = AxisClasses()
    a, b = axes.fresh(5), axes.fresh(6)
    assert not axes.unify(a, b)
    assert not axes.same(a, b)


def test_axes_that_occur_together_stay_two() -> None:
    axes = AxisClasses()
    a, b = axes.fresh(5), axes.fresh(5)
    axes.keep_apart([a, b])
    assert axes.interferes(a, b)
    assert axes.interferes(b, a)
    assert not axes.unify(a, b)


def test_interference_is_inherited_by_the_class() -> None:
    axes = AxisClasses()
    a, b, c, d = (axes.fresh(5) for _ in range(4))
    axes.keep_apart([a, b])
    assert axes.unify(a, c)
    assert not axes.unify(c, b), "c is a now, and a is not b"
    assert axes.unify(b, d)
    assert not axes.unify(c, d)
    assert axes.interferes(d, c)


def test_an_axis_cannot_be_kept_apart_from_itself() -> None:
    axes = AxisClasses()
    a, b = axes.fresh(5), axes.fresh(5)
    axes.unify(a, b)
    with pytest.raises(AssertionError, match="twice"):
        axes.keep_apart([a, b])


REQUESTS = st.lists(
    st.tuples(st.sampled_from(["unify", "apart"]), st.integers(0, 7), st.integers(0, 7)), max_size=40
)


@given(st.lists(st.sampled_from([2, 3]), min_size=8, max_size=8), REQUESTS)
def test_classes_agree_with_a_plain_account_of_them(
    sizes: list[int], requests: list[tuple[str, int, int]]
) -> None:
    """The same requests to a model that keeps every class and every forbidden pair in full."""
    axes = AxisClasses()
    for size in sizes:
        axes.fresh(size)
    classes = [{number} for number in range(8)]
    apart: set[frozenset[int]] = set()

    def forbidden(left: set[int], right: set[int]) -> bool:
        return any(frozenset({x, y}) in apart for x in left for y in right)

    for kind, a, b in requests:
        left, right = (next(c for c in classes if n in c) for n in (a, b))
        assert axes.same(a, b) == (left is right)
        assert axes.interferes(a, b) == forbidden(left, right)
        if kind == "unify":
            allowed = left is right or (sizes[a] == sizes[b] and not forbidden(left, right))
            assert axes.unify(a, b) == allowed
            if allowed and left is not right:
                classes.remove(right)
                left |= right
        elif left is not right:
            axes.keep_apart([a, b])
            apart.add(frozenset({a, b}))


# What functions make of it.


def test_a_difference_of_all_pairs_keeps_two_axes() -> None:
    program = check_meaning(lambda x: x[:, None] - x[None], normal(5))
    assert len(program.outputs[0].term.axes) == 2
    assert len(ops(program, Rename)) == 1


def test_a_transposed_sum_is_renamed_through_a_spare_axis() -> None:
    program = check_meaning(lambda x: x + x.T, normal(5, 5))
    assert len(program.outputs[0].term.axes) == 2
    assert len(ops(program, Rename)) == 3


def test_a_symmetric_product_needs_one_new_axis() -> None:
    program = check_meaning(lambda x: x @ x.T, normal(5, 3))
    assert len(ops(program, Rename)) == 1
    assert len(ops(program, Leaf)) == 1


def test_a_square_matrix_times_itself() -> None:
    check_meaning(lambda x: x @ x, normal(5, 5), rtol=1e-4)
    check_meaning(lambda x: x @ x @ x.T @ x, normal(4, 4), rtol=1e-3)


def test_no_rename_where_axes_may_be_one() -> None:
    x, y = normal(5, 3), normal(7, 3)
    assert "rename" not in result_text(lambda x, y: jnp.sum((x[:, None] - y) ** 2, -1), x, y)
    square = normal(6, 6)
    assert "rename" not in result_text(lambda a, b: a + b.T, square, normal(6, 6, seed=1))


def test_a_diagonal_of_sums() -> None:
    check_meaning(lambda x: jnp.sum(x + x.T, axis=0) * jnp.sum(x, axis=1), normal(4, 4))
    check_meaning(lambda x: (x[:, None, :] * x[None, :, :]).sum(1) + x.T.sum(0)[:, None], normal(4, 4))


def test_cyclic_renames_of_three_axes() -> None:
    x = normal(3, 3, 3)
    check_meaning(lambda x: x + jnp.transpose(x, (1, 2, 0)) * jnp.transpose(x, (2, 0, 1)), x)


def test_align_keeps_labels_of_one_operand_apart() -> None:
    draft = Draft()
    first, second = draft.fresh_layout((4, 4)), draft.fresh_layout((4,))
    assert first[0] is not None
    assert first[1] is not None
    assert second[0] is not None
    one = draft.add(lambda _: Leaf(0, (), "float32"), (), (first[0], first[1]))
    two = draft.add(lambda _: Leaf(1, (), "float32"), (), (second[0],))
    targets, nodes = draft.align([(one, {"p": first[0], "q": first[1]}), (two, {"q": second[0]})])
    assert nodes == [one, two], "nothing needs another name"
    assert draft.axes.same(targets["q"], first[1])
    assert not draft.axes.same(targets["p"], targets["q"])


def test_align_keeps_away_from_axes_that_are_taken() -> None:
    draft = Draft()
    (axis,) = draft.fresh_layout((4,))
    assert axis is not None
    node = draft.add(lambda _: Leaf(0, (), "float32"), (), (axis,))
    targets, (renamed,) = draft.align([(node, {"p": axis})], apart_from=[axis])
    assert not draft.axes.same(targets["p"], axis)
    assert renamed != node
    assert draft.node_axes(renamed) == frozenset({draft.axes.find(targets["p"])})


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (1, 1)])
def test_unit_dimensions_are_no_axes(shape: tuple[int, ...]) -> None:
    program = check_meaning(lambda x: x + np.float32(1), normal(*shape))
    assert len(program.outputs[0].term.axes) == sum(size > 1 for size in shape)
