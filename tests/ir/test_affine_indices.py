"""Indices that are affine in positions: the same numbers, and nothing is claimed of others."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.ir.affine_indices import affine_index
from eqsat.ir.axis import Axis
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Const, Iota, Leaf, Map, Rename
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Term, Terms
from tests.nightly import THOROUGH

T, F, G = Axis(0, 5), Axis(1, 3), Axis(2, 5)
AXES = (T, F, G)


def shown(terms: Terms, index: Term) -> Any:
    """The values of an index by the interpreter."""
    program = Program((), (Output(index, AXES),), terms)
    return interpret(program, [])[0]


def claimed(index: Term) -> Any:
    """The values that it is said to have; None if nothing is said."""
    found = affine_index(index)
    if found is None:
        return None
    grids = np.ix_(*(np.arange(axis.size) * found.steps.get(axis, 0) for axis in AXES))
    places = np.clip(found.start + sum(grids), found.low, found.high)
    assert (places.min(), places.max()) == (found.low, found.high) or found.is_clipped
    return places


def drawn(draw: Any, terms: Terms, dtype: str, depth: int) -> Term:
    kind = draw(st.sampled_from(["iota", "const"] if depth == 0 else ["binary"] * 5 + ["choice", "rename"]))
    if kind == "iota":
        return terms.make(Iota(draw(st.sampled_from((T, F))), dtype))
    if kind == "const":
        return terms.make(Const(str(draw(st.integers(-9, 9))), dtype))
    if kind == "binary":
        name = draw(st.sampled_from(["add", "sub", "mul", "max", "min"]))
        return terms.make(Map(name, dtype), [drawn(draw, terms, dtype, depth - 1) for _ in range(2)])
    if kind == "rename":
        of = drawn(draw, terms, dtype, depth - 1)
        return terms.make(Rename(T, G), [of]) if T in of.axes and G not in of.axes else of
    name = draw(st.sampled_from(["lt", "le", "gt", "ge"]))
    chooser = terms.make(Map(name, "bool"), [drawn(draw, terms, dtype, 0) for _ in range(2)])
    cases = [drawn(draw, terms, dtype, depth - 1) for _ in range(2)]
    return terms.make(Map("select_n", dtype), [chooser, *cases])


@settings(max_examples=2000 if THOROUGH else 150)
@given(st.data(), st.sampled_from(["int32", "int8", "uint8"]), st.integers(0, 3))
def test_what_is_claimed_is_so(data: st.DataObject, dtype: str, depth: int) -> None:
    """Of narrow integers, too, which wrap."""
    terms = Terms()
    if dtype == "uint8":
        start = [terms.make(Iota(T, dtype)), terms.make(Const("7", dtype))]
        index = terms.make(Map(data.draw(st.sampled_from(["sub", "add", "mul"])), dtype), start)
    else:
        index = drawn(data.draw, terms, dtype, depth)
    found = claimed(index)
    if found is not None:
        np.testing.assert_array_equal(np.broadcast_to(found, (5, 3, 5)), shown(terms, index))


def test_indices_of_tiles() -> None:
    """As `jnp.take` writes clipped indices: those below zero would count from the end."""
    terms = Terms()
    number = lambda value: terms.make(Const(str(value), "int32"))  # noqa: E731
    place = terms.make(Map("mul", "int32"), [terms.make(Iota(T, "int32")), number(3)])
    place = terms.make(Map("add", "int32"), [place, terms.make(Iota(F, "int32"))])
    place = terms.make(Map("sub", "int32"), [place, number(1)])
    place = terms.make(Map("max", "int32"), [number(0), place])
    place = terms.make(Map("min", "int32"), [place, number(11)])
    below = terms.make(Map("lt", "bool"), [place, number(0)])
    wrapped = terms.make(Map("add", "int32"), [place, number(12)])
    index = terms.make(Map("select_n", "int32"), [below, place, wrapped])
    found = affine_index(index)
    assert found is not None
    assert (found.start, dict(found.steps), found.low, found.high) == (-1, {T: 3, F: 1}, 0, 11)


def test_what_depends_on_data_is_not_affine() -> None:
    terms = Terms()
    index = terms.make(Leaf(0, (T,), "int32"))
    assert affine_index(terms.make(Map("add", "int32"), [index, terms.make(Iota(T, "int32"))])) is None
