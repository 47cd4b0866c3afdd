"""The planner of a program: rules, engine and driver. Imported when something is really planned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax

from eqsat.backend.donation import Donation
from eqsat.deadline import Deadline
from eqsat.driver import Planner
from eqsat.frontend.trace import Traced
from eqsat.machine import Machine
from eqsat.original import Obstacle
from eqsat.progress import Progress
from eqsat.rulesets import rules_for
from eqsat.transforms.settings import Settings
from eqsat.tuning import Tuner


def planner_for(
    traced: Traced,
    names: Sequence[str],
    budget: int,
    settings: Settings,
    machine: Machine,
    placement: Sequence[Any],
    given_up: Donation,
    progress: Progress,
    values: Sequence[jax.Array] | None,
    obstacle: Obstacle | None = None,
) -> Planner:
    """What plans a program.

    **Arguments:** as for `Planner`, and

    - `values`: the arguments, if programs are to be timed on them.
    """
    deadline = Deadline.after(settings.planning_seconds)
    progress.say("reading rules")
    slowdown = math.inf if settings.max_slowdown is None else settings.max_slowdown
    rules = rules_for(settings.rules, settings.accuracy)
    kind = Planner if values is None else partial(Tuner, values)
    return kind(
        traced, names, budget, rules, machine, deadline, placement, given_up, progress, obstacle, slowdown
    )
