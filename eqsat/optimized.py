"""`Optimized`: a function within a memory budget, as `optimize` returns it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from eqsat.compiler.deployment import Deployment
from eqsat.compiler.observer import Observer
from eqsat.compiler.settings import Settings, setting
from eqsat.dispatch.arguments import (
    NOT_STREAMED,
    Donated,
    Statics,
    Streamed,
    abstract,
    argument_names,
    is_plain,
    is_symbolic,
    joined,
    posing_as,
    signature,
)
from eqsat.dispatch.budget_scope import override
from eqsat.dispatch.executable_cache import CachedCall, circumstances, static_key
from eqsat.errors import EqsatError
from eqsat.frontend.one_device import on_one_device
from eqsat.frontend.trace import Traced, trace
from eqsat.frontend.trace_context import NO_MESH, NOWHERE, TraceContext, needs_trace_context
from eqsat.reports.plan import Plan
from eqsat.rulesets.options import RulePath, check_accuracy
from eqsat.streaming.options import IN_MEMORY, StreamedCall, StreamOptions
from eqsat.streaming.sources import streamed_positions
from eqsat.support.units import format_bytes
from eqsat.targets.meshes import context_mesh, on_devices
from eqsat.transforms.call import Call
from eqsat.transforms.nesting import without_programs
from eqsat.transforms.primitives import optimized_p
from eqsat.transforms.selection import Mask

if TYPE_CHECKING:
    from eqsat.reports.explanation import Explanation
    from eqsat.reports.stream_explanation import StreamExplanation
    from eqsat.reports.stream_plan import StreamPlan
    from eqsat.streaming.calls import StreamedCalls

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Specialisation:
    """A function traced at some types of arguments.

    **Attributes:**

    - `call`: the program, or None if lengths are symbols, of which nothing can be compiled.
    - `unflatten`: its result, given the program's.
    - `captured`: values of transformations under way that it closes over: the last of its arguments.
    - `donated`: which of its arguments are donated; empty if none is.
    - `plans`: the plans that were asked for, by the id of what carries each out.
    """

    call: Call | None
    unflatten: Callable[[Sequence[Any]], Any] = list
    captured: tuple[Any, ...] = ()
    donated: Mask = ()
    plans: dict[int, Plan] = field(default_factory=dict, compare=False)


class Optimized(Generic[P, R]):
    """A function within a memory budget; see `optimize`."""

    def __init__(
        self,
        fn: Callable[P, R],
        settings: Settings,
        statics: Statics,
        donated: Donated,
        marked: Streamed = NOT_STREAMED,
        streams: StreamOptions = IN_MEMORY,
    ) -> None:
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._settings = settings
        self._statics = statics
        self._donated = donated
        self._marked = marked
        self._stream_options = streams
        self._jitted: Callable[P, R] = jax.jit(
            fn,
            static_argnums=statics.positions or None,
            static_argnames=statics.names or None,
            donate_argnums=donated.positions or None,
            donate_argnames=donated.names or None,
        )
        self._instances: dict[Any, Specialisation] = {}
        self._last: CachedCall | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R
        dynamic, named, static = self._statics.split(args, kwargs)
        last = self._last
        if last is not None and (known := last.flat(dynamic, named, static)) is not None:
            result = last.results(known)
            return result
        if setting("jax_disable_jit"):
            return self._fn(*args, **kwargs)
        if (streamed := self._streamed(args, kwargs)) is not None:
            result = self._streams.call(*streamed)
            return result
        around = TraceContext.now()
        instance, leaves = self._instance(args, kwargs, around)
        call = instance.call
        if call is None:
            return self._jitted(*args, **kwargs)
        arrays = [
            leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf, aval.dtype)
            for leaf, aval in zip([*leaves, *instance.captured], call.in_avals, strict=True)
        ]
        mesh = call.compilation.mesh if around.empty else None  # JAX knows of the one around.
        if mesh is not None and all(map(is_plain, arrays)) and any(map(_is_traced, arrays)):
            arrays = [on_devices(array, mesh) for array in arrays]
        flat = optimized_p.bind(*around.made_to_vary(arrays), program=call, donated=instance.donated)
        if not instance.captured:
            tree = jax.tree.structure((dynamic, named))
            compilation, donated = call.compilation, instance.donated
            self._last = CachedCall.of(compilation, donated, tree, leaves, static, instance.unflatten)
        result = instance.unflatten(flat)
        return result

    def __repr__(self) -> str:
        budget = self._settings.budget
        within = "what the device has free" if budget is None else format_bytes(budget)
        return f"<{_name(self._fn)} within {within}>"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method, where it decorates one."""
        return self if instance is None else MethodType(self, instance)

    def plan(self, *args: Any, **kwargs: Any) -> Plan | StreamPlan:
        """The plan for arguments of these shapes: arrays, or `jax.ShapeDtypeStruct`s.

        For arguments that are not in memory, it is a `StreamPlan`. `eqsat.on_host` also marks types.
        """
        if (streamed := self._streamed(args, kwargs)) is not None:
            return self._streams.plan(*streamed)
        return self.plan_in_memory(*args, **kwargs)

    def plan_in_memory(self, *args: Any, **kwargs: Any) -> Plan:
        """The plan for arguments that are all in memory."""
        instance, leaves = self._instance(args, kwargs, TraceContext.now())
        compilation = self._checked(instance).compilation.among(leaves)
        planned = compilation.planned(compilation.arrivals(leaves), leaves, instance.donated)
        if id(planned) not in instance.plans:
            tree = jax.tree.structure(self._statics.left_out(args, kwargs))
            platform, settings = compilation.target.platform, compilation.settings
            deployment = Deployment(planned, tree, instance.unflatten, platform, settings)
            instance.plans[id(planned)] = replace(planned.plan, deployment=deployment)
        return instance.plans[id(planned)]

    @functools.cached_property
    def _streams(self) -> StreamedCalls:
        """Its calls with arguments that are not in memory."""
        from eqsat.streaming.calls import StreamedCalls  # imported late, as planners are

        return StreamedCalls(self._settings, self._stream_options, _name(self._fn))

    def _streamed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StreamedCall | None:
        """A call that reads arguments by chunks, as `StreamedCalls` takes it; None for other calls."""
        dynamic, named, static = self._statics.split(args, kwargs)
        leaves, tree = jax.tree.flatten((dynamic, named))
        streamed = streamed_positions(leaves, self._marked.leaves(dynamic, named))
        if not streamed:
            return None

        def flat(*values: Any) -> Any:
            args, kwargs = jax.tree.unflatten(tree, values)
            args, kwargs = joined(args, kwargs, static)
            return self._fn(*args, **kwargs)

        names = argument_names(self._fn, dynamic, named)
        key = (tree, static_key(static), circumstances())
        return posing_as(self._fn, flat, names), key, leaves, streamed, names

    def minimum_bytes(self, *args: Any, **kwargs: Any) -> int:
        """The smallest budget for arguments of these shapes; to a twentieth if some are not in memory."""
        if (streamed := self._streamed(args, kwargs)) is not None:
            return self._streams.function(*streamed).minimum_bytes()
        instance, _ = self._instance(args, kwargs, TraceContext.now())
        return self._checked(instance).compilation.minimum(instance.donated)

    def explained(
        self, count: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Explanation | StreamExplanation:
        """Where the memory goes for arguments of these shapes, and what so many budgets would cost."""
        if (streamed := self._streamed(args, kwargs)) is not None:
            return self._streams.function(*streamed).explained(count)
        instance, _ = self._instance(args, kwargs, TraceContext.now())
        return self._checked(instance).compilation.explained(count, instance.donated)

    def _checked(self, instance: Specialisation) -> Call:
        """The program of an instance.

        **Raises:** `EqsatError` if there is none.
        """
        if instance.call is None:
            raise EqsatError(
                f"{_name(self._fn)} is called with lengths that are symbols, so it is left to jax.jit, and"
                " has no plan"
            )
        if instance.call.around.mapped:
            raise EqsatError(
                f"{_name(self._fn)} depends on the mapped axis that it is called under: what is planned"
                " is the program over the batch, where that is evaluated"
            )
        return instance.call

    def program(self, *args: Any, **kwargs: Any) -> Call | None:
        """What a call with these arguments evaluates; None if it is left to `jax.jit`."""
        return self._instance(args, kwargs, TraceContext.now())[0].call

    @property
    def accuracy(self) -> str:
        """What rewriting may do to floating-point results."""
        return self._settings.accuracy

    @property
    def rules(self) -> tuple[RulePath, ...]:
        """The paths of `.rules` files that are used besides the shipped ones."""
        return self._settings.rules

    def with_accuracy(self, accuracy: str, budget: int | None) -> Optimized[P, R]:
        """The same with another accuracy class, within so many bytes."""
        settings = replace(self._settings, accuracy=check_accuracy(accuracy), budget=budget)
        return Optimized(self._fn, settings, self._statics, self._donated, self._marked, self._stream_options)

    def watched(self, observer: Observer) -> Optimized[P, R]:
        """The same with a observer of its plans."""
        settings = replace(self._settings, observer=observer)
        return Optimized(self._fn, settings, self._statics, self._donated, self._marked, self._stream_options)

    def _instance(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], around: TraceContext
    ) -> tuple[Specialisation, list[Any]]:
        """The function at these types of arguments, and the arguments' leaves."""
        args, kwargs, static = self._statics.split(args, kwargs)
        leaves, tree = jax.tree.flatten((args, kwargs))
        key = (
            tree,
            tuple(signature(leaf) for leaf in leaves),
            static_key(static),
            circumstances(),
            jax.default_backend(),
            around,
            context_mesh(),
        )
        found = self._instances.get(key)
        if found is None:

            def flat(*values: Any) -> Any:
                args, kwargs = jax.tree.unflatten(tree, values)
                args, kwargs = joined(args, kwargs, static)
                return self._fn(*args, **kwargs)

            names = argument_names(self._fn, args, kwargs)
            found = self._traced(posing_as(self._fn, flat, names), leaves, around, names)
            donated = self._donated.leaves(args, kwargs) + (False,) * len(found.captured)
            found = replace(found, donated=donated if any(donated) else ())
            if not found.captured:
                # What a function closes over inside a transformation is another value next time.
                # Of threads that come for it at once, all get one.
                found = self._instances.setdefault(key, found)
        return found, leaves

    def _traced(
        self, flat: Callable[..., Any], leaves: Sequence[Any], around: TraceContext, names: Sequence[str]
    ) -> Specialisation:
        """The function of flat arguments as a program, if it can be one of its own."""
        if any(map(is_symbolic, leaves)):
            return Specialisation(None)
        plain, mesh = all(map(is_plain, leaves)), context_mesh()
        if not around.empty or not plain:
            here = trace(flat, tuple(around.made_to_vary(leaves)), {})
            single = on_one_device(here.closed) if around.on_one_device and plain else None
            if single is not None and not here.captured and not needs_trace_context(single.jaxpr):
                return self._instance_of(replace(here, closed=single), names, mesh)
            captured = bool(here.captured) and not around.mesh.empty
            if captured or not plain or needs_trace_context(here.closed.jaxpr):
                return self._instance_of(here, names, mesh, around)
        # Without a mesh there is none to leave, and what a jit in here has traced JAX keeps for other calls.
        nowhere = contextlib.nullcontext() if around.mesh.empty else jax.sharding.use_abstract_mesh(NO_MESH)
        with nowhere:
            traced = trace(flat, tuple(map(abstract, leaves)), {})
            if not traced.captured and needs_trace_context(traced.closed.jaxpr):
                # It names a mesh itself.
                single = on_one_device(traced.closed)
                traced = traced if single is None else replace(traced, closed=single)
            return self._instance_of(traced, names, mesh)

    def _instance_of(
        self,
        traced: Traced,
        names: Sequence[str],
        mesh: Mesh | None,
        around: TraceContext = NOWHERE,
    ) -> Specialisation:
        """What was traced as a program, under what it depends on, for a mesh unless the caller names one."""
        settings = replace(self._settings, double=setting("jax_enable_x64"))
        if settings.mesh is None and settings.target is None:
            settings = replace(settings, mesh=mesh)
        if (other := override()) is not None:
            settings = replace(settings, budget=other.amount)
        extra = [f"captured_{number}" for number in range(len(traced.captured))]
        call = Call(without_programs(traced.closed), settings, [*names, *extra], _name(self._fn), around)
        return Specialisation(call, traced.unflatten, traced.captured)


def _is_traced(value: object) -> bool:
    return isinstance(value, jax.core.Tracer)


def _name(fn: Callable[..., Any]) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__))
