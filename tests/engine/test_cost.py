"""Predicted times and sizes: never less for more work."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from eqsat.engine.cost import CostModel
from eqsat.engine.storage_model import Value
from eqsat.ir.axis import Axis
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.ops import (
    Concat,
    Const,
    Dot,
    Fold,
    Iota,
    Leaf,
    Map,
    Op,
    Opaque,
    Operation,
    Reduce,
    Rename,
    Select,
)
from eqsat.targets.cpu import CPU
from eqsat.targets.gpu import GPU
from eqsat.targets.machine import Machine
from tests.stages import lowered, normal

F32 = "float32"
NONE: frozenset[Axis] = frozenset()
ADDED = lax.ScatterDimensionNumbers((1,), (0,), (0,))
"""A row is added to the one whose number is given."""

SIZES = (2, 16, 63, 64, 65, 1000, 4096, 100_000)


def model(**chunks: int) -> CostModel:
    """A model with chunks of n, m or k of the given lengths, whatever the axis' size."""
    numbers = dict(zip("nmk", range(3), strict=True))
    return CostModel(
        CPU, {Axis(numbers[name], size): length for name, length in chunks.items() for size in SIZES}
    )


def value(*axes: Axis, opened: tuple[Axis, ...] = (), dtype: str = F32) -> Value:
    return Value(frozenset(axes), frozenset(opened), dtype)


def op_seconds(kind: str, n: Axis, m: Axis, k: Axis, opened: tuple[Axis, ...], model: CostModel) -> float:
    """The time of an op between matrices {n k}, {m k} and {n m}."""
    matrix = value(n, k, opened=tuple(axis for axis in opened if axis in (n, k)))
    other = value(m, k, opened=tuple(axis for axis in opened if axis in (m, k)))
    rest = tuple(axis for axis in opened if axis == n)
    ops: dict[str, tuple[Op, Value, list[Value]]] = {
        "add": (Map("add", F32), value(n, m, k, opened=opened), [matrix, other]),
        "exp": (Map("exp", F32), matrix, [matrix]),
        "iota": (Iota(n, F32), value(n), []),
        "sum": (Reduce("sum", frozenset({k}), F32), value(n, opened=rest), [matrix]),
        "dot": (
            Dot(frozenset({k}), F32),
            value(n, m, opened=tuple(axis for axis in opened if axis != k)),
            [matrix, other],
        ),
        "argmax": (Select("argmax", k, 1, None, "indices", "int32"), value(n, opened=rest), [matrix]),
    }
    return model.seconds(*ops[kind])


@pytest.mark.parametrize("kind", ["add", "exp", "iota", "sum", "dot", "argmax"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_larger_operands_never_take_less_time(kind: str, which: int) -> None:
    times = []
    for size in SIZES:
        sizes = [64, 64, 64]
        sizes[which] = size
        axes = [Axis(number, length) for number, length in enumerate(sizes)]
        times.append(op_seconds(kind, *axes, (), model()))
    assert times == sorted(times)
    assert all(time > 0 for time in times)


@pytest.mark.parametrize("kind", ["add", "exp", "sum", "dot", "argmax"])
def test_shorter_chunks_never_take_less_time_in_the_arithmetic(kind: str) -> None:
    """Each iteration has its cost of starting, and computes no less in all."""
    n, m, k = Axis(0, 4096), Axis(1, 64), Axis(2, 64)
    times = [op_seconds(kind, n, m, k, (n,), model(n=length)) for length in (64, 16, 4, 1)]
    assert times == sorted(times)


def test_a_contraction_of_pairs_of_vectors_is_no_matrix_product() -> None:
    """It takes no less time than to multiply and to add up."""
    n, k = Axis(0, 4096), Axis(1, 64)
    matrix, costs = value(n, k), model()
    product = costs.seconds(Dot(frozenset({k}), F32), value(n), [matrix, matrix])
    multiplied = costs.seconds(Map("mul", F32), matrix, [matrix, matrix])
    assert product >= multiplied + matrix_elements(costs, matrix) / CPU.elements
    rows = value(Axis(2, 4096), k)
    pairs = costs.seconds(Dot(frozenset({k}), F32), value(n, *rows.axes - {k}), [matrix, rows])
    assert pairs < 4096 * product


def test_a_batch_of_matrices_times_a_vector_each_is_no_matrix_product() -> None:
    """Numbers are multiplied one by one, but not if all share the vector."""
    points, chunk, coordinates = Axis(0, 10_000), Axis(1, 69), Axis(2, 3)
    weights, differences, costs = value(points, chunk), value(points, chunk, coordinates), model()

    def seconds(left: Value, right: Value, *, machine: Machine = CPU) -> float:
        result = Value((left.axes | right.axes) - {chunk}, NONE, F32)
        return CostModel(machine, {}).seconds(Dot(frozenset({chunk}), F32), result, [left, right])

    multiplications = matrix_elements(costs, differences)
    batch = seconds(weights, differences)
    assert batch == seconds(differences, weights) >= 2 * multiplications / CPU.elements
    assert seconds(value(chunk, coordinates), weights) < batch / 2, "a matrix product"
    assert seconds(value(chunk), differences) < batch / 2, "one vector for all"
    assert seconds(weights, differences, machine=replace(CPU, lanes=0)) < batch / 2, "order is of no concern"


def test_rows_that_are_multiplied_together_take_less_time_each() -> None:
    """One vector's product reads a number for each multiplication; from some rows on, more hardly help."""
    columns, inner, costs = value(Axis(0, 20_000), Axis(1, 10)), Axis(1, 10), model()

    def each(rows: int) -> float:
        row = Axis(2, rows)
        left = value(row, inner) if rows > 1 else value(inner)
        result = Value((left.axes | columns.axes) - {inner}, NONE, F32)
        return costs.seconds(Dot(frozenset({inner}), F32), result, [left, columns]) / rows

    assert each(1) > 1.5 * each(8) > 2 * each(64)
    assert each(64) > each(256)
    assert each(4096) > 0.9 * each(256)


def matrix_elements(costs: CostModel, matrix: Value) -> int:
    return costs.elements(matrix.axes, matrix.open)


def test_what_is_computed_in_a_loop_counts_once_per_chunk() -> None:
    n, m = Axis(0, 4096), Axis(1, 64)
    whole = model(n=64).seconds(Map("exp", F32), value(n, m), [value(n, m)])
    chunks = model(n=64).seconds(Map("exp", F32), value(n, m, opened=(n,)), [value(n, m, opened=(n,))])
    assert math.isclose(whole, chunks)
    # A value that lacks the axis is computed anew for every chunk that it depends on.
    again = model(n=64).seconds(Map("exp", F32), value(m, opened=(n,)), [value(m, opened=(n,))])
    once = model(n=64).seconds(Map("exp", F32), value(m), [value(m)])
    assert math.isclose(again, 64 * once)


@pytest.mark.parametrize("closer", [Concat(Axis(0, 4096)), Fold(Axis(0, 4096), "sum")])
def test_a_loop_costs_more_the_more_turns_it_has(closer: Concat | Fold) -> None:
    n, m = Axis(0, 4096), Axis(1, 64)
    body = value(*([n, m] if isinstance(closer, Concat) else [m]), opened=(n,))
    result = value(*body.axes)
    times = [model(n=length).seconds(closer, result, [body]) for length in (4096, 1000, 64, 2, 1)]
    assert times == sorted(times)
    assert times[0] < times[-1]


def test_names_and_inputs_are_free() -> None:
    n, m = Axis(0, 1000), Axis(1, 1000)
    for op, operands in (
        (Leaf(0, (n,), F32), []),
        (Const("1.0", F32), []),
        (Rename(m, n), [value(m)]),
    ):
        assert model().seconds(op, value(n), operands) == 0.0


@pytest.mark.parametrize("machine", [CPU, GPU])
def test_sorts_cost_more_for_each_entry_of_a_longer_row(machine: Machine) -> None:
    def seconds(name: str, rows: int, length: int, dtype: str = F32) -> float:
        n, k = Axis(0, rows), Axis(1, length)
        sort = Operation(OPERATIONS[name], (k,), OPERATIONS[name].dtype or dtype)
        row = value(n, k, dtype=dtype)
        return CostModel(machine, {}).seconds(sort, row, [row])

    assert seconds("sort", 1, 10**8) > 1.5 * seconds("sort", 10**4, 10**4)
    assert seconds("argsort", 1, 10**8) > 1.5 * seconds("argsort", 10**4, 10**4)
    assert seconds("sort", 1, 10**8, "int32") <= seconds("sort", 1, 10**8)
    assert seconds("argsort", 1, 10**8, "int32") == seconds("argsort", 1, 10**8)


def test_a_sort_costs_the_same_as_a_call_and_as_an_operation() -> None:
    program, _ = lowered(lambda x: jnp.sort(x, 1), normal(100, 5000))
    ((call, operation),) = program.equalities
    found = [CostModel(CPU, {}).seconds(term.op, term, term.args) for term in (call, operation)]
    assert found[0] == pytest.approx(found[1], rel=0.01)


def convolution_seconds(
    machine: Machine = CPU, image: tuple[int, ...] = (8, 28, 28, 16), dtype: str = F32, **options: Any
) -> float:
    """The time of a convolution by 3 x 3 places and 32 features; images by batch, places, features."""
    groups = options.get("feature_group_count", 1)
    arrays = jnp.zeros(image, dtype), jnp.zeros((3, 3, image[-1] // groups, 32), dtype)

    def convolve(x: Any, y: Any) -> Any:
        places: dict[str, Any] = {"window_strides": (1, 1), "padding": [(1, 1), (1, 1)]} | options
        return lax.conv_general_dilated(x, y, dimension_numbers=("NHWC", "HWIO", "NHWC"), **places)

    program, _ = lowered(convolve, *arrays)
    model = CostModel(machine, {})
    return sum(model.seconds(term.op, term, term.args) for term in program.reachable())


@pytest.mark.parametrize(
    ("more", "times"),
    [
        ({"image": (16, 28, 28, 16)}, (1.9, 2.1)),
        ({"image": (8, 28, 28, 32)}, (1.3, 2.1)),
        # Half of the places in either direction.
        ({"window_strides": (2, 2)}, (0.2, 0.3)),
        # Four times as many places, of which only a quarter is multiplied.
        ({"lhs_dilation": (2, 2)}, (0.9, 2.0)),
        # One feature takes as many copies as several, and multiplies less.
        ({"image": (8, 28, 28, 1)}, (0.1, 1.0)),
        ({"feature_group_count": 16}, (1.0, 20.0)),
        # Nothing but single precision is left to the library.
        ({"dtype": "bfloat16"}, (5.0, 100.0)),
    ],
)
def test_the_time_of_a_convolution_is_that_of_its_products_and_copies(
    more: dict[str, Any], times: tuple[float, float]
) -> None:
    ratio = convolution_seconds(**more) / convolution_seconds()
    assert times[0] <= ratio <= times[1]


def test_a_gpu_copies_no_patches() -> None:
    """So one with a single feature takes less than a sixteenth of one with sixteen, less its results."""
    few, many = (convolution_seconds(GPU, (800, 28, 28, features)) for features in (1, 16))
    assert few < many


def test_a_convolution_by_chunks_takes_as_long() -> None:
    assert convolution_seconds(image=(64, 28, 28, 16)) == pytest.approx(
        8 * convolution_seconds(image=(8, 28, 28, 16)), rel=0.2
    )


def test_windows_and_the_gradients_of_their_maxima() -> None:
    x = jnp.zeros((8, 28, 28, 16))

    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def seconds(function: Any) -> float:
        program, _ = lowered(function, x)
        model = CostModel(CPU, {})
        return sum(model.seconds(term.op, term, term.args) for term in program.reachable())

    forward = seconds(pooled)
    assert x.size / CPU.elements <= forward <= 2 * x.size / CPU.elements
    assert seconds(jax.grad(lambda x: jnp.sum(pooled(x)))) > 20 * forward


def test_slices_are_read_where_they_are_used_and_joins_are_written_once() -> None:
    x = jnp.zeros((40, 193))

    def seconds(function: Any) -> float:
        program, _ = lowered(function, x)
        model = CostModel(CPU, {})
        return sum(model.seconds(term.op, term, term.args) for term in program.reachable())

    added = x.size / CPU.elements
    assert seconds(lambda x: jnp.flip(x, 1)[:, 3:]) < added
    assert added < seconds(lambda x: jnp.roll(x, 1, 1)) < CPU.call + 3 * added


def test_what_loops_read_and_write_of_a_large_array_costs_by_what_that_is() -> None:
    table, row = jnp.zeros((100_000, 50)), jnp.zeros(50)

    def seconds(function: Any) -> float:
        program, _ = lowered(function, table, row, jnp.int32(3))
        model = CostModel(CPU, {})
        calls = [term for term in program.reachable() if isinstance(term.op, Opaque)]
        return sum(model.once(term.op, term, term.args) for term in calls)

    read = seconds(lambda table, row, i: lax.dynamic_slice(table, (i, i), (1, 40)))
    assert 40 * 4 / CPU.bytes <= read < 2 * 40 * 4 / CPU.bytes
    added = seconds(lambda table, row, i: lax.scatter_add(table, i[None, None], row[None], ADDED))
    assert CPU.call < added < 2 * CPU.call
    updated = seconds(lambda table, row, i: lax.dynamic_update_slice(table, row[None, :40], (i, i)))
    assert CPU.call < updated < 2 * CPU.call


def test_the_operands_of_a_loop_are_read_once_for_all_of_its_results() -> None:
    x = jnp.zeros((1000, 50))

    def sums(x: Any, count: int) -> Any:
        def iteration(carry: Any, row: Any) -> Any:
            return tuple(one + (number + 1) * row for number, one in enumerate(carry)), None

        return lax.scan(iteration, (x[0],) * count, x)[0]

    def seconds(count: int) -> float:
        program, _ = lowered(lambda x: sums(x, count), x)
        model = CostModel(CPU, {})
        loops = [t for t in program.reachable() if isinstance(t.op, Opaque) and t.op.call.bodies]
        assert len(loops) == count
        return sum(model.once(term.op, term, term.args) for term in loops)

    assert seconds(4) < 1.1 * seconds(1)
