"""Plans on disk: what one process has planned and compiled, the next one reads.

An entry has the plan, the source and the executable, and so takes the place of everything after tracing.
Arrays that the function closes over are not in it: they are taken from the traced function. Plans do not
depend on weak types. Executables do, as far as results have them: so there may be a plan whose source is yet
to be compiled.
"""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from eqsat.backend.certificate import Certified, certify
from eqsat.backend.executables import Packed, pack, unpack
from eqsat.backend.module import Module
from eqsat.frontend.trace import Traced
from eqsat.ir.dtypes import is_extended
from eqsat.planned import Planned
from eqsat.reports.plan import Plan
from eqsat.storage.files import KeptFiles
from eqsat.storage.fingerprints import Unidentified, is_code
from eqsat.storage.keys import plan_key
from eqsat.storage.places import Places, moved, places_of

IMPORTED = re.compile(r"^(?:from|import) +(\w+)", re.MULTILINE)
"""The package that an import line of a source is about."""

FILES = KeptFiles("plans")


@dataclass(frozen=True)
class Entry:
    """What is kept of a `Planned`.

    **Attributes:**

    - `plan`: without its constants.
    - `constants`: of each, its place among the arrays of the jaxpr, or the array if it is none of them.
    - `rewritten`: whether the plan's source is what runs.
    - `certified`: without its executable, which is in `packed`.
    - `places`: where the program's equations were from.
    """

    plan: Plan
    constants: tuple[int | np.ndarray[Any, Any], ...]
    rewritten: bool
    certified: Certified
    packed: Packed
    places: Places


@dataclass(frozen=True)
class StoredPlan:
    """The place on disk for the plan of one program under one set of settings.

    **Attributes:**

    - `plan_name`: of the plan, whatever the weak types of results.
    - `traced`: the program.
    - `arrays`: the constant arrays of the program, in an order that it fixes.
    - `donated`: the numbers of the arguments that a call deletes.
    """

    plan_name: str
    traced: Traced
    arrays: Sequence[Any]
    donated: Sequence[int] = ()

    @property
    def key(self) -> str:
        """The name of the file."""
        weak = "".join("01"[bool(aval.weak_type)] for aval in self.traced.closed.out_avals)
        return f"{self.plan_name}.{int(weak or '0', 2):x}"

    @classmethod
    def of(
        cls,
        traced: Traced,
        asked: object,
        rules: Sequence[str | PathLike[str]],
        donated: Sequence[int] = (),
    ) -> StoredPlan | None:
        """Its place; None if the program can't be told from others in another process.

        `asked` and `rules` are what the caller asks for; see `plan_key`.
        """
        if traced.closed.effects:
            return None
        try:
            key, arrays = plan_key(traced.closed, (asked, donated), rules)
        except Unidentified:
            return None
        return cls(key, traced, arrays, donated)

    @property
    def leanest(self) -> StoredPlan:
        """The place for what needs least, where nothing is within the budget."""
        return replace(self, plan_name=f"{self.plan_name}-leanest")

    # Reading.

    def read(self) -> Planned | None:
        """The plan, if it is there and its certificate still holds."""
        return self._read() or self._read_similar()

    def _read(self) -> Planned | None:
        began = time.perf_counter()
        content = FILES.read(self.key)
        if content is None:
            return None
        try:
            entry: Entry = pickle.loads(content)
            planned = self._planned(entry)
            executable = unpack(entry.packed, planned.inline, self.traced.closed.in_avals)
            seconds = {"reading": time.perf_counter() - began}
            return _with(planned, entry.certified.revived(executable), seconds)
        except Exception:
            # Whatever is wrong with an entry, planning anew makes it right.
            FILES.remove(self.key)
            return None

    def _read_similar(self) -> Planned | None:
        """The plan for the same program with other weak types, compiled for those of the results here."""
        for name in FILES.names(f"{self.plan_name}."):
            began = time.perf_counter()
            with suppress(Exception):  # as above; whoever asks for that entry removes it
                entry: Entry = pickle.loads(FILES.read(name) or b"")
                planned = self._planned(entry)
                values = (*self.traced.closed.in_avals, *planned.constants)
                types = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values]
                read = time.perf_counter()
                certified = certify(planned.program, types, entry.certified.options, donated=self.donated)
                seconds = {"reading": read - began, "compile": time.perf_counter() - read}
                # Arrays that are closed over may have been counted as arguments.
                certified = replace(certified, arguments=entry.certified.arguments)
                if certified.peak == entry.certified.peak:
                    found = _with(planned, certified, seconds)
                    self.write(found)
                    return found
        return None

    def _planned(self, entry: Entry) -> Planned:
        """All of it but for the executable."""
        hoisted = [self.arrays[place] if isinstance(place, int) else place for place in entry.constants]
        plan = moved(entry.plan, entry.places, places_of(self.traced.closed))
        plan = replace(plan, constants=tuple(map(jnp.asarray, hoisted)))
        module = Module(plan.source, {}) if entry.rewritten else None
        return Planned(plan, self.traced, module, entry.certified, hoisted, self.donated)

    # Writing.

    def write(self, planned: Planned) -> None:
        """Keep a plan, if all that it needs can be kept."""
        module, certified = planned.module, planned.certified
        constants = self._places(planned.hoisted)
        if constants is None or (module is not None and not _self_contained(module)):
            return
        if module is None and not all(map(is_code, self.arrays)):
            return  # its data is in the executable
        packed = pack(certified.executable)
        if packed is None:
            return
        certified = replace(certified, executable=None)
        plan = replace(planned.plan, constants=())
        places = places_of(self.traced.closed)
        entry = Entry(plan, constants, module is not None, certified, packed, places)
        FILES.write(self.key, pickle.dumps(entry))

    def _places(self, constants: Sequence[Any]) -> tuple[int | np.ndarray[Any, Any], ...] | None:
        """Where constants are among the program's arrays; None if one that is not can't be kept itself."""
        by_id = {id(array): place for place, array in enumerate(self.arrays)}
        places: list[int | np.ndarray[Any, Any]] = []
        for constant in constants:
            place = by_id.get(id(constant))
            if place is not None:
                places.append(place)
            elif is_code(constant) and not is_extended(str(constant.dtype)):
                places.append(np.asarray(constant))
            else:
                return None
        return tuple(places)


def _with(planned: Planned, certified: Certified, seconds: dict[str, float]) -> Planned:
    """What was read, with its executable, and how long it took to get, by stage."""
    return replace(planned, certified=certified, plan=replace(planned.plan, planning_seconds=seconds))


def _self_contained(module: Module) -> bool:
    """Whether the text of a module is all there is to it: others than JAX may have changed by next time."""
    return not module.objects and set(IMPORTED.findall(module.source)) <= {"jax", "numpy"}
