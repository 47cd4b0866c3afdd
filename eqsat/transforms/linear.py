"""`LinearMap`: the derivative of a program at a point, and its transpose, traced when one is needed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr

from eqsat.compiler.settings import Settings
from eqsat.frontend.trace_context import NOWHERE, TraceContext
from eqsat.transforms.call import Call, Dims, batched_avals, traced_call
from eqsat.transforms.nesting import NestedProgram
from eqsat.transforms.selection import Mask, spread

Apply = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]
"""From residuals and vectors to vectors."""


class LinearMap(NestedProgram):
    """A function of residuals and of vectors that is linear in the vectors.

    Neither direction is traced before it is used: a function that has a rule for reverse mode alone, as by
    `jax.custom_vjp`, has no forward direction.

    **Attributes:**

    - `forward`: the map.
    - `backward`: its transpose, from cotangents, of which None is zero, to cotangents.
    - `residuals`, `inputs`, `outputs`: the types of residuals and vectors.
    - `names`: of residuals, then of inputs.
    - `title`: of the program whose derivative it is.
    - `around`: the mesh and the mapped axes that it depends on.
    """

    def __init__(
        self,
        forward: Apply,
        backward: Apply,
        residuals: Sequence[Any],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        settings: Settings,
        names: Sequence[str],
        title: str,
        around: TraceContext = NOWHERE,
    ) -> None:
        self.around = around
        self.forward = forward
        self.backward = backward
        self.residuals = tuple(residuals)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.settings = settings
        self.names = tuple(names)
        self.title = title
        self._forward: list[Call] = []
        self._backward: dict[Mask, Call] = {}
        self._batched: dict[Hashable, LinearMap] = {}

    def __repr__(self) -> str:
        return f"the tangent map of {self.title}"

    def as_jaxpr(self) -> ClosedJaxpr:
        return self.forward_call().closed

    def forward_call(self) -> Call:
        """The program from residuals and vectors to vectors."""
        if not self._forward:
            count = len(self.residuals)
            made = traced_call(
                lambda *args: self.forward(args[:count], args[count:]),
                [*self.residuals, *self.inputs],
                self.settings,
                self.names,
                f"the tangent map of {self.title}",
                self.around,
            )
            self._forward.append(made)
        return self._forward[0]  # the first one, if threads have made several

    def backward_call(self, which: Mask) -> Call:
        """The program from residuals and the marked cotangents, the others being zero, to cotangents."""
        if which not in self._backward:
            count = len(self.residuals)
            given = [aval for aval, mark in zip(self.outputs, which, strict=True) if mark]
            made = traced_call(
                lambda *args: self.backward(args[:count], spread(which, args[count:])),
                [*self.residuals, *given],
                self.settings,
                [*self.names[:count], *(f"cotangent_{number}" for number in range(len(given)))],
                f"the gradient of {self.title}",
                self.around,
            )
            self._backward.setdefault(which, made)
        return self._backward[which]

    def talks_over(self, name: Any) -> bool:
        """Whether it depends on a mapped axis of that name."""
        return any(axis == name for axis, _ in self.around.axes)

    def batched(self, dims: Dims, size: int, spmd_axis_name: Any = None, name: Any = None) -> LinearMap:
        """The map over a batch of residuals, of vectors, or of both. The batch is first in all results.

        **Arguments:**

        - `name`: of the batch's axis, over which it may talk.
        """
        key = (dims, size, spmd_axis_name, name if self.talks_over(name) else None)
        if key not in self._batched:
            self._batched.setdefault(key, self._over_batch(dims, size, spmd_axis_name, name))
        return self._batched[key]

    def _over_batch(self, dims: Dims, size: int, spmd_axis_name: Any, name: Any) -> LinearMap:
        count = len(self.residuals)
        of_residuals, of_inputs = dims[:count], dims[count:]
        over_batch: dict[str, Any] = {"axis_size": size, "spmd_axis_name": spmd_axis_name}
        if self.talks_over(name):
            over_batch["axis_name"] = name

        def forward(residuals: Sequence[Any], vectors: Sequence[Any]) -> Sequence[Any]:
            each = jax.vmap(self.forward, (of_residuals, of_inputs), **over_batch)
            results: Sequence[Any] = each(tuple(residuals), tuple(vectors))
            return results

        def backward(residuals: Sequence[Any], cotangents: Sequence[Any]) -> Sequence[Any]:
            out_axes = tuple(0 if dim is None else dim for dim in of_inputs)
            each: Callable[..., Any] = jax.vmap(
                lambda *both: tuple(self.backward(*both)), (of_residuals, 0), out_axes, **over_batch
            )
            results = each(tuple(residuals), tuple(cotangents))
            # A vector that all of the batch share gets what comes from all of it.
            return [
                part.sum(0) if dim is None else part for part, dim in zip(results, of_inputs, strict=True)
            ]

        return LinearMap(
            forward,
            backward,
            batched_avals(self.residuals, of_residuals, size),
            batched_avals(self.inputs, of_inputs, size),
            batched_avals(self.outputs, (0,) * len(self.outputs), size),
            self.settings,
            self.names,
            f"{self.title}, for a batch of {size}",
            self.around.without(name),
        )
