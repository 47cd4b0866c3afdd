"""The `jax.jit` of a script under `eqsat run`, which optimises the outermost compiled functions.

A function that another compiled function calls becomes part of that function, and of its plan. Every other
function is planned as `eqsat.optimize` would plan it, unless its values all together are well within the
budget. Then it runs as JAX compiles it.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable
from types import MethodType
from typing import Any

import jax
from jax._src.core import trace_ctx
from jax._src.interpreters.partial_eval import DynamicJaxprTrace
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxprs_in_params
from jax.extend.core.primitives import jit_p

from eqsat.compiler.settings import setting
from eqsat.running.session import Session, Watch
from eqsat.support.units import format_bytes
from eqsat.targets.device_memory import free_budget

JIT = jax.jit

SHARED = frozenset({"static_argnums", "static_argnames", "donate_argnums", "donate_argnames"})
"""The options of `jax.jit` that `optimize` has as well."""

UNDERSTOOD = SHARED | {"keep_unused", "inline", "compiler_options"}
"""The options of `jax.jit` with which a function can be planned."""

UNSPECIFIED = inspect.signature(JIT).parameters["in_shardings"].default
"""The value of a sharding option that was not given."""

COPIES = 2
"""A program is small if this many times the bytes of all its values are within the budget.

The factor leaves room for XLA's copies and scratch memory.
"""

OWN = ("jax", "jaxlib", "eqsat")
"""The packages whose own calls of `jax.jit` are left alone."""


def replace_jit(session: Session) -> None:
    """Replaces `jax.jit` by one that plans functions for the budget of a session."""

    @functools.wraps(JIT)
    def jit(fun: Any = None, /, **options: Any) -> Any:
        if fun is None:
            return functools.partial(jit, **options)
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.split(".")[0] in OWN:
            return JIT(fun, **options)
        return Jitted(fun, options, session)

    jax.jit = jit


class Jitted:
    """A function that a script has given to `jax.jit`.

    Calls and `lower` are optimised. Every other attribute (`trace`, `eval_shape`...) is that of the plain
    compiled function.
    """

    def __init__(self, fun: Callable[..., Any], options: dict[str, Any], session: Session) -> None:
        self._plain = JIT(fun, **options)
        functools.update_wrapper(self, fun)
        self._fun = fun
        self._options = {name: value for name, value in options.items() if value is not None}
        self._session = session
        self._entry = session.entry(fun)
        # By program: whether it is so small that it runs as it is.
        self._small: dict[Any, bool] = {}
        # The programs that can't be planned, and may run as they are.
        self._fits: set[ClosedJaxpr] = set()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _staged() or setting("jax_disable_jit"):
            return self._plain(*args, **kwargs)
        self._entry.calls += 1
        return self._chosen(args, kwargs)(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Lowers what a call with these arguments would run, so that it can be compiled ahead of time."""
        chosen = self._chosen(args, kwargs)
        if chosen is self._optimized:
            options = {name: value for name, value in self._options.items() if name in SHARED}
            return JIT(chosen, **options, compiler_options=self._compiler_options).lower(*args, **kwargs)
        return chosen.lower(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Binds the function to an instance if it decorates a method."""
        return self if instance is None else MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name == "_plain":  # a copy has no attributes yet
            raise AttributeError(name)
        return getattr(self._plain, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Jitted:
        """Returns the function itself, as copying any function does."""
        return self

    def __repr__(self) -> str:
        return f"<{self._fun!r}, compiled within {self._session.budget} bytes>"

    def _chosen(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the compiled function to call with these arguments: the plain, honest or optimised one."""
        foreign = sorted(name for name in self._options.keys() - UNDERSTOOD if self._is_given(name))
        if foreign:
            reason = f"jax.jit was given {', '.join(foreign)}"
            self._entry.left.append(reason)
            self._check_as_it_is(reason, args, kwargs)
            return self._honest
        call = self._optimized.program(*args, **kwargs)
        if call is None:
            self._entry.left.append("its arguments have lengths that are not known yet")
            return self._honest
        if call not in self._small:
            self._small[call] = COPIES * footprint(call.closed) <= _bytes_allowed(call.settings.budget)
            self._entry.small += self._small[call]
        return self._plain if self._small[call] else self._optimized

    def _check_as_it_is(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Checks that a function that can't be planned is within the budget as it is.

        **Raises:** `BudgetError` if it is over the budget and the session is strict.
        """
        budget = _bytes_allowed(self._session.budget)
        traced = self._honest.trace(*args, **kwargs)
        if traced.jaxpr in self._fits or COPIES * footprint(traced.jaxpr) <= budget:
            return
        from eqsat.backend.certificate import peak_of
        from eqsat.reports.refusal import Refusal

        peak = peak_of(traced.lower().compile())
        if peak is not None and peak > budget:
            error = Refusal(
                [
                    f"{self._entry.name}: the function can't be planned, since {reason}, and as it is it"
                    f" needs {format_bytes(peak)}, more than the budget of {format_bytes(budget)}."
                ],
                peak,
            ).error(peak)
            if not Watch(self._session, self._entry).refused(self._entry.name, error):
                raise error
        self._fits.add(traced.jaxpr)

    def _is_given(self, name: str) -> bool:
        """Returns whether an option has a value, since shardings may be trees of unspecified ones."""
        return any(leaf is not UNSPECIFIED for leaf in jax.tree.leaves(self._options[name]))

    @functools.cached_property
    def _optimized(self) -> Any:
        # The import is late so that a script that optimises nothing need not wait for the engine.
        from eqsat.api import optimize

        shared = {name: value for name, value in self._options.items() if name in SHARED}
        static = {name: value for name, value in shared.items() if name.startswith("static")}
        # JAX caches the traces of a jit, so planning does not run the script's lines a second time.
        traced = JIT(self._fun, **static)
        found = optimize(traced, budget=self._session.budget, **shared, **self._session.options)
        return found.watched(Watch(self._session, self._entry))

    @functools.cached_property
    def _honest(self) -> Any:
        """The function as it is, compiled with the options under which XLA reports its true peak memory."""
        return JIT(self._fun, **{**self._options, "compiler_options": self._compiler_options})

    @functools.cached_property
    def _compiler_options(self) -> dict[str, Any]:
        from eqsat.backend.certificate import compiler_options

        return {**compiler_options(), **self._options.get("compiler_options", {})}


def _bytes_allowed(budget: int | None) -> int:
    """Returns the given budget in bytes, or if there is none, the default one of the first local device."""
    return free_budget(jax.local_devices()[:1]) if budget is None else budget


def _staged() -> bool:
    """Returns whether a call made now is traced into another program, rather than evaluated.

    A call under a transformation alone is evaluated: for example, `jax.grad` of a compiled function.
    """
    trace: Any = trace_ctx.trace
    while trace is not None:
        if isinstance(trace, DynamicJaxprTrace):
            return True
        trace = getattr(trace, "parent_trace", None)
    return False


def footprint(program: ClosedJaxpr) -> int:
    """Returns the total bytes of all values of a program, counting the body of a loop once."""
    known: dict[int, int] = {}

    def total(jaxpr: Jaxpr) -> int:
        if id(jaxpr) not in known:
            variables = [*jaxpr.constvars, *jaxpr.invars]
            variables += [variable for equation in jaxpr.eqns for variable in equation.outvars]
            known[id(jaxpr)] = sum(_bytes(variable.aval) for variable in variables) + sum(
                total(inner) for equation in jaxpr.eqns for inner in jaxprs_in_params(equation.params)
            )
        return known[id(jaxpr)]

    outer = program.jaxpr
    while len(outer.eqns) == 1 and outer.eqns[0].primitive is jit_p:
        outer = outer.eqns[0].params["jaxpr"].jaxpr
    return total(outer)


def _bytes(aval: Any) -> int:
    dtype = getattr(aval, "dtype", None)
    return 0 if dtype is None else math.prod(aval.shape) * dtype.itemsize
