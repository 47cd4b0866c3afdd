"""A call like the last one goes straight to the executable.

To ask JAX for the types of arguments and to evaluate a primitive takes 20 to 50 µs, and several times that
after other work has taken the cache meanwhile (docs/log/calls.md): too long for a program of a millisecond.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax._src.config import trace_context
from jax.extend import core
from jax.extend.core import ClosedJaxpr

from eqsat.compiler.compilation import Compilation
from eqsat.compiler.default_budget import home
from eqsat.compiler.nan_debugging import results_of
from eqsat.compiler.settings import setting
from eqsat.dispatch.budget_scope import override
from eqsat.transforms.selection import Mask


def circumstances() -> tuple[Hashable, ...]:
    """The settings that a call depends on, besides its arguments and active transformations.

    They are the ones for which `jax.jit` traces anew: those that a jaxpr or its lowering depends on.
    """
    return (trace_context(), override())


def static_key(static: dict[int | str, Any]) -> tuple[Hashable, ...]:
    """The key of static arguments: 1, 1.0 and True differ."""
    return tuple((where, type(value), value) for where, value in static.items())


@dataclass(frozen=True, slots=True)
class CachedCall:
    """A call of an optimised function with arrays on the default device, and what evaluates another like it.

    **Attributes:**

    - `tree`, `kinds`, `types`: of its arguments: how they are nested, their classes, what JAX knows of each.
    - `static`, `circumstances`: what else it depends on.
    - `place`, `places`: the sharding that all of them have, and the objects by which they had it.
    - `run`, `unflatten`: from flat arrays to flat results, and from these to those of the function.
    - `closed`: the program that `run` is of.
    """

    tree: Any
    kinds: tuple[Any, ...]
    types: tuple[Any, ...]
    static: tuple[Hashable, ...]
    circumstances: tuple[Hashable, ...]
    place: jax.sharding.Sharding
    places: tuple[jax.sharding.Sharding, ...]
    run: Callable[..., Sequence[Any]]
    unflatten: Callable[[Sequence[Any]], Any]
    closed: ClosedJaxpr

    @classmethod
    def of(
        cls,
        call: Compilation,
        donated: Mask,
        tree: Any,
        leaves: Sequence[Any],
        static: dict[int | str, Any],
        unflatten: Callable[[Sequence[Any]], Any],
    ) -> CachedCall | None:
        """A function that repeats an evaluated call; None if similar calls may be evaluated differently."""
        planned = call.settled(donated)
        place = home(setting("jax_default_device"))
        elsewhere = call.settings.target is not None and call.settings.target.sharding is not None
        elsewhere = elsewhere or call.settings.mesh is not None
        if planned is None or planned.placement or elsewhere or not _is_evaluated():
            return None
        if not all(_is_array(leaf) and leaf.sharding == place for leaf in leaves):
            return None
        return cls(
            tree,
            tuple(map(type, leaves)),
            tuple(leaf.aval for leaf in leaves),
            static_key(static),
            circumstances(),
            place,
            tuple(leaf.sharding for leaf in leaves),
            planned.run if planned.constants else planned.certified.executable,
            unflatten,
            call.closed,
        )

    def flat(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], static: dict[int | str, Any]
    ) -> Sequence[Any] | None:
        """The arguments' leaves, if this is the same call with other arrays.

        **Arguments:**

        - `args`, `kwargs`: the arguments without the static ones, which are `static`.
        """
        leaves, tree = jax.tree.flatten((args, kwargs))
        if tree != self.tree:
            return None
        for leaf, kind, known, place in zip(leaves, self.kinds, self.types, self.places, strict=True):
            if type(leaf) is not kind or leaf.aval != known:
                return None
            # To compare shardings takes as long as all else.
            if leaf.sharding is not place and leaf.sharding != self.place:
                return None
        if not _is_evaluated() or circumstances() != self.circumstances or static_key(static) != self.static:
            return None
        return leaves

    def results(self, leaves: Sequence[Any]) -> Any:
        """The function's result for these leaves."""
        return self.unflatten(results_of(self.run, self.closed, leaves))


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer) and hasattr(leaf, "aval")


def _is_evaluated() -> bool:
    """Whether a call is evaluated at once now, and on no mesh."""
    evaluates: bool = core.get_opaque_trace_state() == _evaluation()
    return evaluates and jax.sharding.get_abstract_mesh().empty


@functools.cache
def _evaluation() -> Any:
    """JAX's state where no transformation is under way."""
    with jax.core.eval_context():
        return core.get_opaque_trace_state()
