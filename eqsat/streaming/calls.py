"""Calls of optimised functions with arguments that are not in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from eqsat.compiler.settings import Settings, setting
from eqsat.dispatch.budget_scope import override
from eqsat.errors import EqsatError
from eqsat.frontend.trace import trace
from eqsat.reports.stream_plan import StreamPlan
from eqsat.streaming.options import StreamOptions
from eqsat.streaming.sources import Source
from eqsat.streaming.streamed import StreamedFunction
from eqsat.transforms.nesting import without_programs

Flat = Callable[..., Any]


@dataclass
class StreamedCalls:
    """The calls of one function, with its programs by the types of arguments.

    **Attributes:**

    - `title`: the name of the function.
    """

    settings: Settings
    options: StreamOptions
    title: str
    _functions: dict[Any, StreamedFunction] = field(default_factory=dict)

    def call(
        self, flat: Flat, key: Any, leaves: Sequence[Any], streamed: Sequence[int], names: Sequence[str]
    ) -> Any:
        """The result of a call.

        **Arguments:**

        - `flat`: the function of the leaves of its arguments.
        - `key`: what it depends on besides the types of these.
        - `streamed`: the positions of those that are read by chunks.

        **Raises:** `EqsatError` inside of `jit`, `vmap` and others that have no values yet.
        """
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self._differentiated(flat, key, leaves, streamed, names)
        return self.function(flat, key, leaves, streamed, names).run(leaves)

    def plan(
        self, flat: Flat, key: Any, leaves: Sequence[Any], streamed: Sequence[int], names: Sequence[str]
    ) -> StreamPlan:
        """The plan of a call."""
        return self.function(flat, key, leaves, streamed, names).plan(leaves)

    def function(
        self,
        flat: Flat,
        key: Any,
        leaves: Sequence[Any],
        streamed: Sequence[int],
        names: Sequence[str],
        options: StreamOptions | None = None,
    ) -> StreamedFunction:
        """The function at the types of some arguments.

        **Arguments:**

        - `options`: its own, if it is not the caller's function.
        """
        types = self._types(leaves, streamed, names)
        blocks = {number: Source(leaves[number], names[number]).block for number in streamed}
        typed = tuple((one.shape, one.dtype, one.weak_type) for one in types)
        whole = (key, typed, tuple(blocks.items()))
        if whole not in self._functions:
            settings = replace(self.settings, double=setting("jax_enable_x64"))
            if (other := override()) is not None:
                settings = replace(settings, budget=other.amount)
            with settings.alone():
                traced = trace(flat, tuple(types), {})
            traced = replace(traced, closed=without_programs(traced.closed))
            self._functions[whole] = StreamedFunction(
                traced, blocks, names, settings, options or self.options, self.title
            )
        return self._functions[whole]

    def _types(
        self, leaves: Sequence[Any], streamed: Sequence[int], names: Sequence[str]
    ) -> list[jax.ShapeDtypeStruct]:
        found = []
        for number, leaf in enumerate(leaves):
            if number in streamed:
                source = Source(leaf, names[number])
                found.append(jax.ShapeDtypeStruct(source.shape, source.dtype))
            else:
                aval = leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.typeof(leaf)
                weak = bool(getattr(aval, "weak_type", False))
                found.append(jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=weak))
        return found

    @property
    def _beside(self) -> StreamOptions:
        """The options of a backward pass: places that the caller names are of the function's results."""
        folder = self.options.checkpoint
        own = None if folder is None else Path(folder) / "gradient"
        return replace(self.options, out=None, checkpoint=own)

    def _differentiated(
        self, flat: Flat, key: Any, leaves: Sequence[Any], streamed: Sequence[int], names: Sequence[str]
    ) -> Any:
        """The result of a call under `grad`, whose backward pass reads the arrays again."""
        others = [number for number in range(len(leaves)) if number not in streamed]
        function = self.function(flat, key, leaves, streamed, names)
        dtypes = [aval.dtype for aval in function.traced.closed.in_avals]
        inexact = [number for number in others if jnp.issubdtype(dtypes[number], jnp.inexact)]

        def known(values: Sequence[Any]) -> Sequence[Any]:
            if any(isinstance(value, jax.core.Tracer) for value in values):
                raise EqsatError(
                    f"{self.title} reads {names[streamed[0]]} by chunks, in loops that run in Python, so it"
                    " can't be called inside of jit, vmap or scan, nor differentiated twice: call it outside,"
                    " and optimize the whole function, as in eqsat.optimize(jax.value_and_grad(loss))"
                )
            return values

        def whole(values: Sequence[Any]) -> list[Any]:
            found = list(leaves)
            for number, value in zip(others, known(values), strict=True):
                found[number] = value
            return found

        @jax.custom_vjp
        def evaluated(*values: Any) -> Any:
            return function.run(whole(values))

        def forward(*values: Any) -> tuple[Any, tuple[Any, ...]]:
            return function.run(whole(values)), values

        def backward(values: tuple[Any, ...], cotangents: Any) -> tuple[Any, ...]:
            flat_cotangents = known(jax.tree.leaves(cotangents))
            count = len(leaves)

            def gradient(*everything: Any) -> Any:
                given, seeds = everything[:count], everything[count:]

                def of_inexact(*varied: Any) -> Any:
                    arguments = list(given)
                    for number, value in zip(inexact, varied, strict=True):
                        arguments[number] = value
                    return jax.tree.leaves(flat(*arguments))

                _, pull = jax.vjp(of_inexact, *(given[number] for number in inexact))
                return pull(list(seeds))

            more = [*names, *(f"cotangent_{number}" for number in range(len(flat_cotangents)))]
            everything = [*whole(values), *flat_cotangents]
            named = ("gradient", key)
            found = self.function(gradient, named, everything, streamed, more, self._beside).run(everything)
            by_number = dict(zip(inexact, found, strict=True))
            return tuple(by_number.get(number) for number in others)

        evaluated.defvjp(forward, backward)
        return evaluated(*(leaves[number] for number in others))
