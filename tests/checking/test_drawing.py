"""What is drawn fits the left side of its rule, and takes nothing for granted."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from eqsat.checking.drawing import Drawer
from eqsat.checking.instance import Instance
from eqsat.checking.kinds import ELEMENTWISE_KINDS, KINDS, kind_of
from eqsat.checking.matrices import has_property
from eqsat.checking.showing import literal
from eqsat.checking.sizes import SizeRules
from eqsat.checking.statement import directions, members, statements
from eqsat.checking.typing import kinds_of
from eqsat.checking.values import Style
from eqsat.ir.elementwise import ELEMENTWISE, INCREASING
from eqsat.language.parse import parse_rules
from eqsat.language.syntax import Rule

DRAWS = 40


def rule(text: str) -> Rule:
    return parse_rules(f"rule tried  {text}", "tried").rules[0]


def drawn(text: str, style: str = "normal", special: int | None = None) -> Iterator[Instance]:
    statement = next(statements(directions(rule(text))[0]))
    rng = random.Random(0)
    drawer = Drawer(statement)
    for _ in range(DRAWS):
        instance = drawer.draw(rng, kinds_of(statement)[0], Style(style), special)
        assert instance is not None
        yield instance


def test_patterns_hold() -> None:
    for instance in drawn("dot[K](c{!K} * a{K}, b{j, !i})  =>  c * dot[K](a, b)  where i in a"):
        places = instance.placement
        assert not places.of("c") & places.of("K")
        assert places.of("K") <= places.of("a") & places.of("b")
        assert "j" in places.of("b")
        assert "i" not in places.of("b")
        assert "i" in places.of("a")


def test_there_are_batch_axes_shared_and_not() -> None:
    found = {
        (bool(rest & instance.placement.of("a")), bool(rest & instance.placement.of("b")))
        for instance in drawn("dot[K](a, b)  =>  sum[K] (a * b)")
        for rest in [frozenset(instance.lengths) - instance.placement.of("K")]
    }
    assert found == {(True, True), (True, False), (False, True), (False, False)}


def test_lengths_differ_where_nothing_makes_them_equal() -> None:
    for instance in drawn("dot[k](a{i, k, !j}, b{k, j, !i})  =>  dot[k](b, a)"):
        lengths = [instance.lengths[axis] for axis in "ijk"]
        assert len(set(lengths)) == 3


@pytest.mark.parametrize(
    ("text", "relation"),
    [
        ("rename[i->j] a  =>  a", lambda n: n["i"] == n["j"]),
        ("inv[i, j] a  =>  a", lambda n: n["i"] == n["j"]),
        ("a  =>  a  where spd[i, j](a)", lambda n: n["i"] == n["j"]),
        ("a{i}  =>  a  where l = copy(i)", lambda n: n["i"] == n["l"]),
        ("a{i}  =>  a  where l = copy(i) + 2", lambda n: n["l"] == n["i"] + 2),
        ("append[k, l](a, s)  =>  a", lambda n: n["l"] == n["k"] + 1),
        ("a{i, j}  =>  a  where size(i) = size(j)", lambda n: n["i"] == n["j"]),
        ("a{i, j}  =>  a  where 3 * size(i) < size(j)", lambda n: 3 * n["i"] < n["j"]),
        ("a{i, j}  =>  a  where 200 * size(i) < size(j)", lambda n: 200 * n["i"] < n["j"]),
        ("a{i, j}  =>  a  where size(j) > 10, 20 * size(j) <= size(i)", lambda n: 20 * n["j"] <= n["i"]),
        ("merge[i, j, p] a  =>  a", lambda n: n["p"] == n["i"] * n["j"]),
        (
            "kron[i, j, k, l, p, q](a, b)  =>  a",
            lambda n: n["p"] == n["i"] * n["k"] and n["q"] == n["j"] * n["l"],
        ),
        ("head[n, m] a  =>  a", lambda n: n["m"] <= n["n"]),
        ("top_k[n, m] a  =>  a", lambda n: n["m"] <= n["n"]),
        ("a{n}  =>  a  where large(n)", lambda n: n["n"] >= 5),
    ],
)
def test_lengths_fit(text: str, relation: object) -> None:
    assert callable(relation)
    statement = next(statements(rule(text)))
    drawer = Drawer(statement)
    rng = random.Random(0)
    for _ in range(20):
        placement = drawer.placements.draw(rng, 1)
        assert placement is not None
        sizes = SizeRules(statement, tuple(sorted(placement.columns))).draw(rng, placement)
        assert sizes is not None
        assert relation(sizes.lengths)


def test_constants_are_what_they_are_compared_with() -> None:
    for instance in drawn("(sum[K] a{K}) / c  =>  mean[K] a  where c = size(K)"):
        size = np.prod([instance.lengths[axis] for axis in instance.placement.of("K")])
        assert instance.constants == {"c"}
        assert instance.values["c"] == size


def test_special_lengths() -> None:
    for length in (0, 1):
        for instance in drawn("exp(a + b)  =>  exp(b + a)", special=length):
            assert length in instance.lengths.values() or not instance.lengths


def test_selections_have_no_empty_axes() -> None:
    for instance in drawn("argmax[k] (a{k} + b{!k})  =>  argmax[k] a", special=0):
        assert instance.lengths["k"] > 0


@pytest.mark.parametrize("name", ["spd", "lower", "upper", "diagonal", "symmetric", "orthogonal"])
def test_properties_hold_along_their_axes(name: str) -> None:
    for instance in drawn(f"a + b  =>  b + a  where {name}[j, i](a)"):
        axes = instance.axes_of("a")
        value = np.moveaxis(instance.values["a"], [axes.index("j"), axes.index("i")], [-2, -1])
        assert has_property(value, name)


def test_numbers_have_properties() -> None:
    for style in ("normal", "whole", "zeros", "huge"):
        for instance in drawn("a * b  =>  b * a  where positive(a), nonnegative(b), float(a)", style):
            assert (instance.values["a"] > 0).all()
            assert (instance.values["b"] >= 0).all()


def test_masks_are_where_they_make_sense() -> None:
    for instance in drawn("dot[k](exp(a), b)  =>  dot[k](b, exp(a))", "masked"):
        assert not np.isinf(instance.values["b"]).any()
    assert any(
        np.isinf(i.values["a"]).any() for i in drawn("dot[k](exp(a), b)  =>  dot[k](b, exp(a))", "masked")
    )


def test_indices_are_in_range_and_just_outside() -> None:
    found = [
        (instance.values["i"].min(), instance.values["i"].max() - instance.lengths["n"])
        for instance in drawn("take[n](a{n}, i)  =>  take[n](a, i)")
        if instance.values["i"].size
    ]
    assert min(low for low, _ in found) == -1
    assert max(high for _, high in found) == 0


def test_kinds_are_those_that_the_left_side_takes() -> None:
    def kinds(text: str) -> set[str]:
        return {str(found) for found in kinds_of(next(statements(rule(text))))}

    assert kinds("a + a  =>  2 * a") == {"f", "i", "u", "c"}
    assert kinds("exp(a)  =>  exp(a)") == {"f", "c"}
    assert kinds("max(a, b)  =>  max(b, a)") == {"f", "i", "u", "b"}
    assert kinds("a + a  =>  2 * a  where float(a)") == {"f"}
    assert kinds("and(a, b)  =>  and(b, a)") == {"i", "u", "b"}
    assert kinds("a + b  =>  b + a  where integer(b)") == {"i", "u"}
    assert kinds("select_n(m, a, b)  =>  select_n(m, a, b)  where float(a)") == {"bf"}


def test_every_elementwise_function_takes_some_kind() -> None:
    assert set(ELEMENTWISE_KINDS) == set(ELEMENTWISE)
    assert all(kinds and set(kinds) <= set(KINDS) for kinds in ELEMENTWISE_KINDS.values())
    assert [kind_of(name) for name in ("bfloat16", "uint8", "complex128", "bool")] == ["f", "u", "c", "b"]


@pytest.mark.parametrize(
    "family", ["elementwise", "commutative", "increasing", "linear", "reductions", "calls"]
)
def test_classes_have_members(family: str) -> None:
    assert len(members(family)) == len(set(members(family))) >= 3
    if family == "increasing":
        assert set(members(family)) == INCREASING & set(members("elementwise"))


def test_functions_of_all_arities_stand_for_a_class() -> None:
    found = list(statements(rule("chunk[n] f(a..)  =>  f(chunk[n] a..)  for f in elementwise")))
    arities = {
        len(dict.fromkeys(name for name in ("a_1", "a_2", "a_3") if name in repr(s.rule.left))) for s in found
    }
    assert arities == {1, 2, 3}


def test_arrays_are_shown_as_numpy_reads_them() -> None:
    for value in (
        np.array([[1.5, -np.inf], [np.nan, 0.0]]),
        np.array([1, -2], np.int8),
        np.zeros((0, 3)),
        np.array(True),
        np.array([1 - 2j]),
    ):
        read = eval(literal(value), {"np": np})
        assert read.shape == value.shape
        np.testing.assert_array_equal(read, value)
