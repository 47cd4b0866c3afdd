"""The public function: `optimize`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from os import PathLike
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import jax.numpy as jnp

from eqsat.budget import parse_budget
from eqsat.deadline import Deadline
from eqsat.driver import Planned, Planner
from eqsat.frontend.trace import trace
from eqsat.machine import CPU, Machine
from eqsat.planning.plan import Plan
from eqsat.rulesets import RulePath, check_accuracy, rules_for

P = ParamSpec("P")
R = TypeVar("R")

TRACED_UNDER = ("enable_x64", "default_matmul_precision", "numpy_dtype_promotion")
"""The settings of JAX that a function's jaxpr depends on."""


class Optimized(Generic[P, R]):
    """A function within a memory budget; see `optimize`."""

    def __init__(
        self,
        fn: Callable[P, R],
        budget: int,
        rules: Sequence[RulePath],
        accuracy: str,
        machine: Machine,
        planning_seconds: float | None,
    ) -> None:
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._budget = budget
        self._rule_paths = tuple(rules)
        self._accuracy = accuracy
        self._machine = machine
        self._planning_seconds = planning_seconds
        self._plans: dict[Any, Planned] = {}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        planned = self._planned(args, kwargs)
        leaves = [*jax.tree.leaves((args, kwargs)), *planned.traced.captured]
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            flat = planned.inline(*leaves)
        elif planned.jitted:
            flat = planned.run(*leaves)
        else:
            avals = planned.traced.closed.in_avals
            arrays = [
                leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf, aval.dtype)
                for leaf, aval in zip(leaves, avals, strict=True)
            ]
            flat = planned.run(*arrays)
        result: R = jax.tree.unflatten(planned.traced.out_tree, flat)
        return result

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method, where it decorates one."""
        return self if instance is None else MethodType(self, instance)

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """The plan for arguments of these shapes: arrays, or `jax.ShapeDtypeStruct`s."""
        return self._planned(args, kwargs).plan

    def _planned(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Planned:
        leaves, tree = jax.tree.flatten((args, kwargs))
        shapes = tuple(_signature(leaf) for leaf in leaves)
        settings = [getattr(jax.config, f"jax_{name}") for name in TRACED_UNDER]
        key = (tree, shapes, *settings, jax.default_backend())
        found = self._plans.get(key)
        if found is None:
            found = self._make(args, kwargs)
            if not found.traced.captured:
                # What a function closes over inside a transformation is another value next time.
                self._plans[key] = found
        return found

    def _make(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Planned:
        deadline = Deadline.after(self._planning_seconds)
        rules = rules_for(self._rule_paths, self._accuracy)
        traced = trace(self._fn, args, kwargs)
        names = _argument_names(self._fn, args, kwargs)
        return Planner(traced, names, self._budget, rules, self._machine, deadline).planned()


def optimize(
    fn: Callable[P, R],
    *,
    budget: int | str,
    rules: RulePath | Sequence[RulePath] = (),
    accuracy: str = "reassociates",
    machine: Machine = CPU,
    planning_seconds: float | None = None,
) -> Optimized[P, R]:
    """`fn`, with the same signature and the same results, within a memory budget.

    **Arguments:**

    - `fn`: any function that `jax.jit` takes.
    - `budget`: the bytes that the compiled program may need at once (arguments + outputs +
      temporaries): an int, or text such as "2GB" or "512MiB".
    - `rules`: the path, or the paths, of `.rules` files to use besides the shipped ones.
    - `accuracy`: what rewriting may do to floating-point results: "exact" (nothing beyond computing
      by pieces), "reassociates" (sums in another order), "cancels" (also identities that subtract
      nearly equal numbers, guarded).
    - `planning_seconds`: how long to look for a plan, of the time on the clock; after that the best one so
      far is used, and if none fits, that is a `BudgetError`. Compiling counts, and one compilation is always
      finished: XLA can't be interrupted.

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
    if planning_seconds is not None and not planning_seconds > 0:
        raise ValueError(
            f"planning_seconds is a number of seconds above 0, or None; not {planning_seconds!r}"
        )
    paths = (rules,) if isinstance(rules, (str, PathLike)) else tuple(rules)
    return Optimized(fn, parse_budget(budget), paths, accuracy, machine, planning_seconds)


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
