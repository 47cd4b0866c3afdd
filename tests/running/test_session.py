"""The report at the end says of each function what became of it."""

from __future__ import annotations

from eqsat.errors import EqsatError
from eqsat.reports.plan import Plan
from eqsat.reports.records import LoopReport
from eqsat.running.session import MOST_PLANS, Session, Watch

LOOPS = (LoopReport("x.0", 1000, 100, 10, ("sum",)),)


def function(x: float) -> float:
    return x


def plan(changed: bool) -> Plan:
    peak = 2_000_000 if changed else 9_000_000
    return Plan(4_000_000, peak, 9_000_000, changed, "", "", loops=LOOPS if changed else ())


def test_what_was_done_is_told() -> None:
    session = Session(4_000_000, {})
    rewritten, over, small, left, unused = (session.entry(function) for _ in range(5))
    for entry in (rewritten, over, small, left):
        entry.calls = 1
    rewritten.calls = 2
    Watch(session, rewritten).planned("function", plan(True))
    Watch(session, rewritten).planned("the gradient of function", plan(True))
    assert Watch(session, over).refused("function", EqsatError("nothing fits"))
    Watch(session, over).planned("function", plan(False))
    small.small, small.name = 1, "tiny"
    left.left = ["jax.jit was given in_shardings"] * 3
    unused.name = "unused"
    assert rewritten.place.endswith(f"test_session.py:{function.__code__.co_firstlineno}")
    report = session.report().replace(rewritten.place, "HERE")
    assert report.split("\n") == [
        "eqsat: budget 4 MB",
        "  function  (HERE)  2 calls",
        f"    9 MB -> 2 MB, {LOOPS[0]}",
        f"    the gradient of function: 9 MB -> 2 MB, {LOOPS[0]}",
        "  function  (HERE)  1 call",
        "    left as it is: needs 9 MB  OVER THE BUDGET: nothing smaller was found",
        "  function  (HERE)  1 call",
        "    left as it is: jax.jit was given in_shardings",
        "  small, and left as they are: tiny",
    ]


def test_many_plans_are_counted() -> None:
    session = Session(None, {})
    entry = session.entry(function)
    entry.calls = 1
    for _ in range(MOST_PLANS + 3):
        Watch(session, entry).planned("function", plan(True))
    lines = session.report().split("\n")
    assert lines[0] == "eqsat: budget what the device has free"
    assert lines[-1] == "    and 3 more, for other shapes or derivatives"
    assert len(lines) == MOST_PLANS + 3


def test_those_who_are_strict_refuse() -> None:
    session = Session(1, {}, strict=True)
    entry = session.entry(function)
    entry.calls = 1
    assert not Watch(session, entry).refused("function", EqsatError("nothing fits"))
    assert entry.over == []
    assert session.report().endswith("\n    REFUSED: nothing within the budget was found")


def test_what_raised_before_it_was_compiled_is_not_called_small() -> None:
    session = Session(1, {})
    session.entry(function).calls = 1
    assert "small" not in session.report()


def test_nothing_compiled_is_told() -> None:
    assert Session(1, {}).report().endswith("\n  no function was compiled by jax.jit")
