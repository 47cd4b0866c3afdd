"""Judges whether an optimised program gives the results that its accuracy class promises.

A result is wrong if two things hold. It is none of the results of `jax.jit`, under XLA's own options or under
honest ones, nor that of evaluation op by op. And it differs from these by more than the roundings that its
class leaves open:

- "exact": those that XLA leaves open (`op_by_op`'s freedoms "xla" and "own"). "chunks" is the same, for
  programs that are rewritten without algebra.
- "reassociates": those of each op.

Numbers that other roundings make infinite or NaN, or that depend on the sign of a zero sum, are not judged.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import eqsat
from eqsat.backend.certificate import certify, compiler_options
from eqsat.compiler import planners
from eqsat.rulesets.selection import rules_for
from eqsat.targets.compiler_profile import OWN
from tests.fuzzing.data import arguments
from tests.fuzzing.meshes import drawn
from tests.fuzzing.op_by_op import OpByOp
from tests.fuzzing.programs import is_double, program

SAMPLES = 6
MOST = 50.0
"""A result may have at most this many times the error that noise makes, as in `eqsat.checking.promises`."""

PARTS = (0.1, 0.2, 0.35, 0.5)
"""Budgets, as shares of the temporaries of the original program. If one is too little, `AMPLE` is tried."""

AMPLE = 0.7

ROOM = 3000
"""A program with fewer bytes of temporaries is too small to be optimised."""


CHUNKS = "chunks"
"""Stands in place of an accuracy, for the rules about chunks and renamings alone."""


@contextmanager
def without_algebra() -> Iterator[None]:
    """Disables all rules except those that split reductions and those that rename axes."""

    def about_loops(*arguments: Any) -> Any:
        # Rules are known by their place in the list, so the others stay in it but match nothing.
        rules = rules_for(*arguments)
        return tuple(rule if rule.splits or rule.renames else replace(rule, triggers=()) for rule in rules)

    with mock.patch.object(planners, "rules_for", about_loops):
        yield


@dataclass
class Finding:
    """The outcome for one program.

    **Attributes:**

    - `source`: the function as text.
    - `again`: the command that tries it again.
    - `outcome`: "rewritten", "unchanged", "refused", "small" or "raises".
    - `wrong`: what is wrong, or "".
    - `judged`: how many numbers differ in their bits from plain JAX's.
    - `open`: how many of these may be anything.
    - `rules`: how often each rule fired.
    - `options`: the set of XLA options that the plan was compiled with.
    - `devices`: the mesh, and what is split over it.
    """

    accuracy: str
    source: str
    again: str = ""
    outcome: str = "small"
    wrong: str = ""
    judged: int = 0
    open: int = 0
    rules: dict[str, int] = field(default_factory=dict)
    options: str = ""
    devices: str = ""

    def __str__(self) -> str:
        devices = f"{self.devices}\n" if self.devices else ""
        return f"{self.wrong}\n{self.again}\n{devices}{self.source}rules: {', '.join(self.rules)}"


def fuzz(
    seed: int, accuracy: str = "reassociates", rules: Sequence[Path] = (), several: bool = False
) -> Finding:
    """Tries the program of a seed, with the shipped rules and the given files.

    **Arguments:**

    - `several`: whether several devices share it out, with arguments and results anywhere on them.
    """
    with jax.enable_x64(is_double(seed)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message="eqsat left")
        text = program(seed)
        again = f"python -m tests.fuzzing{' --mesh' * several} --accuracy {accuracy} --only {seed}"
        finding = Finding(accuracy, text.source, again)
        rng = np.random.default_rng([seed, 1])
        args = arguments(text.inputs, rng)
        parts = (PARTS[int(rng.integers(len(PARTS)))], AMPLE)
        meshes = np.random.default_rng([seed, 2]) if several else None
        try:
            attempt(finding, text.function(), args, parts, rules, meshes)
        except Exception as error:
            finding.wrong = f"{type(error).__name__}: {error}"
        return finding


def attempt(
    finding: Finding,
    fn: Callable[..., Any],
    args: Sequence[Any],
    parts: Sequence[float],
    rules: Sequence[Path] = (),
    meshes: np.random.Generator | None = None,
) -> None:
    """Optimises a function within the first of the budgets that suffices, and compares the results.

    `parts` are the budgets, as shares of the original temporaries. The outcome goes into `finding`. If there
    are `meshes`, one of them shares it out.
    """
    try:
        certified = certify(lambda *a: jax.tree.leaves(fn(*a)), args)
    except Exception:
        # JAX itself refuses the program.
        finding.outcome = "raises"
        return
    room = certified.peak - certified.fixed
    if room < ROOM:
        return
    plain = Plain(fn, args)
    options: dict[str, Any] = {}
    if meshes is not None:
        where = drawn(meshes, args, jax.tree.leaves(jax.eval_shape(fn, *args)))
        finding.devices, options, args = str(where), where.options, where.placed(args)
        parts = (parts[0] / where.mesh.size, *parts)
    for part in parts:
        optimized = eqsat.optimize(
            fn,
            budget=certified.fixed + int(part * room),
            accuracy="exact" if finding.accuracy == CHUNKS else finding.accuracy,
            max_slowdown=None,
            rules=rules,
            **options,
        )
        only = without_algebra() if finding.accuracy == CHUNKS else nullcontext()
        try:
            with only:
                plan = optimized.plan(*args)
        except eqsat.BudgetError as error:
            if error.__cause__ is not None and "defect" in str(error):
                raise
            finding.outcome = "refused"
            continue
        finding.outcome = "rewritten" if plan.changed else "unchanged"
        finding.rules, finding.options = dict(plan.rules_fired), plan.options
        finding.devices += f"; {plan.devices}" if plan.devices else ""
        got = jax.tree.leaves(optimized(*args))
        for number, result in enumerate(got):
            finding.wrong = finding.wrong or difference(finding, plain, number, result)
        return


class Plain:
    """The results of a function without eqsat, computed in several ways, each on first use."""

    def __init__(self, fn: Callable[..., Any], args: Sequence[Any]) -> None:
        self.fn, self.args = fn, args
        self.found: dict[Any, list[Any]] = {}

    def results(self, way: Any) -> list[Any]:
        """Returns the results by "jit", "honest" or "op by op", or by a freedom and a seed: with noise."""
        if way not in self.found:
            self.found[way] = self._results(way)
        return self.found[way]

    def _results(self, way: Any) -> list[Any]:
        if way == "jit":
            return jax.tree.leaves(jax.jit(self.fn)(*self.args))
        if way == "honest":
            return jax.tree.leaves(jax.jit(self.fn, compiler_options=compiler_options())(*self.args))
        freedom, seed = ("class", None) if way == "op by op" else way
        return OpByOp(freedom, seed).run(jax.make_jaxpr(self.fn)(*self.args), self.args)


WAYS = ("jit", "honest", "op by op")


def difference(finding: Finding, plain: Plain, number: int, result: Any) -> str:
    """Returns what is wrong with a result, or "" if nothing is."""
    wanted = plain.results("jit")[number]
    if (result.shape, result.dtype) != (wanted.shape, wanted.dtype):
        return f"{result.dtype}{list(result.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
    if jnp.issubdtype(result.dtype, jax.dtypes.prng_key):
        return (
            "" if np.array_equal(jax.random.key_data(result), jax.random.key_data(wanted)) else "other keys"
        )
    got = _parts(result)
    same = np.zeros(got.shape, bool)
    for way in WAYS:
        same |= same_bits(got, _parts(plain.results(way)[number]))
        if same.all():
            return ""
    freedom = "class"
    if finding.accuracy in (CHUNKS, "exact"):
        freedom = "own" if finding.options == OWN else "xla"
    noisy = np.stack([_parts(plain.results((freedom, seed))[number]) for seed in range(SAMPLES)])
    plains = np.stack([_parts(plain.results(way)[number]) for way in WAYS])
    settled, close = promised(got, plains, noisy, finding.accuracy in (CHUNKS, "exact"))
    wrong = ~same & settled & ~close
    finding.judged += int((~same).sum())
    finding.open += int((~same & ~settled).sum())
    if not wrong.any():
        return ""
    place = tuple(int(n) for n in np.argwhere(wrong)[0])
    values = ", ".join(f"{way} {plains[n][place]!r}" for n, way in enumerate(WAYS))
    others = ", ".join(repr(other[place]) for other in noisy[:3])
    return (
        f"{int(wrong.sum())} of {wrong.size} wrong in result {number}, first {place}:"
        f" {got[place]!r}; {values}; with noise {others}"
    )


def _parts(value: Any) -> Any:
    array = np.asarray(value)
    return np.stack([array.real, array.imag]) if array.dtype.kind == "c" else array


def _is_float(array: Any) -> bool:
    return bool(jnp.issubdtype(array.dtype, jnp.floating))


def same_bits(got: Any, wanted: Any) -> Any:
    """Returns for each entry whether two arrays have the same bits; all NaNs count as the same."""
    if not _is_float(got):
        return np.asarray(got == wanted)
    bits = f"u{got.dtype.itemsize}"
    return (got.view(bits) == wanted.view(bits)) | (np.isnan(got) & np.isnan(wanted))


def promised(got: Any, plains: Any, noisy: Any, exact: bool) -> tuple[Any, Any]:
    """Returns for each entry whether the program determines it, and whether the result is close enough."""
    everything = np.concatenate([plains, noisy])
    if not _is_float(got):
        return np.all(everything == plains[-1], axis=0), np.zeros(got.shape, bool)
    limits = jnp.finfo(got.dtype)
    kinds = _kinds(everything)
    settled = np.all(kinds == kinds[0], axis=0)
    finite = np.all(kinds == 0, axis=0)
    with np.errstate(all="ignore"):
        values, found = everything.astype(np.float64), got.astype(np.float64)
        spread = np.max(values, axis=0) - np.min(values, axis=0)
        spread = np.where(finite, spread, 0.0)
        size = np.max(np.abs(values), axis=0)
        error = np.min(np.abs(found - values), axis=0)
        slack = 0.0 if exact else MOST * (float(limits.eps) * size + float(limits.tiny))
        close = finite & np.isfinite(found) & (error <= MOST * spread + slack)
    zeros = finite & np.all(everything == 0, axis=0)
    signs = np.signbit(everything)
    settled &= ~zeros | np.all(signs == signs[0], axis=0) | (found != 0)
    close &= ~(zeros & (found == 0)) | (np.signbit(got) == signs[0])
    close = np.where(zeros & (found != 0), close & (not exact), close)
    if exact:  # where no rounding is open, only the same bits will do
        close &= spread > 0
    return settled, close


def _kinds(value: Any) -> Any:
    """Returns for each entry: 3 for NaN, 1 for inf, 2 for -inf, 0 for a finite number."""
    return np.where(np.isnan(value), 3, np.where(np.isposinf(value), 1, np.where(np.isneginf(value), 2, 0)))
