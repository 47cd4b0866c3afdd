"""`budget`: another budget for the calls inside a `with` block."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from types import TracebackType

import jax

from eqsat.support.units import parse_budget


@dataclass(frozen=True, slots=True)
class Override:
    """A budget in bytes, or None for what the device has free."""

    amount: int | None


_override = jax.make_user_context(None)  # so that JAX's caches of traced functions know of it


class budget(contextlib.ContextDecorator):
    """The budget of all optimised functions that are called, planned or traced in a `with` block.

    It takes the place of the one that they were made with. Blocks may be nested, and each thread has its own.
    Plans are kept for every budget, so going back to one plans nothing.

    Programs that transformations make of a call, its gradient say, have the budget of that call. A function
    under `jax.jit` is traced once for every budget that it is called under.

    **Arguments:**

    - `amount`: as for `optimize`: an int of bytes, text such as "2GB", or None for what the device has free.

    >>> import eqsat, jax.numpy as jnp
    >>> f = eqsat.optimize(lambda x: jnp.sum(x[:, None] * x), budget="1GB")
    >>> x = jnp.ones(1000)
    >>> with eqsat.budget("100kB"):
    ...     plan = f.plan(x)
    >>> plan.budget_bytes, f.plan(x).budget_bytes
    (100000, 1000000000)

    It decorates functions, too: `@eqsat.budget("1GB")`.
    """

    def __init__(self, amount: int | str | None) -> None:
        self._override = Override(None if amount is None else parse_budget(amount))
        self._threads = threading.local()

    def __enter__(self) -> None:
        entered = _override(self._override)
        entered.__enter__()
        self._entered().append(entered)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered().pop().__exit__(kind, error, trace)

    def _entered(self) -> list[contextlib.AbstractContextManager[None]]:
        """The scopes that this thread is in."""
        if not hasattr(self._threads, "entered"):
            self._threads.entered = []
        entered: list[contextlib.AbstractContextManager[None]] = self._threads.entered
        return entered


def override() -> Override | None:
    """The budget of the innermost block that this is called in, if any."""
    found: Override | None = _override.value
    return found
