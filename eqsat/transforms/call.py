"""`Call`: an optimised program as JAX sees it: what a primitive calls, and what a batch of it is."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from eqsat.compiler.compilation import Compilation
from eqsat.compiler.settings import Settings
from eqsat.frontend.trace_context import NOWHERE, TraceContext, needs_trace_context
from eqsat.transforms.dependence import dependent
from eqsat.transforms.nesting import NestedProgram, without_programs

Dims = tuple[int | None, ...]
"""By argument or result: which dimension is the batch's, or None if it has none."""


class Call(NestedProgram):
    """A program as a parameter of a primitive of JAX; equal to itself only.

    **Attributes:**

    - `compilation`: the program as it is planned and run.
    - `derived`: what transformations have made of it, so that this is traced and planned once.
    - the others: as of the compilation.
    """

    def __init__(
        self,
        closed: ClosedJaxpr,
        settings: Settings,
        names: Sequence[str],
        title: str,
        around: TraceContext = NOWHERE,
    ) -> None:
        self.compilation = Compilation(closed, settings, names, title, around)
        self.closed = closed
        self.in_avals = closed.in_avals
        self.settings = settings
        self.names = tuple(names)
        self.title = title
        self.around = around
        self.derived: dict[Hashable, Any] = {}

    def __repr__(self) -> str:
        return self.title

    def as_jaxpr(self) -> ClosedJaxpr:
        return self.closed

    def talks_over(self, name: Any) -> bool:
        """Whether it depends on a mapped axis of that name."""
        return any(axis == name for axis, _ in self.around.axes)

    def batched(
        self, dims: Dims, size: int, spmd_axis_name: Any = None, name: Any = None
    ) -> tuple[Call, Dims]:
        """The program over a batch, and where its results have the batch's dimension.

        **Arguments:**

        - `name`: of the batch's axis. Collectives over it stay inside the program over the batch.
        """
        talks = self.talks_over(name)
        results = dependent(self.closed, [dim is not None for dim in dims])
        outs = tuple(0 if depends or talks else None for depends in results)
        key = ("batched", dims, size, spmd_axis_name, name if talks else None)
        if key not in self.derived:
            options: dict[str, Any] = {"axis_name": name} if talks else {}
            call: Callable[..., Any] = jaxpr_as_fun(self.closed)
            # Something has to have the batch's dimension, if only its index.
            each: Callable[..., Any] = jax.vmap(
                lambda _, *values: call(*values),
                in_axes=(0, *dims),
                out_axes=list(outs),
                axis_size=size,
                spmd_axis_name=spmd_axis_name,
                **options,
            )
            made = traced_call(
                lambda *values: each(np.arange(size), *values),
                batched_avals(self.in_avals, dims, size),
                self.settings,
                self.names,
                f"{self.title}, for a batch of {size}",
                self.around.without(name),
            )
            self.derived.setdefault(key, made)
        return self.derived[key], outs


def traced_call(
    function: Callable[..., Sequence[Any]],
    avals: Sequence[Any],
    settings: Settings,
    names: Sequence[str],
    title: str,
    around: TraceContext = NOWHERE,
) -> Call:
    """The `Call` of a function of flat arguments of these types, under what it may depend on."""
    with settings.alone(around):
        closed = without_programs(jax.make_jaxpr(function)(*map(around.type_of, avals)))
    if around.mesh.empty and not needs_trace_context(closed.jaxpr):
        around = NOWHERE
    return Call(closed, settings, names, title, around)


def batched_avals(avals: Sequence[Any], dims: Dims, size: int) -> list[Any]:
    """The types of arguments of which some have a batch dimension."""
    return [
        aval if dim is None else aval.update(shape=(*aval.shape[:dim], size, *aval.shape[dim:]))
        for aval, dim in zip(avals, dims, strict=True)
    ]
