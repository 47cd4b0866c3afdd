"""`load`: a plan that was made on another machine, for the device of this one."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding

from eqsat.api import optimize
from eqsat.backend.certificate import certify
from eqsat.compiler.deployment import PlanFile
from eqsat.errors import BudgetError, EqsatError
from eqsat.reports.plan import Plan
from eqsat.rulesets.options import RulePath
from eqsat.support.units import format_bytes
from eqsat.targets.calibration import default_target
from eqsat.targets.meshes import MeshLike, automatic, mesh_of


class Loaded:
    """A function by a plan from a file; see `load`.

    **Attributes:**

    - `peak_bytes`: the peak that this machine's compiler certifies.
    - `seconds`: the time of a call, estimated from the compiled program; None if its compiler says nothing.
    - `replanned`: whether that of the plan in the file exceeded the budget, so that it was planned again.
    """

    def __init__(
        self,
        file: PlanFile,
        source: str,
        fn: Callable[..., Any] | None,
        rules: RulePath | Sequence[RulePath],
        mesh: MeshLike | None,
    ) -> None:
        self.replanned = False
        self._file = file
        self._plan = file.plan
        self._call: Callable[..., Any] = self._run
        exported, target = file.exported, default_target()
        if file.accuracy == "exact":
            target = target.exact
        if not target.platforms.issuperset(exported.platforms):
            raise EqsatError(
                f"{source} is planned for {file.plan.target}, but JAX's default device here is"
                f" {target.description} ({target.platform})"
            )
        self._mesh = _mesh(file, source, mesh)
        self._placement = tuple(NamedSharding(self._mesh, spec) for spec in file.placement)
        places = self._placement or [None] * len(exported.in_avals)
        avals = [
            jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=there)
            for aval, there in zip(exported.in_avals, places, strict=True)
        ]
        with jax.enable_x64(file.double):
            self._certified = certify(self._flat, avals, donated=file.donated, target=target)
        self.peak_bytes, self.seconds = self._certified.peak, self._certified.seconds
        if self.peak_bytes > file.plan.budget_bytes:
            self._replan(fn, source, rules)

    @property
    def plan(self) -> Plan:
        """The plan by which it computes."""
        return self._plan

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self._plan.title} within {format_bytes(self._plan.budget_bytes)}, from a file>"

    def _flat(self, *leaves: Any) -> list[Any]:
        args, kwargs = jax.tree.unflatten(self._file.exported.in_tree, leaves)
        return list(jax.tree.leaves(self._file.exported.call(*args, **kwargs)))

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        exported: Any = self._file.exported
        leaves, tree = jax.tree.flatten((args, kwargs))
        if tree != exported.in_tree:
            raise TypeError(f"{self!r} takes arguments of the structure {exported.in_tree}, not {tree}")
        with jax.enable_x64(self._file.double):
            arrays = [jnp.asarray(leaf) for leaf in leaves]
            for number, (array, aval) in enumerate(zip(arrays, exported.in_avals, strict=True)):
                if array.shape != aval.shape or array.dtype != aval.dtype:
                    raise TypeError(
                        f"{self!r} is compiled for an argument {number} of {aval.str_short()}, not"
                        f" {jax.typeof(array).str_short()}"
                    )
            if self._placement:
                arrays = list(jax.device_put(arrays, list(self._placement)))
            return jax.tree.unflatten(exported.out_tree, self._certified(*arrays))

    def _replan(
        self, fn: Callable[..., Any] | None, source: str, rules: RulePath | Sequence[RulePath]
    ) -> None:
        """Plan again for this machine, whose compiler needs more than the budget for the plan in the file."""
        file, budget = self._file, self._file.plan.budget_bytes
        needs = (
            f"the plan in {source} needs {format_bytes(self.peak_bytes)} by this machine's compiler, more"
            f" than its budget of {format_bytes(budget)} ({format_bytes(file.plan.peak_bytes)} where it was"
            " planned)"
        )
        if fn is None:
            raise BudgetError(
                f"{needs}. To have it planned again here, pass the function, too: eqsat.load({source!r}, fn)",
                self.peak_bytes,
            )
        warnings.warn(f"{needs}: it is planned again", stacklevel=4)
        optimized = optimize(
            fn,
            budget=budget,
            rules=rules,
            accuracy=file.accuracy,
            max_slowdown=file.max_slowdown,
            mesh=self._mesh if self._placement else None,
        )
        avals = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in file.exported.in_avals]
        args, kwargs = jax.tree.unflatten(file.exported.in_tree, avals)
        with jax.enable_x64(file.double):
            self._plan = optimized.plan_in_memory(*args, **kwargs)
        self.replanned, self.peak_bytes = True, self._plan.peak_bytes
        self.seconds = self._plan.predicted_seconds if self._plan.estimated else None
        self._call = functools.wraps(fn)(optimized)


def load(
    path: str | PathLike[str],
    fn: Callable[..., Any] | None = None,
    *,
    rules: RulePath | Sequence[RulePath] = (),
    mesh: MeshLike | None = None,
) -> Loaded:
    """The function of a plan that `plan.save("f.plan")` wrote, for the device of this machine.

    The planned program is compiled here, and certified again before it runs: the compiler of a device that
    is present tries out kernels, and may choose others than where the plan was made.

    **Arguments:**

    - `path`: the file.
    - `fn`: the function that the plan is of. If what is compiled here exceeds the plan's budget, it is
      planned again, with a warning.
    - `rules`: the paths of `.rules` files to plan again with besides the shipped ones. The file of the plan
      names none, since rules may name Python functions, which are imported.
    - `mesh`: for a plan for several devices, those that run it here: a mesh with axes of the same names and
      lengths. None: the first devices that there are.

    **Returns:** a callable with the signature of the function, without its static arguments. Its `plan` is
    the plan.

    **Raises:** `EqsatError` if the file is none of a plan, or of one for another platform than that of JAX's
    default device; `BudgetError` if what is compiled here exceeds the plan's budget, and there is no `fn`.

    >>> import jax.numpy as jnp, tempfile
    >>> def f(x):
    ...     return jnp.exp(-((x[:, None] - x[None]) ** 2)).sum(1)
    >>> x = jnp.linspace(0.0, 1.0, 2000)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     optimize(f, budget="1MB").plan(x).save(f"{folder}/f.plan")
    ...     loaded = load(f"{folder}/f.plan")
    >>> bool(jnp.allclose(loaded(x), f(x), rtol=1e-5)), loaded.peak_bytes < 1_000_000
    (True, True)
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise EqsatError(f"{path} can't be read: {error}") from None
    return Loaded(PlanFile.read(text, str(path)), str(path), fn, rules, mesh)


def _mesh(file: PlanFile, source: str, given: MeshLike | None) -> Mesh:
    """The mesh that runs a plan here; of one device if it is for one.

    **Raises:** `EqsatError` if it is not the mesh of the plan, or if there are not so many devices.
    """
    mesh = automatic(mesh_of(given or file.mesh or {"device": 1}, default_target()))
    if (given or file.mesh) and dict(mesh.shape) != file.mesh:
        wanted = ", ".join(f"{name} = {size}" for name, size in file.mesh.items()) or "one device"
        raise EqsatError(f"{source} is planned for {wanted}, not for {dict(mesh.shape)}")
    return mesh
