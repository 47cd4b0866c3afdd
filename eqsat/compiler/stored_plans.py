"""Plans on disk: what one process has planned, the next one reads, emits and compiles.

An entry is data: the plan, and the schedule that its source is emitted from. So it takes the place of
everything between lowering and emitting; what is compiled goes through JAX's compilation cache, if there is
one. Arrays that the function closes over are not in it: they are taken from the traced function.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from eqsat.backend.certificate import certify
from eqsat.backend.donation import NOTHING, Donation
from eqsat.errors import EqsatError
from eqsat.frontend.trace import Traced
from eqsat.reports.plan import Plan
from eqsat.storage.files import KeptFiles
from eqsat.storage.fingerprints import Unidentified
from eqsat.storage.keys import plan_key
from eqsat.storage.places import moved, places_of
from eqsat.support.cache_folder import cache_folder
from eqsat.support.progress import SILENT
from eqsat.support.records import Place
from eqsat.support.serialisation import RECORDS
from eqsat.targets.machine import Machine

if TYPE_CHECKING:
    from eqsat.compiler.planned import Planned

# What reads and writes an entry is imported when there is one: whoever imports eqsat imports this module.

FILES = KeptFiles("plans")


@dataclass(frozen=True)
class Entry:
    """What is kept of a `Planned`, beside what its source is emitted from.

    **Attributes:**

    - `plan`: without its source and its constants.
    - `rewritten`: whether the plan's source is what runs.
    - `places`: where the program's equations were from.
    """

    plan: Plan
    rewritten: bool
    places: tuple[Place | None, ...]


@dataclass(frozen=True)
class StoredPlan:
    """The place on disk for the plan of one program under one set of settings.

    **Attributes:**

    - `key`: the name of the file.
    - `traced`: the program.
    - `names`: of its arguments.
    - `machine`: that plans are made for.
    - `donation`: the arguments whose place results may take.
    """

    key: str
    traced: Traced
    names: Sequence[str]
    machine: Machine
    donation: Donation = NOTHING

    @classmethod
    def of(
        cls,
        traced: Traced,
        names: Sequence[str],
        asked: object,
        rules: Sequence[str | PathLike[str]],
        donation: Donation,
        machine: Machine,
    ) -> StoredPlan | None:
        """Its place; None if nothing is kept, or the program can't be told from others in another process.

        `asked` and `rules` are what the caller asks for; see `plan_key`.
        """
        if traced.closed.effects or cache_folder() is None:
            return None
        try:
            key = plan_key(traced.closed, (asked, donation.arguments), rules)
        except Unidentified:
            return None
        return cls(key, traced, names, machine, donation)

    @property
    def leanest(self) -> StoredPlan:
        """The place for what needs least, where nothing is within the budget."""
        return replace(self, key=f"{self.key}-leanest")

    def read(self, budget: float = math.inf) -> Planned | None:
        """The plan, if it is there, and its program needs what was certified, within a budget in bytes."""
        content = FILES.read(self.key)
        if content is None:
            return None
        try:
            found = self._planned(content)
            return found if found.certified.peak <= budget else None
        except Exception:
            # Whatever is wrong with an entry, planning anew makes it right.
            FILES.remove(self.key)
            return None

    def _planned(self, content: bytes) -> Planned:
        from eqsat.compiler.baseline import Baseline
        from eqsat.compiler.candidate_compiler import Stopwatch, input_names
        from eqsat.compiler.planned import Planned
        from eqsat.storage import schedules

        began = time.perf_counter()
        plain = json.loads(content)
        entry: Entry = RECORDS.read(Entry, plain["entry"])
        stopwatch = Stopwatch(SILENT)
        original = Baseline(self.traced, self.machine, (), self.donation, stopwatch)
        program, hoisted, _ = original.lowered
        emission = schedules.read(plain["emission"], program)
        module = emission.module(input_names(program, self.names), self.donation.pairs)
        plan = moved(entry.plan, entry.places, places_of(self.traced.closed))
        plan = replace(plan, source=module.source, constants=tuple(map(jnp.asarray, hoisted)))
        read = time.perf_counter()
        if entry.rewritten:
            values = (*self.traced.closed.in_avals, *plan.constants)
            types = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values]
            function, donated = module.function(), self.donation.arguments
            certified = certify(
                lambda *values: self.traced.typed(function(*values)), types, plan.options, donated=donated
            )
        else:
            certified = original.certified(plan.options)
        if certified.peak != plan.peak_bytes:
            raise EqsatError("a program does not need what was certified")
        seconds = {"reading": read - began, "compile": time.perf_counter() - read}
        plan = replace(plan, planning_seconds=seconds)
        runs = module if entry.rewritten else None
        return Planned(plan, self.traced, runs, certified, hoisted, self.donation.arguments)

    def write(self, planned: Planned) -> None:
        """Keep a plan, if all that it needs is data."""
        from eqsat.storage import schedules

        derivation = planned.derivation
        if derivation is None or (planned.module is not None and planned.module.objects):
            return
        plan = replace(planned.plan, constants=(), source="")
        entry = Entry(plan, planned.module is not None, tuple(places_of(self.traced.closed)))
        try:
            emission = schedules.written(derivation.emission, derivation.program)
            plain = {"entry": RECORDS.write(Entry, entry), "emission": emission}
        except (schedules.Unstorable, TypeError):
            return
        FILES.write(self.key, json.dumps(plain).encode())
