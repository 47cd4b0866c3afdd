"""Functions that run a body on each device of a mesh (`jax.shard_map`): bodies are planned for one device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxprs_in_params

from eqsat.compiler.baseline import Obstacle
from eqsat.compiler.planned import Planned
from eqsat.errors import BudgetError
from eqsat.frontend.retracing import retraced
from eqsat.frontend.trace import Traced
from eqsat.frontend.trace_context import TraceContext
from eqsat.reports.plan import Plan

OBSTACLE = Obstacle("it runs on the devices of a mesh, and only what each device does is planned")

ROUNDS = 4
"""How often the bodies' budget is lowered by what the rest of the function needs beside them."""

BodyPlanner = Callable[[ClosedJaxpr, str, TraceContext, int], Planned]
"""From the body of a `shard_map`, what to call it, where it is called and a budget to its plan."""


def is_mapped(jaxpr: Jaxpr) -> bool:
    """Whether a program runs a body on several devices."""
    return any(True for _ in _mapped(jaxpr))


def mesh_in(jaxpr: Jaxpr) -> jax.sharding.Mesh | None:
    """The mesh of devices that a program runs a body on, if it names the devices."""
    meshes = (equation.params["mesh"] for equation in _mapped(jaxpr))
    return next((mesh for mesh in meshes if isinstance(mesh, jax.sharding.Mesh)), None)


def _mapped(jaxpr: Jaxpr) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        if equation.primitive.name == "shard_map":
            if equation.params["mesh"].size > 1:
                yield equation
            continue
        for inner in jaxprs_in_params(equation.params):
            yield from _mapped(inner)


class MappedProgram:
    """Plans the bodies of one function.

    **Attributes:**

    - `body`: plans one body.
    - `whole`: certifies a function, left as it is, within a budget.
    """

    def __init__(
        self,
        closed: ClosedJaxpr,
        title: str,
        body: BodyPlanner,
        whole: Callable[[Traced, int], Planned],
    ) -> None:
        self.closed = closed
        self.title = title
        self.body = body
        self.whole = whole

    def planned(self, budget: int) -> Planned:
        """The function within a budget of each device: as written if it fits, or else with planned bodies.

        **Raises:** `BudgetError` if a body can't be planned, or if the rest is too large beside the bodies.
        """
        try:
            return self.whole(Traced(self.closed), budget)
        except BudgetError as error:
            written = error
        left = budget
        for _ in range(ROUNDS):
            plans: list[Plan] = []
            closed = self._with_planned_bodies(left, plans)
            try:
                found = self.whole(Traced(closed), budget)
            except BudgetError as error:
                left -= (error.smallest_peak or budget) - budget
                refused = error
                if left <= 0 or not any(plan.changed for plan in plans):
                    break
                continue
            return replace(found, plan=_plan(found.plan, plans, written.smallest_peak or 0))
        raise refused

    def _with_planned_bodies(self, budget: int, plans: list[Plan]) -> ClosedJaxpr:
        """The function with bodies within a budget; their plans are added to `plans`."""

        def replaced(equation: Any, operands: list[Any]) -> Sequence[Any] | None:
            params = equation.params
            if equation.primitive.name != "shard_map" or params["mesh"].size == 1:
                return None
            closed = ClosedJaxpr(params["jaxpr"], ())
            title = f"what each device does in {self.title}"

            def local(*entries: Any) -> Sequence[Any]:
                found = self.body(closed, title, TraceContext.now(), budget)
                plans.append(found.plan)
                return tuple(found.inline(*entries))

            mapped = jax.shard_map(
                local,
                mesh=params["mesh"],
                in_specs=tuple(params["in_specs"]),
                out_specs=tuple(params["out_specs"]),
                axis_names=set(_names(params)),
                check_vma=False,
            )
            return list(mapped(*operands))

        return retraced(self.closed, replaced, placed=True)


def _names(params: dict[str, Any]) -> Sequence[Any]:
    """The axes of the mesh that a `shard_map` maps over."""
    for name in ("newly_manual_axes", "manual_axes"):
        if name in params:
            return tuple(params[name])
    return tuple(params["mesh"].axis_names)


def _plan(plan: Plan, bodies: Sequence[Plan], original: int) -> Plan:
    """The plan of the whole, which is described by those of its bodies."""
    sources = [
        f"# What each device does, {number} of {len(bodies)}:\n{body.source}"
        for number, body in enumerate(bodies, 1)
    ]
    largest = max(bodies, key=lambda body: body.peak_bytes)
    return replace(
        largest,
        budget_bytes=plan.budget_bytes,
        peak_bytes=plan.peak_bytes,
        original_peak_bytes=original,
        changed=True,
        source="\n\n".join(sources),
        argument_bytes=plan.argument_bytes,
        result_bytes=plan.result_bytes,
        scratch_bytes=plan.scratch_bytes,
        options=plan.options,
        search=tuple(step for body in bodies for step in body.search),
    )
