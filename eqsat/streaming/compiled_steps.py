"""Steps of a function of arrays that are not in memory, as certified programs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from eqsat.compiler.compilation import Compilation
from eqsat.compiler.settings import Settings
from eqsat.errors import BudgetError, EqsatError
from eqsat.ir.dtypes import is_extended
from eqsat.reports.plan import Plan
from eqsat.streaming.device_parts import ONE_DEVICE, DeviceParts
from eqsat.streaming.keys import Key
from eqsat.streaming.step_uses import Use
from eqsat.streaming.traced_pieces import array_name, traced_piece
from eqsat.support.units import format_bytes
from eqsat.targets.target import Target


@dataclass(frozen=True)
class Compiled:
    """A piece of a program, planned for what memory is left when it runs.

    **Attributes:**

    - `reads`, `writes`: the names of its inputs and outputs.
    - `donated`: by input, whether an output takes its place.
    - `peak`: bytes of the device's memory while it runs, of everything.
    """

    compilation: Compilation
    reads: tuple[Key, ...]
    writes: tuple[Key, ...]
    donated: tuple[bool, ...]
    plan: Plan
    peak: int


def compiled_step(
    use: Use, budget: int, settings: Settings, target: Target, title: str, parts: DeviceParts = ONE_DEVICE
) -> Compiled:
    """A segment, planned for what is left of the budget of each device.

    **Arguments:**

    - `parts`: how devices share out chunks.
    - `title`: the name of the function.

    **Raises:** `BudgetError` if it does not fit.
    """
    if use.beside >= budget:
        raise BudgetError(
            f"{title}: what is held beside a step of it takes {format_bytes(use.beside)} of the budget of"
            f" {format_bytes(budget)}",
            use.beside,
        )
    piece, lengths = use.piece, dict(use.lengths)
    for leaf in piece.program.inputs:
        refuse_keys(leaf.dtype, title)
    with settings.alone():
        closed = traced_piece(piece, target, parts.outputs(use.segment, lengths, piece))
    within = replace(settings, budget=budget - use.beside, tune=False, observer=None)
    names = [array_name(key) for key in piece.reads]
    compilation = Compilation(closed, within, names, f"a step of {title}")
    placement = parts.inputs(use.segment, lengths, piece) if compilation.shared else ()
    plan = compilation.planned(placement, donated=use.donated).plan
    return Compiled(compilation, piece.reads, piece.writes, use.donated, plan, use.beside + plan.peak_bytes)


def refuse_keys(dtype: str, title: str) -> None:
    """Raise `EqsatError` if arrays of the dtype have no counterpart in NumPy."""
    if is_extended(dtype):
        raise EqsatError(
            f"{title} reads an argument by chunks, and between its steps there are keys of jax.random, of"
            f" {dtype}, which NumPy has not: give it jax.random.key_data(key), and make the key inside, by"
            " jax.random.wrap_key_data"
        )
