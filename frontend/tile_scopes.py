"""Names what is known by tiles, in a jaxpr and in the calls in it that are seen through."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from jax.extend.core import Jaxpr, Var

from eqsat.frontend.coalesce import boundaries
from eqsat.frontend.draft import View
from eqsat.frontend.flat import Path, Variable, seen_through
from eqsat.frontend.tiles import TiledResult, Tiling, tilings

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering


@dataclass
class TileScope:
    """A jaxpr that is being lowered, with its calls.

    **Attributes:**

    - `tiled`: the results of its tilings, by variable, each with its number.
    - `views`: by path of a call, the views of variables there.
    """

    lowering: Lowering
    tiled: dict[Variable, tuple[Tiling, int]]
    views: dict[Path, dict[Var, View]] = field(default_factory=dict)
    _made: dict[int, list[View] | None] = field(default_factory=dict)

    @staticmethod
    def of(lowering: Lowering, jaxpr: Jaxpr, naming: bool) -> TileScope:
        tiled = {
            result.variable: (tiling, number)
            for tiling in (tilings(jaxpr, lowering.streamed) if naming else ())
            for number, result in enumerate(tiling.results)
        }
        return TileScope(lowering, tiled)

    def name(self, path: Path, equation: Any, var: Var, view: View) -> None:
        """Note that a value is what tiles give, if it is, and make its rows the parts that tiles are."""
        if (found := self.tiled.get(Variable(path, var))) is None:
            return
        lowering = self.lowering
        tiling, number = found
        result: TiledResult = tiling.results[number]
        axis = None if result.dimension is None else view.layout[result.dimension]
        whole = lowering.reshapes and id(equation) not in lowering.calls
        if axis is not None and result.parts is not None and whole:
            lowering.draft.axes.split([axis], boundaries(result.parts), frozenset({id(equation)}))
        lowering.name(equation, view, partial(self._result, tiling, number))

    def _result(self, tiling: Tiling, number: int) -> View | None:
        """A result of a tiling; None if it is of values that were lowered otherwise."""
        if id(tiling) not in self._made:
            self._made[id(tiling)] = self._results(tiling)
        made = self._made[id(tiling)]
        return None if made is None else made[number]

    def _results(self, tiling: Tiling) -> list[View] | None:
        views = []
        for (path, var), row in zip(tiling.inputs, tiling.rows, strict=True):
            view = self.views.get(path, {}).get(var)
            if view is None:
                return None
            views.append(view if row is None else self._apart(view, row))
        return self.lowering.inline(tiling.program, views, named=False)

    def _apart(self, view: View, dimension: int) -> View:
        """The view with an axis of its own along a dimension.

        What rows are taken from has all of them beside the axis of tiles, which is to be a part of theirs.
        """
        axes, axis = self.lowering.draft.axes, view.layout[dimension]
        if axis is None:
            return view
        made = axes.merged([axes.fresh(size) for size in axes.sizes(axis)], frozenset())
        layout = (*view.layout[:dimension], made, *view.layout[dimension + 1 :])
        return self.lowering.view(self.lowering.draft.rename(view.node, {axis: made}), layout, view.dtype)


@dataclass
class TileScopes:
    """The scope of the equation that is being lowered, and where in it that is."""

    lowering: Lowering
    scope: TileScope | None = None
    path: Path = ()
    _next: tuple[Jaxpr, int] | None = None

    @contextlib.contextmanager
    def inside(self, jaxpr: Jaxpr, views: dict[Var, View], naming: bool) -> Iterator[None]:
        """In a jaxpr, whose variables have these views."""
        before = self.scope, self.path
        expected, number = self._next or (None, 0)
        if self.scope is not None and self.scope.tiled and expected is jaxpr:
            self.path = (*self.path, number)
        else:
            self.scope, self.path = TileScope.of(self.lowering, jaxpr, naming), ()
        self.scope.views[self.path] = views
        self._next = None
        try:
            yield
        finally:
            self.scope, self.path = before

    def at(self, equation: Any) -> None:
        """Note which equation comes next: what it calls may be entered."""
        inner = seen_through(equation)
        self._next = None if inner is None else (inner.jaxpr, id(equation))

    def name(self, equation: Any, var: Var, view: View) -> None:
        """Name a result of an equation, if it is known by tiles."""
        if self.scope is not None:
            self.scope.name(self.path, equation, var, view)
