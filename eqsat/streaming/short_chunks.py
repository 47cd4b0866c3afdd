"""The time that goes by between chunks; budgets in which a call spends its time there are refused."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.errors import BudgetError
from eqsat.streaming.accounting import chunk_count, read_back_bytes, read_bytes, written_bytes
from eqsat.streaming.steps import Streaming
from eqsat.support.units import format_bytes, format_seconds
from eqsat.targets.machine import Machine

SHORT = 1.0
"""Seconds. A shorter call counts as one that takes so long."""


def starting_seconds(steps: Streaming, lengths: Mapping[int, int], machine: Machine) -> float:
    """Seconds that go by between chunks."""
    return machine.chunk * chunk_count(steps.steps, lengths)


def python_seconds(steps: Streaming, lengths: Mapping[int, int], machine: Machine) -> float:
    """Seconds to start chunks, and to write and read back what is kept outside the device's memory."""
    moved = written_bytes(steps) + read_back_bytes(steps, lengths)
    return starting_seconds(steps, lengths, machine) + moved / machine.streamed


def check_chunks(
    title: str,
    steps: Streaming,
    lengths: Mapping[int, int],
    seconds: float,
    machine: Machine,
    budget: int,
    max_slowdown: float | None,
) -> None:
    """Refuses a program that takes `max_slowdown` times as long because its chunks are short.

    **Arguments:**

    - `seconds`: what computing takes.
    - `budget`: bytes of the device's memory.

    **Raises:** `BudgetError` if it does.
    """
    working = seconds + read_bytes(steps.steps, lengths) / machine.streamed
    starting = starting_seconds(steps, lengths, machine)
    if max_slowdown is not None and working + starting > max_slowdown * max(working, SHORT):
        raise BudgetError(
            f"{title}: within {format_bytes(budget)}, chunks are so short that a call should take"
            f" {format_seconds(working + starting)}: {format_seconds(starting)} of these go by between"
            f" {chunk_count(steps.steps, lengths):,} chunks, which is too slow"
            f" (max_slowdown={max_slowdown:g}). Raise the budget, or allow slower programs with max_slowdown="
        )
