"""The declared monoids: where the chunks are cut does not matter, and nothing at all changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pytest

from eqsat.ir.formula import Application, Constant, Formula, Monoid, Scalar
from eqsat.ir.numpy_functions import NUMPY_FUNCTIONS
from eqsat.rulesets.files import shipped_files
from tests.nightly import nightly_but

Array = np.ndarray[Any, np.dtype[Any]]
State = tuple[Array, ...]

MONOIDS = {
    declared.monoid.name: declared.monoid
    for file in shipped_files()
    for declared in file.monoids
    if file.file.endswith("monoids.rules")
}


def value(formula: Formula, names: Mapping[str, Array]) -> Array:
    match formula:
        case Scalar(name=name):
            return names[name]
        case Constant():
            return np.float32(formula.value)
        case Application(function="select_n", operands=operands):
            which, no, yes = (value(operand, names) for operand in operands)
            return np.where(which, yes, no)
        case Application(function=function, operands=operands):
            return np.asarray(NUMPY_FUNCTIONS[function](*(value(operand, names) for operand in operands)))
    raise AssertionError(formula)


def merged(monoid: Monoid, earlier: State, later: State) -> State:
    names: dict[str, Array] = {}
    for part, one, two in zip(monoid.state, earlier, later, strict=True):
        names |= {f"{part}1": one, f"{part}2": two}
    for part, formula in zip(monoid.state, monoid.merge, strict=True):
        names[part] = value(formula, names)
    return tuple(names[part] for part in monoid.state)


def finished(monoid: Monoid, state: State) -> Array:
    return value(monoid.finish, dict(zip(monoid.state, state, strict=True)))


def identity(monoid: Monoid) -> State:
    """The identity; the only part that is a truth value is called u, in a monoid of averages."""
    constants = zip(monoid.state, monoid.identity, strict=True)
    truth = monoid.name == "averaged_where"
    return tuple(
        np.asarray(one.value > 0) if truth and part == "u" else np.float32(one.value)
        for part, one in constants
    )


def exponentials(x: Array) -> State:
    largest = x.max()
    return largest, np.exp(x - (largest if np.isfinite(largest) else 0)).sum()


def averaged(x: Array) -> State:
    largest, total = exponentials(x)
    weights = np.exp(x - (largest if np.isfinite(largest) else 0)) / (total if total else 1)
    return largest, total, (weights * np.float32(0.5) * values(x)).sum()


def averaged_where(x: Array) -> State:
    """What is -inf is masked."""
    return np.asarray((x > -np.inf).any()), *averaged(x)


def values(x: Array) -> Array:
    """What is averaged, near the largest numbers that there are."""
    return np.asarray(np.float32(3e38) * np.cos(np.where(np.isfinite(x), x, 0)))


def deviations(x: Array) -> State:
    return np.float32(len(x)), x.mean(), (x - x.mean()).sum(), ((x - x.mean()) ** 2).sum()


def codeviations(x: Array) -> State:
    y = np.cos(x) + x
    u, v = x.mean(), y.mean()
    return np.float32(len(x)), u, v, (x - u).sum(), (y - v).sum(), ((x - u) * (y - v)).sum()


def average(x: Array, of_nothing: float) -> Any:
    if not np.isfinite(x.max()):
        return of_nothing
    return np.average(values(x).astype(float), weights=np.exp(np.float64(x) - x.max()))


CHUNKS: dict[str, Callable[[Array], State]] = {
    "rescaled": exponentials,
    "rescaled_or_nan": exponentials,
    "averaged": averaged,
    "averaged_where": averaged_where,
    "rescaled_logarithm": exponentials,
    "deviations": deviations,
    "codeviations": codeviations,
}
"""What a chunk's part of the state is."""

WHOLE: dict[str, Callable[[Array], Any]] = {
    "rescaled": lambda x: np.exp(np.float64(x) - x.max()).sum() if np.isfinite(x.max()) else 0.0,
    "rescaled_or_nan": lambda x: np.exp(np.float64(x) - x.max()).sum() if np.isfinite(x.max()) else np.nan,
    "averaged": lambda x: average(x, np.nan),
    "averaged_where": lambda x: average(x, 0.0),
    "rescaled_logarithm": lambda x: np.logaddexp.reduce(np.float64(x)),
    "deviations": lambda x: np.float64(x).var() * len(x),
    "codeviations": lambda x: np.cov(np.float64(x), np.cos(x) + np.float64(x))[0, 1] * (len(x) - 1),
}
"""What comes out in the end."""


def test_all_of_them_are_tested() -> None:
    assert set(MONOIDS) == set(CHUNKS) == set(WHOLE)


def drawn(style: str) -> Array:
    rng = np.random.default_rng(0)
    x = rng.normal(size=60).astype(np.float32)
    if style == "far from 0":
        return np.asarray(x + np.float32(1000))
    if style == "drifting":
        return np.asarray(x + np.linspace(0, 50, 60, dtype=np.float32))
    if style == "masked":
        x[:25], x[40:] = -np.inf, -np.inf
    if style == "masked altogether":
        x[:] = -np.inf
    return x


STYLES = [
    (name, style)
    for name in CHUNKS
    for style in ("ordinary", "far from 0", "drifting", "masked", "masked altogether")
    if "deviations" not in name or "masked" not in style
]


@pytest.mark.parametrize(("name", "style"), STYLES)
@pytest.mark.parametrize("length", nightly_but([1, 20], [1, 7, 20, 59]))
def test_in_chunks_of_any_length(name: str, style: str, length: int) -> None:
    monoid, x = MONOIDS[name], drawn(style)
    chunks = [CHUNKS[name](x[start : start + length]) for start in range(0, len(x), length)]
    with np.errstate(all="ignore"):
        result = finished(monoid, reduce(lambda one, two: merged(monoid, one, two), chunks, identity(monoid)))
        np.testing.assert_allclose(result, WHOLE[name](x), rtol=1e-4)


@pytest.mark.parametrize(("name", "style"), STYLES)
def test_associativity_and_identity(name: str, style: str) -> None:
    monoid, x = MONOIDS[name], drawn(style)
    first, second, third = (CHUNKS[name](part) for part in (x[:10], x[10:40], x[40:]))
    with np.errstate(all="ignore"):
        left = merged(monoid, merged(monoid, first, second), third)
        right = merged(monoid, first, merged(monoid, second, third))
        np.testing.assert_allclose(finished(monoid, left), finished(monoid, right), rtol=1e-4)
        for state in (merged(monoid, first, identity(monoid)), merged(monoid, identity(monoid), first)):
            np.testing.assert_allclose(finished(monoid, state), finished(monoid, first), rtol=1e-6)


def test_weights_that_are_0_are_nothing() -> None:
    monoid = MONOIDS["deviations"]
    nothing = (np.float32(0), np.float32(5), np.float32(0), np.float32(0))
    some = deviations(drawn("ordinary"))
    for state in (merged(monoid, nothing, some), merged(monoid, some, nothing)):
        np.testing.assert_allclose(finished(monoid, state), finished(monoid, some), rtol=1e-6)
    with np.errstate(all="ignore"):
        assert np.isnan(finished(monoid, merged(monoid, nothing, nothing)))


def test_not_a_number_stays_one() -> None:
    monoid = MONOIDS["rescaled_logarithm"]
    lost = (np.float32(np.nan), np.float32(np.nan))
    some = exponentials(drawn("masked")[30:])
    for state in (merged(monoid, lost, some), merged(monoid, some, lost)):
        assert np.isnan(finished(monoid, state))
