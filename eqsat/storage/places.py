"""Updates the places in the user's source that a plan names, since lines may have moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from jax.extend.core import ClosedJaxpr, Jaxpr, jaxprs_in_params

from eqsat.frontend.source import place_of
from eqsat.storage.fingerprints import equations, is_weak_conversion
from eqsat.support.records import Place

R = TypeVar("R")

Places = Sequence[Place | None]


def places_of(program: ClosedJaxpr) -> Places:
    """The places that the equations of a program come from, in an order fixed by the program."""
    found: list[Place | None] = []
    seen: set[int] = set()

    def visit(jaxpr: Jaxpr) -> None:
        if id(jaxpr) not in seen:
            seen.add(id(jaxpr))
            for equation in equations(jaxpr):
                if is_weak_conversion(equation):
                    continue
                found.append(place_of(equation))
                for inner in jaxprs_in_params(equation.params):
                    visit(inner)

    visit(program.jaxpr)
    return tuple(found)


def moved(record: R, before: Places, after: Places) -> R:
    """A record with its places updated, given the places of the same program's equations before and after."""
    where = {old: new for old, new in zip(before, after, strict=False) if old and new and old != new}
    if not where or len(before) != len(after):
        return record
    result: R = _moved(record, where)
    return result


def _moved(value: Any, where: Mapping[Place, Place]) -> Any:
    if isinstance(value, Place):
        return where.get(value, value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{f.name: _moved(getattr(value, f.name), where) for f in fields(value) if f.init}
        )
    if isinstance(value, tuple):
        return tuple(_moved(part, where) for part in value)
    return value
