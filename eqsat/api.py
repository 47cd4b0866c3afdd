"""The public function: `optimize`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from os import PathLike
from types import EllipsisType, MethodType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

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
from eqsat.support.units import format_bytes, parse_budget
from eqsat.targets.calibration import default_target
from eqsat.targets.catalogue import TargetName, find_target
from eqsat.targets.machine import Machine
from eqsat.targets.meshes import MeshLike, context_mesh, mesh_of, on_devices, with_result_shardings
from eqsat.transforms.call import Call
from eqsat.transforms.nesting import without_programs
from eqsat.transforms.primitives import optimized_p
from eqsat.transforms.selection import Mask

if TYPE_CHECKING:
    from eqsat.reports.explanation import Explanation
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
        """The smallest budget for arguments of these shapes."""
        instance, _ = self._instance(args, kwargs, TraceContext.now())
        return self._checked(instance).compilation.minimum(instance.donated)

    def explained(self, count: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
        """Where the memory goes for arguments of these shapes, and what so many budgets would cost."""
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


@dataclass(frozen=True)
class Decorator:
    """`optimize`, still without a function."""

    settings: Settings
    static_argnums: int | Iterable[int] | None
    static_argnames: str | Iterable[str] | None
    donate_argnums: int | Iterable[int] | None
    donate_argnames: str | Iterable[str] | None
    stream_argnums: int | Iterable[int] | None
    stream_argnames: str | Iterable[str] | None
    streams: StreamOptions
    out_shardings: Any

    def __call__(self, fn: Callable[P, R]) -> Optimized[P, R]:
        if not callable(fn):
            raise TypeError(f"optimize takes a function, not {fn!r}")
        statics = Statics.of(fn, "static", self.static_argnums, self.static_argnames)
        donated = Donated.of(fn, "donate", self.donate_argnums, self.donate_argnames)
        marked = Streamed.of(fn, "stream", self.stream_argnums, self.stream_argnames)
        if self.out_shardings is not None:
            assert self.settings.mesh is not None
            fn = with_result_shardings(fn, self.out_shardings, self.settings.mesh)
        return Optimized(fn, self.settings, statics, donated, marked, self.streams)


@overload
def optimize(
    fn: Callable[P, R],
    *,
    budget: int | str | None = None,
    rules: RulePath | Sequence[RulePath] = (),
    accuracy: str = "reassociates",
    machine: Machine | None = None,
    target: TargetName | None = None,
    mesh: MeshLike | None = None,
    out_shardings: Any = None,
    planning_seconds: float | None = None,
    max_slowdown: float | None = 10.0,
    tune: bool = False,
    progress: bool | None = None,
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Iterable[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    stream_argnums: int | Iterable[int] | None = None,
    stream_argnames: str | Iterable[str] | None = None,
    host_budget: int | str | None = None,
    out: Any = None,
    checkpoint: str | PathLike[str] | None = None,
    scratch: str | PathLike[str] | None = None,
) -> Optimized[P, R]: ...


@overload
def optimize(
    *,
    budget: int | str | None = None,
    rules: RulePath | Sequence[RulePath] = (),
    accuracy: str = "reassociates",
    machine: Machine | None = None,
    target: TargetName | None = None,
    mesh: MeshLike | None = None,
    out_shardings: Any = None,
    planning_seconds: float | None = None,
    max_slowdown: float | None = 10.0,
    tune: bool = False,
    progress: bool | None = None,
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Iterable[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    stream_argnums: int | Iterable[int] | None = None,
    stream_argnames: str | Iterable[str] | None = None,
    host_budget: int | str | None = None,
    out: Any = None,
    checkpoint: str | PathLike[str] | None = None,
    scratch: str | PathLike[str] | None = None,
) -> Decorator: ...


def optimize(
    fn: Callable[P, R] | EllipsisType = ...,
    *,
    budget: int | str | None = None,
    rules: RulePath | Sequence[RulePath] = (),
    accuracy: str = "reassociates",
    machine: Machine | None = None,
    target: TargetName | None = None,
    mesh: MeshLike | None = None,
    out_shardings: Any = None,
    planning_seconds: float | None = None,
    max_slowdown: float | None = 10.0,
    tune: bool = False,
    progress: bool | None = None,
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Iterable[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    stream_argnums: int | Iterable[int] | None = None,
    stream_argnames: str | Iterable[str] | None = None,
    host_budget: int | str | None = None,
    out: Any = None,
    checkpoint: str | PathLike[str] | None = None,
    scratch: str | PathLike[str] | None = None,
) -> Optimized[P, R] | Decorator:
    """`fn`, with the same signature and the same results, within a memory budget.

    **Arguments:**

    - `fn`: any function that `jax.jit` takes. Left out, it is what `optimize(…)` decorates.
    - `budget`: the bytes that the compiled program may need at once (arguments + outputs +
      temporaries): an int, or text such as "2GB" or "512MiB". None: what the device has free when a program
      is planned, less a reserve of an eighth, and what its arguments have taken. That is settled once for
      each program, by the first call with these shapes; a new `optimize` looks again. `eqsat.budget` is for
      some calls only.
    - `rules`: the path, or the paths, of `.rules` files to use besides the shipped ones.
    - `accuracy`: what rewriting may do to floating-point results: "exact" (nothing beyond computing
      by pieces: the same bits), "reassociates" (sums in another order, for every input), "rescales" (also
      factors moved and products reordered, which may over- or underflow), "cancels" (also identities that
      subtract nearly equal numbers), "amplifies" (also such as multiply errors by a condition number).
    - `machine`: the rates by which time is predicted, and the sizes by which chunks are chosen. None: those
      that `eqsat.calibrate()` measured on this machine, if it has ever been called; or else what is known
      of machines of the kind.
    - `target`: the device that the function will run on: "h100", "a100", "tpu-v5e", "cpu"
      (`eqsat.target_names()` has all), or the path of a description. It need not be present: plans for it are
      certified by its own compiler, for which `pip install 'eqsat[gpu]'` or `'eqsat[tpu]'` is enough. The
      budget is then, if None, the device's memory without JAX's reserve. None: JAX's default device.
    - `mesh`: the devices that share the function out: a `jax.sharding.Mesh`, or the lengths of its axes by
      name, such as `{"data": 4, "model": 2}`, for the devices that there are or that the target names. The
      budget is then each device's. The plan says which axes are split over which axes of the mesh. Arguments
      that are on the mesh are taken as they are, all others moved to where the plan wants them, and results
      come as it has them. None: the mesh that `jax.set_mesh` has set, that arguments are sharded over, or
      that constraints in the function name; without any, one device computes it.
    - `out_shardings`: where on the mesh results have to be, as for `jax.jit`: a `jax.sharding.NamedSharding`
      or `PartitionSpec`, or a tree of them that is a prefix of the results. None, also in a tree: as the plan
      has them.
    - `planning_seconds`: how long to look for a plan, of the time on the clock; after that the best one so
      far is used, and if none fits, that is a `BudgetError`. Compiling counts, and one compilation is always
      finished: XLA can't be interrupted.
    - `max_slowdown`: a plan that is predicted to take more than so many times as long as the function as
      written is a `BudgetError`, which says how long it would take, and what budget would do. What takes
      less than a millisecond as written is taken to take one. None: any plan.
    - `tune`: whether the first call with arrays of these shapes, or `plan` of such arrays, times the best few
      programs that fit and takes the fastest. That is remembered on disk, for whoever plans the same.
    - `progress`: None: on a terminal, planning that takes longer than a second shows on stderr what it is at.
      True: planning always says so, and the loops of the running program show how far they have come, by
      callbacks, for which 2.6 % of the time was measured, with noise of that size. False: neither.
    - `static_argnums`, `static_argnames`: which arguments are no arrays, but part of the program, as for
      `jax.jit`. They must be hashable.
    - `donate_argnums`, `donate_argnames`: which arguments the caller donates, as for `jax.jit`: results of
      their shape and dtype take their place, which the budget gains, and a call deletes them. Inside another
      `jit`, and under `vmap` and `grad`, nothing is donated.
    - `stream_argnums`, `stream_argnames`: which arguments stay where they are, outside the device's memory,
      and are read by chunks. Arrays of `np.memmap`, h5py, zarr and others always do, and what `eqsat.on_host`
      marks.
    - `host_budget`: the bytes of the host's memory for what is read and written by chunks. None: an eighth of
      what is free.
    - `out`: where results go that have an axis that is read by chunks: the path of a `.npy` file, or an array
      to write to; for several results, a structure with one for each. None: arrays of NumPy.
    - `checkpoint`: a folder that keeps how far such a call has come, every minute and on Ctrl-C: the same
      call goes on from there.
    - `scratch`: a folder for files with values that several passes need, if to compute them again would take
      longer. They take half of what is free on its disk at most, and go when the call ends, however it ends.

    **Returns:** a callable; `.plan(*args)` says how it computes. JAX's transformations of it keep to the
    budget too: what they make of it is planned as a program of its own.

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
    check_accuracy(accuracy)
    _check_seconds(planning_seconds)
    _check_slowdown(max_slowdown)
    _check_machine(machine)
    if progress not in (None, True, False):
        raise ValueError(f"progress is None, True or False, not {progress!r}")
    if not isinstance(tune, bool):
        raise ValueError(f"tune is True or False, not {tune!r}")
    amount = None if budget is None else parse_budget(budget)
    slowdown = None if max_slowdown is None else float(max_slowdown)
    device = None if target is None else find_target(target)
    if tune and device is not None and device.absent is not None:
        raise ValueError(f"tune=True times programs on the device, and {device} is not one of this machine")
    settings = Settings(
        amount,
        _paths(rules),
        accuracy,
        machine,
        planning_seconds,
        progress,
        slowdown,
        target=device,
        mesh=None if mesh is None else mesh_of(mesh, device or default_target()),
        tune=tune,
    )
    if out_shardings is not None and mesh is None:
        raise ValueError("out_shardings are on a mesh: name it by mesh=")
    host = None if host_budget is None else parse_budget(host_budget)
    decorator = Decorator(
        settings,
        static_argnums,
        static_argnames,
        donate_argnums,
        donate_argnames,
        stream_argnums,
        stream_argnames,
        StreamOptions(host, checkpoint, out, scratch),
        out_shardings,
    )
    return decorator if fn is ... else decorator(fn)


def _check_seconds(planning_seconds: object) -> None:
    if planning_seconds is None or (isinstance(planning_seconds, Real) and float(planning_seconds) > 0):
        return
    raise ValueError(f"planning_seconds is a number of seconds above 0, or None; not {planning_seconds!r}")


def _check_slowdown(max_slowdown: object) -> None:
    number = isinstance(max_slowdown, Real) and not isinstance(max_slowdown, bool)
    if max_slowdown is None or (number and max_slowdown >= 1):  # type: ignore[operator]
        return
    raise ValueError(f"max_slowdown is a number from 1 on, or None; not {max_slowdown!r}")


def _check_machine(machine: object) -> None:
    if machine is not None and not isinstance(machine, Machine):
        raise TypeError(f"machine is what eqsat.calibrate() returns, or None, not {machine!r}")


def _paths(rules: object) -> tuple[RulePath, ...]:
    paths = (
        (rules,) if isinstance(rules, (str, PathLike)) or not isinstance(rules, Iterable) else tuple(rules)
    )
    if not all(isinstance(path, (str, PathLike)) for path in paths):
        raise TypeError(f"rules are the paths of .rules files, not {rules!r}")
    return paths


def _is_traced(value: object) -> bool:
    return isinstance(value, jax.core.Tracer)


def _name(fn: Callable[..., Any]) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__))
