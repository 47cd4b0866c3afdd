"""`Compilation`: a traced program within a budget, planned on its first run."""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr

from eqsat.backend.donation import Donation, matched_donation
from eqsat.compiler.agreement import check_agreement
from eqsat.compiler.baseline import Obstacle
from eqsat.compiler.default_budget import budget_bytes, home, origin_of_budget
from eqsat.compiler.mapped_program import OBSTACLE, MappedProgram, is_mapped, mesh_in
from eqsat.compiler.nan_debugging import results_of
from eqsat.compiler.planned import Planned
from eqsat.compiler.settings import Settings, setting
from eqsat.compiler.sharing import Sharing, arguments_mesh, constraints_mesh, is_placed
from eqsat.compiler.stored_plans import StoredPlan
from eqsat.errors import BudgetError, EqsatError
from eqsat.frontend.per_device import per_device
from eqsat.frontend.trace import Traced
from eqsat.frontend.trace_context import (
    NOWHERE,
    TraceContext,
    reason_to_leave,
    side_effects,
    unchecked,
)
from eqsat.reports.plan import Plan
from eqsat.reports.records import Tuning
from eqsat.support.gc_pause import uncollected
from eqsat.support.progress import Progress
from eqsat.support.units import UNLIMITED, format_bytes
from eqsat.targets.calibration import default_target
from eqsat.targets.catalogue import smallest_with
from eqsat.targets.target import Target

if TYPE_CHECKING:
    from eqsat.compiler.planner import Planner
    from eqsat.reports.explanation import Explanation

WAITING = Tuning(note="there were no arrays at hand to time programs on", settled=False)
"""The record of a plan that was to be tuned but was made from the types of arguments alone."""


class Compilation:
    """A traced program with its plans and their executables.

    **Attributes:**

    - `closed`: the program. It calls no other optimised function.
    - `settings`: the caller's options.
    - `names`: of its arguments, for the text of plans.
    - `title`: its name in messages: "the gradient of kernel".
    - `around`: the mesh and the mapped axes that it depends on. If there are any, or if it has side effects,
      it is not planned but compiled as written.
    """

    def __init__(
        self,
        closed: ClosedJaxpr,
        settings: Settings,
        names: Sequence[str],
        title: str,
        around: TraceContext = NOWHERE,
    ) -> None:
        self.around = around
        self.closed = closed
        self.in_avals = closed.in_avals
        self.settings = settings
        self.names = tuple(names)
        self.title = title
        self._plans: dict[tuple[tuple[Any, ...], tuple[bool, ...]], Planned] = {}
        self._among: dict[jax.sharding.Mesh, Compilation] = {}
        self._planning = threading.RLock()

    @functools.cached_property
    def local(self) -> ClosedJaxpr | None:
        """The program of one device, if it is called inside a `shard_map`, and planned as that."""
        return per_device(self.closed, self.around)

    @functools.cached_property
    def mapped(self) -> bool:
        """Whether it runs bodies on several devices."""
        return self.around.empty and is_mapped(self.closed.jaxpr)

    @functools.cached_property
    def mesh(self) -> jax.sharding.Mesh | None:
        """The devices that run it, if they are several, and it is known which."""
        if self.around.manual or self.around.mapped:
            return None
        named = mesh_in(self.closed.jaxpr) if self.mapped else None
        mesh = named or self.settings.mesh or constraints_mesh(self.closed)
        return None if mesh is None or mesh.size == 1 else mesh

    @functools.cached_property
    def sharing(self) -> Sharing | None:
        """How devices share it out, if they are to, and it can be said without what it says of a mesh.

        **Raises:** `EqsatError` if it names another mesh.
        """
        mesh = self.mesh
        if mesh is None or self.mapped or side_effects(self.closed.effects):
            return None
        return Sharing.of(self.closed, mesh)

    @property
    def shared(self) -> bool:
        """Whether the devices of a mesh share it out."""
        return self.sharing is not None and self.obstacle is None

    def among(self, arguments: Sequence[Any]) -> Compilation:
        """The same program for the mesh that arguments are on, if it is for none itself."""
        elsewhere = self.settings.target is not None or self.mapped
        if self.mesh is not None or elsewhere or self.around.manual or self.around.mapped:
            return self
        mesh = arguments_mesh(arguments)
        if mesh is None:
            return self
        if mesh not in self._among:
            settings = replace(self.settings, mesh=mesh)
            other = Compilation(self.closed, settings, self.names, self.title, self.around)
            self._among.setdefault(mesh, other if other.shared else self)
        return self._among[mesh]

    def arrivals(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Where arguments are, if some are on the mesh that shares the program out; empty if not."""
        return self.sharing.arrivals(arguments) if self.shared and self.sharing else ()

    @functools.cached_property
    def obstacle(self) -> Obstacle | None:
        """Why it cannot be planned, or None."""
        planned_there = self.local is not None or self.sharing is not None
        reason = reason_to_leave(self.closed, NOWHERE if planned_there else self.around)
        if reason is None and self.sharing is None and not self.mapped and is_placed(self.closed):
            reason = "it says where values lie, on devices that are not known, or how it can't be planned"
        return None if reason is None else Obstacle(reason, self.around.compilable)

    @property
    def compiled_avals(self) -> Sequence[Any]:
        """The types of the arguments of its programs."""
        program = self.sharing.program if self.sharing and self.shared else self.local or self.closed
        avals: Sequence[Any] = program.in_avals
        return avals

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """A context in which it is traced and compiled by itself."""
        around = NOWHERE if self.shared else self.around
        with self.settings.alone(around), unchecked() if self.local else contextlib.nullcontext():
            yield

    def planned(
        self, placement: tuple[Any, ...] = (), present: Sequence[Any] = (), donated: tuple[bool, ...] = ()
    ) -> Planned:
        """The plan and its executable. The first thread that needs them makes them.

        **Arguments:**

        - `placement`: the shardings of the arguments, if they are not all on the default device.
        - `present`: arguments that are in memory already. The default budget is the free memory plus theirs,
          fixed when the plan is made.
        - `donated`: which arguments may be overwritten.

        **Raises:** `BudgetError` that says which program it is about.
        """
        with self._planning:
            return self._planned(placement, present, donated)

    def _planned(
        self, placement: tuple[Any, ...], present: Sequence[Any], donated: tuple[bool, ...]
    ) -> Planned:
        found = self._plans.get((placement, donated)) or self._suitable(placement, donated)
        values = self._values(placement, present) if self.settings.tune else None
        if found is None or (values is not None and not _is_tuned(found)):
            donation = matched_donation(self.in_avals, self.closed.out_avals, donated)
            if donation.unusable and found is None:
                warnings.warn(
                    f"Some donated buffers were not usable: {', '.join(donation.unusable)}. No result has"
                    " their shape and dtype, so none can take their place.",
                    stacklevel=2,
                )
            # What is called inside a `shard_map` is compiled as one by itself.
            with self.settings.alone(NOWHERE if self.around.manual or self.shared else self.around):
                budget = found.plan.budget_bytes if found else self._budget(placement, present)
                found = self._stored_or_new(budget, placement, donation, values)
            found = replace(found, plan=replace(found.plan, title=self.title, budget_bytes=budget))
            found = replace(found, plan=_on_device(found.plan, self.target))
            if self.mesh is not None and not self.mapped and self.obstacle:
                here = "one device computes all of it" if self.around.empty else "it is left as it is"
                said = f"{here}, since {self.obstacle.reason}"
                found = replace(found, plan=replace(found.plan, devices=said))
            if self.settings.tune and found.plan.tuning is None:
                found = replace(found, plan=replace(found.plan, tuning=WAITING))
            self._plans[placement, donated] = found
            if self.settings.observer is not None:
                self.settings.observer.planned(self.title, found.plan)
        return found

    def _suitable(self, placement: tuple[Any, ...], donated: tuple[bool, ...]) -> Planned | None:
        """A plan of a program that is shared out, for arguments of which some are where it takes them."""
        for (_, given), planned in self._plans.items():
            if given == donated and planned.placement and not (self.settings.tune or self.obstacle):
                pairs = zip(placement, planned.placement, self.in_avals, strict=False)
                if all(here is None or here.is_equivalent_to(there, a.ndim) for here, there, a in pairs):
                    return planned
        return None

    def settled(self, donated: tuple[bool, ...] = ()) -> Planned | None:
        """The plan for arguments on the default device, if there is one and tuning will not change it."""
        found = self._plans.get(((), donated))
        return None if found is None or (self.settings.tune and not _is_tuned(found)) else found

    def minimum(self, donated: Sequence[bool] = ()) -> int:
        """The smallest budget in bytes that there is a plan for."""
        donation = matched_donation(self.in_avals, self.closed.out_avals, donated)
        title = f"the smallest budget of {self.title}"
        with self.alone(), Progress(title, self.settings.progress) as progress:
            return self._planner(0, (), donation, progress).minimum()

    def _values(self, placement: tuple[Any, ...], present: Sequence[Any]) -> Sequence[jax.Array] | None:
        """The arguments as arrays to time programs on, if all of them are in memory on the right devices."""
        if len(present) != len(self.in_avals) or any(map(_is_abstract, present)):
            return None
        arrays = [jnp.asarray(value, aval.dtype) for value, aval in zip(present, self.in_avals, strict=True)]
        place = home(setting("jax_default_device"))
        return arrays if placement or all(array.sharding == place for array in arrays) else None

    def _stored_or_new(
        self,
        budget: int,
        placement: tuple[Any, ...],
        donation: Donation,
        values: Sequence[jax.Array] | None,
    ) -> Planned:
        """The plan of an earlier process, or a new one that is stored for later processes.

        **Arguments:**

        - `values`: the arguments, if programs are to be timed on them.
        """
        place = None
        # What is for certain devices is not kept, as these need not be there next time.
        if self.obstacle is None and not (self.local or self.mapped or self.shared or any(placement)):
            bars = self.settings.progress is True  # the others' plans are the same
            target = self.target
            settings = replace(
                self.settings,
                budget=budget,
                rules=(),
                machine=None,
                target=target,
                progress=bars,
                observer=None,
            )
            asked = (settings, self.names)
            traced = Traced(self.closed)
            compiler = target.exact if self.settings.accuracy == "exact" else target
            place = StoredPlan.of(traced, self.names, asked, self.settings.rules, donation, compiler)
        found = place.read(budget) or self._leanest(place.leanest) if place else None
        if found is None or (values is not None and not _is_tuned(found)):
            with Progress(f"planning {self.title}", self.settings.progress) as progress:

                def planner(budget: int) -> Planner:
                    return self._planner(budget, placement, donation, progress, values)

                def body(closed: ClosedJaxpr, title: str, around: TraceContext, budget: int) -> Planned:
                    return self._of_body(closed, title, around, budget, donation)

                def mapped(closed: ClosedJaxpr, budget: int, placement: tuple[Any, ...]) -> Planned:
                    def as_it_is(traced: Traced, budget: int) -> Planned:
                        return self._planner(budget, placement, donation, progress, of=traced).planned()

                    return MappedProgram(closed, self.title, body, as_it_is).planned(budget)

                def plan(budget: int) -> Planned:
                    if self.shared:
                        return self._shared_out(budget, placement, mapped)
                    return (
                        mapped(self.closed, budget, placement) if self.mapped else planner(budget).planned()
                    )

                found = self._new(plan, budget)
                if self.mesh is not None and self.target.absent is None:
                    check_agreement(self.mesh, self.title, f"{found.plan.devices}\n{found.plan.source}")
            if place:
                (place if found.plan.peak_bytes <= budget else place.leanest).write(found)
        return replace(found, derivation=None)

    def _shared_out(
        self,
        budget: int,
        placement: tuple[Any, ...],
        mapped: Callable[[ClosedJaxpr, int, tuple[Any, ...]], Planned],
    ) -> Planned:
        """The plan for the devices of a mesh. Arguments are moved first only if the budget asks for it."""
        assert self.sharing is not None
        ways = self.sharing.ways(placement, self.names, self.target, self.settings)
        try:
            return ways.planned(budget, mapped)
        except BudgetError:
            if not any(ways.ends.inputs):
                raise
        anywhere = (None,) * len(self.in_avals)
        return self.sharing.ways(anywhere, self.names, self.target, self.settings).planned(budget, mapped)

    def explained(self, count: int, donated: tuple[bool, ...] = ()) -> Explanation:
        """Where its memory goes, and the cost of `count` budgets."""
        donation = matched_donation(self.in_avals, self.closed.out_avals, donated)
        title = f"explaining {self.title}"
        with self.alone(), Progress(title, self.settings.progress) as progress:
            from eqsat.compiler.budget_sweep import explanation  # imported late, as planners are

            return explanation(self._planner(0, (), donation, progress), self.title, count)

    def _leanest(self, place: StoredPlan) -> Planned | None:
        """The stored program that needs least memory, if an observer accepts it in place of one that fits."""
        found = place.read() if self.settings.observer is not None else None
        if found is None:
            return None
        peak, original = found.plan.peak_bytes, found.plan.original_peak_bytes
        error = BudgetError(
            f"{self.title}: no program within the budget was found by an earlier process. The smallest peak"
            f" reached is {format_bytes(peak)} (as written: {format_bytes(original)})",
            peak,
        )
        return found if self._goes_on(error) else None

    def _goes_on(self, error: EqsatError) -> bool:
        """Whether an observer accepts the program that needs least memory."""
        return self.settings.observer is not None and self.settings.observer.refused(self.title, error)

    def _planner(
        self,
        budget: int,
        placement: tuple[Any, ...],
        donation: Donation,
        progress: Progress,
        values: Sequence[jax.Array] | None = None,
        of: Traced | None = None,
    ) -> Planner:
        """Its planner, or one that leaves another function in its place as it is."""
        with uncollected():
            # Imported late: a second start needs no engine.
            from eqsat.compiler.planners import planner_for

            settings, target = self.settings, self.target
            return planner_for(
                of or Traced(self.local or self.closed),
                self.names,
                budget,
                settings,
                target,
                placement,
                donation,
                progress,
                values,
                OBSTACLE if of else self.obstacle,
                NOWHERE if self.local is None else self.around,
            )

    @property
    def target(self) -> Target:
        """What its programs are for, with the rates that the caller gives."""
        target = self.settings.target or default_target()
        return replace(target, machine=self.settings.machine or target.machine)

    def _of_body(
        self, closed: ClosedJaxpr, title: str, around: TraceContext, budget: int, donation: Donation
    ) -> Planned:
        """The plan of a body that devices run, for one of them."""
        count = len(closed.in_avals)
        names = [f"entry_{number}" for number in range(count)]
        donated: tuple[bool, ...] = ()
        if self.shared:
            names = [*self.names, *names][:count]
            given = [number in donation.arguments for number in range(count)]
            # Of what is whole on a device, a result that is split can't take the place.
            usable = matched_donation(closed.in_avals, closed.out_avals, given).arguments
            donated = tuple(number in usable for number in range(count)) if usable else ()
        settings = replace(self.settings, budget=budget)
        return Compilation(closed, settings, names, title, around).planned(donated=donated)

    def _new(self, plan: Callable[[int], Planned], budget: int) -> Planned:
        """A program within the budget, or, if an observer accepts it, the one that needs least memory.

        If that fails as well, it is the program as written.
        """
        try:
            return plan(budget)
        except BudgetError as error:
            message = (
                f"{self.title}: {error}{origin_of_budget(self.settings, self.target, error.smallest_peak)}"
            )
            refused: EqsatError = BudgetError(message, error.smallest_peak, error.tensors, error.search)
            refused.__cause__ = error.__cause__  # the defect, if planning has failed by one
        except EqsatError as error:
            refused = error
        if not self._goes_on(refused):
            raise refused
        while isinstance(refused, BudgetError) and budget < (refused.smallest_peak or 0):
            budget = refused.smallest_peak or 0
            try:
                return plan(budget)
            except EqsatError as another:
                refused = another
        return plan(UNLIMITED)

    def _budget(self, placement: tuple[Any, ...], present: Sequence[Any]) -> int:
        """The budget in bytes: the caller's, or the free memory of the devices."""
        default = self.target.sharding or home(setting("jax_default_device"))
        devices = {
            device for sharding in placement or [default] for device in (sharding or default).device_set
        }
        if self.shared and self.mesh is not None:
            devices = set(self.mesh.local_devices)
        return budget_bytes(self.settings, self.target, devices, [*present, *self.closed.consts])

    def run(self, *arguments: Any, donated: tuple[bool, ...] = ()) -> Sequence[Any]:
        """The results, by the certified executable.

        **Raises:** `EqsatError` if the plan is for a device that is not present.
        """
        self.check_present()
        if setting("jax_enable_x64") != self.settings.double or setting("jax_disable_jit"):
            with jax.enable_x64(self.settings.double), jax.disable_jit(False):
                return self.run(*arguments, donated=donated)
        target = self.settings.target
        if target is not None and target.sharding is not None:
            arguments = tuple(jax.device_put(argument, target.sharding) for argument in arguments)
            return self._results(self.planned((), arguments, donated), arguments)
        if self.shared:
            return self._results(self.planned(self.arrivals(arguments), arguments, donated), arguments)
        place = home(setting("jax_default_device"))
        if all(getattr(argument, "sharding", None) == place for argument in arguments):
            return self._results(self.planned((), arguments, donated), arguments)
        arrays = [
            argument if isinstance(argument, jax.Array) else jnp.asarray(argument, aval.dtype)
            for argument, aval in zip(arguments, self.in_avals, strict=True)
        ]
        if all(array.sharding == place for array in arrays):
            return self._results(self.planned((), arrays, donated), arrays)
        other = self.among(arrays)
        if other is not self:
            return other.run(*arrays, donated=donated)
        # An array that JAX has put where it is of its own accord may be moved.
        placement = tuple(array.sharding if array.committed else None for array in arrays)
        return self._results(self.planned(placement, arrays, donated), arrays)

    def check_present(self) -> None:
        """Refuse to run a program for a device that is not present."""
        target = self.settings.target
        if target is not None and target.absent is not None:
            raise EqsatError(
                f"{self.title} is planned for {target}, which is not a device of this machine, so it can't be"
                f' called here. What can be taken there: plan.save("{self.title}.plan") for eqsat.load,'
                " plan.export() for jax.export.deserialize, and plan.source, which needs JAX alone"
            )

    def _results(self, planned: Planned, arrays: Sequence[Any]) -> Sequence[Any]:
        run = self.sharing.typed(planned.run) if self.sharing and self.shared else planned.run
        return results_of(run, self.closed, arrays)


def _on_device(plan: Plan, target: Target) -> Plan:
    """The plan with what is known of the device that it is for."""
    usable, remedy = target.usable_memory, ""
    if usable is not None and plan.original_peak_bytes > usable:
        other = smallest_with(plan.original_peak_bytes, target.platform)
        remedy = f"as written it fits {other}" if other else "as written it fits no device of the kind"
    return replace(plan, target=target.name, device_bytes=usable or 0, remedy=remedy)


def _is_tuned(planned: Planned) -> bool:
    """Whether it was timed, or never will be."""
    return planned.plan.tuning is not None and planned.plan.tuning.settled


def _is_abstract(value: Any) -> bool:
    """Whether a value is a tracer or the type of an argument, rather than an array or a number."""
    return isinstance(value, (jax.core.Tracer, jax.ShapeDtypeStruct))
