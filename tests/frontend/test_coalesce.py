"""Axes become one when asked to, unless they occur together."""

from __future__ import annotations

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.frontend.coalesce import AxisClasses, boundaries
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


# Axes of several parts.


def test_an_axis_is_split_where_another_one_is() -> None:
    axes = AxisClasses()
    whole, first, second = axes.fresh(24), axes.fresh(6), axes.fresh(4)
    assert axes.unify(whole, axes.merged([first, second], frozenset()))
    assert axes.atoms(whole) == axes.atoms_of([first, second])
    assert axes.size(whole) == 24


def test_two_ways_to_split_become_one_that_is_finer() -> None:
    axes = AxisClasses()
    left = axes.merged([axes.fresh(6), axes.fresh(4)], frozenset())
    right = axes.merged([axes.fresh(2), axes.fresh(12)], frozenset())
    assert axes.unify(left, right)
    assert axes.sizes(left) == (2, 3, 4)
    assert axes.same(left, right)


def test_ways_to_split_that_do_not_fit_stay_two() -> None:
    axes = AxisClasses()
    left = axes.merged([axes.fresh(2), axes.fresh(3)], frozenset())
    right = axes.merged([axes.fresh(3), axes.fresh(2)], frozenset())
    assert not axes.unify(left, right)
    assert (axes.sizes(left), axes.sizes(right)) == ((2, 3), (3, 2)), "nothing was split"


def test_parts_interfere_as_the_whole_did() -> None:
    axes = AxisClasses()
    whole, other, free = axes.fresh(6), axes.fresh(6), axes.fresh(6)
    axes.keep_apart([whole, other])
    assert axes.split([whole], [2], frozenset())
    for part in axes.atoms(whole):
        assert axes.interferes(part, other)
        assert not axes.interferes(part, free)
    assert axes.interferes(*axes.atoms(whole)), "they stand side by side"
    assert not axes.unify(whole, other)
    assert axes.unify(whole, free)


def test_a_renaming_is_split_with_what_it_renames() -> None:
    axes = AxisClasses()
    old, new, third = axes.fresh(12), axes.fresh(12), axes.fresh(12)
    axes.pair(old, new)
    axes.pair(new, third)
    assert axes.split([old], [4], frozenset())
    assert axes.sizes(new) == axes.sizes(third) == (3, 4)
    assert axes.split([third], [2], frozenset())
    assert axes.sizes(old) == (3, 2, 2)


def test_a_row_that_holds_an_axis_and_its_renaming_is_split_alike_or_not_at_all() -> None:
    for shape, possible in (((2, 3, 2, 3), True), ((2, 3, 3, 2), False)):
        axes = AxisClasses()
        row = [axes.fresh(6), axes.fresh(6)]
        axes.keep_apart(row)
        axes.pair(*row)
        assert axes.split(row, boundaries(shape), frozenset()) == possible


def test_an_axis_knows_because_of_which_reshapes_it_has_parts() -> None:
    axes = AxisClasses()
    whole, other = axes.fresh(24), axes.fresh(24)
    assert axes.split([whole], [4], frozenset({7}))
    assert axes.unify(other, whole)
    merged = axes.merged([axes.fresh(2), other], frozenset({8}))
    assert axes.causes(other) == {7}
    assert axes.causes(merged) == {7, 8}
    assert not axes.causes(axes.atoms(whole)[0])


SPLITS = st.lists(
    st.sampled_from([(4, 6), (2, 12), (8, 3), (3, 8), (2, 2, 6), (24,)]), min_size=2, max_size=4
)


@given(SPLITS)
def test_axes_are_split_alike_exactly_if_all_their_boundaries_nest(splits: list[tuple[int, ...]]) -> None:
    axes = AxisClasses()
    made = [axes.merged([axes.fresh(size) for size in sizes], frozenset()) for sizes in splits]
    places = sorted(set().union(*map(boundaries, splits)))
    possible = all(b % a == 0 for a, b in pairwise(places))
    assert axes.split_alike(made) == possible
    if possible:
        assert {axes.sizes(axis) for axis in made} == {tuple(b // a for a, b in pairwise(places))[::-1]}


def test_align_makes_parts_of_a_merged_axis_one_with_those_of_a_plain_one() -> None:
    draft = Draft()
    first, second, plain = draft.fresh_layout((3, 4, 12))
    assert None not in (first, second, plain)
    one = draft.add(lambda _: Leaf(0, (), "float32"), (), (first, second))
    two = draft.add(lambda _: Leaf(1, (), "float32"), (), (plain,))
    merged = draft.axes.merged([first, second], frozenset())
    targets, nodes = draft.align([(one, {"n": merged}), (two, {"n": plain})])
    assert draft.node_axes(nodes[0]) == draft.node_axes(nodes[1]) == set(draft.axes.atoms(targets["n"]))
