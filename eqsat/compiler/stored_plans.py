"""Plans on disk: one process plans, the next one reads the plan, emits it and compiles it.

An entry is data: the plan, and the schedule from which its source is emitted. It replaces everything between
lowering and emission. Executables go through JAX's compilation cache, if there is one. Captured arrays come
from the traced function and are not in the entry.
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
from eqsat.targets.target import Target

if TYPE_CHECKING:
    from eqsat.compiler.planned import Planned

# What reads and writes an entry is imported when there is one: whoever imports eqsat imports this module.

FILES = KeptFiles("plans")


@dataclass(frozen=True)
class StoredEntry:
    """The part of a `Planned` that is kept besides the input of the emitter.

    **Attributes:**

    - `plan`: without its source and its constants.
    - `rewritten`: whether the plan's source is what runs.
    - `places`: the source lines of the program's equations.
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
    - `target`: what plans are for.
    - `donation`: the arguments whose place results may take.
    """

    key: str
    traced: Traced
    names: Sequence[str]
    target: Target
    donation: Donation = NOTHING

    @classmethod
    def of(
        cls,
        traced: Traced,
        names: Sequence[str],
        asked: object,
        rules: Sequence[str | PathLike[str]],
        donation: Donation,
        target: Target,
    ) -> StoredPlan | None:
        """Its place; None if nothing is kept, or if the program has no key that holds in another process.

        `asked` and `rules` are the caller's options; see `plan_key`.
        """
        if traced.closed.effects or cache_folder() is None:
            return None
        try:
            key = plan_key(traced.closed, (asked, donation.arguments), rules, target.platform)
        except Unidentified:
            return None
        return cls(key, traced, names, target, donation)

    @property
    def leanest(self) -> StoredPlan:
        """The place for the program that needs least memory, used when none fits the budget."""
        return replace(self, key=f"{self.key}-leanest")

    def read(self, budget: float = math.inf) -> Planned | None:
        """The plan, if its program, compiled again, has the certified peak and fits a budget in bytes."""
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
        entry: StoredEntry = RECORDS.read(StoredEntry, plain["entry"])
        stopwatch = Stopwatch(SILENT)
        original = Baseline(self.traced, self.target, (), self.donation, stopwatch)
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
                lambda *values: self.traced.typed(function(*values)),
                types,
                plan.options,
                donated=donated,
                target=self.target,
            )
        else:
            certified = original.certified(plan.options)
        if certified.peak != plan.peak_bytes:
            if self.target.platform == "cpu":
                raise EqsatError("a program does not need what was certified")
            # It was planned where the device is absent. Where it is present, the compiler tries out kernels.
            plan = replace(plan, peak_bytes=certified.peak, scratch_bytes=certified.scratch)
        seconds = {"reading": read - began, "compile": time.perf_counter() - read}
        plan = replace(plan, planning_seconds=seconds)
        runs = module if entry.rewritten else None
        return Planned(plan, self.traced, runs, certified, hoisted, self.donation.arguments)

    def write(self, planned: Planned) -> None:
        """Write a plan, if everything that it needs is data."""
        from eqsat.storage import schedules

        derivation = planned.derivation
        if derivation is None or (planned.module is not None and planned.module.objects):
            return
        plan = replace(planned.plan, constants=(), source="")
        entry = StoredEntry(plan, planned.module is not None, tuple(places_of(self.traced.closed)))
        try:
            emission = schedules.written(derivation.emission, derivation.program)
            plain = {"entry": RECORDS.write(StoredEntry, entry), "emission": emission}
        except (schedules.Unstorable, TypeError):
            return
        FILES.write(self.key, json.dumps(plain).encode())
