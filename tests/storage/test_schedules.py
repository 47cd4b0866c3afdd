"""Schedules are kept as data: what is emitted from what is read is the same text, and nothing else can be."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.backend.donation import NOTHING
from eqsat.compiler.candidate_compiler import input_names
from eqsat.compiler.planned import Derivation, Planned
from eqsat.compiler.planner import Planner
from eqsat.errors import EqsatError
from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from eqsat.rulesets.selection import rules_for
from eqsat.storage import schedules
from eqsat.targets.catalogue import find_target

Function = Callable[..., Any]


def distances(x: Any, y: Any) -> Any:
    return jnp.sum((x[:, None] - y[None]) ** 2, -1)


def nearest(x: Any, y: Any) -> Any:
    return jax.lax.top_k(-distances(x, y), 5)


def gradient(x: Any, y: Any) -> Any:
    return jax.grad(lambda x: jnp.sum(jnp.exp(-distances(x, y))))(x)


def attention(x: Any, y: Any) -> Any:
    return jax.nn.softmax(x @ y.T) @ y


def scanned(x: Any, y: Any) -> Any:
    def body(total: Any, row: Any) -> Any:
        near = jnp.exp(-distances(x + row, y))
        return total + near.sum(0) @ y, jax.lax.cond(near.sum() > 0.5, jnp.sin, jnp.cos, row[0])

    return jax.lax.scan(body, jnp.zeros(y.shape[1]), x)


def until(x: Any, y: Any) -> Any:
    return jax.lax.while_loop(
        lambda z: jnp.sum(z) < 10, lambda z: z + jnp.exp(-distances(x, y)).sum(0), y[:, 0]
    )


def scattered(x: Any, y: Any) -> Any:
    return jnp.zeros(50).at[jnp.arange(len(x)) % 50].add(jnp.exp(-distances(x, y)).sum(1))


def solved(x: Any, y: Any) -> Any:
    gram = jnp.exp(-distances(x[:50], x[:50])) + jnp.eye(50)
    return jnp.linalg.solve(gram, x[:50]), jnp.sort(jnp.exp(-distances(x, y)) @ y, 0)


def chained(x: Any, y: Any) -> Any:
    """Fast in another order, if nothing overflows: there is a choice between two programs."""
    return (x @ x.T) @ (x @ y.T) @ y[:, 0]


def closed_over(x: Any, y: Any) -> Any:
    return jnp.exp(-distances(x, y)) @ jnp.arange(float(len(y)))


def random(x: Any, y: Any) -> Any:
    return jnp.sum(jax.random.normal(jax.random.key(0), (len(x), len(y))) * distances(x, y))


PROGRAMS: dict[str, tuple[Function, int]] = {
    "nearest": (nearest, 200_000),
    "gradient": (gradient, 150_000),
    "attention": (attention, 150_000),
    "scanned": (scanned, 300_000),
    "until": (until, 150_000),
    "scattered": (scattered, 150_000),
    "solved": (solved, 300_000),
    "chained": (chained, 2_000_000),
    "closed_over": (closed_over, 150_000),
    "random": (random, 150_000),
}


def planned(name: str) -> Planned:
    function, budget = PROGRAMS[name]
    arguments = [jax.ShapeDtypeStruct((length, 4), jnp.float32) for length in (400, 500)]
    traced = trace(function, tuple(arguments), {})
    return Planner(traced, ["x", "y"], budget, rules_for((), "reassociates"), find_target("cpu")).planned()


def derivation_of(found: Planned) -> Derivation:
    assert found.derivation is not None
    return found.derivation


def as_text(derivation: Derivation) -> str:
    return json.dumps(schedules.written(derivation.emission, derivation.program))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_emitted_from_what_was_read_is_the_same(name: str) -> None:
    found = planned(name)
    derivation = derivation_of(found)
    program, _ = lower(found.traced.closed)  # anew, as another process does
    emission = schedules.read(json.loads(as_text(derivation)), program)
    assert emission.module(input_names(program, ["x", "y"]), NOTHING.pairs).source == found.plan.source
    assert found.plan.changed


@pytest.fixture(scope="module")
def stored() -> tuple[Planned, Any]:
    found = planned("scanned")
    return found, json.loads(as_text(derivation_of(found)))


HOSTILE = [
    "__import__('os').system('x')",
    "1.0\nimport os",
    "os.system",
    "f32 # \n",
    "exp(x)",
    "'",
    "__class__",
]

SAFE = {"jax", "jnp", "lax", "numpy", "np", "functools", "partial"}


def places(plain: Any, kind: type) -> Iterator[tuple[Any, Any]]:
    """Where values of a type are in some JSON."""
    parts = plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else ()
    for key, part in parts:
        if type(part) is kind:
            yield plain, key
        yield from places(part, kind)


@given(st.data())
@settings(max_examples=150)
def test_a_text_that_is_code_is_refused_or_not_emitted(
    stored: tuple[Planned, Any], data: st.DataObject
) -> None:
    found, plain = stored
    plain = json.loads(json.dumps(plain))
    container, key = data.draw(st.sampled_from(list(places(plain, str))))
    container[key] = hostile = data.draw(st.sampled_from(HOSTILE))
    program = derivation_of(found).program
    try:
        source = schedules.read(plain, program).module(input_names(program, ["x", "y"]), {}).source
    except (ValueError, TypeError, LookupError, AttributeError, EqsatError, AssertionError):
        return
    tree = ast.parse(source)
    called = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not {"os", "exp", "__import__"} & called, hostile


@given(st.data())
@settings(max_examples=150)
def test_another_number_is_refused_or_makes_a_program(
    stored: tuple[Planned, Any], data: st.DataObject
) -> None:
    """Whatever is wrong is an error that whoever reads plans takes for a damaged file."""
    found, plain = stored
    plain = json.loads(json.dumps(plain))
    container, key = data.draw(st.sampled_from(list(places(plain, int))))
    container[key] = data.draw(st.integers(-3, 1000))
    program = derivation_of(found).program
    try:
        source = schedules.read(plain, program).module(input_names(program, ["x", "y"]), {}).source
    except (ValueError, TypeError, LookupError, AttributeError, EqsatError, AssertionError):
        return
    ast.parse(source)


def test_chunks_of_no_length_are_refused(stored: tuple[Planned, Any]) -> None:
    found, plain = stored
    plain = json.loads(json.dumps(plain))
    chunks = plain["emission"]["schedule"]["chunks"]
    assert chunks
    chunks[0][1] = 0
    with pytest.raises(ValueError, match="no length of chunks"):
        schedules.read(plain, derivation_of(found).program)


def test_a_call_that_the_function_does_not_make_is_refused(stored: tuple[Planned, Any]) -> None:
    found, plain = stored
    plain = json.loads(json.dumps(plain))
    calls = [part for part in plain["parts"] if part["is"] == "StoredCall"]
    assert calls
    calls[0]["origin"] = 1000
    with pytest.raises(IndexError):
        schedules.read(plain, derivation_of(found).program)
