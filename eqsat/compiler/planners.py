"""The planner of a program with its rules. This module is imported only when something is planned."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax

from eqsat.backend.donation import Donation
from eqsat.compiler.autotuning import Tuner
from eqsat.compiler.baseline import Obstacle
from eqsat.compiler.estimation import Estimator
from eqsat.compiler.planner import Planner
from eqsat.compiler.settings import Settings
from eqsat.engine.compiled import CompiledRule
from eqsat.frontend.trace import Traced
from eqsat.frontend.trace_context import NOWHERE, TraceContext
from eqsat.rulesets.selection import rules_for
from eqsat.support.deadline import Deadline
from eqsat.support.progress import Progress
from eqsat.targets.target import Target


def rules_of(settings: Settings, target: Target) -> Sequence[CompiledRule]:
    """The rules that programs for a target are planned by."""
    return rules_for(settings.rules, settings.accuracy, target.new_product_precision, target.compiler.rules)


def planner_for(
    traced: Traced,
    names: Sequence[str],
    budget: int,
    settings: Settings,
    target: Target,
    placement: Sequence[Any],
    donation: Donation,
    progress: Progress,
    values: Sequence[jax.Array] | None,
    obstacle: Obstacle | None = None,
    around: TraceContext = NOWHERE,
) -> Planner:
    """The planner of a program.

    **Arguments:** as for `Planner`, and

    - `values`: the arguments, if programs are to be timed on them.
    """
    deadline = Deadline.after(settings.planning_seconds)
    progress.say("reading rules")
    slowdown = math.inf if settings.max_slowdown is None else settings.max_slowdown
    rules = rules_of(settings, target)
    kind: Callable[..., Planner] = Estimator if target.compiler.estimates else Planner
    if values is not None:
        kind = partial(Tuner, values)
    return kind(
        traced,
        names,
        budget,
        rules,
        target,
        deadline,
        placement,
        donation,
        progress,
        obstacle,
        slowdown,
        around,
    )
