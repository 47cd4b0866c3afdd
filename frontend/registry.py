"""The registry of handlers: one per JAX primitive (or family) that the IR has an op for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from eqsat.frontend.draft import View

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

Handler = Callable[["Lowering", Any, Sequence[View]], Sequence[View] | None]
"""`handler(lowering, equation, operands)`: the views of the results, or None to treat it as opaque."""

HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler for the primitives of these names."""

    def register(handler: Handler) -> Handler:
        for name in names:
            assert name not in HANDLERS, f"two handlers for {name}"
            HANDLERS[name] = handler
        return handler

    return register
