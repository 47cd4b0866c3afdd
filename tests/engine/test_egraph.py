"""An e-graph belongs to the thread that made it."""

from __future__ import annotations

import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from eqsat.engine import egraph
from eqsat.engine.egraph import EGraph


@pytest.fixture
def unraised(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What goes wrong where nothing can be raised, as while an object is freed."""
    found: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda event: found.append(event.exc_value))
    return found


def in_a_cycle() -> None:
    cycle: list[Any] = [EGraph()]
    cycle.append(cycle)


def kept() -> int:
    """How many e-graphs the thread has."""
    return len(egraph._owned.graphs)


def test_what_another_thread_collects_is_freed_by_the_one_that_made_it(unraised: list[Any]) -> None:
    with ThreadPoolExecutor(1) as thread:
        thread.submit(in_a_cycle).result()
        assert thread.submit(kept).result() == 1
        gc.collect()
        thread.submit(EGraph).result()
        assert thread.submit(kept).result() <= 1
    assert unraised == []


def test_what_is_dropped_where_it_was_made_is_freed_at_once() -> None:
    before = kept()
    graph = EGraph()
    assert kept() == before + 1
    del graph
    assert kept() == before


def test_a_dump_is_read_where_it_was_made_and_may_be_dropped_anywhere(unraised: list[Any]) -> None:
    with ThreadPoolExecutor(1) as thread:
        found = [thread.submit(lambda: EGraph().dump()).result()]
        found.clear()
        gc.collect()
    assert unraised == []
