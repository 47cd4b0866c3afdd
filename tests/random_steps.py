"""The steps that build random programs: elementwise functions, reductions, contractions, movement of data...

A step draws its operands and adds a line to the program, or leaves the program as it is if none fit.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.program_text import ProgramText, Value, power_of_two

Draw = Callable[[st.SearchStrategy[Any]], Any]

MOST_ELEMENTS = 200_000

Step = Callable[[Draw, ProgramText], None]
STEPS: list[Step] = []


def step(weight: int = 1) -> Callable[[Step], Step]:
    """Returns a decorator that adds a step to `STEPS`, `weight` times."""

    def enter(function: Step) -> Step:
        STEPS.extend([function] * weight)
        return function

    return enter


def pick(draw: Draw, program: ProgramText, suits: Callable[[Value], bool]) -> Value | None:
    """Draws a value that suits, or returns None. It favours the latest ones, so that programs are deep."""
    candidates = [value for value in program.values if suits(value)]
    latest = draw(st.sampled_from([1, 1, 3, len(candidates)]))
    return draw(st.sampled_from(candidates[:latest])) if candidates else None


_UNARY: tuple[tuple[str, float, Callable[[float], float]], ...] = (
    ("jnp.sin({})", 4, lambda b: 1),
    ("jnp.cos({})", 4, lambda b: 1),
    ("jnp.tanh({})", 4, lambda b: 1),
    ("logistic({})", 4, lambda b: 1),
    ("jnp.exp({})", 1.5, math.exp),
    ("jnp.exp(-{}**2)", 2, lambda b: 1),
    ("jnp.sqrt(1 + {}**2)", 4, lambda b: 1 + b),
    ("jnp.log1p(jnp.abs({}))", 4, math.log1p),
    ("1 / (1 + {}**2)", 4, lambda b: 1),
    ("{}**3", 1.5, lambda b: b**3),
    ("jnp.arctan({})", 4, lambda b: 1.6),
    ("clamp(-0.5, {}, 1.5)", 4, lambda b: 1.5),
)
_EXACT_UNARY: tuple[tuple[str, Callable[[float], float]], ...] = (
    ("-{}", lambda b: b),
    ("jnp.abs({})", lambda b: b),
    ("{}**2", lambda b: b * b),
    ("2 * {} + 1", lambda b: 2 * b + 1),
    ("jnp.maximum({}, 0)", lambda b: b),
)


@step(3)
def unary(draw: Draw, program: ProgramText) -> None:
    value = pick(draw, program, lambda v: v.is_float)
    if value is None:
        return
    template, limit, bound = draw(st.sampled_from(_UNARY))
    expression = template.format(value.tame(limit))
    program.add(expression, value.shape, "float32", bound(value.tame_bound(limit)), False)


@step(2)
def ring_unary(draw: Draw, program: ProgramText) -> None:
    value = pick(draw, program, lambda v: v.stays_exact(2 * v.bound**2 + 1))
    if value is not None:
        template, bound = draw(st.sampled_from(_EXACT_UNARY))
        program.add(template.format(value.name), value.shape, value.dtype, bound(value.bound), True)


def _paired(draw: Draw, x: Value, y: Value) -> tuple[str, str, tuple[int, ...]] | None:
    """Draws subscripts that make two values broadcast; returns these and the shape of the result."""
    choices = []
    with contextlib.suppress(ValueError):
        choices.append(("", "", np.broadcast_shapes(x.shape, y.shape)))
    if x.shape and y.shape and len(x.shape) + len(y.shape) <= 4:
        left = "[..., " + ", ".join(["None"] * len(y.shape)) + "]"
        choices.append((left, "", x.shape + y.shape))
        if len(x.shape) > 1 and len(y.shape) > 1 and x.shape[-1] == y.shape[-1]:
            left = "[..., " + "None, " * (len(y.shape) - 1) + ":]"
            choices.append((left, "", x.shape[:-1] + y.shape))
    choices = [choice for choice in choices if math.prod(choice[2]) <= MOST_ELEMENTS]
    return draw(st.sampled_from(choices[::-1])) if choices else None


_BINARY: tuple[tuple[str, Callable[[float, float], float], bool], ...] = (
    ("{} + {}", lambda a, b: a + b, True),
    ("{} - {}", lambda a, b: a + b, True),
    ("{} * {}", lambda a, b: a * b, True),
    ("jnp.maximum({}, {})", max, True),
    ("jnp.minimum({}, {})", max, True),
    ("({} - {})**2", lambda a, b: (a + b) ** 2, True),
    ("{} / (1 + jnp.abs({}))", lambda a, b: a, False),
    ("jnp.exp(-jnp.abs({} - {}))", lambda a, b: 1, False),
)


@step(4)
def binary(draw: Draw, program: ProgramText) -> None:
    x = pick(draw, program, lambda v: v.dtype != "bool")
    if x is None:
        return
    y = pick(draw, program, lambda v: v.dtype == x.dtype)
    pair = None if y is None else _paired(draw, x, y)
    if y is None or pair is None:
        return
    combine(draw, program, x, y, pair)


def combine(
    draw: Draw, program: ProgramText, x: Value, y: Value, pair: tuple[str, str, tuple[int, ...]]
) -> None:
    """Adds a binary function of two values of one dtype; `pair` is what `_paired` returns for them."""
    template, bound, ring = draw(st.sampled_from(_BINARY))
    if ring and y.exact and x.stays_exact(bound(x.bound, y.bound)):
        program.add(
            template.format(x.name + pair[0], y.name + pair[1]),
            pair[2],
            x.dtype,
            bound(x.bound, y.bound),
            True,
        )
    elif x.is_float:
        expression = template.format(x.tame() + pair[0], y.tame() + pair[1])
        program.add(expression, pair[2], "float32", bound(x.tame_bound(), y.tame_bound()), False)


@step()
def masked(draw: Draw, program: ProgramText) -> None:
    """Adds a `where` whose condition compares indices, or exact values with a number."""
    value = pick(draw, program, lambda v: v.is_float and v.shape != ())
    if value is None:
        return
    length = value.shape[-1]
    mask = f"jnp.arange({length}) < {draw(st.integers(0, length))}"
    if len(value.shape) > 1 and draw(st.booleans()):
        mask = f"jnp.arange({value.shape[-2]})[:, None] >= jnp.arange({length})"
    elif value.exact:
        mask = f"{value.name} > 1"
    program.add(f"jnp.where({mask}, {value.name}, 0)", value.shape, value.dtype, value.bound, value.exact)


@step()
def converted(draw: Draw, program: ProgramText) -> None:
    value = pick(draw, program, lambda v: v.exact and v.bound <= 128)
    if value is not None:
        dtype = draw(st.sampled_from(["float32", "int32", "bfloat16"]))
        # XLA miscompiles integers that are converted to bfloat16 and go on to `exp` (docs/xla.md).
        through = ".astype(float32)" if (value.dtype, dtype) == ("int32", "bfloat16") else ""
        program.add(f"{value.name}{through}.astype({dtype})", value.shape, dtype, value.bound, True)


def _draw_axes(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    positions = st.integers(0, len(shape) - 1)
    return tuple(sorted(draw(st.sets(positions, min_size=1, max_size=len(shape)))))


def _reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    kept = [1 if i in axes else length for i, length in enumerate(shape)]
    return tuple(kept) if keepdims else tuple(n for i, n in enumerate(shape) if i not in axes)


@step(4)
def reduction(draw: Draw, program: ProgramText) -> None:
    value = pick(draw, program, lambda v: v.shape != () and v.dtype != "bool")
    if value is not None:
        reduce_value(draw, program, value)


def reduce_value(draw: Draw, program: ProgramText, value: Value) -> None:
    axes, keepdims = _draw_axes(draw, value.shape), draw(st.booleans())
    count = math.prod(value.shape[axis] for axis in axes)
    shape = _reduced_shape(value.shape, axes, keepdims)
    where = f"axis={axes}, keepdims={keepdims}"
    kinds = ["sum", "max", "min", *(["mean", "logmeanexp", "var"] if value.is_float else [])]
    kinds += ["prod"] if value.is_float and count <= 64 else []
    kind = draw(st.sampled_from(kinds))
    if kind in ("max", "min"):
        program.add(f"jnp.{kind}({value.name}, {where})", shape, value.dtype, value.bound, value.exact)
    elif kind == "sum" and value.stays_exact(value.bound * count):
        expression = f"jnp.sum({value.name}, {where}).astype({value.dtype})"
        program.add(expression, shape, value.dtype, value.bound * count, True)
    elif value.is_float:
        name, bound = value.tame(), value.tame_bound()
        expression, bound = {
            "sum": (f"jnp.sum({name}, {where}) * {power_of_two(1 / count)}", bound),
            "mean": (f"jnp.mean({name}, {where})", bound),
            "prod": (f"jnp.prod(1 + {name} * {power_of_two(1 / count / 4)}, {where})", math.e),
            "logmeanexp": (f"jnp.log(jnp.mean(jnp.exp({name}), {where}))", bound),
            "var": (
                f"jnp.mean(({name} - jnp.mean({name}, axis={axes}, keepdims=True))**2, {where})",
                bound**2,
            ),
        }[kind]
        program.add(expression, shape, "float32", bound, False, count)


@step()
def selection(draw: Draw, program: ProgramText) -> None:
    """Adds an argmax, argmin, top-k or sort. Only exact values are asked for the positions."""
    value = pick(draw, program, lambda v: v.shape != () and v.dtype in ("float32", "int32"))
    if value is None:
        return
    axis = draw(st.integers(0, len(value.shape) - 1))
    k = draw(st.integers(1, min(value.shape[-1], 7)))
    best = (*value.shape[:-1], k)
    kind = draw(
        st.sampled_from(["top_k", "sort", *(["argmax", "argmin", "top_k_indices"] if value.exact else [])])
    )
    if kind.startswith("arg"):
        shape = _reduced_shape(value.shape, (axis,), False)
        program.add(
            f"jnp.{kind}({value.name}, axis={axis}).astype(int32)", shape, "int32", value.shape[axis], True
        )
    elif kind == "sort":
        program.add(
            f"jnp.sort({value.name}, axis={axis})", value.shape, value.dtype, value.bound, value.exact
        )
    elif kind == "top_k":
        program.add(f"top_k({value.name}, {k})", best, value.dtype, value.bound, value.exact)
    else:
        program.add(f"top_k_indices({value.name}, {k})", best, "int32", value.shape[-1], True)


@step()
def along_an_axis(draw: Draw, program: ProgramText) -> None:
    """Adds a softmax or a cumulative sum."""
    value = pick(draw, program, lambda v: v.is_float and v.shape != ())
    if value is None:
        return
    axis = draw(st.integers(0, len(value.shape) - 1))
    if draw(st.booleans()):
        program.add(f"softmax({value.tame()}, axis={axis})", value.shape, "float32", 1, False)
    else:
        expression = f"jnp.cumsum({value.tame()}, axis={axis}) * {power_of_two(1 / value.shape[axis])}"
        program.add(expression, value.shape, "float32", value.tame_bound(), False, value.shape[axis])


@step(4)
def contraction(draw: Draw, program: ProgramText) -> None:
    """Adds an einsum with batch, contracted and free letters in any order."""
    x = pick(draw, program, lambda v: v.is_float and len(v.shape) in (1, 2, 3))
    y = pick(draw, program, lambda v: v.is_float and len(v.shape) in (1, 2, 3))
    if x is None or y is None:
        return
    left, right, free = "abc"[: len(x.shape)], "", "pqr"
    lengths = dict(zip(left, x.shape, strict=True))
    for position, length in enumerate(y.shape):
        shared = [a for a in left if lengths[a] == length and a not in right]
        letter = draw(st.sampled_from([*shared, free[position]]))
        lengths[letter] = length
        right += letter
    letters = sorted(set(left + right))
    if math.prod(lengths.values()) > 20 * MOST_ELEMENTS:
        return
    summed = {a for a in letters if a in left and a in right and draw(st.booleans())}
    out = "".join(draw(st.permutations([a for a in letters if a not in summed])))
    shape = tuple(lengths[a] for a in out)
    if len(shape) > 4 or math.prod(shape) > MOST_ELEMENTS:
        return
    count = math.prod(lengths[a] for a in summed)
    bound = x.bound * y.bound * count
    if y.exact and x.stays_exact(bound) and x.dtype == y.dtype == "float32":
        program.add(f'jnp.einsum("{left},{right}->{out}", {x.name}, {y.name})', shape, "float32", bound, True)
    else:
        expression = (
            f'jnp.einsum("{left},{right}->{out}", {x.tame(2)}, {y.tame(2)}) * {power_of_two(1 / count)}'
        )
        program.add(expression, shape, "float32", x.tame_bound(2) * y.tame_bound(2), False, count)


@step()
def chain(draw: Draw, program: ProgramText) -> None:
    """Adds a product of three factors from left to right, the last of which is a matrix or a vector."""
    a = pick(draw, program, lambda v: v.is_float and len(v.shape) == 2 and v.elements <= 30_000)
    if a is not None:
        n, k = a.shape
        m = a.tame(1)
        expression = f"({m} @ {m}.T) @ {m}" if draw(st.booleans()) else f"({m} @ {m}.T) @ {m}[:, 0]"
        shape = a.shape if expression.endswith(m) else (n,)
        program.add(f"({expression}) * {power_of_two(1 / (n * k))}", shape, "float32", 1, False, n * k)


@step(3)
def movement(draw: Draw, program: ProgramText) -> None:
    """Adds a line that moves data: a transpose, reshape, slice, reversal, padding or concatenation."""
    value = pick(draw, program, lambda v: v.shape != ())
    if value is None:
        return
    name, shape, rank = value.name, value.shape, len(value.shape)
    axis = draw(st.integers(0, rank - 1))
    length, before = shape[axis], ":, " * axis
    kind = draw(st.sampled_from(["transpose", "reshape", "slice", "reverse", "pad", "concatenate"]))
    if kind == "transpose":
        order = tuple(draw(st.permutations(range(rank))))
        expression, shape = f"jnp.transpose({name}, {order})", tuple(shape[i] for i in order)
    elif kind == "reshape":
        shape = draw(st.sampled_from(_reshapes(shape)))
        expression = f"jnp.reshape({name}, {shape})"
    elif kind == "slice":
        start = draw(st.integers(0, length - 1))
        stop, stride = draw(st.integers(start + 1, length)), draw(st.integers(1, 3))
        expression = f"{name}[{before}{start}:{stop}:{stride}]"
        shape = (*shape[:axis], len(range(start, stop, stride)), *shape[axis + 1 :])
    elif kind == "reverse":
        expression = f"{name}[{before}::-1]"
    elif kind == "pad":
        widths = tuple((1, 2) if i == axis else (0, 0) for i in range(rank))
        expression, shape = f"jnp.pad({name}, {widths})", (*shape[:axis], length + 3, *shape[axis + 1 :])
    else:
        other = pick(
            draw, program, lambda v: v.dtype == value.dtype and _differ_only_in(v.shape, shape, axis)
        )
        assert other is not None  # at least the value itself suits
        expression = f"jnp.concatenate([{name}, {other.name}], axis={axis})"
        shape = (*shape[:axis], length + other.shape[axis], *shape[axis + 1 :])
        value = replace(value, bound=max(value.bound, other.bound), exact=value.exact and other.exact)
    if math.prod(shape) <= MOST_ELEMENTS:
        program.add(expression, shape, value.dtype, value.bound, value.exact)


def _differ_only_in(left: tuple[int, ...], right: tuple[int, ...], axis: int) -> bool:
    return len(left) == len(right) and all(
        m == n for i, (m, n) in enumerate(zip(left, right, strict=True)) if i != axis
    )


def _reshapes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Returns shapes with as many elements: merged, split, with and without dimensions of length 1."""
    shapes = [(math.prod(shape),), (1, *shape), (*shape, 1), tuple(n for n in shape if n != 1)]
    for position, length in enumerate(shape):
        shapes += [
            (*shape[:position], d, length // d, *shape[position + 1 :]) for d in (2, 4, 5) if length % d == 0
        ]
        if position:
            shapes.append((*shape[: position - 1], shape[position - 1] * length, *shape[position + 1 :]))
    return [candidate for candidate in shapes if len(candidate) <= 4]
