"""The simulated peak is what an independent replay of the schedule finds, loops and bodies included."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from eqsat.ir.program import Program
from eqsat.planning.blocks import Block, Schedule
from eqsat.planning.candidates import as_written
from eqsat.planning.capped_extraction import attempts
from eqsat.planning.liveness import predicted_peak, simulate
from eqsat.planning.order import in_lean_order
from eqsat.planning.search_space import free_bytes, prepare
from eqsat.rulesets.selection import rules_for
from eqsat.targets.cpu import CPU
from tests.planning.replay import replayed_peak
from tests.program_text import ProgramText
from tests.random_control import random_loops
from tests.random_programs import bottlenecks, random_programs

RULES = rules_for((), "reassociates")

NO_PANELS = replace(CPU, panel_columns=0, sorted_entry=0)
"""The replay knows of values only, not of what libraries take for products and sorts."""

SETTINGS = settings(
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def lowered(text: ProgramText) -> Program:
    return lower(trace(text.function(), tuple(text.arrays()), {}).closed)[0]


def check(schedule: Schedule) -> None:
    """The simulator agrees with the replay, and an order that needs less is one: the same steps, in order."""
    peak, _ = simulate(schedule, NO_PANELS)
    assert peak == predicted_peak(schedule, NO_PANELS) == replayed_peak(schedule)
    # What is known of its blocks says nothing of other chunks, nor of another machine.
    halves = {number: -(-length // 2) for number, length in schedule.chunks.items()}
    halved = replace(schedule, chunks=halves)
    assert predicted_peak(halved, NO_PANELS) == replayed_peak(halved)
    assert predicted_peak(schedule, CPU) == simulate(schedule, CPU)[0]
    lean = in_lean_order(schedule, NO_PANELS)
    leaner, _ = simulate(lean, NO_PANELS)
    assert leaner == replayed_peak(lean)
    assert leaner <= peak
    event("leaner" if leaner < peak else "as lean")
    check_same_steps(lean.block, schedule.block)


def check_same_steps(block: Block, before: Block) -> None:
    assert {t.number for s in block.steps for t in s.results} == {
        t.number for s in before.steps for t in s.results
    }
    assert len(block.steps) == len(before.steps)
    assert block.needs == before.needs


@settings(SETTINGS, max_examples=200)
@given(random_programs() | random_loops())
def test_a_program_as_written_is_simulated_as_it_is_replayed(text: ProgramText) -> None:
    check(as_written(lowered(text), CPU).schedule)


@settings(SETTINGS, max_examples=25)
@given(bottlenecks() | random_loops(), st.sampled_from([0.1, 0.3]))
def test_every_candidate_is_simulated_as_it_is_replayed(text: ProgramText, share: float) -> None:
    program = lowered(text)
    fixed = -free_bytes(program, 0)
    budget = int(fixed + share * max(as_written(program, CPU).predicted_peak - fixed, 0))
    groups = attempts(prepare(program, RULES, budget, CPU), budget)
    for group, _ in zip(groups, range(2), strict=False):
        for candidate in group:
            event("loops" if candidate.schedule.chunks else "no loops")
            check(candidate.schedule)
