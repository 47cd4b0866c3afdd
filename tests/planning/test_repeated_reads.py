"""What is stored since it is read again and again: otherwise the work multiplies from step to step."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.backend.stored_values import FUNCTION
from eqsat.planning.blocks import Compute
from eqsat.planning.loops import build
from eqsat.planning.repeated_reads import read_repeatedly
from eqsat.targets.catalogue import find_target
from eqsat.targets.cpu import CPU
from tests.nightly import nightly_but
from tests.stages import lowered, normal


def heated(u: Any, k: Any) -> Any:
    """A step of diffusion with fluxes of cells, which two neighbours share."""
    down, right = (k[1:] + k[:-1]) * (u[1:] - u[:-1]), (k[:, 1:] + k[:, :-1]) * (u[:, 1:] - u[:, :-1])
    ends = ((0, 1), (0, 0)), ((1, 0), (0, 0)), ((0, 0), (0, 1)), ((0, 0), (1, 0))
    into = [jnp.pad(flux, end) for flux, end in zip((down, down, right, right), ends, strict=True)]
    return u + 0.1 * (into[0] - into[1] + into[2] - into[3])


def steps(count: int) -> Callable[..., Any]:
    def loss(u: Any, k: Any) -> Any:
        for _ in range(count):
            u = heated(u, k)
        return jnp.mean(jnp.sin(u))

    return jax.grad(loss)


def planned(fn: Callable[..., Any], *args: Any) -> tuple[Any, str]:
    memory = jax.jit(fn).lower(*args).compile().memory_analysis()
    assert memory is not None
    fixed = memory.argument_size_in_bytes + memory.output_size_in_bytes
    run = eqsat.optimize(fn, budget=int(fixed + 0.25 * memory.temp_size_in_bytes))
    source = run.plan(*args).source
    assert source is not None
    return run, source


@pytest.mark.parametrize("count", nightly_but([2], [2, 4]))
def test_each_step_is_stored(count: int) -> None:
    u, k = normal(400, 300), 1 + np.abs(normal(400, 300, seed=1))
    run, source = planned(steps(count), u, k)
    assert len(re.findall(r"^ +(\w+) = stored\(\1\)$", source, re.MULTILINE)) >= count
    wanted = jax.jit(steps(count))(u, k)
    np.testing.assert_allclose(run(u, k), wanted, rtol=1e-4, atol=1e-4 * float(jnp.abs(wanted).max()))


def test_the_compiler_stores_them() -> None:
    """If it saw what the branch does, it would compute them again."""
    u, k = normal(400, 300), 1 + np.abs(normal(400, 300, seed=1))
    _, source = planned(steps(3), u, k)
    names: dict[str, Any] = {}
    exec(source, names)
    text = jax.jit(names["optimized"]).lower(u, k).compile().as_text()
    assert text.count(" conditional(") >= source.count("= stored(")


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.0, 3e38])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_])
def test_what_is_stored_keeps_its_bits(value: float, dtype: Any) -> None:
    names: dict[str, Any] = {"jnp": jnp, "lax": jax.lax}
    exec(FUNCTION, names)
    array = normal(5, 7).astype(dtype)
    if dtype is np.float32:
        array[0, 0] = array[3, 2] = value
    found = np.asarray(jax.jit(names["stored"])(array))
    assert found.tobytes() == array.tobytes()


def test_nothing_is_stored_outside_of_loops_or_where_the_compiler_does() -> None:
    program, _ = lowered(steps(3), normal(40, 30), normal(40, 30))
    assert read_repeatedly(build(program), CPU) == frozenset()
    plan = eqsat.optimize(lambda x: jnp.tanh(x @ x.T).sum(0), budget="600kB").plan(normal(900, 30))
    assert plan.loops
    assert "stored(" not in str(plan.source)


def waves(u: Any, speed: Any) -> Any:
    """A gradient: the scan back over the steps reads what one row adds to at the places of neighbours."""

    def loss(speed: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            now, before = state
            around = sum(jnp.roll(now, shift, axis) for shift in (1, -1) for axis in (0, 1))
            later = 2 * now - before + speed * (around - 4 * now)
            return (later, now), later[5]

        return jnp.mean(jax.lax.scan(step, (u, u), length=400)[1] ** 2)

    return jax.grad(loss)(speed)


def test_bodies_of_loops_store_them() -> None:
    u, k = normal(120, 100), 0.1 + 0.05 * np.abs(normal(120, 100, seed=1))
    run, source = planned(waves, u, k)
    assert re.search(r"^ +(\w+) = stored\(\1\)$", source, re.MULTILINE)
    wanted = jax.jit(waves)(u, k)
    np.testing.assert_allclose(run(u, k), wanted, rtol=1e-4, atol=1e-4 * float(jnp.abs(wanted).max()))


def test_few_entries_are_no_reason_to_store_all() -> None:
    """Unless they are repeated along all others: then each is computed for each of these."""

    def looped(read: Callable[[Any], Any]) -> int:
        def body(x: Any, _: Any) -> Any:
            kernel = jnp.exp(-jnp.abs(x[:, None] - x) * jnp.sin(x))
            return jnp.sum(kernel, 1) + read(kernel), None

        program, _ = lowered(lambda x: jax.lax.scan(body, x, length=3), normal(300))
        return sum(len(read_repeatedly(block, CPU)) for block in build(program).blocks())

    columns = [lambda kernel, column=column: jnp.tanh(kernel[:, column]) for column in (0, 9, 99)]
    assert looped(lambda kernel: sum(read(kernel) for read in columns)) == 0
    rows = [lambda kernel, row=row: jnp.sum(jnp.sin(kernel[row] + kernel), 1) for row in (0, 9, 99)]
    assert looped(lambda kernel: sum(read(kernel) for read in rows)) > 0


@pytest.mark.parametrize(("around", "count"), [(None, 0), ("cond", 0), ("scan", 1), ("while", 1)])
def test_only_what_runs_again_is_a_loop(around: str | None, count: int) -> None:
    def fn(u: Any, k: Any, which: Any) -> Any:
        step = jax.grad(lambda u: jnp.sum(jnp.sin(heated(heated(u, k), k))))
        if around is None:
            return step(u)
        if around == "cond":
            return jax.lax.cond(which > 0, step, jnp.sin, u)
        if around == "scan":
            return jax.lax.scan(lambda u, _: (step(u), None), u, length=3)[0]
        return jax.lax.while_loop(lambda u: jnp.sum(u) < which, step, u)

    program, _ = lowered(fn, normal(40, 30), normal(40, 30), np.float32(1))
    stored = [block for block in build(program).blocks() if read_repeatedly(block, CPU)]
    assert len(stored) == count
    assert all(block.iterates for block in stored)


def test_machines_that_need_no_such_help_have_none() -> None:
    assert find_target("h100").machine.shifted_work == 0
    program, _ = lowered(steps(3), normal(40, 30), normal(40, 30))
    assert read_repeatedly(build(program), replace(CPU, shifted_work=0.0)) == frozenset()


def outer_products(x: Any, w: Any) -> Any:
    """The derivative by one matrix for each of many inputs, as recurrent networks add it up step by step."""

    def step(total: Any, row: Any) -> tuple[Any, None]:
        gate = jnp.tanh(row @ w)
        change = gate
        for power in range(6):
            change = change * (1 - gate) + power * gate
        return total + row[:, :, None] * change[:, None, :], None

    return jax.lax.scan(step, jnp.zeros((x.shape[1], *w.shape)), x)[0]


def test_a_vector_is_stored_before_it_is_repeated_along_the_rows_of_a_matrix() -> None:
    program, _ = lowered(outer_products, normal(3, 4, 50), normal(50, 120))
    blocks = [block for block in build(program).blocks() if read_repeatedly(block, CPU)]
    (block,) = blocks
    (number,) = read_repeatedly(block, CPU)
    steps = [step for step in block.steps if isinstance(step, Compute)]
    (term,) = [step.term for step in steps if step.term.number == number]
    assert sorted(axis.size for axis in term.axes) == [4, 120]
    assert not any(read_repeatedly(one, replace(CPU, repeated_work=0.0)) for one in build(program).blocks())


def scaled(x: Any, along: int, cheap: int, repeats: int) -> Any:
    """A sum of matrices, of which each repeats a vector along an axis."""

    def step(total: Any, row: Any) -> tuple[Any, None]:
        change = jnp.tanh(row)
        for _ in range(cheap):
            change = change * row
        return total + jnp.expand_dims(change, along) * 2, None

    shape = (repeats, x.shape[1]) if along == 0 else (x.shape[1], repeats)
    return jax.lax.scan(step, jnp.zeros(shape), x)[0]


@pytest.mark.parametrize(
    ("length", "along", "cheap", "repeats", "stored"),
    [
        (200, 0, 10, 40, True),
        (200, 0, 10, 4, False),  # Few entries read each.
        (200, 0, 3, 40, False),  # Few operations follow the last one whose result is stored anyway.
        (200, 1, 10, 40, False),  # Entries that read one lie one after the other.
        (30, 0, 10, 40, False),  # Runs are short.
    ],
)
def test_what_takes_much_along_long_runs_is_stored(
    length: int, along: int, cheap: int, repeats: int, stored: bool
) -> None:
    program, _ = lowered(lambda x: scaled(x, along, cheap, repeats), normal(3, length))
    assert any(read_repeatedly(block, CPU) for block in build(program).blocks()) == stored
