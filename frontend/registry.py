"""The registries: of handlers, for JAX primitives that the IR has an op for, and of namers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from eqsat.frontend.draft import View

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

Views = Sequence[View]

Handler = Callable[["Lowering", Any, Views], Views | None]
"""`handler(lowering, equation, operands)`: the views of the results, or None to treat it as opaque."""

HANDLERS: dict[str, Handler] = {}

Namer = Callable[["Lowering", Any, Views, Views], None]
"""`namer(lowering, equation, operands, results)`: notes which operations the results are."""

NAMERS: dict[str, list[Namer]] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler for the primitives of these names."""

    def register(handler: Handler) -> Handler:
        for name in names:
            assert name not in HANDLERS, f"two handlers for {name}"
            HANDLERS[name] = handler
        return handler

    return register


def names(*primitives: str) -> Callable[[Namer], Namer]:
    """Register a namer for the primitives of these names."""

    def register(namer: Namer) -> Namer:
        for primitive in primitives:
            NAMERS.setdefault(primitive, []).append(namer)
        return namer

    return register


def is_placed(sharding: Any) -> bool:
    """Whether a parameter says how an array is to lie on devices; one over no devices says nothing.

    Derivatives have the latter where the function itself has None.
    """
    return sharding is not None and not getattr(getattr(sharding, "mesh", None), "empty", False)
