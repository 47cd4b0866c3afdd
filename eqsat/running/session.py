"""`Session`: the options of `eqsat run`, and a record of every function that the script compiles."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from eqsat.errors import EqsatError
from eqsat.reports.plan import Plan
from eqsat.reports.stream_plan import StreamPlan
from eqsat.support.records import Place
from eqsat.support.units import format_bytes

INSTALLED = "site-packages"
"""The name of the folder in which libraries are installed."""


MOST_PLANS = 8
"""At most this many plans of one function are reported."""


@dataclass
class Entry:
    """The record of one function that the script compiles.

    **Attributes:**

    - `name`: the name of the function.
    - `place`: the file and the line where it is defined, or for a library's function, the line that uses it.
    - `calls`: how often it was called from outside of any compiled function.
    - `plans`: the title and the plan of each of its programs, derivatives included.
    - `small`: the number of its programs that run as they are, since all their values fit the budget at once.
    - `left`: the reasons why it could not be planned, one per call.
    - `over`: the titles of the programs that ran although no plan within the budget was found.
    - `refused`: the titles of the programs that did not run, since no plan within the budget was found.
    """

    name: str
    place: str
    calls: int = 0
    plans: list[tuple[str, Plan | StreamPlan]] = field(default_factory=list)
    small: int = 0
    left: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def only_small(self) -> bool:
        """Whether all programs of the function are small."""
        return self.small > 0 and not (self.plans or self.left or self.refused)

    def lines(self) -> list[str]:
        """Returns the lines of the report about this function."""
        times = f"{self.calls} call{'s' if self.calls != 1 else ''}"
        lines = [f"{self.name}  ({self.place})  {times}"]
        for title, plan in self.plans[:MOST_PLANS]:
            about = "" if title == self.name else f"{title}: "
            lines.append(f"  {about}{_summary(plan, title in self.over)}")
        if len(self.plans) > MOST_PLANS:
            lines.append(f"  and {len(self.plans) - MOST_PLANS} more, for other shapes or derivatives")
        for title in dict.fromkeys(self.refused):
            about = "" if title == self.name else f"{title}: "
            lines.append(f"  {about}REFUSED: nothing within the budget was found")
        planned = {title for title, _ in self.plans}
        over = "  OVER THE BUDGET" if any(title not in planned for title in self.over) else ""
        lines += [f"  left as it is: {reason}{over}" for reason in dict.fromkeys(self.left)]
        return lines


def _summary(plan: Plan | StreamPlan, over: bool) -> str:
    if isinstance(plan, StreamPlan):
        read, count = format_bytes(plan.read_bytes), len(plan.passes)
        return f"reads {read} in {count} pass{'es' if count != 1 else ''}, {format_bytes(plan.peak_bytes)}"
    before, after = format_bytes(plan.original_peak_bytes), format_bytes(plan.peak_bytes)
    if not plan.changed:
        found = f"left as it is: needs {after}"
    else:
        loops = "; ".join(map(str, plan.loops)) or "no loops"
        found = f"{before} -> {after}, {loops}"
    return f"{found}  OVER THE BUDGET: nothing smaller was found" if over else found


@dataclass
class Session:
    """The options of `eqsat run`, and a record of every function that the script compiles.

    **Attributes:**

    - `budget`: the budget in bytes, or None for what the device has free.
    - `options`: the other options for `eqsat.optimize`.
    - `strict`: whether a function that does not fit stops the script.
    - `entries`: the records, in the order in which the script gave the functions to `jax.jit`.
    """

    budget: int | None
    options: dict[str, Any]
    strict: bool = False
    entries: list[Entry] = field(default_factory=list)

    def entry(self, fun: Callable[..., Any]) -> Entry:
        """Adds and returns the record of a function that the script gives to `jax.jit`."""
        code = getattr(_innermost(fun), "__code__", None)
        where = (code.co_filename, code.co_firstlineno) if code else ("", 0)
        if not code or INSTALLED in where[0]:
            # A library wraps the function, so the place is the innermost line outside of libraries.
            where = next(
                ((f.filename, f.lineno or 0) for f in _stack() if INSTALLED not in f.filename), where
            )
        found = Entry(str(getattr(fun, "__name__", type(fun).__name__)), Place(where[0], where[1], "").short)
        self.entries.append(found)
        return found

    def plans(self) -> list[Plan | StreamPlan]:
        """Returns all plans that were made."""
        return [plan for entry in self.entries for _, plan in entry.plans]

    def report(self) -> str:
        """Returns a text that says, function by function, what was done."""
        called = [entry for entry in self.entries if entry.calls or entry.plans or entry.refused]
        budget = "what the device has free" if self.budget is None else format_bytes(self.budget)
        lines = [f"eqsat: budget {budget}"]
        small = [entry for entry in called if entry.only_small]
        for entry in called:
            if entry.plans or entry.left or entry.refused:
                lines += [f"  {line}" for line in entry.lines()]
        if small:
            names = ", ".join(dict.fromkeys(entry.name for entry in small))
            lines.append(f"  small, and left as they are: {names}")
        if not called:
            lines.append("  no function was compiled by jax.jit")
        return "\n".join(lines)


@dataclass(frozen=True)
class Watch:
    """The observer of one function, which records the plans and the refusals of its programs."""

    session: Session
    entry: Entry

    def planned(self, title: str, plan: Plan | StreamPlan) -> None:
        self.entry.plans.append((title, plan))

    def refused(self, title: str, error: EqsatError) -> bool:
        if self.session.strict:
            self.entry.refused.append(title)
            return False
        self.entry.over.append(title)
        print(
            f"eqsat: {error}\neqsat: the smallest program that was found runs instead; --strict stops here",
            file=sys.stderr,
        )
        return True


def _stack() -> list[traceback.FrameSummary]:
    """Returns the frames of the call stack, innermost first, without those of eqsat."""
    frames = traceback.walk_stack(sys._getframe(2))
    others = ((f, n) for f, n in frames if str(f.f_globals.get("__name__")).split(".")[0] != "eqsat")
    return list(traceback.StackSummary.extract(others, lookup_lines=False))


def _innermost(fun: Any) -> Any:
    """Returns the function inside wrappers, partial applications and bound methods."""
    while True:
        inner = getattr(fun, "__wrapped__", None) or getattr(fun, "func", None)
        if inner is None:
            return getattr(fun, "__func__", fun)
        fun = inner
