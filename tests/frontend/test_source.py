"""Lines of source: whose they are, and what they say."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

import eqsat
from eqsat.frontend.source import place_of
from eqsat.support.records import Place


def places(fn: Any, *args: Any) -> list[Place | None]:
    return [place_of(equation) for equation in jax.make_jaxpr(fn)(*args).jaxpr.eqns]


def library(folder: Path) -> Any:
    """A module that is installed as a library is."""
    file = folder / "site-packages" / "layers.py"
    file.parent.mkdir()
    file.write_text("import jax.numpy as jnp\n\ndef layer(x):\n    return jnp.sin(x)\n")
    module = ModuleType("layers")
    exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    return module


def test_the_line_is_the_users_where_a_library_was_called(tmp_path: Path) -> None:
    layers = library(tmp_path)

    def model(x: Any) -> Any:
        return layers.layer(x)

    (place,) = places(model, 1.0)
    assert place is not None
    assert place.file == __file__
    assert place.code == "return layers.layer(x)"
    (inside,) = places(layers.layer, 1.0)
    assert inside is not None
    assert inside.function == "layer"
    assert inside.code == "return jnp.sin(x)"


def test_what_goes_through_eqsat_is_from_who_calls_eqsat() -> None:
    def model(x: Any) -> Any:
        return eqsat.assume(x @ x.T, "spd")

    found = places(model, jnp.ones((3, 3)))
    assert {place.file for place in found if place} == {__file__}


def test_gradients_say_so() -> None:
    found = places(jax.grad(lambda x: jnp.sin(x) * x), 1.0)
    assert {place.gradient for place in found if place} == {False, True}
    assert {place.line for place in found if place} == {found[0].line if found[0] else 0}


def test_code_that_is_in_no_file_has_no_text() -> None:
    scope: dict[str, Any] = {"jnp": jnp}
    exec(compile("def typed(x):\n    return jnp.cos(x)", "<input>", "exec"), scope)
    (place,) = places(scope["typed"], 1.0)
    assert place is not None
    assert (place.line, place.code) == (2, "")
    assert str(place) == "<input>:2 in typed"
