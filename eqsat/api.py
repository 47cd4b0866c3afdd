"""The public function: `optimize`. The only module that knows frontend, engine and backend."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import jax.numpy as jnp

from eqsat.backend.certificate import Certified, certify
from eqsat.backend.emit import Module, emit
from eqsat.budget import format_bytes, parse_budget
from eqsat.engine.compile import CompiledRule
from eqsat.errors import BudgetError
from eqsat.frontend.lower import lower
from eqsat.frontend.trace import Traced, trace
from eqsat.ir.program import Program
from eqsat.machine import CPU, Machine
from eqsat.planning.liveness import simulate
from eqsat.planning.plan import Plan, loop_reports, rules_fired
from eqsat.planning.search import (
    SPLIT_AXES,
    Candidate,
    Search,
    as_written,
    attempts,
    cheapest,
    prepare,
    rechunk,
)
from eqsat.rulesets import RulePath, check_accuracy, rules_for

P = ParamSpec("P")
R = TypeVar("R")

CLEARLY_FASTER = 0.7
"""A program that fits is rewritten only if that is predicted to take less than this part of its time."""

RECHUNKS = 4
"""How often a program that compiles to more than predicted gets smaller chunks."""

HOPELESS = 1.5
"""A program predicted to need so many times the budget is not compiled while there are others."""

MOST_COMPILED = 3
"""How many programs of one cap are compiled before the cap is lowered."""


@dataclass(frozen=True)
class _Planned:
    """A plan and the callables that carry it out.

    **Attributes:**

    - `run`: on flat arrays: the certified executable.
    - `inline`: on flat tracers: the same program, to be staged into somebody else's.
    """

    plan: Plan
    run: Callable[..., Sequence[Any]]
    inline: Callable[..., Sequence[Any]]
    traced: Traced
    constants: tuple[Any, ...]


class Optimized(Generic[P, R]):
    """A function within a memory budget; see `optimize`."""

    def __init__(
        self, fn: Callable[P, R], budget: int, rules: Sequence[RulePath], accuracy: str, machine: Machine
    ) -> None:
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._budget = budget
        self._rule_paths = tuple(rules)
        self._accuracy = accuracy
        self._machine = machine
        self._plans: dict[Any, _Planned] = {}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        planned = self._planned(args, kwargs)
        leaves = jax.tree.leaves((args, kwargs))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            flat = planned.inline(*leaves)
        else:
            avals = planned.traced.closed.in_avals
            arrays = [
                leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf, aval.dtype)
                for leaf, aval in zip(leaves, avals, strict=True)
            ]
            flat = planned.run(*arrays)
        result: R = jax.tree.unflatten(planned.traced.out_tree, flat)
        return result

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """The plan for arguments of these shapes: arrays, or `jax.ShapeDtypeStruct`s."""
        return self._planned(args, kwargs).plan

    def _planned(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Planned:
        leaves, tree = jax.tree.flatten((args, kwargs))
        shapes = tuple(_signature(leaf) for leaf in leaves)
        key = (tree, shapes, jax.config.read("jax_enable_x64"), jax.default_backend())
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = self._make(args, kwargs)
        return found

    def _make(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Planned:
        rules = rules_for(self._rule_paths, self._accuracy)
        traced = trace(self._fn, args, kwargs)
        names = _argument_names(self._fn, args, kwargs)
        return Planner(traced, names, self._budget, rules, self._machine).planned()


class Planner:
    """Plans one traced function."""

    def __init__(
        self,
        traced: Traced,
        names: Sequence[str],
        budget: int,
        rules: Sequence[CompiledRule],
        machine: Machine,
    ) -> None:
        self.traced = traced
        self.names = names
        self.budget = budget
        self.rules = rules
        self.machine = machine
        self.seconds: dict[str, float] = {}
        self.smallest: tuple[int, Candidate] | None = None

    def timed(self, stage: str, action: Callable[[], R]) -> R:
        began = time.perf_counter()
        try:
            return action()
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began

    def planned(self) -> _Planned:
        """The first program found that is certified to fit.

        **Raises:** `BudgetError` if there is none.
        """
        closed = self.traced.closed
        avals = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in closed.in_avals]
        original = self.timed("compile", lambda: certify(self.traced.call_flat, avals))
        fixed = original.arguments + original.outputs - original.aliased
        if fixed > self.budget:
            raise BudgetError(
                f"the arguments ({format_bytes(original.arguments)}) and results"
                f" ({format_bytes(original.outputs)}) alone exceed the budget of"
                f" {format_bytes(self.budget)}: no rewriting can help; raise the budget above"
                f" {format_bytes(fixed)}",
                fixed,
            )
        fits = original.peak <= self.budget
        if closed.effects:
            if not fits:
                raise BudgetError(
                    f"the function has side effects ({', '.join(map(str, closed.effects))}), so it is left"
                    f" as it is, and needs {format_bytes(original.peak)}, more than the budget of"
                    f" {format_bytes(self.budget)}",
                    original.peak,
                )
            return self._unchanged(original, None, "left as it is: it has side effects")
        program, hoisted = self.timed("lower", lambda: lower(closed))
        constants = [jnp.asarray(constant) for constant in hoisted]
        written = self.timed("search", lambda: as_written(program, self.machine))
        for most_axes in SPLIT_AXES:
            search = self.timed("saturate", lambda most=most_axes: self._saturate(program, fits, most))
            for candidate in self._candidates(search, written, fits):
                module, certified = self._compile(candidate, [*avals, *constants])
                if self.smallest is None or certified.peak < self.smallest[0]:
                    self.smallest = (certified.peak, candidate)
                self.certified = certified
                if certified.peak <= self.budget:
                    return self._changed(candidate, module, certified, original, written, search, constants)
            if fits:
                return self._unchanged(original, written, search.saturation.stop_reason)
            if len(search.large) < most_axes:
                break
        raise self._too_big(original, written, search)

    def _saturate(self, program: Program, fits: bool, most_axes: int) -> Search:
        """The program's e-graph; a program that fits needs no loops."""
        return prepare(program, self.rules, None if fits else self.budget, self.machine, most_axes)

    def _compile(self, candidate: Candidate, inputs: Sequence[Any]) -> tuple[Module, Certified]:
        """Emit and compile a candidate. `inputs`: arrays, or their shapes and dtypes."""
        names = self._names(candidate.schedule.program)
        module = self.timed("emit", lambda: emit(candidate.schedule, names, candidate.makers))
        bound = candidate.predicted_peak if candidate.fused else 0
        avals = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in inputs]
        return module, self.timed("compile", lambda: certify(module.function(), avals, bound))

    def _names(self, program: Program) -> list[str]:
        extra = len(program.inputs) - len(self.names)
        return [*self.names, *(f"constant_{number}" for number in range(extra))]

    def _candidates(self, search: Search, written: Candidate, fits: bool) -> Iterator[Candidate]:
        """Programs worth compiling, best first; one that came out too big is tried with smaller chunks."""
        if fits:
            best = self.timed("search", lambda: cheapest(search, self.budget))
            if best and best.makers and best.predicted_seconds < CLEARLY_FASTER * written.predicted_seconds:
                yield best
            return
        groups = attempts(search, self.budget)
        leanest: Candidate | None = None
        while True:
            group = self.timed("search", lambda: next(groups, None))
            if group is None:
                break
            leanest = min([*group, *([leanest] if leanest else [])], key=lambda c: c.predicted_peak)
            for candidate in group[:MOST_COMPILED]:
                if candidate.predicted_peak > HOPELESS * self.budget:
                    break
                yield candidate
                target = float(self.budget)
                for _ in range(RECHUNKS):
                    target *= min(0.9, self.budget / self.certified.peak)
                    smaller = rechunk(candidate, target, self.machine)
                    if smaller.schedule.chunks == candidate.schedule.chunks:
                        break
                    candidate = smaller
                    yield candidate
        if leanest is not None and self.smallest is None:
            yield leanest

    def _unchanged(self, original: Certified, written: Candidate | None, reason: str) -> _Planned:
        """The function as it is. It runs under XLA's defaults where even storing everything would fit."""
        seconds = written.predicted_seconds if written else 0.0
        source = ""
        run: Callable[..., Sequence[Any]] = original
        if written is not None:
            program = written.schedule.program
            source = emit(written.schedule, self._names(program)).source
            everything = sum(term.bytes for term in program.reachable())
            if everything + original.arguments + original.outputs <= self.budget:
                run = jax.jit(self.traced.call_flat)
        plan = Plan(
            self.budget,
            original.peak,
            original.peak,
            False,
            source,
            {},
            (),
            reason,
            written.predicted_peak if written else original.peak,
            seconds,
            seconds,
            self.seconds,
        )
        return _Planned(plan, run, self.traced.call_flat, self.traced, ())

    def _changed(
        self,
        candidate: Candidate,
        module: Module,
        certified: Certified,
        original: Certified,
        written: Candidate,
        search: Search,
        constants: Sequence[jax.Array],
    ) -> _Planned:
        plan = Plan(
            self.budget,
            certified.peak,
            original.peak,
            True,
            module.source,
            rules_fired(candidate),
            loop_reports(candidate),
            search.saturation.stop_reason,
            candidate.predicted_peak,
            candidate.predicted_seconds,
            written.predicted_seconds,
            self.seconds,
        )
        arrays = tuple(constants)
        function = module.function()

        @jax.custom_jvp
        def inline(*leaves: Any) -> tuple[Any, ...]:
            return tuple(function(*leaves, *arrays))

        # Derivatives are the original's: its custom rules hold, whatever was rewritten.
        inline.defjvp(
            lambda primals, tangents: jax.jvp(lambda *x: tuple(self.traced.call_flat(*x)), primals, tangents)
        )
        return _Planned(plan, lambda *leaves: certified(*leaves, *arrays), inline, self.traced, arrays)

    def _too_big(self, original: Certified, written: Candidate, search: Search) -> BudgetError:
        """What to tell a user whose program can't be made to fit."""
        reached = min([original.peak] + ([self.smallest[0]] if self.smallest else []))
        candidate = self.smallest[1] if self.smallest and self.smallest[0] <= original.peak else written
        _, usage = simulate(candidate.schedule, self.machine)
        origins = search.program.origins
        lines = [
            f"no program within the budget of {format_bytes(self.budget)} was found;"
            f" the smallest peak reached is {format_bytes(reached)}"
            f" (as written: {format_bytes(original.peak)}). The largest values alive at that peak:"
        ]
        for term, size in usage.live[:3]:
            axes = ", ".join(map(repr, sorted(term.axes)))
            origin = origins.get(term.number, "")
            lines.append(
                f"  {format_bytes(size):>9}  {term.dtype}[{axes}] {type(term.op).__name__} {origin}".rstrip()
            )
        lines.append(f"Raise the budget to {format_bytes(reached)} or more, or allow more with accuracy=.")
        return BudgetError("\n".join(lines), reached)


def optimize(
    fn: Callable[P, R],
    *,
    budget: int | str,
    rules: Sequence[RulePath] = (),
    accuracy: str = "reassociates",
    machine: Machine = CPU,
) -> Optimized[P, R]:
    """`fn`, with the same signature and the same results, within a memory budget.

    **Arguments:**

    - `fn`: any function that `jax.jit` takes.
    - `budget`: the bytes that the compiled program may need at once (arguments + outputs +
      temporaries): an int, or text such as "2GB" or "512MiB".
    - `rules`: paths of `.rules` files to use besides the shipped ones.
    - `accuracy`: what rewriting may do to floating-point results: "exact" (nothing beyond computing
      by pieces), "reassociates" (sums in another order), "cancels" (also identities that subtract
      nearly equal numbers, guarded).

    **Returns:** a callable; `.plan(*args)` says how it computes.

    **Raises:** `BudgetError` when called (or planned) if no program within the budget is found.

    >>> import jax.numpy as jnp
    >>> def f(x, v):
    ...     return jnp.exp(-((x[:, None] - x[None]) ** 2)) @ v
    >>> x = jnp.linspace(0.0, 1.0, 2000)
    >>> small = optimize(f, budget="1MB")
    >>> small.plan(x, x).peak_bytes <= 1_000_000
    True
    >>> bool(jnp.allclose(small(x, x), f(x, x), rtol=1e-5))
    True
    """
    if not callable(fn):
        raise TypeError(f"optimize takes a function, not {fn!r}")
    check_accuracy(accuracy)
    return Optimized(fn, parse_budget(budget), rules, accuracy, machine)


def _signature(leaf: Any) -> tuple[Any, ...]:
    """What of an argument a plan depends on."""
    aval = jax.typeof(leaf) if not isinstance(leaf, jax.ShapeDtypeStruct) else leaf
    return (tuple(aval.shape), str(aval.dtype), bool(getattr(aval, "weak_type", False)))


def _argument_names(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """A name for every flat argument: its parameter's, with the path of a leaf inside it."""
    try:
        bound = inspect.signature(fn).bind(*args, **kwargs)
        parameters = list(bound.arguments)
    except (TypeError, ValueError):
        parameters = []
    leaves, _ = jax.tree_util.tree_flatten_with_path((args, kwargs))
    names = []
    for path, _ in leaves:
        first = path[1]
        if isinstance(first, jax.tree_util.SequenceKey):
            head = parameters[first.idx] if first.idx < len(parameters) else f"argument_{first.idx}"
        else:
            head = str(getattr(first, "key", first))
        tail = [str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in path[2:]]
        names.append("_".join([head, *tail]))
    return names
