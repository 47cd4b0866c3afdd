"""The public function: `optimize`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from os import PathLike
from types import EllipsisType
from typing import Any, ParamSpec, TypeVar, overload

from eqsat.compiler.settings import Settings
from eqsat.dispatch.arguments import (
    Donated,
    Statics,
    Streamed,
)
from eqsat.optimized import Optimized
from eqsat.rulesets.options import RulePath, check_accuracy
from eqsat.streaming.options import StreamOptions
from eqsat.support.units import parse_budget
from eqsat.targets.calibration import default_target
from eqsat.targets.catalogue import TargetName, find_target
from eqsat.targets.machine import Machine
from eqsat.targets.meshes import MeshLike, mesh_of, with_result_shardings

P = ParamSpec("P")
R = TypeVar("R")


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
    - `host_budget`: the bytes of the host's memory for what is read and written by chunks, and for results
      in arrays of NumPy. None: an eighth of what is free.
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
